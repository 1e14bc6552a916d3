"""`torchsleuth check`: targets, shapes, guesses, exit status and the JSON report."""

import json
import textwrap

import pytest
import torch

from torchsleuth.cli import main

OPS = """
import torch
from torch.autograd import Function


class Good(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return torch.sum(x * w.unsqueeze(-1), dim=1)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g.unsqueeze(1) * w.unsqueeze(-1), torch.sum(g.unsqueeze(1) * x, dim=-1)


class Bad(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, g):
        return g * 6


class Table(Function):
    @staticmethod
    def forward(ctx, table, ids, scale):
        ctx.save_for_backward(ids)
        ctx.rows, ctx.scale = len(table), scale
        return table[ids] * scale

    @staticmethod
    def backward(ctx, g):
        (ids,) = ctx.saved_tensors
        return g.new_zeros(ctx.rows, g.shape[-1]).index_add(0, ids.reshape(-1), g.reshape(-1, g.shape[-1])) * ctx.scale, None, None
"""


@pytest.fixture
def ops(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ops.py").write_text(OPS)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "custom_ops.py").write_text(OPS)
    return tmp_path


def test_a_whole_file(ops, capsys):
    assert main(["check", "ops.py", "--json", "report.json"]) == 1
    shown = capsys.readouterr()
    assert "3 Functions checked: 1 wrong" in shown.out and "2 times too large" in shown.out
    data = json.loads((ops / "report.json").read_text())
    assert data["schema"] == 1 and data["command"] == "check" and data["outcome"] == "findings" and data["exception"] is None
    (diagnosis,) = data["diagnoses"]
    assert diagnosis["rule"] == "backward-scaled-gradient" and diagnosis["confidence"] == "certain"
    (culprit,) = diagnosis["culprits"]
    assert culprit["role"] == "return-grad" and culprit["file"] == "ops.py" and culprit["source"] == "g * 6"
    assert culprit["line"] == 1 + OPS.split("\n").index("        return g * 6") and culprit["column"] == 16
    (fix,) = diagnosis["fixes"]
    assert fix["verdict"]["status"] == "passed" and "+        return g * 3" in fix["diff"]


def test_one_function_with_shapes(ops, capsys):
    assert main(["check", "package.custom_ops:Good", "--shapes", "1,32,100", "1,32"]) == 0
    assert "x [1, 32, 100], w [1, 32]" in " ".join(capsys.readouterr().out.split())
    assert main(["check", "ops.py:Table", "--shapes", "6,3", "2,4:int64<6", "=0.5"]) == 0
    assert main(["check", "ops.py:Bad", "--shapes", "2x3", "--dtype", "float32"]) == 1


def test_examples_in_the_file_are_used(ops, capsys):
    (ops / "with_example.py").write_text(OPS + "op = Good.apply\nx = torch.randn(2, 3, 5, requires_grad=True)\nop(x, torch.randn(2, 3, requires_grad=True)).sum().backward()\n")
    assert main(["check", "with_example.py:Good"]) == 0
    assert "itself applies it to" in " ".join(capsys.readouterr().out.split())


def test_a_file_that_fails_because_of_its_function(ops, capsys):
    (ops / "failing.py").write_text(
        textwrap.dedent("""
        import torch
        class Sum(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.sum(1)
            @staticmethod
            def backward(ctx, g):
                return g
        Sum.apply(torch.randn(3, 4, requires_grad=True)).sum().backward()
        """)
    )
    assert main(["check", "failing.py"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "has shape [3]; `x` has shape [3, 4]" in shown and "failing.py stopped with RuntimeError" in shown


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["nowhere.py"], "no file nowhere.py"),
        (["nowhere.ops"], "no module nowhere.ops"),
        (["ops.py:Missing"], "has no Missing"),
        (["ops.py:torch"], "is not a torch.autograd.Function"),
        (["ops.py", "--shapes", "3,4"], "one of Good, Bad, Table"),
        (["ops.py:Bad", "--shapes", "three"], "--shapes three"),
        (["ops.py:Bad", "--shapes", "3:int77"], "no type int77"),
        (["ops.py:Bad", "--shapes", "=x y"], "must be a Python number"),
        (["ops.py:Bad", "--shapes", "3,4", "--dtype", "int32"], "--dtype int32"),
        (["ops.py:Good", "--shapes", "3,4"], "missing a required argument"),
        (["empty.py"], "defines no torch.autograd.Function"),
        (["broken.py"], "broken.py:1"),
    ],
)
def test_usage_errors(ops, capsys, arguments, words):
    (ops / "empty.py").write_text("x = 1\n")
    (ops / "broken.py").write_text("def (:\n")
    assert main(["check", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_accept_surrogate(ops, capsys):
    (ops / "ste.py").write_text(
        "from torch.autograd import Function\nclass Round(Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        return x.round()\n"
        "    @staticmethod\n    def backward(ctx, g):\n        return g\n"
    )
    assert main(["check", "ste.py", "--json", "report.json"]) == 0
    assert capsys.readouterr().out.endswith("1 Function checked: 1 with a surrogate gradient, apparently on purpose\n")
    report = json.loads((ops / "report.json").read_text())
    assert report["outcome"] == "ok" and report["diagnoses"] == []
    assert main(["check", "ste.py", "--strict"]) == 1
    assert main(["check", "ste.py", "--strict", "--accept-surrogate"]) == 0


def test_random_state_is_left_alone(ops):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    main(["check", "ops.py"])
    assert torch.equal(before, torch.get_rng_state())


def test_whole_numbers_are_guessed_so_that_they_show(tmp_path, capsys) -> None:
    """A power of 1 would hide the forgotten factor, and a forward that takes float32 only is checked in it."""
    file = tmp_path / "powers.py"
    file.write_text(
        textwrap.dedent("""
        import torch
        from torch.autograd import Function


        class Power(Function):
            @staticmethod
            def forward(ctx, x, n):
                ctx.save_for_backward(x)
                ctx.n = n
                return x ** n

            @staticmethod
            def backward(ctx, g):
                (x,) = ctx.saved_tensors
                return g * x ** (ctx.n - 1), None


        class Single(Function):
            @staticmethod
            def forward(ctx, x):
                assert x.dtype == torch.float32
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, g):
                (x,) = ctx.saved_tensors
                return 2 * g * x
        """),
        encoding="utf-8",
    )
    assert main(["check", str(file)]) == 1
    shown = capsys.readouterr()
    text = shown.out + shown.err
    assert "3 times too small" in text and "2 Functions checked: 1 wrong" in text, text


def test_what_a_file_sets_for_its_own_main_part_is_not_what_its_functions_are_checked_with(tmp_path, capsys) -> None:
    """No machine of CI has a GPU: tensors made there by default would raise."""
    file = tmp_path / "settings.py"
    file.write_text('import torch\ntorch.set_default_device("cuda")\ntorch.set_grad_enabled(False)\n' + OPS.partition("class Bad")[0].replace("import torch\n", "", 1))
    assert main(["check", str(file)]) == 0, capsys.readouterr().out
    assert torch.zeros(1).device.type == "cpu" and torch.is_grad_enabled()

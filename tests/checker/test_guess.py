"""Functions that come without inputs: what the source says of them is enough to judge them, and where it is not nothing is said."""

import inspect
import re
import textwrap

import called_styles
import guessed_styles
import pytest
import setting_styles as settings
import torch

from torchsleuth.checker import check_trial
from torchsleuth.checker.guess import guessed_inputs
from torchsleuth.checker.report import report_of
from torchsleuth.cli import main
from torchsleuth.errors import UsageError

SOURCES = {module.__name__: inspect.getsource(module).split("\n") for module in (guessed_styles, called_styles)}


def expected_words(function) -> str:
    """The comment above a class; empty for what is a part of another one."""
    above = SOURCES[function.__module__][inspect.getsourcelines(function)[1] - 2]
    return above.removeprefix("# is: ") if above.startswith("# is: ") else ""


FUNCTIONS = [
    v for module in (guessed_styles, called_styles) for v in vars(module).values()
    if isinstance(v, type) and issubclass(v, torch.autograd.Function) and v.__module__ == module.__name__ and expected_words(v)
]  # fmt: skip


def expected(function) -> tuple[str, set[int]]:
    lines, first = inspect.getsourcelines(function)
    return expected_words(function), {first + n for n, line in enumerate(lines) if re.search("# culprit", line)}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_judged_without_inputs(function):
    words, lines = expected(function)
    if words.startswith("not checked: "):
        with pytest.raises(UsageError, match=words.removeprefix("not checked: ")):
            guessed_inputs(function)
        return
    trial = check_trial(function, *guessed_inputs(function).inputs, made=True)
    report = report_of((trial,))
    if words in ("right", "surrogate"):
        assert report.ok and not report.diagnoses and bool(report.trials[0].accepted) == (words == "surrogate"), str(report)
        return
    (diagnosis,) = report.diagnoses
    said = " ".join((diagnosis.title, diagnosis.explanation, *(f.title for f in diagnosis.fixes)))
    assert words in said, str(report)
    assert {c.span.line for c in diagnosis.culprits} == lines, str(report)


@pytest.mark.parametrize("name", settings.INPUTS)
def test_a_learned_limit_or_slope_is_guessed_positive(name):
    function = getattr(settings, name)
    report = report_of((check_trial(function, *guessed_inputs(function).inputs, made=True),))
    assert report.ok and not report.diagnoses, str(report)


def test_gradients_that_are_exchanged_are_not_hidden_by_equal_sizes():
    function = called_styles.CodebookExchanged
    report = report_of((check_trial(function, *guessed_inputs(function).inputs, made=True),))
    assert {d.rule for d in report.diagnoses} == {"backward-wrong-shape", "backward-swapped-gradients"}, str(report)
    assert any("g, gc" in edit.replacement for d in report.diagnoses for fix in d.fixes for edit in fix.edits), str(report)


SLOPE = """
    import torch

    class Slope(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x)
            ctx.k = k
            return x * k

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.data * ctx.k, None  # cut
"""
PENALTY = """
    def penalty(x):
        (g,) = torch.autograd.grad(Slope.apply(x, 2.0).sin().sum(), x, create_graph=True)
        return g.pow(2).sum()
"""


@pytest.mark.parametrize("used", [False, True])
def test_a_lost_second_derivative_counts_where_one_is_taken(used, tmp_path, capsys):
    file = tmp_path / "ops.py"
    file.write_text(textwrap.dedent(SLOPE) + textwrap.dedent(PENALTY) * used)
    assert main(["check", str(file)]) == used
    shown = " ".join(capsys.readouterr().out.split())
    assert "the second derivative with respect to `grad_output` is missing" in shown
    assert ("`grad_output.data` is a constant to autograd" in shown) == used == ("its file takes no second derivative" not in shown)


def test_files_of_a_package_and_folders(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "kernels_of_mine" / "inner"
    folder.mkdir(parents=True)
    (tmp_path / "kernels_of_mine" / "__init__.py").write_text("")
    (folder / "__init__.py").write_text("from .ops import Double\n")
    (folder / "factor.py").write_text("FACTOR = 2\n")
    (folder / "ops.py").write_text(
        textwrap.dedent("""
        from torch.autograd import Function
        from .factor import FACTOR

        class Double(Function):
            @staticmethod
            def forward(ctx, x):
                return x * FACTOR

            @staticmethod
            def backward(ctx, g):
                return g * 3
        """)
    )
    for target in ("kernels_of_mine/inner/ops.py", "kernels_of_mine/inner/__init__.py", "kernels_of_mine"):
        assert main(["check", target]) == 1
        shown = capsys.readouterr().out
        assert "kernels_of_mine/inner/ops.py:12" in shown and "1 Function checked: 1 wrong" in shown, shown


class Recomputed(torch.autograd.Function):
    """Asks autograd for gradients of its own inputs, which only those that `apply` was given can have."""

    @staticmethod
    def forward(ctx, run, *tensors):
        ctx.run, ctx.tensors = run, tensors
        with torch.no_grad():
            return run(*tensors)

    @staticmethod
    def backward(ctx, grad):
        tensors = [t.detach().requires_grad_(t.requires_grad) for t in ctx.tensors]
        with torch.enable_grad():
            out = ctx.run(*tensors)
        return (None, *torch.autograd.grad(out, tensors, grad))


def test_a_backward_that_runs_in_the_engine_alone_is_not_judged():
    with pytest.raises(UsageError, match="runs in autograd and not outside it"):
        check_trial(Recomputed, torch.mul, torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True))

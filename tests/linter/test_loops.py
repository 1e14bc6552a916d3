"""Slow loops in many spellings are rewritten and proven; loops that are not slow loops are left alone."""

from __future__ import annotations

import ast

import pytest
import torch

from tests.linter.loop_forms import ROWS, STYLES, forms, left_alone
from torchsleuth.linter.edits import edited_bytes
from torchsleuth.linter.engine import linted
from torchsleuth.linter.fixing import fixed
from torchsleuth.linter.source import source_from
from torchsleuth.model import Applicability, Status

FORMS = forms()
ROW_FORMS = len(ROWS) * len(STYLES)
CHUNKS = 8


def only_loops(diagnosis) -> bool:
    return diagnosis.rule == "loop-over-tensor"


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_forms_are_rewritten_and_proven(chunk: int) -> None:
    wanting = []
    for name, text in FORMS[chunk::CHUNKS]:
        result = fixed(text.encode(), f"{name}.py", only_loops, unsafe=False)
        if len(result.applied) != 1:
            wanting.append((name, [d.fixes[0].verdict.text for d in result.left]))
            continue
        diagnosis, fix = result.applied[0]
        assert fix.verdict.status is Status.PASSED and fix.applicability is Applicability.SAFE, name
        assert diagnosis.culprits[0].role == "loop"
        ast.parse(result.data)
        again = fixed(result.data, f"{name}.py", only_loops, unsafe=False)
        assert again.data == result.data and not again.applied, f"{name}: fixing twice changes something"
    share = 1 - len(wanting) / len(FORMS[chunk::CHUNKS])
    assert share >= 0.9, wanting


@pytest.mark.parametrize("style", STYLES)
def test_rewritten_rows_give_the_same_values_and_gradients(style: str) -> None:
    """Not by our own prover: both files are run as they are, on 2 and 3 dimensions."""
    for row, _, _ in ROWS:
        name = f"{row}_{style}"
        text = dict(FORMS)[name]
        (diagnosis,) = filter(only_loops, linted(source_from(text.encode(), f"{name}.py")).diagnoses)
        old, new = {}, {}
        exec(text, old)
        exec(edited_bytes(text.encode(), f"{name}.py", diagnosis.fixes[0].edits), new)
        for shape in ((5, 4), (3, 4, 2)):
            x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
            a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
            before, after = old[name](a), new[name](b)
            torch.testing.assert_close(before, after, msg=name)
            torch.testing.assert_close(*(torch.autograd.grad((o * o).sum(), i)[0] for o, i in ((before, a), (after, b))), msg=name)
            for other in (x.double(), x.half(), (x * 9).int()):  # the dtype of what comes out is checked, too
                _assert_same(old[name], new[name], name, other)


def _assert_same(old, new, name: str, *given) -> None:
    try:
        before = old(*given)
    except RuntimeError:
        return  # the mean of whole numbers and the like
    torch.testing.assert_close(before, new(*given), msg=lambda text: f"{name}: {text}")


# What the loop does on inputs that the source does not rule out, though a proof may not think of them.
AS_WRITTEN = {
    "a float total of whole numbers": ("""
        def f(x):
            total = 0.0
            for i in range(x.shape[0]):
                total += x[i].item()
            return torch.tensor(total)
     """, lambda: (torch.arange(4),)),
    "positions in a list": ("""
        def f(labels, n):
            hot = torch.zeros(len(labels), n)
            for i, label in enumerate(labels):
                hot[i, label] = 1.0
            return hot
     """, lambda: ([1, 0, 2], 3)),
    "numbers in double precision": ("""
        def f(n):
            nodes = torch.zeros((n,), dtype=torch.float64)
            for i in range(n):
                nodes[i] = math.cos(math.pi * i / n)
            return nodes * 1e9
     """, lambda: (8,)),
    "places picked under a condition": ("""
        def f(n: int):
            e = torch.zeros(n, n)
            for a in range(n):
                if a % 2 == 0:
                    e[a, a] = 1.0
            return e
     """, lambda: (5,)),
    "matrix by matrix": ("""
        def f(a, b):
            out = torch.zeros(a.size(0), a.size(1), b.size(2))
            for i in range(a.size(0)):
                out[i] = a[i] @ b[i]
            return out
     """, lambda: (torch.randn(3, 2, 4), torch.randn(3, 4, 5))),
    "a part of the rows": ("""
        def f(x, n):
            out = torch.zeros(x.shape[0])
            for i in range(n):
                out[i] = x[i].sum()
            return out
     """, lambda: (torch.randn(5, 3), 3)),
    "a triangle": ("""
        def f(x):
            n = x.shape[0]
            out = torch.zeros(n, n)
            for i in range(n):
                for j in range(i):
                    out[i, j] = x[i] * x[j]
            return out
     """, lambda: (torch.randn(4),)),
    "another dtype": ("""
        def f(x, idx):
            out = torch.zeros(4)
            for i in range(x.shape[0]):
                out[idx[i]] += x[i]
            return out
     """, lambda: (torch.randn(6).double(), torch.tensor([0, 1, 1, 3, 0, 2]))),
    "a total that starts from an argument": ("""
        def f(start, x: torch.Tensor):
            total = start
            for i in range(x.shape[0]):
                total = total + x[i]
            return total, start
     """, lambda: (torch.ones(3), torch.randn(5, 3))),
    "negative powers": ("""
        def f(n: int):
            out = torch.zeros(n)
            for i in range(n):
                out[i] = (-2) ** (i - 3)
            return out
     """, lambda: (6,)),
    "annotated assignments": ("""
        def f(x: torch.Tensor) -> torch.Tensor:
            rows: list[torch.Tensor] = []
            i: int = 0
            while i < x.shape[0]:
                row: torch.Tensor = x[i]
                rows.append(row * 2)
                i += 1
            return torch.stack(rows)
     """, lambda: (torch.randn(5, 3),)),
    "two lists": ("""
        def f(x: torch.Tensor):
            a, b = [], []
            for i in range(x.shape[0]):
                a.append(x[i].mean())
                b.append(x[i].var())
            return torch.stack(a), torch.stack(b)
     """, lambda: (torch.randn(5, 3),)),
    "a weight for every row": ("""
        def f(x, w):
            n, d = x.shape
            out = torch.zeros(n)
            for k in range(n):
                out[k] = (x[k] * w[k]).sum()
            return out
     """, lambda: (torch.randn(5, 3), torch.randn(5, 3))),
    "the identity, scaled": ("""
        def f(c: torch.Tensor, d: int):
            assert c.dim() == 1
            out = torch.zeros(c.shape[0], d, d)
            for i in range(c.shape[0]):
                out[i] = torch.eye(d) * c[i]
            return out
     """, lambda: (torch.randn(4), 3)),
    "a mask of fewer dimensions": ("""
        def f(embedded: torch.Tensor, attention_mask):
            batch_size, seq_len, _ = embedded.shape
            outputs = []
            for i in range(seq_len):
                outputs.append(embedded[:, i, :] * attention_mask[:, i].unsqueeze(-1))
            return torch.stack(outputs, dim=1)
     """, lambda: (torch.randn(2, 4, 3), torch.ones(2, 4))),
    "rows of an expanded vector": ("""
        def f(shape, n: int):
            vec = shape.view(-1)
            vec = vec.expand(n, *vec.shape)
            out = torch.zeros(n, device=vec.device)
            for i in range(n):
                out[i] = vec[i].norm(p=2)
            return out
     """, lambda: (torch.randn(3, 2), 4)),
    "medians": ("""
        def f(x: torch.Tensor):
            return torch.stack([torch.median(r) for r in x])
     """, lambda: (torch.randn(4, 5),)),
    "losses of single numbers": ("""
        def f(p: torch.Tensor, t: torch.Tensor):
            loss = 0
            for i in range(p.size(0)):
                loss += torch.nn.functional.mse_loss(p[i], t[i])
            return loss / p.size(0)
     """, lambda: (torch.randn(6), torch.randn(6))),
    "what follows the list takes all of it": ("""
        def f(cm: torch.Tensor):
            rates = []
            for i in range(cm.shape[0]):
                right = cm[i, i]
                wrong = cm[:, i].sum() - cm[i, i]
                rates.append(right / (right + wrong + 1e-7))
            return torch.stack(rates).mean()
     """, lambda: (torch.rand(4, 4) * 9,)),
    "on the device it was made on": ("""
        def f(n: int):
            out = torch.zeros(n, device="meta")
            for i in range(n):
                out[i] = 0.1 * (i + 1)
            return torch.ones(1) if out.device.type == "meta" else out
     """, lambda: (5,)),
    "one element beside the largest of its row": ("""
        def f(scores, target):
            loss = 0.0
            for i in range(scores.size(0)):
                loss = loss + torch.clamp(1 - scores[i, target[i]] + scores[i].max(), min=0)
            return loss
     """, lambda: (torch.randn(4, 3), torch.tensor([2, 0, 1, 1]))),
    "one row beside the largest of its matrix": ("""
        def f(scores, target):
            loss = 0.0
            for i in range(scores.size(0)):
                loss = loss + torch.clamp(1 - scores[i, target[i]] + scores[i].max(), min=0)
            return loss
     """, lambda: (torch.randn(4, 3, 2), torch.tensor([2, 0, 1, 1]))),
    "rows mixed by a weight for each": ("""
        def f(x: torch.Tensor, lam: torch.Tensor, perm: torch.Tensor):
            out = torch.zeros_like(x)
            for i in range(x.size(0)):
                out[i] = lam[i] * x[i] + (1 - lam[i]) * x[perm[i]]
            return out
     """, lambda: (torch.randn(4, 3, 2), torch.rand(4), torch.tensor([2, 0, 3, 1]))),
    "the first element beside reductions of its row": ("""
        def f(x):
            out = []
            for i in range(x.size(0)):
                out.append((x[i] - x[i].mean()).sum() - x[i].amax() + x[i, 0])
            return torch.stack(out)
     """, lambda: (torch.randn(4, 3),)),
    "the first row beside reductions of its matrix": ("""
        def f(x):
            out = []
            for i in range(x.size(0)):
                out.append((x[i] - x[i].mean()).sum() - x[i].amax() + x[i, 0])
            return torch.stack(out)
     """, lambda: (torch.randn(3, 3, 3),)),
}  # fmt: skip


@pytest.mark.parametrize("case", AS_WRITTEN)
def test_rewrites_do_what_is_written(case: str) -> None:
    import textwrap

    text, given = AS_WRITTEN[case]
    text = "import math\n\nimport torch\n\n\n" + textwrap.dedent(text).strip() + "\n"
    (diagnosis,) = filter(only_loops, linted(source_from(text.encode(), "a.py")).diagnoses)
    old, new = {}, {}
    exec(text, old)
    exec(edited_bytes(text.encode(), "a.py", diagnosis.fixes[0].edits), new)
    arguments = given()
    _assert_same(old["f"], new["f"], case, *arguments)


@pytest.mark.parametrize(("name", "text"), left_alone(), ids=[n for n, _ in left_alone()])
def test_left_alone(name: str, text: str) -> None:
    outcome = linted(source_from(text.encode(), f"{name}.py"))
    assert not [d for d in outcome.diagnoses if d.rule == "loop-over-tensor"]


@pytest.mark.parametrize("name", ["recurrence", "smoothing", "cell", "neighbour_written"])
def test_recurrences_are_said_to_be_left_alone(name: str) -> None:
    outcome = linted(source_from(dict(left_alone())[name].encode(), f"{name}.py"))
    assert outcome.remarks, name


def test_a_wrong_rewrite_is_refuted_and_never_applied(monkeypatch) -> None:
    """Break the rewriter on purpose: the proof must notice every time."""
    from torchsleuth.linter.vectorise import reductions

    real = reductions.dims_argument
    monkeypatch.setattr(reductions, "dims_argument", lambda dims: real([d - 1 if d > 0 else d for d in dims]))
    text = dict(FORMS)["time_mean"]
    result = fixed(text.encode(), "wrong.py", only_loops, unsafe=True)
    assert not result.applied
    assert result.left[0].fixes[0].verdict.status is Status.NEW_FAILURE
    assert result.left[0].fixes[0].applicability is Applicability.DISPLAY_ONLY


def test_what_cannot_be_run_is_not_applied_but_offered() -> None:
    text = (
        "import torch\n\n\ndef f(x, config):\n    B, T = x.shape\n    out = torch.zeros(B)\n"
        "    for i in range(B):\n        out[i] = x[i].sum() * config.scale.inner\n    return out\n"
    )
    safe = fixed(text.encode(), "a.py", only_loops, unsafe=False)
    assert not safe.applied
    if safe.left:
        assert safe.left[0].fixes[0].verdict.status is Status.NOT_RUN
        assert "not proven" in safe.left[0].fixes[0].verdict.text


def test_a_list_made_a_tensor_is_said_to_be_on_the_cpu() -> None:
    text = b"import torch\n\n\ndef f(x):\n    return torch.tensor([torch.norm(row) for row in x])\n"
    (diagnosis,) = filter(only_loops, linted(source_from(text, "a.py")).diagnoses)
    assert any("the tensors are on the CPU" in fact.text for fact in diagnosis.facts)
    stacked = text.replace(b"torch.tensor(", b"torch.stack(")
    (diagnosis,) = filter(only_loops, linted(source_from(stacked, "a.py")).diagnoses)
    assert not any("the CPU" in fact.text for fact in diagnosis.facts)


def test_comments_line_endings_and_neighbours_survive() -> None:
    text = (
        "# coding: latin-1\r\nimport torch\r\n\r\n\r\ndef f(x):  # caf\xe9\r\n    n = x.shape[0]\r\n    out = torch.zeros(n)  # the sums\r\n"
        "    for i in range(n):\r\n        # one row at a time\r\n        out[i] = x[i].sum()\r\n    return out   # done\r\n\r\n\r\nA   =  1\r\n"
    ).encode("latin-1")
    result = fixed(text, "a.py", only_loops, unsafe=False)
    after = result.data.decode("latin-1")
    assert result.applied
    assert "\n" not in after.replace("\r\n", "")
    for kept in ("# caf\xe9", "# the sums", "# one row at a time", "return out   # done", "A   =  1"):
        assert kept in after


@pytest.mark.parametrize(("imports", "name"), [("import torch as th", "th"), ("import torch", "torch"), ("from torch import zeros\nimport torch.nn", "torch")])
def test_torch_is_called_what_the_file_calls_it(imports: str, name: str) -> None:
    zeros = f"{name}.zeros" if "zeros" not in imports else "zeros"
    text = f"{imports}\n\n\ndef f(n: int):\n    out = {zeros}(n)\n    for i in range(n):\n        out[i] = i * 2\n    return out\n"
    result = fixed(text.encode(), "a.py", only_loops, unsafe=False)
    assert result.applied and f"{name}.arange" in result.data.decode()


def test_nothing_is_proposed_where_torch_has_no_name() -> None:
    text = "from torch import zeros\n\n\ndef f(n: int):\n    out = zeros(n)\n    for i in range(n):\n        out[i] = i * 2\n    return out\n"
    assert not linted(source_from(text.encode(), "a.py")).diagnoses


@pytest.mark.parametrize("row", ["torch.topk(r, k).values", "torch.sort(r)[0] * k"])
def test_whole_numbers_and_rows_are_made_up_as_such(row: str) -> None:
    text = f"import torch\n\n\ndef f(x: torch.Tensor, k: int):\n    return torch.stack([{row} for r in x])\n"
    assert fixed(text.encode(), "a.py", only_loops, unsafe=False).applied


def test_a_zip_that_may_end_early_is_proven_only_where_it_cannot() -> None:
    text = "import torch\n\n\ndef f(x: torch.Tensor, y: torch.Tensor):\n    s = 0\n    for a, b in zip(x, y{}):\n        s = s + (a - b).abs().sum()\n    return s\n"
    early = fixed(text.format("").encode(), "a.py", only_loops, unsafe=False)
    assert not early.applied and "equally long" in early.left[0].fixes[0].verdict.text
    assert fixed(text.format(", strict=True").encode(), "a.py", only_loops, unsafe=False).applied

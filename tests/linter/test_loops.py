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

"""What a proof tries beyond ordinary inputs: fewer dimensions, NaN, whole numbers; what differs there is refused or said."""

from __future__ import annotations

import textwrap

import pytest
import torch

from torchsleuth.linter.fixing import fixed
from torchsleuth.model import Status

NORMALISED = """
    import torch

    def f(x: torch.Tensor):
        y = torch.empty_like(x)
        for i in range(x.shape[0]):
            s = x[i].sum()
            y[i] = x[i] / (s + 1e-8)
        return y
"""
NORMALISED_COLUMNS = """
    import torch
    import torch.nn.functional as F

    def f(x: torch.Tensor):
        out = []
        for t in range(x.shape[1]):
            out.append(F.normalize(x[:, t], dim=-1))
        return torch.stack(out, dim=1)
"""
LARGEST = """
    import torch

    def f(x: torch.Tensor):
        best = x[0]
        for i in range(1, x.shape[0]):
            best = max(best, x[i])
        return best
"""
ROW_LARGEST = """
    import torch

    def f(x):
        m = torch.empty(x.size(0))
        for i, row in enumerate(x):
            m[i] = row.max()
        return m
"""
WEIGHED = """
    import torch

    def f(x: torch.Tensor, s: torch.Tensor):
        for i in range(x.size(0)):
            x[i] *= s[i]
        return x
"""
TOTAL = """
    import torch

    def f(x: torch.Tensor):
        total = 0.0
        for i in range(x.shape[0]):
            total += x[i].sum()
        return total
"""


def rewritten(text: str):
    return fixed(textwrap.dedent(text).encode(), "a.py", lambda d: d.rule == "loop-over-tensor", unsafe=False)


def function(text: str | bytes):
    space: dict = {}
    exec(textwrap.dedent(text) if isinstance(text, str) else text, space)
    return space["f"]


def test_a_row_that_is_a_number_never_gets_another_value() -> None:
    result = rewritten(NORMALISED)
    x = torch.tensor([1.0, 2.0, 3.0])
    if result.applied:
        with pytest.raises(IndexError):
            function(result.data)(x)
        torch.testing.assert_close(function(result.data)(x.view(3, 1)), function(NORMALISED)(x.view(3, 1)))
    assert any("has 2 or more dimensions" in f.text for d, _ in result.applied for f in d.facts)


def test_nan_that_a_comparison_skips_is_not_taken_for_the_largest() -> None:
    result = rewritten(LARGEST)
    assert not result.applied and "only if no value is NaN" in result.left[0].fixes[0].verdict.text


def test_a_rank_for_which_it_differs_is_said() -> None:
    result = rewritten(NORMALISED_COLUMNS)
    said = result.left[0].fixes[0].verdict
    assert not result.applied and said.status is Status.NOT_RUN and "not where `x` has 2 dimensions" in said.text


def test_one_weight_a_row_is_not_excluded_by_a_product() -> None:
    result = rewritten(WEIGHED)
    assert not result.applied and not result.left


@pytest.mark.parametrize(("text", "said"), [
    (ROW_LARGEST, "no value is NaN (with NaN the gradient"),
    (ROW_LARGEST, "`x` has 2 or more dimensions (with fewer"),
    (TOTAL, "values are floating-point (with whole numbers `total` has dtype torch.int64"),
    (TOTAL, "on no row the loop leaves the number 0.0"),
])  # fmt: skip
def test_what_is_taken_for_granted_is_said(text: str, said: str) -> None:
    ((diagnosis, _),) = rewritten(text).applied
    assert any(said in fact.text for fact in diagnosis.facts), diagnosis.facts


def test_no_row_is_not_called_the_same_where_it_is_not() -> None:
    ((_, fix),) = rewritten(TOTAL).applied
    assert "one row included" in fix.verdict.text and "no row" not in fix.verdict.text

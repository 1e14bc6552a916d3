"""What is said to be written instead of a `view`: tried on tensors of which each entry says where it stood."""

from __future__ import annotations

import pytest
import torch

from torchsleuth.auditor.samples.rearranging import _code, ways

CASES = [
    ((8, 12, 6), (12, 8, 6), ["t", "b", "f"], lambda x: x.transpose(0, 1)),
    ((2, 6, 10), (6, 20), ["6", "-1"], lambda x: x.transpose(0, 1).flatten(1)),
    ((5, 11, 24), (11, 15, 8), ["11", "15", "8"], lambda x: x.view(5, 11, 3, 8).permute(1, 0, 2, 3).flatten(1, 2)),
    ((6, 9, 16), (6, 4, 9, 4), ["6", "4", "9", "4"], lambda x: x.view(6, 9, 4, 4).transpose(1, 2)),
    ((6, 4, 9, 5), (6, 9, 20), ["6", "9", "20"], lambda x: x.transpose(1, 2).flatten(2)),
    ((11, 15, 8), (5, 11, 24), ["5", "11", "24"], lambda x: x.view(11, 5, 3, 8).transpose(0, 1).flatten(2)),
    ((2, 3, 4, 16, 16), (8, 3, 16, 16), ["8", "3", "16", "16"], lambda x: x.transpose(1, 2).flatten(0, 1)),
]  # fmt: skip


@pytest.mark.parametrize("before, after, texts, right", CASES, ids=lambda value: str(value) if isinstance(value, tuple) else "")
def test_simplest_way_is_the_one_that_was_meant(before, after, texts, right):
    x = torch.arange(torch.Size(before).numel()).view(before)
    found = ways(before, after)
    assert len(found) == 1 or found[0].cost < found[1].cost
    written = _code("x", before, after, found[0], texts)
    b, t, f = 8, 12, 6
    assert torch.equal(eval(written, {"x": x, "b": b, "t": t, "f": f}), right(x)), written


@pytest.mark.parametrize("before, after", [((6, 1, 4), (4, 1, 6)), ((7, 3), (5, 4))])
def test_what_cannot_be_told_has_no_way(before, after):
    assert not ways(before, after)

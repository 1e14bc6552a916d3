"""Weights or a mask, one number for each element of a loss, that meet the loss when it is one number already: they all count for all."""

from __future__ import annotations

import math

from torchsleuth.auditor.losses.broadcasting import reduced_as_it_is, shape_of
from torchsleuth.auditor.observation import Broadcast
from torchsleuth.auditor.tracing.owners import criterion_built
from torchsleuth.auditor.tracing.trace import Op, Seen, Trace
from torchsleuth.auditor.tracing.watchers import LOSSES
from torchsleuth.sizes import broadcast_size

_CLASSES = {"cross_entropy", "nll_loss"}  # one number for each label; the others: one for each element
_WEIGHTING = {"mul", "multiply", "__rmul__"}
_SCALING = {"mul", "div", "neg", "__rmul__", "true_divide", "float", "to", "clone"}
_ERRORS = {"pow", "__pow__", "square", "abs", "__abs__"}  # the mean of which is a loss written by hand


def averaged_before(trace: Trace, loss: int | None) -> list[Broadcast]:
    """Products of a reduced loss with as many numbers as it had elements, where the result goes into one number once more."""
    before = trace.ancestors({loss}) if loss is not None else set()
    found: dict[object, Broadcast] = {}
    for op in trace.ops:
        if op.name not in _WEIGHTING or len(op.ins) != 2 or not any(seen.key in before for seen in op.outs):
            continue
        number, weights = sorted(op.ins, key=lambda seen: len(seen.size))
        if number.size or not number.requires_grad or weights.requires_grad or math.prod(weights.size) < 2 or not reduced_as_it_is(trace, op):
            continue
        made, site = _loss_behind(trace, number), trace.site(op)
        source = trace.site(made) if made is not None else None
        if made is None or site is None or source is None or not _fits(weights.size, _elements(made)):
            continue
        built = criterion_built(source)
        found.setdefault(site.span, Broadcast(made.name, shape_of(number), shape_of(weights), weights.size, site, 0, True, False, None, "averaged", built or source))
    return list(found.values())


def _loss_behind(trace: Trace, seen: Seen) -> Op | None:
    """The loss function that gave this number, but for constant factors."""
    for _ in range(8):
        op = trace.maker(seen)
        if op is None or op.name in LOSSES or (op.name == "mean" and (inner := trace.maker(op.ins[0])) is not None and inner.name in _ERRORS):
            return op
        if op.name not in _SCALING or len(op.ins) != 1:
            return None
        seen = op.ins[0]
    return None


def _elements(op: Op) -> tuple[int, ...]:
    """How many numbers this loss would give without its mean or sum."""
    if len(op.ins) < 2:
        return op.ins[0].size if op.name == "mean" else ()
    scores, target = op.ins[0].size, op.ins[1].size
    return (scores[:1] + scores[2:] if len(scores) > 1 else ()) if op.name in _CLASSES else broadcast_size(scores, target) or ()


def _fits(weights: tuple[int, ...], elements: tuple[int, ...]) -> bool:
    """One number for each element, or for each along some of the axes."""
    if math.prod(weights) == math.prod(elements):
        return True
    if len(weights) > len(elements) or not weights:
        return False
    rows = all(n in (1, m) for n, m in zip(weights, elements, strict=False))  # (B,) or (B, 1) beside (B, F), as it was meant
    columns = all(n in (1, m) for n, m in zip(reversed(weights), reversed(elements), strict=False))
    return rows or columns

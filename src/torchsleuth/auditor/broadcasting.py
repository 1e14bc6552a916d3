"""Operands that stretch one another: where broadcasting made a result that is larger than both."""

from __future__ import annotations

import typing

import torch

from torchsleuth.auditor.gradients import origin_of_place
from torchsleuth.auditor.observation import Broadcast, Shape
from torchsleuth.auditor.trace import ARRANGING, Op, Seen, Trace
from torchsleuth.origin import Origin

_BINARY = {"add", "sub", "mul", "div", "true_divide", "subtract", "multiply", "__rsub__", "rsub", "pow", "eq", "maximum", "minimum",
           "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "__radd__", "__rmul__", "add_", "sub_", "mul_", "div_", "where",
           "logaddexp", "dist"}  # fmt: skip
_STRETCHING = {"unsqueeze", "unsqueeze_", "view", "reshape", "expand", "expand_as", "unflatten", "keepdim", "meshgrid", "atleast_2d"}
_REDUCING = {"mean", "sum", "nanmean", "norm"}
_LOSSLIKE = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"}


def broadcasts(trace: Trace, loss_key: int | None, batch: int | None) -> list[Broadcast]:
    """Operands that stretch one another, the result being larger than both."""
    on_the_way = trace.ancestors({loss_key}) if loss_key is not None else None
    found: dict[tuple, Broadcast] = {}
    for op in trace.ops:
        if op.name not in _BINARY or len(op.ins) < 2 or origin_of_place(op) is not Origin.USER:
            continue
        left, right = op.ins[-2:] if op.name == "where" else op.ins[:2]
        if left.dtype is torch.bool or right.dtype is torch.bool:
            continue
        if not left.size or not right.size:
            continue
        try:
            result = tuple(torch.broadcast_shapes(left.size, right.size))
        except RuntimeError:
            continue
        if numel(result) <= max(numel(left.size), numel(right.size)):
            continue
        if on_the_way is not None and not any(seen.key in on_the_way for seen in op.outs):
            continue
        if not _same_axis_twice(left.size, right.size):
            continue
        origins = [_origin(trace, side) for side in (left, right)]
        explicit = sum(stretched for _, stretched in origins)
        site = trace.site(op)
        if site is None:
            continue
        span = site.span
        key = (span.file, span.line, span.column, span.end_column)
        found.setdefault(
            key,
            Broadcast(
                op.name, _shape(left), _shape(right), result, site, explicit, op.name in _LOSSLIKE or _reduced(trace, op),
                bool(origins[0][0] & origins[1][0]) and explicit > 0, batch,
            ),
        )  # fmt: skip
    return list(found.values())


def _same_axis_twice(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    """(N,) against (N, 1) and its like: the shorter operand's axis is the other's axis of equal size, one place off."""
    if len(left) == len(right):
        return False
    short, long = (left, right) if len(left) < len(right) else (right, left)
    padded = (1,) * (len(long) - len(short)) + short
    for axis, (a, b) in enumerate(zip(padded, long, strict=True)):
        if a > 1 and b == 1:
            # The same count stands elsewhere in the longer operand, where the shorter one has nothing.
            return any(n == a and padded[k] == 1 for k, n in enumerate(long) if k != axis)
    return False


def _origin(trace: Trace, seen: Seen) -> tuple[set[int], bool]:
    """What the operand was rearranged from, and whether an axis of size 1 was put in on purpose."""
    explicit = False
    key = seen.key
    for op in trace.made_through(seen, ARRANGING):
        if op.name in _STRETCHING and op.outs and 1 in op.outs[0].size and len(op.outs[0].size) > len(op.ins[0].size):
            explicit = True
        if op.name == "__getitem__" and _has_none(op.plain[0][1] if len(op.plain[0]) > 1 else None):
            explicit = True
        if op.plain[1].get("keepdim") is True:
            explicit = True
        key = op.outs[0].key if op.name not in ARRANGING else (op.ins[0].key if op.ins else key)
    return {key}, explicit


def _has_none(index: typing.Any) -> bool:
    return index is None or (isinstance(index, tuple) and any(part is None for part in index))


def _reduced(trace: Trace, op: Op) -> bool:
    """The result goes, element by element, into a sum or mean over everything."""
    keys = {seen.key for seen in op.outs}
    for later in trace.ops[op.index + 1 :]:
        if not any(seen.key in keys for seen in later.ins):
            continue
        if later.name in _REDUCING or not later.outs or later.outs[0].size == ():
            return bool(later.outs) and numel(later.outs[0].size) == 1
        if numel(later.outs[0].size) < numel(op.outs[0].size):
            return False
        keys |= {seen.key for seen in later.outs}
    return False


def numel(size: tuple[int, ...]) -> int:
    total = 1
    for n in size:
        total *= n
    return total


def _shape(seen: Seen) -> Shape:
    return Shape(seen.size, str(seen.dtype).removeprefix("torch."))

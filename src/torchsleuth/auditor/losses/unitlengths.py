"""Vectors that are compared by a product and were given length 1 along another axis than the one that the product runs over."""

from __future__ import annotations

import typing

import torch

from torchsleuth.auditor.losses.classaxis import axis_before
from torchsleuth.auditor.observation import AxisFact
from torchsleuth.auditor.operations.patterns import summed_axes
from torchsleuth.auditor.tracing.bydesign import origin_of_place
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Seen, Trace, quietly, tensors_in
from torchsleuth.origin import Origin

_NORMS = {"norm", "linalg_norm", "linalg_vector_norm", "vector_norm"}
_BEFORE = {"div", "__truediv__", "div_", "true_divide"}
_THROUGH = ARRANGING | {"mul", "__mul__", "cat", "concat", "detach"}
_GUARDS = ARRANGING | {"clamp", "clamp_min", "add", "maximum", "clip"}
MOST_NUMBERS = 1 << 22
EQUAL, UNEQUAL = 1e-3, 2e-2  # how far lengths differ that are the same, and that are not


class UnitWatch:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.facts: dict[typing.Any, AxisFact] = {}

    def install(self) -> None:
        for name in ("matmul", "bmm", "mm", "__matmul__", "einsum"):
            self.trace.watchers.setdefault(name, []).append(quietly(self._product))

    def _product(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        """Both sides must be normalised, and neither along the axis that is summed over: a product with one such side may weigh columns."""
        operands = tensors_in(args)
        if origin_of_place(op) is not Origin.USER or len(op.ins) != 2 or sum(one.numel() for one in operands) > MOST_NUMBERS:
            return
        made = [self._normaliser(seen) for seen in op.ins]
        if None in made:
            return
        found = []
        for one, axis in zip(operands, summed_axes(op, [t.dim() for t in operands]), strict=True):
            along = _unit_axis(one, axis) if axis is not None else None
            if axis is None or along is None:
                return
            found.append((along, axis))
        for maker, axes, seen in zip(made, found, op.ins, strict=True):
            site, use = self.trace.site(maker), self.trace.site(op)
            along, axis = (self._there(seen, maker, axis) for axis in axes)
            if site is not None and use is not None and along is not None and axis is not None:
                self.facts.setdefault(site.span, AxisFact("unit-axis", maker.name, along, maker.outs[0].size, site, use, along, axis))

    def _there(self, seen: Seen, maker: Op, axis: int) -> int | None:
        """Where this axis was in the result of the call that normalised."""
        for op in self.trace.made_through(seen, _THROUGH | _BEFORE):
            if op is maker:
                return axis
            before = axis if op.name not in ARRANGING and len(op.ins[0].size) == len(op.outs[0].size) else axis_before(op, axis)
            if before is None:
                return None
            axis = before
        return None

    def _normaliser(self, seen: Seen) -> Op | None:
        """The call that divided by a length (of the second kind, which cosines need)."""
        for op in self.trace.made_through(seen, _THROUGH | _BEFORE):
            if op.name == "normalize":
                return op if op.argument(1, "p", 2.0) == 2 else None
            if op.name in _BEFORE and len(op.ins) > 1:
                lengths = next((one for one in self.trace.made_through(op.ins[1], _GUARDS) if one.name in _NORMS), None)
                return op if lengths is not None else None
        return None


def _unit_axis(tensor: torch.Tensor, summed: int) -> int | None:
    """The one axis along which all lengths are the same, where they are not along the axis that is summed over."""
    if min(tensor.shape) < 2:
        return None
    values = tensor.detach().float()
    if values.isnan().any() or _spread(values, summed) < UNEQUAL:
        return None
    alike = [axis for axis in range(values.dim()) if axis != summed and _spread(values, axis) < EQUAL]
    return alike[0] if len(alike) == 1 else None


def _spread(values: torch.Tensor, axis: int) -> float:
    lengths = values.norm(dim=axis)
    return float((lengths.max() - lengths.min()) / lengths.max().clamp(min=1e-12))

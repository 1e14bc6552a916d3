"""Loops over what the last layer gives (a CRF, a decoder): does what it gives at padded positions count there?

Changes of the input do not tell where its padding never reaches that layer (packed sequences): there it gives its bias, whatever the
input holds. So its result is changed itself, at padded positions only, and only if something stands there.
"""

from __future__ import annotations

import typing

import torch

from torchsleuth.auditor.inputs.padded import Padding
from torchsleuth.auditor.laboratory.compare import Difference, May, first_difference
from torchsleuth.auditor.laboratory.lab import KEPT_BYTES, Lab, disturbed, row_and_position
from torchsleuth.auditor.observation import Move
from torchsleuth.auditor.sequences.steps import Steps
from torchsleuth.auditor.tracing.trace import Change, Op, Trace


def loop_moves(lab: Lab, padding: Padding) -> list[Move]:
    may = May(~padding.valid, stepwise=True)
    layer = _last_layer(lab.trace, padding)
    if layer is None or padding.assumed or not Steps(lab.trace, may).of:
        return []
    result, _ = lab.run([], healing=_changing(layer, padding))
    difference = first_difference(lab.base, result, may, floor=lab.floor)
    if difference is None:
        return []
    first = Trace(keep=True)
    again = lab.runner.run(lab.call.args, lab.call.kwargs, trace=first, mode=lab.mode)
    if first.kept_bytes > KEPT_BYTES:
        return []

    def rerun(healing: Change | None) -> tuple[typing.Any, Trace]:
        change = _changing(layer, padding)

        def both(op: Op, args: tuple, kwargs: dict, given: typing.Any) -> typing.Any:
            given = change(op, args, kwargs, given)
            return healing(op, args, kwargs, given) if healing is not None else given

        second = Trace(keep=True, change=both)
        return lab.runner.run(lab.call.args, lab.call.kwargs, trace=second, mode=lab.mode, changed=True), second

    def left(second: typing.Any, floor: float) -> Difference | None:
        return first_difference(lab.base, second, may, floor=floor)

    found, one = lab.search(first, again, difference, may, rerun, left)[0]
    if found is None or not found.carried:
        return []
    site = lab.site(lab.trace, layer)
    row, position = row_and_position(one, may)
    row = row if row in padding.padded_rows else padding.padded_rows[0]
    source = f" (`{' '.join(site.source.split())}`)" if site is not None and len(site.source) < 60 else ""
    changed = f"Changing what the last layer{source} gives at padded positions of `{padding.leaf.name}`"
    where = f"`{one.name}`" if position is None else f"`{one.name}` at valid position {position} of {padding.named(row)}"
    return [lab.move(
        "padding", changed, where, one, found, first, pooled=position is None, assumed=padding.assumed, pad_id=padding.pad_id,
        mask_name=padding.mask.name if padding.mask else "", sequence=padding.leaf.name,
    )]  # fmt: skip


def _last_layer(trace: Trace, padding: Padding) -> Op | None:
    """The last call that gives a row of numbers for each position, with weights of the model's."""
    size = tuple(padding.valid.shape)
    ways = (size, size[::-1])
    layers = [op for op in trace.ops if op.name == "linear" and op.outs and len(op.outs[0].size) == 3 and op.outs[0].size[:2] in ways and any(s.key in trace.parameters for s in op.ins)]
    return layers[-1] if layers else None


def _changing(layer: Op, padding: Padding) -> Change:
    def change(op: Op, args: tuple, kwargs: dict, result: typing.Any) -> typing.Any:
        if op.index != layer.index or op.name != layer.name or not isinstance(result, torch.Tensor) or result.shape != layer.outs[0].size:
            return result
        hidden = ~padding.valid.to(result.device)
        hidden = hidden if tuple(result.shape[:2]) == tuple(hidden.shape) else hidden.T
        if not bool(result.detach()[hidden].any(-1).all()):
            return result  # zeros add nothing, and whoever relies on that is right
        return disturbed(result, hidden)

    return change

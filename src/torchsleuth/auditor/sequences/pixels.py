"""Pictures of several sizes in one batch, with a mask of their pixels: does what stands beside a picture count, once its map is read as a sequence?

A convolution sees the edge of a picture, and may. So it is the map that is changed, where it becomes a sequence, and only at places
that no real pixel belongs to.
"""

from __future__ import annotations

import typing

import torch

from torchsleuth.auditor.inputs import batch as batches
from torchsleuth.auditor.inputs.batch import Call, Leaf
from torchsleuth.auditor.inputs.padded import Padding
from torchsleuth.auditor.laboratory.compare import Chosen, Difference, May, first_difference, output_leaves
from torchsleuth.auditor.laboratory.lab import KEPT_BYTES, Lab, disturbed, row_and_position
from torchsleuth.auditor.observation import Move
from torchsleuth.auditor.sequences import masks
from torchsleuth.auditor.tracing.trace import ARRANGING, Change, Op, Trace


def pixel_moves(lab: Lab) -> list[Move]:
    found = _pictures(lab.call)
    laid = _becomes_sequence(lab.trace, *found[:2]) if found is not None else None
    if found is None or laid is None:
        return []
    picture, real, mask = found
    layer, high, wide = laid
    cells = torch.nn.functional.adaptive_max_pool2d(real[:, None].float(), (high, wide))[:, 0].flatten(1) > 0
    padding = Padding(picture, cells, mask, keep_value=bool((mask.values != 0)[real.to(mask.values.device)].all()))
    if bool(cells.all()) or any(op.name.startswith("conv") and len(op.outs[0].size) == 4 for op in lab.trace.ops[layer.index :]):
        return []
    change, may = _changing(layer, cells), May(~cells, stepwise=True)
    base = _vectors(lab.base)
    difference = first_difference(base, _vectors(lab.run([], healing=change)[0]), may, scalars=False, floor=lab.floor, needs_batch=True)
    if difference is None:
        return []
    first = Trace(keep=True)
    again = _vectors(lab.runner.run(lab.call.args, lab.call.kwargs, trace=first, mode=lab.mode))
    if first.kept_bytes > KEPT_BYTES:
        return []

    def rerun(healing: Change | None) -> tuple[typing.Any, Trace]:
        def both(op: Op, args: tuple, kwargs: dict, given: typing.Any) -> typing.Any:
            given = change(op, args, kwargs, given)
            return healing(op, args, kwargs, given) if healing is not None else given

        second = Trace(keep=True, change=both)
        return _vectors(lab.runner.run(lab.call.args, lab.call.kwargs, trace=second, mode=lab.mode, changed=True)), second

    def left(second: typing.Any, floor: float) -> Difference | None:
        return first_difference(base, second, may, scalars=False, floor=floor, needs_batch=True)

    moves = []
    for rank, (place, one) in enumerate(lab.search(first, again, difference, may, rerun, left)):
        row = row_and_position(one, may)[0]
        row = row if row in padding.padded_rows else padding.padded_rows[0]
        count = int((~cells[row]).sum())
        changed = f"Changing what the map holds at the {count} of its {high} x {wide} places that no real pixel of {padding.named(row)} of `{picture.name}` belongs to"
        told = masks.told(lab, padding, first, place, content=True)
        moves.append(lab.move("padding", changed, f"`{one.name}` of that row", one, place, first, pooled=True, rank=rank,
                              mask_name=mask.name, sequence=picture.name, **told))  # fmt: skip
    return moves


def _pictures(call: Call) -> tuple[Leaf, torch.Tensor, Leaf] | None:
    """The pictures, flags of their real pixels, and the mask that says so: it agrees with zeros that stand beside them."""
    for picture in call.leaves:
        if picture.tensor.dim() != 4 or not picture.tensor.is_floating_point():
            continue
        size = (picture.tensor.shape[0], *picture.tensor.shape[2:])
        empty = (picture.values == 0).all(1)
        for mask in call.leaves:
            shape = tuple(n for axis, n in enumerate(mask.tensor.shape) if axis != 1 or mask.tensor.dim() != 4)
            if mask is picture or shape != size or not batches.flags_of(mask):
                continue
            flags = (mask.values != 0).reshape(size)
            for real in (flags, ~flags):
                if not bool(real.all()) and bool(real.flatten(1).any(1).all()) and bool(empty[~real].all()) and float(empty[real].float().mean()) < 0.5:
                    return picture, real.to(picture.tensor.device), mask
    return None


def _becomes_sequence(trace: Trace, picture: Leaf, real: torch.Tensor) -> tuple[Op, int, int] | None:
    """The first call that lays out a map [B, D, H, W] as one vector for each place, [B, H * W, D] or [H * W, B, D]; with the map's sides."""
    batch = real.shape[0]
    for op in trace.ops:
        if op.name not in ARRANGING or not op.outs or len(op.outs[0].size) != 3 or not op.outs[0].dtype.is_floating_point:
            continue
        size = op.outs[0].size
        for made in trace.made_through(op.ins[0], ARRANGING):
            whole = made.outs[0].size
            if len(whole) == 4 and whole[0] == batch and min(whole[2:]) > 1:
                depth, places = whole[1], whole[2] * whole[3]
                if depth != places and size in ((batch, places, depth), (places, batch, depth)):
                    return op, whole[2], whole[3]
                break
    return None


def _changing(layer: Op, cells: torch.Tensor) -> Change:
    def change(op: Op, args: tuple, kwargs: dict, result: typing.Any) -> typing.Any:
        if op.index != layer.index or op.name != layer.name or not isinstance(result, torch.Tensor) or tuple(result.shape) != layer.outs[0].size:
            return result
        hidden = ~cells.to(result.device)
        return disturbed(result, hidden if tuple(result.shape[:2]) == tuple(hidden.shape) else hidden.T)

    return change


def _vectors(result: typing.Any) -> Chosen:
    """What has no map's axes: of those there is no telling here which places are which."""
    return Chosen((name, leaf) for name, leaf in output_leaves(result) if leaf.dim() < 4)

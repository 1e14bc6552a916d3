"""Does the amount of padding count? The same rows with more of it, and with less."""

from __future__ import annotations

import dataclasses
import typing

import torch

from torchsleuth.auditor.inputs import batch as batches
from torchsleuth.auditor.inputs.batch import Leaf
from torchsleuth.auditor.inputs.nested import Words
from torchsleuth.auditor.inputs.padded import Padding
from torchsleuth.auditor.laboratory.columns import Added
from torchsleuth.auditor.laboratory.compare import Difference, May, first_difference, output_leaves
from torchsleuth.auditor.laboratory.firstmoved import first_moved
from torchsleuth.auditor.laboratory.lab import Lab, row_and_position
from torchsleuth.auditor.observation import Move
from torchsleuth.auditor.sequences import masks
from torchsleuth.auditor.sequences.handing import made_of, measures
from torchsleuth.auditor.tracing.trace import Change, Trace

EXTRA_COLUMNS = 3
MORE_COLUMNS = 8  # as many as models take together at once, or several times that
LONG = 128  # positions, as of a wave
AHEAD = 24  # columns of padding; more than most convolutions see


def of_ids(padding: Padding) -> bool:
    return (padding.leaf.tensor.dim() == 2 or isinstance(padding, Words)) and not padding.leaf.tensor.is_floating_point()


def windows(lab: Lab) -> bool:
    """Is there a convolution that sees more than one position at a time?"""
    return any(op.name.startswith("conv") and (len(op.ins) < 2 or set(op.ins[1].size[2:]) != {1}) for op in lab.trace.ops)


def _sees_beside(lab: Lab) -> bool:
    """Is there anything that sees the neighbours of a position, and so the edge of a row?"""
    return windows(lab) or any(op.name in ("unfold", "roll") or ("pool" in op.name and not op.name.startswith("adaptive")) for op in lab.trace.ops)


def _lengthened(lab: Lab, padding: Padding, columns: int, width: Leaf | None = None) -> tuple[tuple, dict] | None:
    """The call's arguments with so many columns of padding more; None where it is not known what would stand in them."""
    if not padding.right:
        return None
    # Another sequence that has padding of its own may happen to be as long: it stays as it is, with its mask.
    apart = [leaf for other in lab.paddings if other.leaf is not padding.leaf and not torch.equal(other.valid, padding.valid) for leaf in (other.leaf, other.mask) if leaf is not None]
    changes = {}
    for leaf in lab.call.leaves:
        tensor, axis = leaf.tensor, positions_of(leaf, padding)
        if leaf is width:
            changes[leaf.path] = tensor + columns
        if axis is not None and not any(leaf is other for other in apart):
            fill = _fill(leaf, padding, axis)
            if fill is None:
                if leaf is padding.leaf:
                    return None
                continue  # it holds data where this one has padding: another sequence that happens to be as long, or the model will refuse
            for grown in (axis, *_among_pairs(leaf, padding, axis)):
                extra = tensor.new_full((*tensor.shape[:grown], columns, *tensor.shape[grown + 1 :]), fill)
                tensor = torch.cat([tensor, extra], grown)
            changes[leaf.path] = tensor
    return lab.call.replaced(changes)


def positions_of(leaf: Leaf, padding: Padding) -> int | None:
    """The axis of an input along which it has one entry for each position of this sequence. (A mask may have the samples first where the sequence has not.)"""
    if leaf is padding.leaf or leaf.tensor.dim() < 2 or isinstance(padding, Words):
        return padding.axis if leaf is padding.leaf or padding.laid(leaf.tensor) is not None else None
    valid, shape = padding.valid, leaf.tensor.shape
    mask = batches.mask_values(leaf)
    if mask is not None and mask.shape == valid.shape:
        return shape.index(valid.shape[1], 1)
    if leaf is padding.mask:
        return 0
    return padding.axis if padding.laid(leaf.tensor) is not None else None


def _among_pairs(leaf: Leaf, padding: Padding, axis: int) -> list[int]:
    """The second axis of an input that has a number for each pair of positions, [B, L, L] (edges, distances, who may see whom): where it is one number at padding, too."""
    tensor, valid = leaf.tensor, padding.valid
    if tensor.dim() != 3 or axis != 1 or tensor.shape[2] != valid.shape[1] or leaf is padding.mask:
        return []
    return [2] if tensor.transpose(1, 2)[~valid].unique().numel() == 1 else []


def settles(lab: Lab, padding: Padding, scalars: bool) -> bool:
    """Once there is more padding than any window of a convolution sees, more of it makes no difference.

    Then it is only the edge between words and padding that counts, which a convolution sees by design.
    """
    ahead, beyond = _lengthened(lab, padding, AHEAD), _lengthened(lab, padding, AHEAD + EXTRA_COLUMNS)
    try:
        first, second = (lab.runner.run(*given, mode="eval", changed=True) for given in (ahead, beyond) if given is not None)
    except Exception:
        return False
    fitted = Added(padding.valid.shape[1] + AHEAD, EXTRA_COLUMNS)
    may = May(torch.nn.functional.pad(~padding.valid, (0, AHEAD), value=True))
    for (_, one), (_, two) in zip(output_leaves(first), output_leaves(second), strict=False):
        trimmed = fitted(two, one)
        if trimmed is None or (one.dim() == 0 and not scalars) or not one.is_floating_point():
            continue
        if first_difference(one, trimmed, may, scalars=scalars, floor=max(lab.floor, 1e-5 * float(one.abs().max()))) is not None:
            return False
    return True


def longer_moves(lab: Lab, padding: Padding, scalars: bool, width: Leaf | None, every: bool) -> list[Move] | None:
    """More padding: append columns that the mask hides; None where the model cannot be run on them. `width`: lengths that say how wide the batch is, which grow with it.

    `every`: rows that had no padding count, too, unless something sees the edge that they have now.
    """
    beside = _sees_beside(lab)
    every = (every or isinstance(padding, Words)) and not beside
    width = width if width is not None and measures(lab.trace, width) else None
    # Other sizes draw other random numbers, so this one is run without dropout.
    base = lab.base if not lab.runner.model.training else lab.runner.calm(lab.call.args, lab.call.kwargs)
    # Of a long sequence one step may be made of many positions. Fewer, where a table of positions has no more rows.
    many = [padding.valid.shape[1] // 2] if padding.valid.shape[1] >= LONG else []
    for columns in (*many, MORE_COLUMNS, EXTRA_COLUMNS):
        arguments = _lengthened(lab, padding, columns, width)
        if arguments is None:
            return None
        args, kwargs = arguments
        try:
            result = lab.runner.run(args, kwargs, mode="eval", changed=True)
            break
        except Exception:
            continue
    else:
        return None
    fitted = Added(padding.valid.shape[1], columns)
    enough = _with_padding_enough(padding, columns, every)
    whole = scalars and bool(enough.all()) and not any(batches.is_label(leaf) for leaf in lab.call.leaves)
    difference = _fitted_difference(base, result, _may_grow(padding, enough), fitted, whole, lab.floor)
    if difference is None:
        return []
    may = _may_grow(padding, enough if beside else _with_padding_enough(padding, columns, True))
    first = Trace(keep=True)
    again = lab.runner.run(lab.call.args, lab.call.kwargs, trace=first, mode="eval")

    def rerun(healing: Change | None) -> tuple[typing.Any, Trace]:
        second = Trace(keep=True, change=healing)
        return lab.runner.run(args, kwargs, trace=second, mode="eval", changed=True), second

    def left(second: typing.Any, floor: float) -> Difference | None:
        return _fitted_difference(again, second, may, fitted, whole, floor)

    kind = f"{'columns' if padding.axis else 'rows'} of padding" if of_ids(padding) else f"padded positions (axis {padding.axis})"
    changed = f"Appending {columns} more {kind} to `{padding.leaf.name}`"
    by_design: set[int] = set()
    if width is not None:
        changed += f" (and adding {columns} to `{width.name}`, which says how wide it is)"
        by_design = made_of(first, width.tensor)
    moves = []
    for rank, (found, one) in enumerate(lab.search(first, again, difference, may, rerun, left, fitted, by_design)):
        row, where = row_and_position(one, may)
        place = f"`{one.name}` of {padding.named(row)}" if where is None else f"`{one.name}` at valid position {where} of {padding.named(row)}"
        moves.append(
            lab.move(
                "padding-length", changed, place, one, found, first, pooled=where is None, assumed=padding.assumed, pad_id=padding.pad_id, rank=rank,
                mask_name=padding.mask.name if padding.mask else "", real=padding.real, sequence=padding.leaf.name, **masks.told(lab, padding, first, found, content=False),
            )
        )  # fmt: skip
    return moves


def _with_padding_enough(padding: Padding, columns: int, every: bool) -> torch.Tensor:
    """Rows for which it is only more padding. One that had hardly any has an edge now that it had not, which a convolution sees."""
    count = (~padding.valid).sum(1)
    enough = torch.ones_like(count, dtype=torch.bool) if every else count >= min(columns, int(count.max()))
    return enough & ~padding.empty if isinstance(padding, Words) else enough


def _may_grow(padding: Padding, enough: torch.Tensor) -> May:
    """Padded positions may move, and all other rows altogether."""
    return May(~(padding.valid & enough[:, None]), stepwise=True, rows=None if bool(enough.all()) else May(~enough))


def _fitted_difference(first: typing.Any, second: typing.Any, may: May, fitted: Added, scalars: bool, floor: float) -> Difference | None:
    """The first result that moved where it must not, of those that can be brought to the same size."""
    for position, ((name, one), (_, two)) in enumerate(zip(output_leaves(first), output_leaves(second), strict=False)):
        trimmed = fitted(two, one)
        if trimmed is None or (one.dim() == 0 and not scalars):
            continue
        least = 1e-5 * float(one.abs().max()) if one.is_floating_point() and one.numel() else 0.0
        difference = first_difference(one, trimmed, may, scalars=scalars, floor=max(floor, least))
        if difference is not None:
            difference.name, difference.position = name, position
            return difference
    return None


def shorter_moves(lab: Lab, padding: Padding) -> list[Move]:
    """Less padding: the longest rows are given as shorter than they are. A model that cuts the batch to its longest row
    (`pad_packed_sequence` does) hands less padding on for all the others, and these must not move."""
    lengths = padding.mask
    if lengths is None or lengths.tensor.dim() != 1 or not padding.right or windows(lab):
        return []
    sizes = lengths.tensor.unique()
    if sizes.numel() < 2 or int(sizes[-1]) != padding.valid.shape[1]:
        return []
    longest, second = int(sizes[-1]), int(sizes[-2])
    cut = lengths.tensor.clamp(max=second)
    told = dataclasses.replace(padding, valid=padding.valid[:, :second], mask=Leaf(lengths.name, lengths.path, cut))
    base = lab.base if not lab.runner.model.training else lab.runner.calm(lab.call.args, lab.call.kwargs)
    also = {leaf.path: leaf.tensor.narrow(axis, 0, second) for leaf in lab.call.leaves if leaf is not lengths and (axis := positions_of(leaf, padding)) is not None}
    for narrow in ({}, also):  # a mask that the model makes of the ids would be too wide
        args, kwargs = lab.call.replaced({lengths.path: cut, **narrow})
        try:
            result = lab.runner.run(args, kwargs, mode="eval", changed=True)
            break
        except Exception:
            continue
    else:
        return []
    fitted = Added(second, longest - second)
    may = May((lengths.tensor == longest).to(padding.valid.device))
    # What stands at padded positions of the other rows may be anything, too.
    positions = May(~padding.valid[:, :second] | may.table[:, None], rows=may)
    for position, ((name, one), (_, two)) in enumerate(zip(output_leaves(result), output_leaves(base), strict=False)):
        trimmed = fitted(two, one)
        if trimmed is None or one.dim() == 0 or not one.is_floating_point() or may.batch not in one.shape:
            continue
        difference = first_difference(one, trimmed, positions, scalars=False, floor=max(lab.floor, 1e-5 * float(one.abs().max()) if one.numel() else 0.0))
        if difference is None:
            continue
        first, second_trace = Trace(keep=True), Trace(keep=True)
        again = lab.runner.run(args, kwargs, trace=first, mode="eval", changed=True)
        lab.runner.run(lab.call.args, lab.call.kwargs, trace=second_trace, mode="eval")
        found = first_moved(first, second_trace, again, position, positions, fitted)
        row, where = row_and_position(difference, positions)
        difference.name = name
        changed = f"Giving the longest row's length as {second} instead of {longest} in `{lengths.name}`{f', and `{padding.leaf.name}` as wide as that' if narrow else ''} (all other rows have less padding then)"
        place = f"`{name}` of row {row}" if where is None else f"`{name}` at valid position {where} of row {row}"
        return [lab.move("padding-shorter", changed, place, difference, found, first, pooled=where is None, mask_name=lengths.name,
                         **masks.told(lab, told, first, found, content=False))]  # fmt: skip
    return []


def _fill(leaf: Leaf, padding: Padding, axis: int) -> float | int | bool | None:
    """What stands in a column of padding of this input, whose positions lie along `axis`."""
    if leaf is padding.leaf:
        return 0.0 if leaf.tensor.is_floating_point() else padding.pad_id
    if padding.mask is not None and leaf is padding.mask:
        if (hides := batches.added_to_hide(leaf)) is not None:
            return hides if padding.keep_value else 0.0
        return int(not padding.keep_value) if leaf.tensor.dtype is not torch.bool else not padding.keep_value
    if batches.is_label(leaf):
        return -100 if not leaf.tensor.is_floating_point() else None
    values = leaf.tensor.flatten(0, 1) if isinstance(padding, Words) else leaf.tensor.movedim(axis, 1 if axis else 0)
    values = values.transpose(0, 1)[~padding.valid] if axis == 0 else values[~padding.valid]
    unique = values.unique()
    return unique[0].item() if unique.numel() == 1 else None

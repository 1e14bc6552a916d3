"""Does padding count? Two experiments: other content at padded positions, and more of them."""

from __future__ import annotations

import functools
import typing

import torch

from torchsleuth.auditor import batch as batches
from torchsleuth.auditor import masks
from torchsleuth.auditor.batch import Leaf, Padding
from torchsleuth.auditor.compare import Difference, Found, May, first_difference, first_moved, output_leaves
from torchsleuth.auditor.lab import Fitted, Lab, row_and_position
from torchsleuth.auditor.maxima import maximum_moves
from torchsleuth.auditor.observation import Move
from torchsleuth.auditor.trace import Change, Trace

EXTRA_COLUMNS = 3
MORE_COLUMNS = 8  # as many as models take together at once, or several times that
AHEAD = 24  # columns of padding; more than most convolutions see


def padding_moves(lab: Lab, padding: Padding) -> list[Move]:
    may = May(~padding.valid)
    scalars = not any(batches.is_label(leaf) for leaf in lab.call.leaves)
    change = [(padding.leaf, ~padding.valid)]
    difference = None
    ids = padding.leaf.tensor.dim() == 2
    if (padding.mask is not None and ids) or padding.leaf.tensor.is_floating_point() or lab.embedded(padding.leaf):
        # Where only the pad id says what is padding, another id there would be a word.
        result, _ = lab.run(change)
        difference = first_difference(lab.base, result, may, scalars=scalars, floor=lab.floor)
    longer = _longer(lab, padding, scalars)
    inert = _inert(lab, padding)
    if difference is None or (inert and not longer):
        # Nothing moved, or what stands at padded positions is zero by construction, and the length of it does not count.
        return longer or _shorter(lab, padding) or maximum_moves(lab, padding)
    if inert and longer and longer[0].site is not None and not _windows(lab):
        return longer  # zeros do not harm where they are added up; the amount of them is what counts, and this is where
    places, trace = lab.locate(change, difference, may, scalars)
    if inert and places[0][0] is not None and places[0][0].op.name.startswith("conv") and _settles(lab, padding, scalars):
        return []
    inverted = _inverted(lab, padding, scalars)
    return [_padding_move(lab, padding, one, found, trace, may, inverted and not rank, rank) for rank, (found, one) in enumerate(places)]


def _padding_move(
    lab: Lab, padding: Padding, difference: Difference, found: Found | None, trace: Trace, may: May, inverted: bool, rank: int
) -> Move:
    row, position = row_and_position(difference, may)
    row = row if row in padding.padded_rows else padding.padded_rows[0]
    count = int((~padding.valid[row]).sum())
    what = "tokens" if padding.leaf.tensor.dim() == 2 else "time steps"
    changed = f"Changing the content of the {count} padded {what} of row {row} of `{padding.leaf.name}`"
    pooled = not any(n == may.length for n in difference.first.shape)
    if difference.first.dim() <= 2:
        position = None  # [B, L]: one number for each position, or L features? The sizes do not tell
    where = f"`{difference.name}` of that row" if position is None else f"`{difference.name}` at valid position {position} of that row"
    return lab.move(
        "padding", changed, where, difference, found, trace, pooled=pooled, assumed=padding.assumed, rank=rank,
        mask_name=padding.mask.name if padding.mask else "", inverted=inverted, **masks.told(lab, padding, trace, found, content=True),
    )  # fmt: skip


def _windows(lab: Lab) -> bool:
    return any(op.name.startswith("conv") for op in lab.trace.ops)


def _inert(lab: Lab, padding: Padding) -> bool:
    """The padded content cannot be anything but zero: an embedding's `padding_idx`, or zeros in a float input."""
    if padding.leaf.tensor.is_floating_point():
        return bool((padding.leaf.tensor[~padding.valid] == 0).all())
    lookups = lab.embedded(padding.leaf)
    return bool(lookups) and all(
        padding.pad_id is not None and op.argument(2, "padding_idx") == padding.pad_id for op in lookups
    )


def _inverted(lab: Lab, padding: Padding, scalars: bool) -> bool:
    """Do the words not count? Disturb one word and see whether any other valid position moves."""
    if padding.mask is None or padding.mask.tensor.dim() != 2:
        return False
    count = padding.valid.sum(1, keepdim=True)
    # One from the middle: the first and the last are what pooled outputs are read from.
    first = padding.valid & (padding.valid.cumsum(1) == (count + 1) // 2) & (~padding.valid).any(1, keepdim=True)
    result, _ = lab.run([(padding.leaf, first)])
    return first_difference(lab.base, result, May(first), scalars=scalars, floor=lab.floor) is None


def _lengthened(lab: Lab, padding: Padding, columns: int) -> tuple[tuple, dict] | None:
    """The call's arguments with so many columns of padding more; None where it is not known what would stand in them."""
    if not padding.right:
        return None
    # Another sequence that has padding of its own may happen to be as long: it stays as it is, with its mask.
    apart = [leaf for other in lab.paddings if not torch.equal(other.valid, padding.valid) for leaf in (other.leaf, other.mask) if leaf is not None]
    changes = {}
    for leaf in lab.call.leaves:
        tensor = leaf.tensor
        if tensor.dim() >= 2 and tensor.shape[:2] == padding.valid.shape and not any(leaf is other for other in apart):
            fill = _fill(leaf, padding)
            if fill is None:
                if leaf is padding.leaf:
                    return None
                continue  # it holds data where this one has padding: another sequence that happens to be as long, or the model will refuse
            extra = tensor.new_full((tensor.shape[0], columns, *tensor.shape[2:]), fill)
            changes[leaf.path] = torch.cat([tensor, extra], 1)
    return lab.call.replaced(changes)


def _fitted(tensor: torch.Tensor, like: torch.Tensor, length: int, more: int = EXTRA_COLUMNS) -> torch.Tensor | None:
    """A result for sequences that are longer by so much at the size of the one for sequences of this length."""
    if tensor.dim() != like.dim():
        return None
    for axis, (size, wanted) in enumerate(zip(tensor.shape, like.shape, strict=True)):
        if size == length + more and wanted == length:
            tensor = tensor.narrow(axis, 0, length)
        elif size != wanted:
            return None
    return tensor


def _settles(lab: Lab, padding: Padding, scalars: bool) -> bool:
    """Once there is more padding than any window of a convolution sees, more of it makes no difference.

    Then it is only the edge between words and padding that counts, which a convolution sees by design.
    """
    ahead, beyond = _lengthened(lab, padding, AHEAD), _lengthened(lab, padding, AHEAD + EXTRA_COLUMNS)
    try:
        first, second = (lab.runner.run(*given, mode="eval", changed=True) for given in (ahead, beyond) if given is not None)
    except Exception:
        return False
    length = padding.leaf.tensor.shape[1] + AHEAD
    may = May(torch.nn.functional.pad(~padding.valid, (0, AHEAD), value=True))
    for (_, one), (_, two) in zip(output_leaves(first), output_leaves(second), strict=False):
        trimmed = _fitted(two, one, length)
        if trimmed is None or (one.dim() == 0 and not scalars) or not one.is_floating_point():
            continue
        if first_difference(one, trimmed, may, scalars=scalars, floor=max(lab.floor, 1e-5 * float(one.abs().max()))) is not None:
            return False
    return True


def _longer(lab: Lab, padding: Padding, scalars: bool) -> list[Move]:
    """More padding: append columns that the mask hides, where the model can be run on them."""
    length = padding.leaf.tensor.shape[1]
    # Other sizes draw other random numbers, so this one is run without dropout.
    base = lab.base if not lab.runner.model.training else lab.runner.calm(lab.call.args, lab.call.kwargs)
    for columns in (MORE_COLUMNS, EXTRA_COLUMNS):  # fewer, where a table of positions has no more rows
        arguments = _lengthened(lab, padding, columns)
        if arguments is None:
            return []
        args, kwargs = arguments
        try:
            result = lab.runner.run(args, kwargs, mode="eval", changed=True)
            break
        except Exception:
            continue
    else:
        return []
    fitted = functools.partial(_fitted, length=length, more=columns)
    enough = (~padding.valid).sum(1)
    enough = enough >= min(columns, int(enough.max()))
    # A row that had hardly any padding has an edge now that it had not, which a convolution sees; such rows may move altogether.
    may = May(~(padding.valid & enough[:, None]), rows=May(~enough))
    whole = scalars and bool(enough.all()) and not any(batches.is_label(leaf) for leaf in lab.call.leaves)
    difference = _fitted_difference(base, result, may, fitted, whole, lab.floor)
    if difference is None:
        return []
    first = Trace(keep=True)
    again = lab.runner.run(lab.call.args, lab.call.kwargs, trace=first, mode="eval")

    def rerun(healing: Change | None) -> tuple[typing.Any, Trace]:
        second = Trace(keep=True, change=healing)
        return lab.runner.run(args, kwargs, trace=second, mode="eval", changed=True), second

    def left(second: typing.Any, floor: float) -> Difference | None:
        return _fitted_difference(again, second, may, fitted, whole, floor)

    kind = "columns of padding" if padding.leaf.tensor.dim() == 2 else "padded positions (axis 1)"
    changed = f"Appending {columns} more {kind} to `{padding.leaf.name}`"
    moves = []
    for rank, (found, one) in enumerate(lab.search(first, again, difference, may, rerun, left, fitted)):
        row, where = row_and_position(one, may)
        place = f"`{one.name}` of row {row}" if where is None else f"`{one.name}` at valid position {where} of row {row}"
        moves.append(
            lab.move(
                "padding-length", changed, place, one, found, first, pooled=where is None, assumed=padding.assumed, rank=rank,
                mask_name=padding.mask.name if padding.mask else "", **masks.told(lab, padding, first, found, content=False),
            )
        )  # fmt: skip
    return moves


def _fitted_difference(first: typing.Any, second: typing.Any, may: May, fitted: Fitted, scalars: bool, floor: float) -> Difference | None:
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


def _shorter(lab: Lab, padding: Padding) -> list[Move]:
    """Less padding: the longest rows are given as shorter than they are. A model that cuts the batch to its longest row
    (`pad_packed_sequence` does) hands less padding on for all the others, and these must not move."""
    lengths = padding.mask
    if lengths is None or lengths.tensor.dim() != 1 or not padding.right or _windows(lab):
        return []
    sizes = lengths.tensor.unique()
    if sizes.numel() < 2 or int(sizes[-1]) != padding.valid.shape[1]:
        return []
    longest, second = int(sizes[-1]), int(sizes[-2])
    args, kwargs = lab.call.replaced({lengths.path: lengths.tensor.clamp(max=second)})
    base = lab.base if not lab.runner.model.training else lab.runner.calm(lab.call.args, lab.call.kwargs)
    try:
        result = lab.runner.run(args, kwargs, mode="eval", changed=True)
    except Exception:
        return []
    fitted = functools.partial(_fitted, length=second, more=longest - second)
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
        changed = f"Giving the longest row's length as {second} instead of {longest} in `{lengths.name}` (all other rows have less padding then)"
        place = f"`{name}` of row {row}" if where is None else f"`{name}` at valid position {where} of row {row}"
        return [lab.move("padding-shorter", changed, place, difference, found, first, pooled=where is None, mask_name=lengths.name,
                         **masks.told(lab, padding, first, found, content=False))]  # fmt: skip
    return []


def _fill(leaf: Leaf, padding: Padding) -> float | int | bool | None:
    """What stands in a column of padding of this input."""
    if leaf is padding.leaf:
        return 0.0 if leaf.tensor.is_floating_point() else padding.pad_id
    if padding.mask is not None and leaf is padding.mask:
        return int(not padding.keep_value) if leaf.tensor.dtype is not torch.bool else not padding.keep_value
    if batches.is_label(leaf):
        return -100 if not leaf.tensor.is_floating_point() else None
    values = leaf.tensor[~padding.valid]
    unique = values.unique() if values.dim() == 1 else values.new_zeros(0)
    return unique[0].item() if unique.numel() == 1 else None

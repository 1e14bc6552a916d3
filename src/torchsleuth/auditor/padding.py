"""Does padding count? Two experiments: other content at padded positions, and more of them."""

from __future__ import annotations

import dataclasses
import typing

import torch

from torchsleuth.auditor import batch as batches
from torchsleuth.auditor import masks
from torchsleuth.auditor.batch import Leaf
from torchsleuth.auditor.columns import Added
from torchsleuth.auditor.compare import Difference, May, first_difference, output_leaves
from torchsleuth.auditor.firstmoved import Found, first_moved
from torchsleuth.auditor.handing import made_of, measures
from torchsleuth.auditor.lab import Lab, row_and_position
from torchsleuth.auditor.maxima import MAXIMA, maximum_moves
from torchsleuth.auditor.nested import Words
from torchsleuth.auditor.observation import Move
from torchsleuth.auditor.padded import Padding, idle_lengths
from torchsleuth.auditor.trace import Change, Op, Trace

EXTRA_COLUMNS = 3
MORE_COLUMNS = 8  # as many as models take together at once, or several times that
LONG = 128  # positions, as of a wave
AHEAD = 24  # columns of padding; more than most convolutions see


def padding_moves(lab: Lab, padding: Padding) -> list[Move]:
    may = May(~padding.valid, stepwise=True)
    scalars = not any(batches.is_label(leaf) for leaf in lab.call.leaves)
    change = [(padding.leaf, padding.like_leaf(~padding.valid))]
    difference = None
    if (padding.mask is not None and _of_ids(padding)) or padding.leaf.tensor.is_floating_point() or lab.embedded(padding.leaf):
        # Where only the pad id says what is padding, another id there would be a word.
        result, _ = lab.run(change)
        difference = first_difference(lab.base, result, may, scalars=scalars, floor=lab.floor, passed_on=_passed_on(lab, padding.leaf))
        if difference is not None and lab.astray(change):
            calm = lab.calmed()
            return padding_moves(calm, padding) if calm is not None else []
    width = idle_lengths(lab.call, padding) if difference is not None else None
    longer = _longer(lab, padding, scalars, width, every=difference is None)
    untold, longer = longer is None, longer or []
    if longer and longer[0].operation in MAXIMA and (won := maximum_moves(lab, padding)):
        return won  # that says more: what wins, and against what
    inert = _inert(lab, padding)
    apart = _apart(lab, padding) if difference is not None and inert and not longer and not _windows(lab) else None
    if difference is not None and inert and not longer and apart is None:
        longer = _longer(lab, padding, scalars, width, every=True) or []
    if difference is None or (inert and not longer and apart is None):
        # Nothing moved, or what stands at padded positions is zero by construction, and the length of it does not count.
        return longer or (_weighed(lab, padding, change, difference, may, scalars, untold) if difference else []) or _shorter(lab, padding) or maximum_moves(lab, padding)
    if inert and longer and longer[0].site is not None and not _windows(lab):
        # Zeros do not harm where they are added up; the amount of them is what counts, and this is where.
        leads = _told_by_content(lab, padding, change, difference, may, scalars, longer[0])
        return [dataclasses.replace(leads, inverted=_inverted(lab, padding, scalars)), *longer[1:]]
    places, trace = lab.locate(change, difference, may, scalars)
    if inert and places[0][0] is not None and places[0][0].op.name.startswith("conv") and _settles(lab, padding, scalars):
        return []
    if places[0][0] is not None and _convolves_by_design(lab, padding, trace, places[0][0].op):
        return []
    inverted = _inverted(lab, padding, scalars)
    moves = [_padding_move(lab, padding, one, found, trace, may, inverted and not rank, rank) for rank, (found, one) in enumerate(places)]
    return [dataclasses.replace(move, alone=apart or "") for move in moves]


def _of_ids(padding: Padding) -> bool:
    return (padding.leaf.tensor.dim() == 2 or isinstance(padding, Words)) and not padding.leaf.tensor.is_floating_point()


def _weighed(
    lab: Lab, padding: Padding, change: list[tuple[Leaf, torch.Tensor]], difference: Difference, may: May, scalars: bool, untold: bool
) -> list[Move]:  # fmt: skip
    """Zeros count in a softmax that does not hide them. More padding does not show that where its mask belongs to other samples (it is
    hidden for all of them), nor where the model cannot be run on more (`untold`), as where a mask of another sequence is given."""
    if not untold and not masks.repeats_mask(padding, lab.trace):
        return []
    places, trace = lab.locate(change, difference, may, scalars)
    moves = [_padding_move(lab, padding, one, found, trace, may, False, rank) for rank, (found, one) in enumerate(places)]
    weighing = [move for move in moves if "softmax" in move.operation or move.operation in masks.ATTENTIONS]
    return weighing if untold and moves[:1] == weighing[:1] else [move for move in weighing if move.repeated]


def _told_by_content(lab: Lab, padding: Padding, change: list[tuple[Leaf, torch.Tensor]], difference: Difference, may: May, scalars: bool, move: Move) -> Move:
    """An attention that lets more padding through: what stands at padded positions shows where its mask is beside the padding, where the amount does not."""
    if move.operation not in masks.ATTENTIONS or move.unmasked or move.aside or move.hollow or move.made_site is not None:
        return move
    places, trace = lab.locate(change, difference, may, scalars)
    found, site = places[0][0], lab.site(trace, places[0][0].op) if places[0][0] is not None else None
    same = found is not None and site is not None and move.site is not None and site.span == move.site.span
    return dataclasses.replace(move, **masks.told(lab, padding, trace, found, content=True)) if same else move


def _padding_move(
    lab: Lab, padding: Padding, difference: Difference, found: Found | None, trace: Trace, may: May, inverted: bool, rank: int
) -> Move:
    row, position = row_and_position(difference, may)
    row = row if row in padding.padded_rows else padding.padded_rows[0]
    count = int((~padding.valid[row]).sum())
    what = "tokens" if _of_ids(padding) else "time steps"
    changed = f"Changing the content of the {count} padded {what} of {padding.named(row)} of `{padding.leaf.name}`"
    pooled = may.length not in difference.first.shape and not (difference.first.dim() > 2 and any(may.elsewhere(difference.flags)))
    if difference.first.dim() <= 2:
        position = None  # [B, L]: one number for each position, or L features? The sizes do not tell
    where = f"`{difference.name}` of that {padding.sample}" if position is None else f"`{difference.name}` at valid position {position} of that {padding.sample}"
    told = masks.told(lab, padding, trace, found, content=True)
    if inverted and padding.mask is not None and batches.added_to_hide(padding.mask) is not None:
        told |= {"made_site": lab.beginning(padding.mask), "turned": True}  # added, it has one meaning only
    read = masks.read_at(padding, trace, found, row) if found is not None else None
    if read is not None and padding.right:
        told["read"] = f"in {padding.named(row)} position {read} is read, and the last that holds data is position {int(padding.valid[row].sum()) - 1}"
    return lab.move(
        "padding", changed, where, difference, found, trace, pooled=pooled, assumed=padding.assumed, pad_id=padding.pad_id, rank=rank,
        mask_name=padding.mask.name if padding.mask else "", real=padding.real, sequence=padding.leaf.name, inverted=inverted, **told,
    )  # fmt: skip


def _passed_on(lab: Lab, leaf: Leaf) -> set[int]:
    """Results that are these very ids, in another order perhaps: a model that sorts its samples gives their labels back in that order."""
    ids = leaf.tensor
    if ids.is_floating_point():
        return set()
    return {
        position for position, (_, one) in enumerate(output_leaves(lab.base))
        if one.shape == ids.shape and one.dtype == ids.dtype and torch.equal(one.flatten().sort().values, ids.flatten().sort().values)
    }  # fmt: skip


def _apart(lab: Lab, padding: Padding) -> str | None:
    """A row alone, with its padding and without: what it gives otherwise, in words; None where it gives the same, or cannot be run so."""
    lengths = padding.valid.sum(1)
    row = int(torch.where(lengths < lengths.max(), lengths, 0).argmax())  # the longest of those that have padding
    count = int(lengths[row])
    if not padding.right or count == int(lengths.max()):
        return None
    single, cut = row_alone(lab, padding, row, 0, count)
    base = lab.base if not lab.runner.model.training else lab.runner.calm(lab.call.args, lab.call.kwargs)
    try:
        with_padding, without = (lab.runner.run(*lab.call.replaced(changes), mode="eval", changed=True) for changes in (single, cut))
    except Exception:
        return None
    for (name, one), (_, two), (_, three) in zip(*map(output_leaves, (base, with_padding, without)), strict=False):
        if one.dim() < 1 or not one.is_floating_point() or one.shape[0] != len(lengths) or two.shape != one[:1].shape:
            continue
        least = max(lab.floor, 1e-4 * float(one.abs().max()))
        if float((one[row : row + 1] - two).abs().max()) > least:
            return None  # its neighbours count
        mine = two[:, :count] if two.shape[1:2] == padding.valid.shape[1:] and three.shape[1:2] == (count,) else two
        gap = float((mine - three).abs().max()) if mine.shape == three.shape else 0.0
        if gap > least:
            return f"row {row} alone, without its padding, gives another `{name}` than alone with it: it differs by {gap:.2g}"
    return None


def row_alone(lab: Lab, padding: Padding, row: int, first: int, count: int) -> tuple[dict, dict]:
    """Changes that leave one row of the batch: with its padding, and with so many positions from the first that is no padding on."""
    single, cut = {}, {}
    for leaf in lab.call.leaves:
        tensor, axis = leaf.tensor, _positions(leaf, padding)
        samples = 0 if padding.axis else min(1, tensor.dim() - 1)
        if tensor.dim() and tensor.shape[samples] == padding.valid.shape[0]:
            single[leaf.path] = tensor.narrow(samples, row, 1)
            cut[leaf.path] = single[leaf.path] if axis is None else single[leaf.path].narrow(axis, first, count)
    return single, cut


def _windows(lab: Lab) -> bool:
    """Is there a convolution that sees more than one position at a time?"""
    return any(op.name.startswith("conv") and (len(op.ins) < 2 or set(op.ins[1].size[2:]) != {1}) for op in lab.trace.ops)


def _sees_beside(lab: Lab) -> bool:
    """Is there anything that sees the neighbours of a position, and so the edge of a row?"""
    return _windows(lab) or any(op.name in ("unfold", "roll") or ("pool" in op.name and not op.name.startswith("adaptive")) for op in lab.trace.ops)


def _convolves_by_design(lab: Lab, padding: Padding, trace: Trace, op: Op) -> bool:
    """A convolution of a library's own model, which is given the mask that it asks for: that it sees the edge is not the program's doing."""
    site = lab.site(trace, op)
    return op.name.startswith("conv") and padding.mask is not None and not padding.suspicious_polarity and site is not None and bool(site.library)


def _inert(lab: Lab, padding: Padding) -> bool:
    """The padded content cannot be anything but zero: an embedding's `padding_idx`, or zeros in a float input."""
    if padding.leaf.tensor.is_floating_point():
        return bool((padding.leaf.tensor[padding.like_leaf(~padding.valid)] == 0).all())
    lookups = lab.embedded(padding.leaf)
    return bool(lookups) and all(
        padding.pad_id is not None and op.argument(2, "padding_idx") == padding.pad_id for op in lookups
    )


def _inverted(lab: Lab, padding: Padding, scalars: bool) -> bool:
    """Do the words not count? Disturb one word and see whether any other valid position moves."""
    if padding.mask is None or padding.mask.tensor.dim() < 2:
        return False
    count = padding.valid.sum(1, keepdim=True)
    # One from the middle: the first and the last are what pooled outputs are read from.
    first = padding.valid & (padding.valid.cumsum(1) == (count + 1) // 2) & (~padding.valid).any(1, keepdim=True)
    result, _ = lab.run([(padding.leaf, padding.like_leaf(first))])
    return first_difference(lab.base, result, May(first), scalars=scalars, floor=lab.floor) is None


def _lengthened(lab: Lab, padding: Padding, columns: int, width: Leaf | None = None) -> tuple[tuple, dict] | None:
    """The call's arguments with so many columns of padding more; None where it is not known what would stand in them."""
    if not padding.right:
        return None
    # Another sequence that has padding of its own may happen to be as long: it stays as it is, with its mask.
    apart = [leaf for other in lab.paddings if other.leaf is not padding.leaf and not torch.equal(other.valid, padding.valid) for leaf in (other.leaf, other.mask) if leaf is not None]
    changes = {}
    for leaf in lab.call.leaves:
        tensor, axis = leaf.tensor, _positions(leaf, padding)
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


def _positions(leaf: Leaf, padding: Padding) -> int | None:
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


def _settles(lab: Lab, padding: Padding, scalars: bool) -> bool:
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


def _longer(lab: Lab, padding: Padding, scalars: bool, width: Leaf | None, every: bool) -> list[Move] | None:
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

    kind = f"{'columns' if padding.axis else 'rows'} of padding" if _of_ids(padding) else f"padded positions (axis {padding.axis})"
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
        changed = f"Giving the longest row's length as {second} instead of {longest} in `{lengths.name}` (all other rows have less padding then)"
        place = f"`{name}` of row {row}" if where is None else f"`{name}` at valid position {where} of row {row}"
        return [lab.move("padding-shorter", changed, place, difference, found, first, pooled=where is None, mask_name=lengths.name,
                         **masks.told(lab, padding, first, found, content=False))]  # fmt: skip
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

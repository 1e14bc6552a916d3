"""Does padding count? Two experiments: other content at padded positions, and (`lengthening`) more of them."""

from __future__ import annotations

import dataclasses

import torch

from torchsleuth.auditor.inputs import batch as batches
from torchsleuth.auditor.inputs.batch import Leaf
from torchsleuth.auditor.inputs.padded import Padding, idle_lengths
from torchsleuth.auditor.laboratory.compare import Difference, May, first_difference, output_leaves
from torchsleuth.auditor.laboratory.firstmoved import Found
from torchsleuth.auditor.laboratory.lab import Lab, row_and_position
from torchsleuth.auditor.observation import Move
from torchsleuth.auditor.sequences import masks
from torchsleuth.auditor.sequences.lengthening import longer_moves, of_ids, positions_of, settles, shorter_moves, windows
from torchsleuth.auditor.sequences.maxima import MAXIMA, maximum_moves
from torchsleuth.auditor.tracing.trace import Op, Trace


def padding_moves(lab: Lab, padding: Padding) -> list[Move]:
    may = May(~padding.valid, stepwise=True)
    scalars = not any(batches.is_label(leaf) for leaf in lab.call.leaves)
    change = [(padding.leaf, padding.like_leaf(~padding.valid))]
    difference = None
    if (padding.mask is not None and of_ids(padding)) or padding.leaf.tensor.is_floating_point() or lab.embedded(padding.leaf):
        # Where only the pad id says what is padding, another id there would be a word.
        result, _ = lab.run(change)
        difference = first_difference(lab.base, result, may, scalars=scalars, floor=lab.floor, passed_on=_passed_on(lab, padding.leaf))
        if difference is not None and lab.astray(change):
            calm = lab.calmed()
            return padding_moves(calm, padding) if calm is not None else []
    width = idle_lengths(lab.call, padding) if difference is not None else None
    longer = longer_moves(lab, padding, scalars, width, every=difference is None)
    untold, longer = longer is None, longer or []
    if longer and longer[0].operation in MAXIMA and (won := maximum_moves(lab, padding)):
        return won  # that says more: what wins, and against what
    inert = _inert(lab, padding)
    apart = _apart(lab, padding) if difference is not None and inert and not longer and not windows(lab) else None
    if difference is not None and inert and not longer and apart is None:
        longer = longer_moves(lab, padding, scalars, width, every=True) or []
    if difference is None or (inert and not longer and apart is None):
        # Nothing moved, or what stands at padded positions is zero by construction, and the length of it does not count.
        return longer or (_weighed(lab, padding, change, difference, may, scalars, untold) if difference else []) or shorter_moves(lab, padding) or maximum_moves(lab, padding)
    if inert and longer and longer[0].site is not None and not windows(lab):
        # Zeros do not harm where they are added up; the amount of them is what counts, and this is where.
        leads = _told_by_content(lab, padding, change, difference, may, scalars, longer[0])
        return [dataclasses.replace(leads, inverted=_inverted(lab, padding, scalars)), *longer[1:]]
    places, trace = lab.locate(change, difference, may, scalars)
    if inert and places[0][0] is not None and (places[0][0].op.name.startswith("conv") or (windows(lab) and places[0][0].op.name in MAXIMA)):
        if settles(lab, padding, scalars):
            return []
        if longer and longer[0].site is not None and not longer[0].operation.startswith("conv"):
            return longer  # it goes over zeros, as it should; what it gives there counts later on
    if places[0][0] is not None and _convolves_by_design(lab, padding, trace, places[0][0].op):
        return []
    inverted = _inverted(lab, padding, scalars)
    moves = [_padding_move(lab, padding, one, found, trace, may, inverted and not rank, rank) for rank, (found, one) in enumerate(places)]
    declared = _other_pad_id(lab, padding) if places[0][0] is None else None
    return [dataclasses.replace(move, **(declared or {"alone": apart or ""})) for move in moves]


def _other_pad_id(lab: Lab, padding: Padding) -> dict | None:
    """The model tells padding by the id that its configuration names, and another one stands there: with that one in its place, a row gives
    what it gives alone and without padding."""
    config = next((c for m in lab.runner.model.modules() if isinstance(getattr(c := vars(m).get("config"), "pad_token_id", None), int)), None)
    ids, row = padding.leaf.tensor, padding.padded_rows[0]
    standing = ids[padding.like_leaf(~padding.valid)].unique()
    if config is None or not padding.right or len(standing) != 1 or int(standing) == config.pad_token_id:
        return None
    filled = {padding.leaf.path: ids.masked_fill(padding.like_leaf(~padding.valid), config.pad_token_id)}
    try:
        without = lab.runner.run(*lab.call.replaced(row_alone(lab, padding, row, 0, int(padding.valid[row].sum()))[1]), mode="eval", changed=True)
        with_it = lab.runner.run(*lab.call.replaced(filled), mode="eval", changed=True)
    except Exception:
        return None
    for (name, one), (_, two) in zip(output_leaves(without), output_leaves(with_it), strict=False):
        if one.is_floating_point() and one.dim() == two.dim() == 2 and one.shape[0] == 1:
            same = float((one - two[row : row + 1]).abs().max()) <= max(lab.floor, 1e-4 * float(one.abs().max()))
            return {"declares": config.pad_token_id, "pad_id": int(standing), "alone": f"with {config.pad_token_id} there, `{name}` of {padding.named(row)} is what that row gives without padding"} if same else None
    return None


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
    what = "tokens" if of_ids(padding) else "time steps"
    changed = f"Changing the content of the {count} padded {what} of {padding.named(row)} of `{padding.leaf.name}`"
    pooled = not may.counts_positions(difference.first.shape) and not (difference.first.dim() > 2 and any(may.elsewhere(difference.flags)))
    if difference.first.dim() <= 2:
        position = None  # [B, L]: one number for each position, or L features? The sizes do not tell
    where = f"`{difference.name}` of that {padding.sample}" if position is None else f"`{difference.name}` at valid position {position} of that {padding.sample}"
    told = masks.told(lab, padding, trace, found, content=True)
    if inverted and padding.mask is not None and batches.added_to_hide(padding.mask) is not None:
        told |= {"made_site": lab.beginning(padding.mask), "turned": True}  # added, it has one meaning only
    read = masks.read_at(padding, trace, found, row) if found is not None else None
    if read is not None and padding.right:
        told["read_at"] = read[1]
        told["read"] = f"in {padding.named(row)} position {read[0]} is read, and the last that holds data is position {int(padding.valid[row].sum()) - 1}"
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
        tensor, axis = leaf.tensor, positions_of(leaf, padding)
        samples = 0 if padding.axis else min(1, tensor.dim() - 1)
        if tensor.dim() and tensor.shape[samples] == padding.valid.shape[0]:
            single[leaf.path] = tensor.narrow(samples, row, 1)
            cut[leaf.path] = single[leaf.path] if axis is None else single[leaf.path].narrow(axis, first, count)
    return single, cut


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

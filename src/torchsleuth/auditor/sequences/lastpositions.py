"""Is the last position of every row left out? Lengths, masks and indices that are one too small, which let no padding through and lose data."""

from __future__ import annotations

import math
import typing

import torch

from torchsleuth.auditor.inputs.heldrows import held, listed_at
from torchsleuth.auditor.inputs.padded import Padding, declared_pad_ids
from torchsleuth.auditor.laboratory.compare import moved_flags, output_leaves
from torchsleuth.auditor.laboratory.lab import Lab
from torchsleuth.auditor.observation import Move
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.beginnings import maker
from torchsleuth.auditor.tracing.stepview import StepView
from torchsleuth.auditor.tracing.trace import Op, Trace

FEWEST = 3  # rows
MOST_BEFORE = 8  # positions that a model puts before those of its input
_SORTING = frozenset({"sort"})  # `pack_padded_sequence` does
_READING = {"gather", "__getitem__", "take_along_dim", "index_select"}


def last_position_moves(lab: Lab, step: StepView) -> list[Move]:
    """Only where the loss compares one answer for each row: the last one of a sequence may be an answer, and not be shown."""
    for padding in lab.paddings:
        if padding.axis == 0 or not padding.right or padding.assumed or not _one_answer_each(step, padding):
            continue
        rows, given = held(padding.leaf, padding.axis, declared_pad_ids(lab.call.model)), padding.valid.sum(1)
        more = rows.to(given.device) - given if rows is not None else None
        if _is_answer(step, padding, given - 1) or _is_answer(step, padding, given.clamp(max=padding.valid.shape[1] - 1)):
            continue
        if padding.mask is not None and more is not None and bool((more == 1).all()) and _varied(given) and not _all_alike(padding, given):
            return _given_short(lab, padding)
        if more is None or not bool(more.any()):
            return _read_short(lab, padding)
    return []


def _one_answer_each(step: StepView, padding: Padding) -> bool:
    batch, length = padding.valid.shape
    sizes = [call.target.size for _, call in step.watch.losses if call.target is not None]
    return bool(sizes) and all(size[:1] == (batch,) and length not in size[1:] and length - 1 not in size[1:] for size in sizes)


def _is_answer(step: StepView, padding: Padding, at: torch.Tensor) -> bool:
    """Does the loss ask for what stands there?"""
    values = padding.leaf.values.movedim(padding.axis, 1)
    there = values[torch.arange(len(at), device=values.device), at.to(values.device)].reshape(len(at), -1)
    asked = [target for _, target, _, _ in step.watch.targets] + step.watch.answers
    return any(bool((there[:, :, None] == one.to(there.device).reshape(len(at), 1, -1)).flatten(1).any(1).all()) for one in asked if one.shape[:1] == at.shape)


def _varied(lengths: torch.Tensor) -> bool:
    """Not all of one remainder: a model that takes every few positions together loses the same of each row."""
    gaps = (lengths - lengths.min()).tolist()
    return len(gaps) >= FEWEST and math.gcd(*map(int, gaps)) == 1


def _all_alike(padding: Padding, at: torch.Tensor) -> bool:
    """The end of a sentence, which stands in every row, may be left out on purpose."""
    if padding.leaf.tensor.is_floating_point():
        return False
    return padding.leaf.values.gather(1, at[:, None].to(padding.leaf.values.device)).unique().numel() < 2


def _flags(padding: Padding, at: torch.Tensor) -> torch.Tensor:
    return torch.arange(padding.valid.shape[1], device=at.device) == at[:, None]


def _moved_rows(lab: Lab, padding: Padding, at: torch.Tensor) -> torch.Tensor | None:
    """Which rows' results move with what stands at one position of each; None where results have no axis for the samples."""
    result, _ = lab.run([(padding.leaf, padding.like_leaf(_flags(padding, at)))])
    moved = None
    for (_, one), (_, two) in zip(output_leaves(lab.base), output_leaves(result), strict=False):
        if one.shape != two.shape or not one.is_floating_point() or one.shape[:1] != at.shape:
            continue
        rows = moved_flags(one, two, lab.floor)[0].reshape(len(at), -1).any(1)
        moved = rows if moved is None else moved | rows
    return moved


def _given_short(lab: Lab, padding: Padding) -> list[Move]:
    """All rows hold one more than the lengths or the mask say, and it is not read."""
    assert padding.mask is not None
    given = padding.valid.sum(1)
    moved = _moved_rows(lab, padding, given)
    if moved is None or bool(moved.any()):
        return []
    row = padding.padded_rows[0]
    text = f"every row of `{padding.leaf.name}` holds data at one position more than `{padding.mask.name}` says, and padding after it: row {row} up to position {int(given[row])}, `{padding.mask.name}` up to {int(given[row]) - 1}"
    made = listed_at(lab.beginning(padding.mask))
    if made is None and lab.called is None:
        return []
    return [Move("padding-short", text, _unread(padding, given), 0.0, 0.0, mask_name=padding.mask.name, made_site=made, site=lab.called, sequence=padding.leaf.name)]


def _read_short(lab: Lab, padding: Padding) -> list[Move]:
    """The lengths or the mask are right, and what the model makes of them is not: the last position counts in no row, and the one before it in all."""
    last = padding.valid.sum(1) - 1
    if not _varied(last) or int(last.min()) < 1 or _all_alike(padding, last):
        return []
    moved = _moved_rows(lab, padding, last)
    if moved is None or bool(moved.any()):
        return []
    before = _moved_rows(lab, padding, last - 1)
    if before is None or not bool(before.all()):
        return []
    trace = Trace(keep=True)
    lab.runner.run(lab.call.args, lab.call.kwargs, trace=trace, mode=lab.mode)
    made = next((site for op in trace.ops if (site := _one_short(trace, op, padding, last)) is not None), None)
    if made is None:
        return []
    return [Move("padding-short", _unread(padding, last), "changing the one before it moved the output of each row", 0.0, 0.0, made_site=made, sequence=padding.leaf.name)]


def _unread(padding: Padding, at: torch.Tensor) -> str:
    row = padding.padded_rows[0]
    return f"changing the last position of every row of `{padding.leaf.name}` (position {int(at[row])} of row {row}) moved no output of any row"


def _one_short(trace: Trace, op: Op, padding: Padding, last: torch.Tensor) -> Site | None:
    """Where flags are made that leave the last positions out, or numbers of positions that are one less."""
    if op.name == "_pack_padded_sequence" or op.name in _READING:
        wanted = last if op.name == "_pack_padded_sequence" else last - 1
        for seen in op.ins[1:]:
            value = _value(trace, seen.key)
            if value is not None and value.dim() > 0 and value.shape[0] == len(last) and not value.dtype.is_floating_point and value.dtype is not torch.bool:
                one, other = value.reshape(len(last), -1).cpu(), wanted.cpu()[:, None]
                if torch.equal(*(side.sort(0).values for side in (one, other.expand_as(one)))) if wanted is last else bool((one == other).all()):  # packed in the order of their lengths
                    made = maker(trace, seen.key, _SORTING)
                    return trace.site(made if made is not None and made.place.direct else op)
        return None
    batch, length = padding.valid.shape
    for value in op.tensors:
        shape = tuple(n for n in value.shape if n != 1)
        if op.place.direct and value.dtype is torch.bool and len(shape) == 2 and shape[0] == batch and 0 <= shape[1] - length <= MOST_BEFORE:
            before = shape[1] - length  # what the model puts before the words, a token for the class, say
            short = torch.arange(shape[1], device="cpu") < last.cpu()[:, None] + before
            flags = value.reshape(shape).cpu()
            if torch.equal(flags, short) or torch.equal(flags, ~short):
                return trace.site(op)
    return None


def _value(trace: Trace, key: int) -> torch.Tensor | None:
    index = trace.producer.get(key)
    op: typing.Any = trace.ops[index] if index is not None and index < len(trace.ops) else None
    return next((kept for out, kept in zip(op.outs, op.tensors, strict=False) if out.key == key), None) if op is not None else None

"""Which token of the input does the loss compare each prediction with? Read off the operands of the loss, while they are there."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from torchsleuth.auditor.losses.distributions import KEEPING
from torchsleuth.auditor.observation import LabelShift
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.beginnings import given_by
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Trace

_CUTTING = {"__getitem__", "narrow", "roll", "clone", "stack", "cat", "narrow_copy", "slice"}
_LABELS_KEEP = KEEPING | {"pad", "masked_fill", "where", "roll", "__setitem__", "stack", "cat", "pad_sequence", "clone"}
_PICKING = {"masked_select", "index_select", "cat", "_pack_padded_sequence"}
OFFSETS = (-1, 0, 1, 2)
MOST_PICKED = 1 << 13  # predictions that are looked for one by one
TELLING = 16  # classes whose scores tell one prediction from another


@dataclass
class Lookup:
    """Token ids that were looked up in a table of `rows` embeddings, or made one hot."""

    op: Op
    ids: torch.Tensor
    values: torch.Tensor  # the same, to be read
    rows: int
    padding_idx: int | None
    whole: int | None = None  # the number of the tensor that these are, where only steps of it were looked up, one by one


@dataclass
class Shift:
    """The prediction at position t is compared with token t + `offset` of the ids that `lookup` looked up."""

    op: Op
    offset: int
    matched: int
    compared: int
    lookup: Lookup
    axis: int  # of the ids, along which positions are counted: 0 for data with time first
    counted: torch.Tensor  # flags like the ids: the prediction made there is asked for
    scores: tuple[int, ...]  # the shape of the predictions, before they were cut
    start: int = 0  # the first prediction that is compared with anything
    late: Op | None = None  # the cut that made the ids, where a token stands before them in what they were cut from


@dataclass
class _Aligned:
    """Predictions cut from a tensor of shape `whole`, from `start` on, with as many rows of labels as samples."""

    start: int
    batch: int
    length: int
    whole: tuple[int, ...]
    axis: int
    rows: tuple[int, ...] | None = None  # where each prediction stands in `whole`, samples and positions counted in one, if only some were chosen


def shift_of(trace: Trace, op: Op, given: torch.Tensor, target: torch.Tensor, ignore: int | None, lookups: list[Lookup]) -> Shift | None:
    """The one distance at which the labels match the ids; the next token, if they match that of any input."""
    found: list[Shift] = []
    for aligned in _alignments(trace, op, given):
        goal, counted = _goal(aligned, target, ignore)
        for lookup in lookups:
            ids = lookup.values if aligned.axis == 1 else lookup.values.T
            if ids.shape[0] == aligned.batch and int(ids.max()) < given.shape[1]:
                found += _matching(op, aligned, goal, counted, ids, lookup)
    # A decoder that goes from token to token may put the answer to token t at position t + 1: what it is asked for is not told by that.
    found = [shift for shift in found if shift.lookup.whole is None or shift.offset == 1]
    chosen = next((shift for shift in found if shift.offset == 1), found[0] if found else None)
    if chosen is not None and chosen.offset == 0:
        chosen.late = _cut_late(trace, chosen)
    return chosen


def _goal(aligned: _Aligned, target: torch.Tensor, ignore: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The labels by samples and positions, and which of them count."""
    counted = target != ignore
    if aligned.rows is not None:
        places = torch.tensor(aligned.rows, device=target.device)
        goal = target.new_zeros(aligned.batch * aligned.length).index_put((places,), target)
        counted = torch.zeros_like(goal, dtype=torch.bool).index_put((places,), counted)
    else:
        goal = target
    shape = (aligned.batch, aligned.length)
    return (goal.reshape(shape), counted.reshape(shape)) if aligned.axis == 1 else (goal.reshape(shape[::-1]).T, counted.reshape(shape[::-1]).T)


def shift_of_chosen(trace: Trace, op: Op, source: Op, given: torch.Tensor, index: torch.Tensor, lookups: list[Lookup]) -> Shift | None:
    """The same of a cross entropy by hand: `log_probs.gather(-1, tokens[..., None])`, where `source` is the `log_softmax` that made these."""
    batch, length, classes = given.shape
    aligned: _Aligned | None = None
    for seen in (source.ins[0], *(made.ins[0] for made in trace.made_through(source.ins[0], KEEPING) if made.ins)):
        whole = trace.tensor(seen.key)
        if whole is None or whole.dim() != 3 or whole.shape[0] != batch or whole.shape[2] != classes:
            continue
        logs = whole.detach().log_softmax(-1)
        start = next((at for at in range(min(3, whole.shape[1] - length + 1)) if torch.allclose(logs[:, at : at + length], given, atol=1e-6)), None)
        aligned = _Aligned(start, batch, length, seen.size, 1) if start is not None else aligned
    if aligned is None:
        return None
    goal = index.reshape(batch, length)
    every = torch.ones_like(goal, dtype=torch.bool)
    for made in trace.made_through(op.ins[1], KEEPING | {"masked_fill", "where"}):
        raw = trace.tensor(made.ins[0].key) if made.ins and made.name not in ARRANGING else None
        if raw is not None and raw.numel() == goal.numel():
            every = every & (raw.detach().reshape(goal.shape).to(goal.device) == goal)  # what is not to count was given some id, to be looked up at all
    fitting = [lookup for lookup in lookups if lookup.values.shape[0] == batch and lookup.whole is None]
    found = [shift for lookup in fitting for shift in _matching(op, aligned, goal, every, lookup.values, lookup)]
    return next((shift for shift in found if shift.offset == 1), found[0] if found else None)


def _cut_late(trace: Trace, shift: Shift) -> Op | None:
    ids = shift.lookup.values if shift.axis == 1 else shift.lookup.values.T
    for op in trace.made_through(shift.lookup.op.ins[0], KEEPING):
        whole = trace.tensor(op.ins[0].key) if op.ins and op.name in _CUTTING else None
        if whole is None or whole.dim() != 2:
            continue
        whole = whole.detach() if shift.axis == 1 else whole.detach().T
        after = whole[:, 1 : 1 + ids.shape[1]]
        if after.shape == ids.shape and torch.equal(after.to(ids), ids):
            return op
    return None


def _matching(op: Op, aligned: _Aligned, goal: torch.Tensor, counted: torch.Tensor, ids: torch.Tensor, lookup: Lookup) -> list[Shift]:
    start, length = aligned.start, aligned.length
    shares = {}
    for offset in OFFSETS:
        matched = compared = 0
        first = max(0, -(start + offset))
        last = min(length, ids.shape[1] - start - offset)
        if last > first:
            use = counted[:, first:last]
            same = (goal[:, first:last] == ids[:, start + offset + first : start + offset + last].to(goal.device)) & use
            if offset > 0:
                use = use & (same | ~_last(counted)[:, first:last])
            matched, compared = int(same.sum()), int(use.sum())
        shares[offset] = (matched, compared)
    good = [o for o, (m, c) in shares.items() if c >= 4 and m >= 0.98 * c]
    fair = [o for o, (m, c) in shares.items() if c and m >= 0.7 * c]
    if len(good) != 1 or fair != good:
        return []
    flags = torch.zeros(ids.shape, dtype=torch.bool, device="cpu")
    flags[:, start : start + length] = counted[:, : max(0, ids.shape[1] - start)].cpu()
    return [Shift(op, good[0], *shares[good[0]], lookup, aligned.axis, flags if aligned.axis == 1 else flags.T, aligned.whole, start)]


def _last(counted: torch.Tensor) -> torch.Tensor:
    """The last label of each row that counts: the end of a sentence, say, which a decoder is asked for and never shown."""
    return counted & (counted.flip(1).cumsum(1).flip(1) == 1)


def _alignments(trace: Trace, op: Op, given: torch.Tensor) -> list[_Aligned]:
    """How the predictions lie in the tensor of three axes that they were cut from: samples first, or time first."""
    classes = given.shape[1] if given.dim() > 1 else 0
    candidates = [op.ins[0]] + [made.ins[0] for made in trace.made_through(op.ins[0], KEEPING) if made.ins]
    if given.dim() not in (2, 3):
        return []
    rows = given.transpose(1, 2) if given.dim() == 3 else given
    best: dict[int, _Aligned] = {}
    for seen in candidates:
        if len(seen.size) != 3 or classes not in (seen.size[2], seen.size[1]):
            continue
        whole = trace.tensor(seen.key)
        if whole is None:
            continue
        whole = whole.detach()
        turned = [whole] * (seen.size[2] == classes) + [whole.transpose(1, 2)] * (seen.size[1] == classes)  # as many positions as classes: either axis may count them
        for axis in (1, 0) if rows.dim() == 2 else (1,):
            for one in turned:
                if (aligned := _laid(one if axis == 1 else one.transpose(0, 1), rows, seen.size, axis)) is not None:
                    best[axis] = aligned  # the last candidate is the widest
                    break
    return [best[axis] for axis in (1, 0) if axis in best] or _picked(trace, op, rows)


def _picked(trace: Trace, op: Op, rows: torch.Tensor) -> list[_Aligned]:
    """The same of predictions that were picked one by one, `logits[:, :-1][keep]` or packed by lengths: each row is found in what they were picked from."""
    wide = [made.ins[0] for made in trace.made_through(op.ins[0], KEEPING | _PICKING) if made.ins and len(made.ins[0].size) == 3 and made.ins[0].size[2] == rows.shape[-1]]
    whole = next((tensor for seen in reversed(wide) if (tensor := trace.tensor(seen.key)) is not None), None)
    if whole is None or rows.dim() != 2 or whole.shape[0] * whole.shape[1] > MOST_PICKED or len(rows) > MOST_PICKED:
        return []
    flat = whole.detach().flatten(0, 1)
    places: dict[tuple[float, ...], int] = {}
    for at, row in enumerate(flat[:, :TELLING].tolist()):
        places[tuple(row)] = at if tuple(row) not in places else -1  # twice the same: which of the two was picked is not told
    found = [places.get(tuple(row), -1) for row in rows[:, :TELLING].tolist()]
    if not found or -1 in found or len(set(found)) < len(found) or not torch.equal(flat[torch.tensor(found, device=flat.device)].to(rows), rows):
        return []
    first, second = whole.shape[:2]
    return [_Aligned(0, first, second, tuple(whole.shape), 1, tuple(found)), _Aligned(0, second, first, tuple(whole.shape), 0, tuple(found))]


def _laid(whole: torch.Tensor, rows: torch.Tensor, size: tuple[int, ...], axis: int) -> _Aligned | None:
    batch, classes = whole.shape[0], whole.shape[2]
    if rows.dim() == 3:
        shaped = rows
    elif batch == 0 or rows.shape[0] % batch:
        return None
    else:
        shaped = rows.reshape(batch, -1, classes) if axis == 1 else rows.reshape(-1, batch, classes).transpose(0, 1)
    length = shaped.shape[1]
    for start in range(whole.shape[1] - length + 1 if length else 0):
        if torch.equal(whole[:, start].to(shaped), shaped[:, 0]) and torch.equal(whole[:, start : start + length].to(shaped), shaped):
            return _Aligned(start, batch, length, size, axis)
    return None


def label_shifts(
    shifts: list[Shift], trace: Trace, name: typing.Callable[[Lookup], str], causal: typing.Callable[[Shift], bool], shown: typing.Callable[[Shift], Site | None]
) -> list[LabelShift]:
    """Those that ask for another token than the next; not where another loss asks for that one (several tokens ahead, or both ways)."""
    found = []
    for shift in shifts:
        site = trace.site(shift.op)
        if site is None or any(other.offset == 1 and torch.equal(other.lookup.values, shift.lookup.values) for other in shifts):
            continue
        is_causal, axis = causal(shift), shift.axis
        if not is_causal and shift.offset == 0 and shift.lookup.ids.shape[0] > 1:
            # The labels are the ids themselves: along which axis positions are counted, they do not tell.
            axis = 1 - shift.axis
            is_causal = causal(dataclasses.replace(shift, axis=axis))
        made = [(op, one) for op, one in _labels_made(trace, shift.op, moved=shift.offset != 0) if one.span != site.span]
        labels = tuple(one for _, one in made[: 2 if shift.offset == 2 else 1])  # where they are shifted twice, that is done in two places
        if len(labels) < shift.offset or shift.offset < 0 and not labels:
            before = _shifted_before(trace, shift.op)
            labels = (before, *labels) if before is not None else labels
        moved = next((op for op in _with_written(trace, trace.made_through(shift.lookup.op.ins[0], _LABELS_KEEP)) if _drops_some(op)), None) if shift.offset < 0 else None
        if moved is not None and not any(_drops_some(op) for op, _ in made):
            shift.late, labels = moved, ()  # the labels are whole: it is the ids that were moved
        inputs = trace.site(shift.late) if shift.late is not None else None
        predictions = _predictions_cut(trace, shift) if shift.start else None
        found.append(LabelShift(shift.offset, shift.matched, shift.compared, is_causal, site, name(shift.lookup), axis == 0, labels, inputs, predictions,
                                labels_cut=bool(made) and made[0][0].name != "clone", shown_site=shown(shift) if shift.offset == 0 and not is_causal else None))  # fmt: skip
    return found


def _predictions_cut(trace: Trace, shift: Shift) -> Site | None:
    """The program's own expression that leaves the first predictions out."""
    for op in trace.made_through(shift.op.ins[0], KEEPING):
        if op.name in _CUTTING and op.place.code is op.place.user_code and _drops_some(op):
            return trace.site(op)
    return None


def _labels_made(trace: Trace, loss: Op, moved: bool) -> list[tuple[Op, Site]]:
    """The program's own expressions that cut the labels, back from the loss; if none is known to do so, the last one that may have, or copied them.

    `moved`: they stand elsewhere than the tokens, so that copying and stacking them is not what did it.
    """
    found: dict[typing.Any, tuple[Op, Site]] = {}
    last: list[tuple[Op, Site]] = []
    pieces: list[tuple[Op, Site]] = []
    if len(loss.ins) < 2:
        return []
    for op in _with_written(trace, trace.made_through(loss.ins[1], _LABELS_KEEP)):
        site = trace.site(op)
        if op.name in ("stack", "cat") and not op.place.direct:
            continue  # a data loader's
        if op.name in _CUTTING and site is not None and not site.library and op.place.code is op.place.user_code:
            last = last or [(op, site)]
            pieces = pieces or [(op, site)] * (moved and _takes_piece(op))
            if _drops_some(op):
                found.setdefault(site.span, (op, site))
    return list(found.values()) or pieces or last


def _takes_piece(op: Op) -> bool:
    """Some of the positions, one after the other: `tokens[i + 1 : i + 1 + n]`."""
    before, after = (op.ins[0].size, op.outs[0].size) if op.ins and op.outs else ((), ())
    return op.name in ("__getitem__", "narrow", "slice") and len(op.ins) == 1 and len(before) == len(after) > 0 and after[-1] < before[-1]


def _with_written(trace: Trace, way: Iterable[Op]) -> Iterator[Op]:
    """These calls, and behind each that writes (`labels[:, :-1] = ids[:, 1:]`) those that made what it wrote."""
    for op in way:
        yield op
        if op.name == "__setitem__" and len(op.ins) > 1:
            yield from (one for one in trace.made_through(op.ins[-1], _LABELS_KEEP) if _drops_some(one))


def _shifted_before(trace: Trace, loss: Op) -> Site | None:
    """Where the labels that the audit was called with were cut."""
    if len(loss.ins) < 2 or trace.beforehand is None:
        return None
    given = given_by(trace, list(trace.made_through(loss.ins[1], _LABELS_KEEP)), loss.ins[1].key)
    return trace.beforehand.shifted(given) if given is not None else None


def _drops_some(op: Op) -> bool:
    """A position or two are left out, and nothing else; or all move on."""
    before, after = (op.ins[0].size, op.outs[0].size) if op.ins and op.outs else ((), ())
    return op.name == "roll" or (len(before) == len(after) and sum(a - b for a, b in zip(before, after, strict=True)) in (1, 2))

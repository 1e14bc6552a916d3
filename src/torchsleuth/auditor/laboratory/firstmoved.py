"""The first operation whose result moved where it must not: two runs, call by call.

What only re-reads, packs or joins is looked through as far as it can be; how axes may be read is said by `compare.May`.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from dataclasses import dataclass

import torch

from torchsleuth.auditor.laboratory.compare import May, distance, moved_flags, output_leaves
from torchsleuth.auditor.losses.broadcasting import ELEMENTWISE
from torchsleuth.auditor.samples.singly import Singly
from torchsleuth.auditor.sequences.steps import Steps
from torchsleuth.auditor.tracing.trace import Op, Seen, Trace


@dataclass
class Found:
    op: Op
    distance: float
    allowed: float
    again: Op | None = None  # the same operation in the second run
    second: Trace | None = None
    chosen: bool = False  # it takes or gives numbers of places, and these moved: another choice was made
    carried: bool = False  # it takes a state on to the next step of a loop, through padding
    across: Found | None = None  # before it, a table was laid so that samples stand along both its axes
    crossed: Op | None = None  # it is made of what a loop over the samples made of earlier ones, too: the call that took this one out of the batch


_VIEWS = {"view", "reshape", "flatten", "unflatten", "view_as", "reshape_as", "as_strided"}


def first_moved(
    one: Trace,
    two: Trace,
    result: typing.Any,
    leaf: int,
    may: May,
    fitted: typing.Callable[[torch.Tensor, torch.Tensor], torch.Tensor | None] | None = None,
    by_design: typing.Container[int] = (),
) -> Found | None:
    """The first operation on the way to the moved output whose result moved where it must not.

    `fitted(second, first)` brings a result of the second run to the first one's size, where they differ by design. `by_design`: keys of what
    was made of nothing but the changed input itself.
    """
    outputs = [tensor for _, tensor in output_leaves(result)]
    key = one.known_key(outputs[leaf]) if leaf < len(outputs) else None
    wanted = one.ancestors({key}) if key is not None else None
    misread: dict[int, Found] = {}
    packed, rows, steps, singly = _Packed(one, may.batch), _Rows(may.batch), Steps(one, may), Singly(one, may)
    carried: list[Found] = []
    across: Found | None = None
    for a, b in zip(one.ops, two.ops, strict=False):
        if a.name != b.name or a.place.code is not b.place.code:
            break  # the runs took different ways: data-dependent control flow
        joined = rows.holds(a)
        steps.learn(a)
        if packed.holds(a):
            continue
        for seen, first, second in zip(a.outs, a.tensors, b.tensors, strict=False):
            if (wanted is not None and seen.key not in wanted) or seen.key in by_design:
                continue
            if fitted is not None:
                second = fitted(second, first)
            if second is None or first.shape != second.shape or first.dtype != second.dtype:
                continue
            flags, allowed = moved_flags(first, second)
            if not flags.any():
                continue
            if a.name == "pad" and _widens(a):
                continue  # positions have only moved on, by as many as were put before them: what takes them shows whether they mix
            if a.name == "conv1d" and flags.dim() == 3 and flags.shape[1] == may.length != flags.shape[2]:
                flags = flags.any(1, keepdim=True)  # channels, of which there happen to be as many
            chosen = decided(one, seen) if whole_numbers(seen) else _other_places(one, two, a, b)
            found = Found(a, distance(first, second, flags.expand_as(first)), allowed, b, two, chosen)
            if across is None and _laid_across(one, two, a, b, may, flags):
                across = found
            if may.allows(flags, near=not (_asked_by_others(one, two, a, b) or _sums_over(a, may.length)), plain=not joined):
                if a.name in _VIEWS and not joined and may.misread(flags):
                    misread[seen.key] = found
                continue
            if steps.allow(seen, flags):
                carried += [dataclasses.replace(found, carried=True)] if steps.carries(a) else []
                continue
            if singly.allow(seen, flags):
                continue
            if carried and (state := _first_before(carried, steps.before(one, {other.key for other in a.ins}))) is not None:
                return state  # this is made of a state that has gone through the padding there
            return _first_misread(one, found, misread) or dataclasses.replace(found, crossed=singly.crossing(a), across=across if across is not None and _comes_of(one, a, across.op) else None)
    return _first_before(carried, steps.before(one, {key})) if carried and key is not None else None


def _laid_across(one: Trace, two: Trace, a: Op, b: Op, may: May, flags: torch.Tensor) -> bool:
    """One number for each sample meets a table in which the samples are rows, along its other axis, which happens to be as long. (In a table of pairs both axes have moved before.)"""
    axes = [axis for axis, size in enumerate(flags.shape) if size == may.batch] if may.length is None and a.name in ELEMENTWISE else []
    place = next((place for place, seen in enumerate(a.ins[:2]) if seen.size == flags.shape and a.ins[1 - place].size[:1] == (may.batch,) and len(a.ins[1 - place].size) < len(seen.size)), None) if len(a.ins) > 1 else None
    if len(axes) < 2 or place is None or any(may.along(flags, axis) for axis in axes):
        return False
    first, second = value_of(one, a.ins[place]), value_of(two, b.ins[place])
    if first is None or second is None or first.shape != second.shape:
        return False
    before = moved_flags(first, second)[0]
    return bool(before.any()) and any(may.along(before, axis) for axis in axes)


def _first_before(carried: list[Found], keys: set[int]) -> Found | None:
    return next((found for found in carried if any(seen.key in keys for seen in found.op.outs)), None)


_PRODUCTS = {"matmul", "__matmul__", "bmm"}
_ATTENTIONS = {"multi_head_attention_forward", "scaled_dot_product_attention"}


def _asked_by_others(one: Trace, two: Trace, a: Op, b: Op) -> bool:
    """An attention whose queries did not move: its result has their positions (latents, slots), however many these happen to be."""
    if a.name not in _ATTENTIONS or not a.ins or not b.ins:
        return False
    first, second = value_of(one, a.ins[0]), value_of(two, b.ins[0])
    return first is not None and second is not None and first.shape == second.shape and not bool(moved_flags(first, second)[0].any())


def _sums_over(op: Op, length: int | None) -> bool:
    """A product that sums over the positions: those of its result are the rows of what it multiplies with."""
    return op.name in _PRODUCTS and len(op.ins) > 1 and op.ins[0].size[-1:] == (length,) == op.ins[1].size[-2:-1] and len(op.ins[0].size) > 2


def _widens(op: Op) -> bool:
    """Constant values are put before or after, and nothing is cut off."""
    amounts = op.argument(1, "pad", ())
    return op.argument(2, "mode", "constant") == "constant" and isinstance(amounts, (tuple, list)) and all(isinstance(n, int) and n >= 0 for n in amounts)


def _other_places(one: Trace, two: Trace, a: Op, b: Op) -> bool:
    """Does this operation take whole numbers or flags that the model decided on, and are they not the same in the second run?"""
    for mine, other in zip(a.ins, b.ins, strict=False):
        if whole_numbers(mine):
            first, second = (value_of(trace, seen) for trace, seen in ((one, mine), (two, other)))
            if first is not None and second is not None and (first.shape != second.shape or not torch.equal(first, second)):
                return decided(one, mine)
    return False


def whole_numbers(seen: Seen) -> bool:
    return not seen.dtype.is_floating_point and not seen.dtype.is_complex


def decided(trace: Trace, seen: Seen) -> bool:
    """Do these whole numbers or flags come from values, and not only from the ids and masks that the model was given?"""
    made = (trace.ops[trace.producer[key]] for key in trace.ancestors({seen.key}) if key in trace.producer)
    return any(not whole_numbers(source) for op in made for source in op.ins)


def value_of(trace: Trace, seen: Seen) -> torch.Tensor | None:
    """What a tensor held, where the trace has kept it."""
    made = trace.maker(seen)
    return next((kept for out, kept in zip(made.outs, made.tensors, strict=False) if out.key == seen.key), None) if made is not None else None


class _Rows:
    """Samples and what each of them has several of (frames, patches), joined into one first axis by the program: there the samples are, whatever other axis has as many entries."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.keys: dict[int, int] = {}  # with the size of that axis

    def holds(self, op: Op) -> bool:
        before, after = op.ins[0].size if op.ins else (), op.outs[0].size if op.outs else ()
        if op.name in _VIEWS and self.batch in before[:2] and len(before) > 1 and after[:1] == (math.prod(before[:2]),) and before[2:] == after[1:]:
            self.keys.update((seen.key, after[0]) for seen in op.outs)
            return True
        sizes = {self.keys[seen.key] for seen in op.ins if seen.key in self.keys}
        mine = [seen for seen in op.outs if seen.size and seen.size[0] in sizes]
        self.keys.update((seen.key, seen.size[0]) for seen in mine)
        return bool(mine)


_RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}
_PACKING = {"_pack_padded_sequence", "_pad_packed_sequence"}
_PICKING = {"__getitem__", "index_select", "masked_select", "nonzero", "where"}


class _Packed:
    """Samples stand in the order of their lengths in a packed sequence, and none has an axis of its own: nothing is to be read off there.

    Nor is it from positions that were picked out of all samples, so many as there are (the tokens of one expert, the words that are no padding).
    """

    def __init__(self, trace: Trace, batch: int) -> None:
        self.batch = batch
        self.places = {op.place for op in trace.ops if op.name in _PACKING}  # calls that pack and unpack, with the sorting that belongs to it
        self.keys: set[int] = set()
        self.loose: set[int] = set()

    def holds(self, op: Op) -> bool:
        if self._picked(op):
            return True
        if not self.places:
            return False
        if op.name in _RECURRENT:  # its last state is put into the samples' own order by the same call
            if not op.ins or op.ins[0].key not in self.keys:
                return False  # one that only begins with such a state
            self.keys.update(seen.key for seen in op.outs[:1])
            self.places.add(op.place)
            return True
        inside = [seen for seen in op.ins if seen.key in self.keys]
        if not inside and op.place not in self.places:
            return False
        for seen in op.outs:
            if op.name == "_pack_padded_sequence" or (op.name not in _PACKING and any(seen.size[:1] == other.size[:1] for other in inside)):
                self.keys.add(seen.key)
        return True

    def _picked(self, op: Op) -> bool:
        picks = op.name in _PICKING and any(whole_numbers(seen) for seen in op.ins)
        counts = {seen.size[:1] for seen in op.ins if seen.key in self.loose}
        loose = [seen for seen in op.outs if (picks or seen.size[:1] in counts) and seen.size and self.batch not in seen.size and seen.size[0] % self.batch]
        self.loose.update(seen.key for seen in loose)
        return bool(loose)


def _comes_of(trace: Trace, op: Op, earlier: Op) -> bool:
    return bool(trace.ancestors({seen.key for seen in op.ins}) & {seen.key for seen in earlier.outs})


def _first_misread(trace: Trace, found: Found, misread: dict[int, Found]) -> Found | None:
    """The misleading `view` that the movement came through, if it did."""
    if not misread:
        return None
    before = trace.ancestors({seen.key for seen in found.op.ins})
    return next((view for key, view in misread.items() if key in before), None)

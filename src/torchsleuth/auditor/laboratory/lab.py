"""The laboratory of paired runs: change something in the input, run again, find the first operation that moved.

Embeddings of chosen positions are disturbed as they are looked up (ids, and masks or positions computed
from them, stay as they are), floating inputs directly. `compare.May` says what may move.
"""

from __future__ import annotations

import dataclasses
import typing

import torch

from torchsleuth.auditor.inputs.batch import Call, Leaf
from torchsleuth.auditor.inputs.padded import Padding
from torchsleuth.auditor.laboratory.changing import Changing, ChangingModules
from torchsleuth.auditor.laboratory.columns import Added
from torchsleuth.auditor.laboratory.compare import Difference, May, first_difference, laid_like
from torchsleuth.auditor.laboratory.firstmoved import Found, decided, first_moved, whole_numbers
from torchsleuth.auditor.laboratory.runner import Runner
from torchsleuth.auditor.observation import Move
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.beginnings import beginning
from torchsleuth.auditor.tracing.sites import begun_before_loop, expression, kept_in_loop, library_name, place_here
from torchsleuth.auditor.tracing.trace import ARRANGING, Change, Op, Trace

KEPT_BYTES = 2 << 30  # results kept for one localisation
_EXCHANGING = {"transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis", "mT"}
MOST_ROWS = 512  # of ids that are looked for in another order
MOST_PLACES = 4  # places named for one leak


class Lab:
    """One model call to experiment on, with the undisturbed run to compare against."""

    def __init__(self, runner: Runner, call: Call, base: typing.Any, trace: Trace, floor: float, mode: str) -> None:
        self.runner, self.call, self.base, self.trace, self.floor, self.mode = runner, call, base, trace, floor, mode
        self.paddings: list[Padding] = []  # all that is known to be padding in the call
        self.called: Site | None = None  # where the program calls the model
        self.step: Trace | None = None  # what was seen of the program's own step, and of what it did before
        self.loudness = 1.0  # of disturbances, in units of the data's own spread
        self.anyhow = False  # ids that are looked up in another order than they are given in are changed themselves
        self.separate = False  # an experiment has shown that the first axis counts samples: one does not move the others

    def astray(self, leaf_where: list[tuple[Leaf, torch.Tensor]]) -> bool:
        """Does dropout draw for other sizes than in the undisturbed run (an expert was given another number of tokens)? From there on the random numbers are others."""
        before = _dropped(self.trace)
        if not before:
            return False
        _, trace = self.run(leaf_where, healing=lambda op, args, kwargs, result: result)
        return trace is not None and _dropped(trace) != before

    def calmed(self) -> Lab | None:
        """The same in eval mode, where there is no dropout to draw them for; None if this one is."""
        if self.mode == "eval" or not self.runner.model.training:
            return None
        base = self.runner.run(self.call.args, self.call.kwargs, mode="eval")
        calm = Lab(self.runner, self.call, base, self.trace, self.floor, "eval")
        calm.paddings, calm.called, calm.step, calm.loudness, calm.anyhow = self.paddings, self.called, self.step, self.loudness, self.anyhow
        return calm

    def embedded(self, leaf: Leaf) -> list[Op]:
        """The lookups of this input's ids in embedding tables, as seen in the undisturbed run."""
        key = self.trace.known_key(leaf.tensor)
        found = []
        for op in self.trace.ops:
            if op.name == "embedding" and op.ins and _is_part(op.ins[0].size, tuple(leaf.tensor.shape)):
                made = self.trace.ancestors({op.ins[0].key})
                if key is None or key in made:
                    found.append(op)
        return found

    def _in_order(self, leaf: Leaf, lookups: list[Op]) -> bool:
        """Sentences of documents, looked up one after the other: not where samples and sentences were exchanged before."""
        ways = [self.trace.made_through(op.ins[0], ARRANGING) for op in lookups] if leaf.tensor.dim() == 3 else []
        return not any(op.name in _EXCHANGING for way in ways for op in way)

    def run(
        self, leaf_where: list[tuple[Leaf, torch.Tensor]], keep: bool = False, healing: Change | None = None, after: tuple[tuple, dict] | None = None
    ) -> tuple[typing.Any, Trace | None]:
        """The model on inputs that are disturbed at the given places: ids as they are looked up, other inputs themselves."""
        inputs: dict = {}
        lookups: list[Change] = []
        looked_up: list[Op] = []
        for leaf, where in leaf_where:
            if leaf.tensor.is_floating_point() or leaf.tensor.is_complex():
                inputs[leaf.path] = disturbed(leaf.tensor, where, self.loudness)
            elif found := self.embedded(leaf):
                if self.anyhow and not self._in_order(leaf, found):
                    inputs[leaf.path] = _other_ids(leaf.tensor, where)
                    continue
                lookups.append(_lookup_change(leaf.tensor, where, self.loudness))
                looked_up += found
            else:
                inputs[leaf.path] = _other_ids(leaf.tensor, where)
        args, kwargs = self.call.replaced(inputs)
        trace: Trace | None = None
        watched: Trace | Changing | ChangingModules | None = None
        if keep or healing is not None:
            watched = trace = Trace(keep=keep, change=_chained([*lookups, *([healing] if healing else [])]))
        elif lookups:
            tables = self.runner.tables({op.module for op in looked_up})
            watched = ChangingModules("embedding", tables, _chained(lookups)) if tables else Changing("embedding", _chained(lookups))
        return self.runner.run(args, kwargs, trace=watched, mode=self.mode, changed=True, after=after), trace

    def locate(
        self, leaf_where: list[tuple[Leaf, torch.Tensor]], difference: Difference, may: May, scalars: bool
    ) -> tuple[list[tuple[Found | None, Difference]], Trace]:
        """Both runs again with all results kept: the first operation that moved.

        Then the same with that operation's result put right, for there may be a second place that lets the change through.
        """
        first = Trace(keep=True)
        result = self.runner.run(self.call.args, self.call.kwargs, trace=first, mode=self.mode)
        if first.kept_bytes > KEPT_BYTES:
            return [(None, difference)], first

        def rerun(healing: Change | None) -> tuple[typing.Any, Trace]:
            second, trace = self.run(leaf_where, keep=True, healing=healing)
            assert trace is not None
            return second, trace

        def left(second: typing.Any, floor: float) -> Difference | None:
            return first_difference(self.base, second, may, scalars=scalars, floor=floor)

        return self.search(first, result, difference, may, rerun, left), first

    def search(
        self, first: Trace, result: typing.Any, difference: Difference, may: May,
        rerun: typing.Callable[[Change | None], tuple[typing.Any, Trace]],
        left: typing.Callable[[typing.Any, float], Difference | None], fitted: Added | None = None, by_design: typing.Container[int] = (),
    ) -> list[tuple[Found | None, Difference]]:  # fmt: skip
        """The places that let the change through: the first that moved, then the first that still does when that is put right, and so on.

        `rerun` gives the second run's result and trace, `left` what of it still differs from the first.
        """
        places: set[tuple] = set()
        lines: set[tuple] = set()  # who looks at a line sees all of it
        found: list[tuple[Found | None, Difference]] = []
        while len(found) < MOST_PLACES and len(places) < 2 * MOST_PLACES:
            second, trace = rerun(_healing(first, places, may, fitted) if places else None)
            if places:
                still = left(second, max(self.floor, difference.distance * 1e-3))
                if still is None:
                    break
                difference = still
            one = first_moved(first, trace, result, difference.position, may, fitted, by_design)
            place = (one.op.place.user_code, one.op.place.user_offset) if one is not None else None
            if one is None or place is None or place in places or (places and one.op.place.code is not one.op.place.user_code):
                break
            places.add(place)
            span, _ = expression(*place) if place[0] is not None else (None, "")
            line = (place[0], span.line if span is not None else place[1])
            if line not in lines and not _same_attention(first, one.op, places):
                found.append((one, difference))
            lines.add(line)
            if one.op.place.code is not one.op.place.user_code:
                break  # inside a library: the program's call is all there is to name
        return found or [(None, difference)]

    def move_at(self, kind: str, trace: Trace, op: Op, distance: float, changed: str, where: str, **more) -> Move:
        """A move whose place is known."""
        shape = op.outs[0].size if op.outs else ()
        return Move(kind, changed, where, distance, 0.0, operation=op.name, operation_shape=shape, site=self.site(trace, op), **more)

    def site(self, trace: Trace, op: Op) -> Site | None:
        """Where it is done; in a model that is all a library's, that is the program's call of it."""
        site = trace.site(op)
        outside = place_here().user_code  # what calls for the audit is no part of the model
        if site is None or self.called is None or op.place.code is None or op.place.user_code not in (None, outside):
            return site
        return dataclasses.replace(self.called, module=site.module, module_type=site.module_type, library=library_name(op.place.code.co_filename) or "a library")

    def beginning(self, leaf: Leaf) -> Site | None:
        """The expression by which the program made this input, where that was seen."""
        return beginning(self.step, self.call.numbers.get(leaf.path, self.step.known_key(leaf.tensor))) if self.step is not None else None

    def move(self, kind: str, changed: str, where: str, difference: Difference, found: Found | None, trace: Trace, **more) -> Move:
        site = self.site(trace, found.op) if found else None
        if found is not None and found.carried and site is not None:
            more["kept_site"] = kept_in_loop(site)
        if found is not None and found.crossed is not None and kind == "mixing":
            taken = trace.site(found.crossed)
            more |= {"crossed": True, "begun_site": begun_before_loop(taken) if taken is not None else None}
        return Move(
            kind, changed, where, difference.distance, max(difference.allowed, 1e-12),
            operation=found.op.name if found else "",
            operation_shape=found.op.outs[0].size if found and found.op.outs else (),
            site=site, carried=found is not None and found.carried, **more,
        )  # fmt: skip


def _dropped(trace: Trace) -> list[tuple[int, ...]]:
    return [op.outs[0].size for op in trace.ops if "dropout" in op.name and op.outs]


# -- changes ---------------------------------------------------------------------------------------


def disturbed(tensor: torch.Tensor, where: torch.Tensor, loudness: float = 1.0) -> torch.Tensor:
    """Noise of the tensor's own size added at `where` (flags over its leading axes). Not around zero: a mean would cancel that."""
    flags = where.reshape(*where.shape, *[1] * (tensor.dim() - where.dim()))
    generator = torch.Generator(device=tensor.device).manual_seed(7)
    noise = (1 + torch.randn(tensor.shape, generator=generator, device=tensor.device)).to(tensor.dtype)
    spread = (tensor.detach().abs() if tensor.is_complex() else tensor.detach().float()).std() if tensor.numel() > 1 else tensor.new_ones(())
    spread = spread.to(tensor.dtype) if torch.isfinite(spread) and spread > 0 else torch.ones((), dtype=tensor.dtype, device=tensor.device)
    return laid_like(torch.where(flags, tensor.detach() + noise * (loudness * spread), tensor.detach()), tensor)


def _other_ids(ids: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    """Other ids at `where`, only such as occur in the input."""
    if ids.dim() == 2 == where.dim() and bool((where.all(1) == where.any(1)).all()) and bool(((neighbour := ids.roll(1, 0)) != ids)[where].any()):
        return torch.where(where, neighbour, ids)  # a whole sample: its columns may have a table each, so values stay in their column
    values = ids.unique()
    if values.numel() < 2:
        return ids
    rank = torch.searchsorted(values, ids.contiguous())
    return torch.where(where.reshape(where.shape), values[(rank + 1) % values.numel()], ids)


def _lookup_change(ids: torch.Tensor, where: torch.Tensor, loudness: float) -> Change:
    """Disturbs the rows that an embedding lookup of these ids returns at `where`."""

    def change(op: Op, args: tuple, kwargs: dict, result: typing.Any) -> typing.Any:
        if op.name != "embedding" or not isinstance(result, torch.Tensor):
            return result
        indices = args[0] if args else kwargs.get("input")
        flags = _matching(indices, ids, where)
        return result if flags is None else disturbed(result, flags, loudness)

    return change


def _chained(changes: list[Change]) -> Change:
    def change(op: Op, args: tuple, kwargs: dict, result: typing.Any) -> typing.Any:
        for one in changes:
            result = one(op, args, kwargs, result)
        return result

    return change


def _healing(first: Trace, places: set[tuple], may: May, fitted: Added | None = None) -> Change:
    """Gives the results of the operations at these places the values of the first run wherever the change must not show."""

    def heal(op: Op, args: tuple, kwargs: dict, result: typing.Any) -> typing.Any:
        if (op.place.user_code, op.place.user_offset) not in places or op.index >= len(first.ops):
            return result
        before = first.ops[op.index]
        if before.name != op.name or not before.tensors:
            return result
        if isinstance(result, torch.Tensor):
            return _put_right(may, before.tensors[0], result, fitted)
        if type(result) is tuple and sum(isinstance(r, torch.Tensor) for r in result) == len(before.tensors):
            kept = iter(before.tensors)
            return tuple(_put_right(may, next(kept), r, fitted) if isinstance(r, torch.Tensor) else r for r in result)
        return result

    return heal


def held_choices(first: Trace) -> Change:
    """Gives whole numbers and flags that the model decides on (where to look, in which order) those of the first run: what moves
    all the same is more than another choice."""

    def hold(op: Op, args: tuple, kwargs: dict, result: typing.Any) -> typing.Any:
        before = first.ops[op.index] if op.index < len(first.ops) else None
        if before is None or before.name != op.name:
            return result
        held = {n: kept for n, (seen, kept) in enumerate(zip(before.outs, before.tensors, strict=False)) if whole_numbers(seen) and decided(first, seen)}
        if isinstance(result, torch.Tensor):
            return held[0].clone() if 0 in held and held[0].shape == result.shape else result
        if not held or not isinstance(result, tuple) or not all(isinstance(r, torch.Tensor) for r in result):
            return result
        parts = [held[n].clone() if n in held and held[n].shape == r.shape else r for n, r in enumerate(result)]
        return tuple(parts) if type(result) is tuple else type(result)(parts)  # `torch.sort` gives a named one

    return hold


def _same_attention(trace: Trace, op: Op, places: set[tuple]) -> bool:
    """The product of weights and values: it lets in what the softmax before it, which is named already, gave weight to."""
    if op.name in ARRANGING and op.ins and (made := trace.maker(op.ins[0])) is not None and (made.place.user_code, made.place.user_offset) in places:
        return True  # a rearrangement of what was just put right, as far as its axes could be told
    for seen in op.ins:
        for made in trace.made_through(seen, ARRANGING | {"dropout", "mul"}):
            if made.name == "softmax" and (made.place.user_code, made.place.user_offset) in places and made is not op:
                return True
    return False


def _put_right(may: May, first: torch.Tensor, second: torch.Tensor, fitted: Added | None) -> torch.Tensor:
    if first.shape == second.shape:
        return may.healed(first, second)
    common = fitted(second, first) if fitted is not None else None
    if common is None:
        return second
    whole = fitted.filled(second, first, may.healed(first, common)) if fitted is not None else None
    return second if whole is None else whole


def _matching(indices: typing.Any, ids: torch.Tensor, where: torch.Tensor) -> torch.Tensor | None:
    """The flags for these indices if they are the ids, the ids without a column, or the ids turned."""
    if not isinstance(indices, torch.Tensor) or not _is_part(tuple(indices.shape), tuple(ids.shape)):
        return None
    if ids.dim() == 1:
        return where if torch.equal(ids.to(indices.dtype), indices) else None
    if ids.dim() == 3:  # sentences of a document, one after the other
        flags = (where[..., None].expand(ids.shape) if where.dim() == 2 else where).reshape(indices.shape)
        return flags if torch.equal(ids.reshape(indices.shape).to(indices.dtype), indices) else None
    length = ids.shape[1]
    candidates = [(ids, where), (ids.T, where.T)]
    candidates += [(ids[:, k:], where[:, k:]) for k in (1, 2) if length > k] + [(ids[:, :-k], where[:, :-k]) for k in (1, 2) if length > k]
    for values, flags in candidates:
        if values.shape == indices.shape and torch.equal(values.to(indices.dtype), indices):
            return flags
    if indices.shape == ids.shape and ids.shape[0] <= MOST_ROWS:  # the samples in another order, that of their lengths, say
        same = (indices[:, None] == ids.to(indices.dtype)).all(2)
        if bool((same.sum(1) == 1).all()) and bool((same.sum(0) == 1).all()):
            return where[same.int().argmax(1)]
    return None


def _is_part(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    if len(whole) == 1:
        return shape == whole  # one id for each sample
    if len(whole) == 3:
        return shape in (whole, (whole[0] * whole[1], whole[2]))
    return len(shape) == len(whole) == 2 and (shape == whole or shape == whole[::-1] or (shape[0] == whole[0] and 0 < whole[1] - shape[1] <= 2))


def row_and_position(difference: Difference, may: May) -> tuple[int, int | None]:
    """The row, and the position along the sequence if the output has one, where the movement is largest."""
    gap = (difference.first.double() - difference.second.double()).abs().nan_to_num(posinf=1e300) * difference.flags
    index = [int(one) for one in torch.unravel_index(gap.argmax(), gap.shape)] if gap.dim() else []
    sizes = tuple(gap.shape)
    if len(sizes) > 1 and sizes[:2] == (may.length, may.batch) != (may.batch, may.length):
        return index[1], index[0]  # time first
    row = index[0] if sizes[:1] == (may.batch,) else 0
    inner = [axis for axis in range(1, len(sizes)) if sizes[axis] == may.length and (axis < len(sizes) - 1 or len(sizes) == 2)]
    return row, index[inner[0]] if inner else None

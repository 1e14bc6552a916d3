"""Comparing two runs: which elements of a tensor moved, and whether they lie only where they may.

What may move is a table over samples (or samples and positions). A tensor's axes are not labelled, so
every reading of them by size is tried ([B, L, H], [B, heads, L, L], [L, B, H], [B·heads, …], [B·L, H]):
a movement that any reading allows is not held against the model. The first operation whose result has
no such reading is where the rule was broken.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import math
import typing
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from torchsleuth.auditor.laboratory.accelerator import at_hand

# How many units in the last place of the largest value are put down to rounding.
ROUNDING_UNITS = {torch.bfloat16: 4.0, torch.float16: 16.0, torch.float32: 256.0, torch.float64: 4096.0}


@dataclass
class May:
    """`table[b]` or `table[b, t]` is True where the change may show."""

    table: torch.Tensor
    stepwise: bool = False  # and results of one position may move in the rows that may move there
    rows: May | None = None  # some rows may move altogether, also in results without an axis for positions

    @property
    def batch(self) -> int:
        return self.table.shape[0]

    @property
    def length(self) -> int | None:
        return self.table.shape[1] if self.table.dim() == 2 else None

    def allows(self, moved: torch.Tensor, near: bool = False, plain: bool = False) -> bool:
        """Does any reading of the axes allow this movement? `near`: positions may also be part of an axis, or fewer than they were, if none is as long.

        `plain`: where an axis has the size of the batch, samples are not looked for as part of another one (but for all positions of all samples).
        """
        if not moved.any() or (self.rows is not None and self.rows.allows(moved, plain=plain)):
            return True
        self.table = self.table.to(moved.device)
        if near and any(other.allows(moved) for other in self.elsewhere(moved)):
            return True
        for view in self._readings(moved, split=not plain or self.batch not in moved.shape):
            if not (view[0] & ~view[1]).any():
                return True
        return False

    def counts_positions(self, shape: typing.Sequence[int]) -> bool:
        """Has one axis the size of the positions, beside that of the samples? Where there are as many samples as positions, one such axis is the samples'."""
        return self.length is not None and list(shape).count(self.length) > (self.batch == self.length)

    def along(self, moved: torch.Tensor, axis: int) -> bool:
        """Is this axis that of the samples, and has nothing moved but what may?"""
        return not bool((moved & ~_along(self.table.to(moved.device), moved.dim(), axis)).any())

    def elsewhere(self, moved: torch.Tensor) -> Iterator[May]:
        """The same for an axis on which the positions stand beside others, or of which there are fewer; none if there is one of their own.

        A token more or less at an end; a prompt or an image before or after them; one step for every few, as a convolution with a stride leaves.
        """
        length, shape = self.length, moved.shape
        if length is None or length < 4 or self.counts_positions(shape):
            return
        yield from self._several(moved)
        for axis, size in enumerate(shape):
            if size == self.batch and shape.count(size) == 1:
                continue
            if 1 <= abs(size - length) <= 2:
                yield from (May(self._cut(size, end)) for end in ("first", "last"))
            elif size > length and moved.dim() > 2 and axis < moved.dim() - 1:  # the last one holds features (or keys, as many as queries)
                where = moved.movedim(axis, 0).reshape(size, -1).any(1)
                for start in self._starts(where) if shape.count(size) == 1 else sorted({0, 1, size - length}):
                    yield May(torch.nn.functional.pad(self.table, (start, size - length - start)))
            elif moved.dim() > 2 and size > 2 and (every := round(length / size)) > 1 and abs(size * every - length) <= 2 * every:
                yield May(self._thinned(size, every))

    def _several(self, moved: torch.Tensor) -> Iterator[May]:
        """Each position has several entries (the patches of a frame), one after the other or all first ones first; with a token or two before or after them."""
        length, shape = self.table.shape[1], moved.shape
        for size in shape[:-1] if moved.dim() > 2 else ():
            times, more = divmod(size, length)
            if times > 1 and more <= 2 and shape.count(size) == 1:
                for table in (self.table.repeat_interleave(times, 1), self.table.repeat(1, times)):
                    yield from (May(torch.nn.functional.pad(table, ends)) for ends in dict.fromkeys(((more, 0), (0, more))))

    def _starts(self, where: torch.Tensor) -> Iterator[int]:
        """Where on an axis the positions may begin, if it moved there."""
        anywhere, length, count = self.table.any(0).to(where.device), self.table.shape[1], int(where.sum())
        for start in range(where.shape[0] - length + 1):
            part = where[start : start + length]
            if int(part.sum()) == count and not bool((part & ~anywhere).any()):
                yield start

    def _cut(self, size: int, end: str) -> torch.Tensor:
        """The table for an axis of this size: some positions more or fewer, at the last end or at the first."""
        more = size - self.table.shape[1]
        if more < 0:
            return self.table[:, :more] if end == "last" else self.table[:, -more:]
        extra = self.table.new_full((self.batch, more), end == "last")
        return torch.cat([self.table, extra] if end == "last" else [extra, self.table], 1)

    def _thinned(self, size: int, every: int) -> torch.Tensor:
        """The table for one step of so many positions each, which may see as many on both sides."""
        wide = torch.nn.functional.pad(self.table.float()[:, None], (every, max(0, size * every - self.table.shape[1]) + every))
        return torch.nn.functional.max_pool1d(wide, 3 * every, every)[:, 0, :size] > 0

    def healed(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """The second run's result, with the first run's values wherever the change must not show."""
        shape = first.shape
        samples = [axis for axis, size in enumerate(shape) if size == self.batch]
        positions = [axis for axis, size in enumerate(shape) if size == self.length]
        if len(samples) == 1 and (self.length is None or (len(shape) > 2 and len(positions) == 1 and positions != samples)):
            allowed = _along(self.table, len(shape), samples[0]) if self.length is None else _spread(self.table, len(shape), samples[0], positions[0])
            return laid_like(torch.where(allowed, second, first), second)
        # No axis for samples or positions, or more than one that may be it: what was left would be laid at the door of the next operation.
        return first

    def misread(self, moved: torch.Tensor) -> bool:
        """An axis of the right size is there, and the movement is not where it should be along it.

        That is what a `view` does to data that needed a `transpose`: the sizes look right, the contents do not.
        """
        size = self.length if self.length is not None else self.batch
        exact = [axis for axis, n in enumerate(moved.shape) if n == size]
        if not exact or size < 2 or not moved.any():
            return False
        if self.length is None:
            return all((moved & ~_along(self.table, moved.dim(), axis)).any() for axis in exact)
        anywhere = self.table.any(0)
        return all((moved & ~_along(anywhere, moved.dim(), axis)).any() for axis in exact)

    def _readings(self, moved: torch.Tensor, split: bool = True) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Pairs of the moved flags, reshaped, and the flags of where they may be."""
        batch, length = self.batch, self.length
        shapes: list[torch.Tensor] = [moved]
        for axis, size in enumerate(moved.shape):
            before, after = moved.shape[:axis], moved.shape[axis + 1 :]
            if length is not None and size == batch * length and length > 1 and batch > 1:
                shapes.append(moved.reshape(*before, batch, length, *after))
                shapes.append(moved.reshape(*before, length, batch, *after))
            if split and size != batch and batch > 1 and size % batch == 0:
                shapes.append(moved.reshape(*before, batch, size // batch, *after))
                shapes.append(moved.reshape(*before, size // batch, batch, *after))
        if batch not in moved.shape:  # the samples' axis, parted into groups
            for axis in range(moved.dim() - 1):
                if math.prod(moved.shape[axis : axis + 2]) == batch:
                    shapes.append(moved.flatten(axis, axis + 1))
        for flags in shapes:
            if length is None:
                allowed = torch.zeros((1,) * flags.dim(), dtype=torch.bool, device=flags.device)
                for axis, size in enumerate(flags.shape):
                    if size == batch:
                        allowed = allowed | _along(self.table, flags.dim(), axis)
                if allowed.any():
                    yield flags, allowed
                continue
            for b in [axis for axis, size in enumerate(flags.shape) if size == batch] or [None]:
                allowed = torch.zeros((1,) * flags.dim(), dtype=torch.bool, device=flags.device)
                for t, size in enumerate(flags.shape):
                    if t == b or size != length:
                        continue
                    if b is None:
                        allowed = allowed | _along(self.table.all(0), flags.dim(), t)
                    else:
                        allowed = allowed | _spread(self.table, flags.dim(), b, t)
                if allowed.any():
                    yield flags, allowed


def laid_like(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The same values in the other's order in memory: that is the order in which dropout draws its random numbers."""
    return tensor if tensor.stride() == other.stride() else other.detach().clone().copy_(tensor)


def _along(table: torch.Tensor, dims: int, axis: int) -> torch.Tensor:
    shape = [1] * dims
    shape[axis] = table.shape[0]
    return table.reshape(shape)


def _spread(table: torch.Tensor, dims: int, b: int, t: int) -> torch.Tensor:
    shape = [1] * dims
    shape[b], shape[t] = table.shape
    return (table if b < t else table.T).reshape(shape)


def tolerance(tensor: torch.Tensor) -> float:
    """How much of a difference rounding explains for values like these."""
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return 0.0
    finite = tensor.detach()
    largest = float(finite.abs().max())
    if not math.isfinite(largest):
        finite = finite[finite.isfinite()]
        largest = float(finite.abs().max()) if finite.numel() else 0.0
    # Masks are written as -1e9 or the dtype's lowest value; they are no measure of the values beside them.
    if largest > 1e4:
        usual = finite[finite.abs() <= 1e4]
        largest = float(usual.abs().max()) if usual.numel() else 0.0
    return ROUNDING_UNITS.get(tensor.dtype, 256.0) * torch.finfo(tensor.dtype).eps * max(largest, 1e-6)


def moved_flags(first: torch.Tensor, second: torch.Tensor, floor: float = 0.0, patience: float = 1.0) -> tuple[torch.Tensor, float]:
    """Which elements differ by more than rounding, and what rounding was taken to explain; `patience` is the share of the usual that is granted."""
    first, second = first.detach(), second.detach()
    if first.dtype.is_complex:
        flags, allowed = moved_flags(torch.view_as_real(first.resolve_conj()), torch.view_as_real(second.resolve_conj()), floor, patience)
        return flags.any(-1), allowed
    if not first.is_floating_point():
        return first != second, 0.0
    if first.dtype is second.dtype and torch.equal(first, second):
        return torch.zeros_like(first, dtype=torch.bool), floor
    allowed = max(patience * tolerance(first), floor)
    if first.dtype in (torch.float16, torch.bfloat16):
        first, second = first.float(), second.float()
    same = (first == second) | (first.isnan() & second.isnan())
    return ~same & ~((first - second).abs() <= allowed), allowed


def distance(first: torch.Tensor, second: torch.Tensor, flags: torch.Tensor) -> float:
    first, second = first.detach(), second.detach()
    gap = (first - second).abs().double() if first.dtype.is_complex else (first.double() - second.double()).abs()
    gap = gap[flags & gap.isfinite()]
    return float(gap.max()) if gap.numel() else float("inf")


class Chosen(dict[str, torch.Tensor]):
    """Some of the tensors of a model's result, by the names they have in the whole."""


def output_leaves(value: typing.Any, name: str = "output", depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a model's result, each with a name a reader can find."""
    if isinstance(value, torch.Tensor):
        if not value.is_sparse and not value.is_nested:
            yield name, value
    elif isinstance(value, Chosen):
        yield from value.items()
    elif depth > 4 or value is None:
        return
    elif isinstance(value, torch.nn.utils.rnn.PackedSequence):
        return
    elif isinstance(value, collections.abc.Mapping):
        for key, item in value.items():
            yield from output_leaves(item, f"{name}.{key}" if isinstance(key, str) else f"{name}[{key!r}]", depth + 1)
    elif isinstance(value, (list, tuple)):
        fields = getattr(value, "_fields", None)
        for position, item in enumerate(value):
            yield from output_leaves(item, f"{name}.{fields[position]}" if fields else f"{name}[{position}]", depth + 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for item in dataclasses.fields(value):
            yield from output_leaves(getattr(value, item.name), f"{name}.{item.name}", depth + 1)


@dataclass
class Difference:
    """The first output that moved where it must not."""

    name: str
    first: torch.Tensor
    second: torch.Tensor
    flags: torch.Tensor
    allowed: float
    position: int  # which leaf of the result

    @property
    def distance(self) -> float:
        return distance(self.first, self.second, self.flags)


def forbidden_flags(flags: torch.Tensor, may: May) -> torch.Tensor:
    """The moved elements outside the best reading of the axes: samples and positions first, where they can be read so."""
    best = flags
    if may.length is not None and flags.shape[:2] == (may.batch, may.length):
        ways = [(0, 1), (1, 0)] if may.batch == may.length else [(0, 1)]
        outside = min((flags & ~_spread(may.table.to(flags.device), flags.dim(), *way) for way in ways), key=lambda left: int(left.sum()))
        if outside.any():
            return outside
    for one in (may, *may.elsewhere(flags)):
        for view, allowed in one._readings(flags):
            outside = view & ~allowed
            if int(outside.sum()) < int(best.sum()) and outside.numel() == flags.numel():
                best = outside.reshape(flags.shape)
    return best


def first_difference(
    first: typing.Any, second: typing.Any, may: May, *, scalars: bool = True, floor: float = 0.0, needs_batch: bool = False, patience: float = 1.0,
    passed_on: typing.Container[int] = (),
) -> Difference | None:  # fmt: skip
    """The first tensor of the results that moved where `may` forbids it. `passed_on`: the positions of those that are no answers."""
    pairs = list(zip(output_leaves(first), output_leaves(second), strict=False))
    for position, ((name, one), (_, two)) in enumerate(pairs):
        if one.shape != two.shape or one.dtype != two.dtype or position in passed_on:
            continue
        if one.dim() == 0 and not scalars:
            continue
        if needs_batch and not any(size == may.batch or (size % may.batch == 0 and size) for size in one.shape):
            continue
        one, two = at_hand(one), at_hand(two)
        flags, allowed = moved_flags(one, two, floor, patience)
        if flags.any() and not may.allows(flags, near=True):
            return Difference(name, one, two, forbidden_flags(flags, may), allowed, position)
    return None

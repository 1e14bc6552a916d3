"""Writes by index that hit one place more than once: which of them are lost, and were they to be kept? `IndexedWrites`, watchers of a trace."""

from __future__ import annotations

import typing
from dataclasses import dataclass, field

import torch

from torchsleuth.auditor.observation import Duplicates
from torchsleuth.auditor.tracing.sites import expression
from torchsleuth.auditor.tracing.trace import Op, Trace

MOST_WRITES = 1 << 20
_ADDING = {"add", "iadd", "radd", "sub", "isub", "rsub"}


@dataclass
class IndexedWrites:
    """`reads` and `writes` are called by the trace; `found` is what they saw."""

    trace: Trace
    found: list[Duplicates] = field(default_factory=list)
    _read: dict[tuple, int] = field(default_factory=dict)

    def reads(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        if _index_tensors(args[1]):
            self._read[(op.place.code, _line(op), op.ins[0].key)] = op.index

    def writes(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        if op.name.startswith("scatter"):
            return self._scatter(op, args, kwargs)
        if op.name.startswith("index_put") and (kwargs.get("accumulate") or (len(args) > 3 and args[3])):
            return
        if op.name == "index_copy_":
            parts, values = [(args[1], args[2])], args[3] if len(args) > 3 else None
        else:
            parts, values = _index_tensors(args[1]), args[2] if len(args) > 2 else kwargs.get("values")
        if not parts:
            return
        every = torch.broadcast_tensors(*(index for _, index in parts))
        if not 2 <= every[0].numel() <= MOST_WRITES:
            return
        sizes = [args[0].shape[axis] for axis, _ in parts]
        flat = _numbered([one.reshape(-1) for one in every], sizes)
        distinct, counts = flat.unique(return_counts=True)
        if distinct.numel() == flat.numel():
            return
        accumulating = self._accumulates(op, values)
        values = values.reshape(flat.numel(), -1) if every[0].dim() > 1 and isinstance(values, torch.Tensor) and values.shape[: every[0].dim()] == every[0].shape else values
        if not accumulating and not (self._passed_on(op, values) and _values_differ(flat, values, distinct[counts.argmax()])):
            return
        most = counts.argmax()
        self._add(op, flat.numel(), distinct.numel(), _place(int(distinct[most]), sizes), int(counts[most]), accumulating, args[0])

    def _scatter(self, op: Op, args: tuple, kwargs: dict) -> None:
        """Along one axis; each line of the index along it writes into a line of its own."""
        index = args[2] if len(args) > 2 else kwargs["index"]
        source = args[3] if len(args) > 3 else kwargs.get("src")
        if kwargs.get("reduce") or not isinstance(source, torch.Tensor) or source.dim() != index.dim() or not 2 <= index.numel() <= MOST_WRITES or not self._passed_on(op, source):
            return
        axis = args[1] if len(args) > 1 else kwargs["dim"]
        source = source[tuple(map(slice, index.shape))]
        lines, values = (one.movedim(axis, -1).reshape(-1, index.shape[axis]) for one in (index, source))
        inside, order = lines.sort(dim=1)
        same = inside[:, 1:] == inside[:, :-1]
        sorted_values = values.gather(1, order)
        lost = same & (sorted_values[:, 1:] != sorted_values[:, :-1])
        if not bool(lost.any()):
            return
        row, at = lost.nonzero()[0].tolist()
        alike = bool((lines == lines[:1]).all())  # one index for each row of the values, `expand`ed
        place, total, again = int(inside[row, at]), lines.shape[1] if alike else lines.numel(), int((same[0] if alike else same).sum())
        self._add(op, total, total - again, place if alike else (row, place), int((lines[row] == place).sum()), False, args[0])

    def _add(self, op: Op, indices: int, distinct: int, example: int | tuple[int, ...], times: int, accumulating: bool, target: torch.Tensor) -> None:
        site = self.trace.site(op)
        if site is not None and not site.library:
            self.found.append(Duplicates(op.name, site, indices, distinct, example, times, accumulating, tuple(target.shape)))

    def _accumulates(self, op: Op, values: typing.Any) -> bool:
        """`x[i] += v`: the value written is a sum with a read of the same tensor on the same line.

        An average that moves on, or a chain that starts from the old content, has no use for a second value of the same place.
        """
        key = self.trace.known_key(values) if isinstance(values, torch.Tensor) else None
        read = self._read.get((op.place.code, _line(op), op.ins[0].key))
        if key is None or read is None:
            return False
        old, todo = {seen.key for seen in self.trace.ops[read].outs}, [key]
        while todo:
            if (key := todo.pop()) in old:
                return True
            made = self.trace.producer.get(key)
            if made is not None and made > read and self.trace.ops[made].name.strip("_") in _ADDING:
                todo += [seen.key for seen in self.trace.ops[made].ins]
        return False

    def _passed_on(self, op: Op, values: typing.Any) -> bool:
        """Is this a part of what the model computes? A memory of samples seen before (features, priorities, chains) may get one of two new values."""
        if isinstance(values, torch.Tensor) and values.requires_grad:
            return True
        made = self.trace.maker(op.ins[0])
        return bool(self.trace.within) and made is not None and made.place.code is op.place.code


def _index_tensors(index: typing.Any) -> list[tuple[int, torch.Tensor]]:
    """The integer tensors of an index, with the axes they stand for; nothing where there are other parts than these, slices and plain numbers.

    A plain number picks one place along its axis, the same for all: it tells none of the others apart.
    """
    parts = index if isinstance(index, (tuple, list)) else (index,)
    found = []
    device = next((part.device for part in parts if isinstance(part, torch.Tensor)), None)
    if device is None:
        return []
    for axis, part in enumerate(parts):
        if type(part) is int and not any(one is Ellipsis for one in parts[:axis]):
            found.append((axis, torch.tensor(part, device=device)))
        elif isinstance(part, torch.Tensor) and part.dtype not in (torch.bool, torch.uint8) and part.dim() > 0 and not any(one is Ellipsis for one in parts[:axis]):
            found.append((axis, part))
        elif not isinstance(part, slice) and part is not Ellipsis and type(part) is not int:
            return []
    return found if any(part.dim() for _, part in found) else []


def _numbered(parts: list[torch.Tensor], sizes: list[int]) -> torch.Tensor:
    """One number for each place that several indices name together, counted as the places lie in the tensor."""
    found = torch.zeros_like(parts[0])
    for index, size in zip(parts, sizes, strict=True):
        found = found * size + index % size
    return found


def _place(number: int, sizes: list[int]) -> int | tuple[int, ...]:
    found: list[int] = []
    for size in reversed(sizes):
        number, rest = divmod(number, size)
        found.insert(0, rest)
    return found[0] if len(found) == 1 else tuple(found)


def _values_differ(flat: torch.Tensor, values: typing.Any, example: torch.Tensor) -> bool:
    """Are different values written to the same place?"""
    if not isinstance(values, torch.Tensor) or values.dim() == 0 or values.shape[0] != flat.shape[0]:
        return False
    written = values[(flat == example).to(values.device)]
    return bool((written != written[:1]).any())


def _line(op: Op) -> int:
    span, _ = expression(op.place.code, op.place.offset) if op.place.code is not None else (None, "")
    return span.line if span is not None else -1

"""One number for each sample, laid along another axis of the batch that happens to have as many entries."""

from __future__ import annotations

from torchsleuth.auditor.losses.classaxis import axis_before
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Seen, Trace
from torchsleuth.auditor.tracing.writtensizes import counts_first_axis, sizes_written

_LAYERS = ("linear", "conv", "embedding", "batch_norm", "layer_norm", "group_norm")
_TAKING = {"__getitem__", "index_select", "gather", "take", "split", "chunk", "narrow", "embedding"}
_REDUCING = {"sum", "mean", "count_nonzero", "amax", "amin", "norm"}
_COUNTING_OFF = {"view", "reshape", "flatten", "unflatten", "view_as", "reshape_as"}
_OF_CLASSES = {"cross_entropy", "nll_loss"}
_PRODUCTS = {"matmul", "__matmul__", "mm", "bmm", "cdist", "einsum"}
MOST_STEPS = 40


class SampleAxis:
    """`inside` are the calls of the model's forward pass, `batch` the number of samples it was given."""

    def __init__(self, trace: Trace, inside: slice, batch: int | None, own: set[int]) -> None:
        self.trace, self.batch = trace, batch or 0
        start = inside.start or 0
        self.entering: dict[int, Seen] = {}  # what the model is given for each sample
        for op in trace.ops[inside]:
            for seen in op.ins:
                made = trace.producer.get(seen.key)
                if seen.key not in own and (made is None or made < start) and seen.size[:1] == (self.batch,):
                    self.entering.setdefault(seen.key, seen)
        self._tables = {rows for seen in self.entering.values() if (rows := self._rows_of(seen)) is not None}

    def misplaced(self, factors: Seen, table: Seen) -> bool:
        """`factors` holds one number for each sample; `table` has the samples along its first axis, and as many entries along its last."""
        size = table.size
        if self.batch < 2 or factors.size != (self.batch,) or len(size) < 2 or size[0] != self.batch or size[-1] != self.batch:
            return False
        return self._for_each_sample(factors) and self.rows_are_samples(table)

    def _for_each_sample(self, seen: Seen) -> bool:
        """Looked up with what the model is given for each sample, or taken from a table with as many rows as the model's inputs were taken from."""
        for _ in range(MOST_STEPS):
            if seen.key in self.entering or self._rows_of(seen) in self._tables:
                return True
            op = self.trace.maker(seen)
            if op is None:
                return False
            if not op.ins:
                return self._written_for_each(op)
            if op.name in _TAKING and len(op.ins) > 1:
                index = next((one for one in op.ins if one.size == seen.size and not one.dtype.is_floating_point), None)
                return index is not None and self._for_each_sample(index)
            same = [one for one in op.ins if one.size == seen.size]
            if op.name in _REDUCING and len(op.ins) == 1:
                return self._of_each_row(op.ins[0])
            if len(same) != 1 or len(op.ins) > 1 and any(len(one.size) > 0 for one in op.ins if one is not same[0]):
                return False
            seen = same[0]
        return False

    def _of_each_row(self, seen: Seen) -> bool:
        """Reduced to one number for each sample: from what the model is given for each of them (a mask that is summed), and not along an axis as long as the batch."""
        size = seen.size
        for _ in range(MOST_STEPS):
            if size[:1] != (self.batch,) or size.count(self.batch) != 1:
                return False
            if seen.key in self.entering:
                return True
            op = self.trace.maker(seen)
            same = [one for one in op.ins if one.size == size] if op is not None else []
            if len(same) != 1 or op is None or any(one.size for one in op.ins if one is not same[0]):
                return False
            seen = same[0]
        return False

    def _rows_of(self, seen: Seen) -> tuple | None:
        """How these were put together or cut out, one for each sample: by the loader, or from a table of so many rows."""
        op = self.trace.maker(seen)
        if op is None or seen.size[:1] != (self.batch,):
            return None
        if op.name in ("stack", "tensor") and not op.place.direct:
            return ("loaded", op.place.user_code, op.place.user_offset)
        if op.name in _TAKING and op.ins and len(op.ins[0].size) == len(seen.size) and op.ins[0].size[1:] == seen.size[1:]:
            rows = op.ins[0].size[0]
            by = next((one.key for one in op.ins[1:]), None)
            return ("taken", rows, by) if rows != self.batch else None
        return None

    def _written_for_each(self, op: Op) -> bool:
        """Drawn or filled for so many entries as the program writes for the samples elsewhere: `torch.rand(B)` beside `torch.randn(B, T, 4)`, or `torch.ones(x.size(0))`."""
        mine = sizes_written(op)
        if len(mine) != 1:
            return False
        if counts_first_axis(mine[0]):
            return True
        makers = (self.trace.maker(seen) for seen in self.entering.values())
        others = [sizes for made in makers if made is not None and not made.ins and len(sizes := sizes_written(made)) > 1]
        return bool(others) and all(sizes[0] == mine[0] and mine[0] not in sizes[1:] for sizes in others) and not mine[0].isdigit()

    def rows_are_samples(self, table: Seen) -> bool:
        """Element by element from the output of a layer, or from something that the model is given."""
        if self.batch < 2 or table.size[:1] != (self.batch,):
            return False
        todo, looked = [table], set[int]()
        while todo and len(looked) < MOST_STEPS:
            seen = todo.pop()
            looked.add(seen.key)
            op = self.trace.maker(seen)
            if seen.key in self.entering or op is not None and op.name.startswith(_LAYERS) and _with_parameters(self.trace, op):
                return True
            before = self._same_rows(op, seen) if op is not None and not op.name.startswith(_LAYERS) and op.name not in _PRODUCTS else []
            if not before and self._goes_in(seen):
                return True
            todo += [one for one in reversed(before) if one.key not in looked]
        return False

    def _same_rows(self, op: Op, seen: Seen) -> list[Seen]:
        """What of this call's operands has the same rows, each computed from its own."""
        size, count = seen.size, seen.size.count(self.batch)
        rows = [one for one in op.ins if one.size[:1] == (self.batch,) and one.size.count(self.batch) == count]
        if op.name in _REDUCING and rows and len(rows[0].size) > len(size):
            return rows[:1]  # over positions, say: the samples stay first
        if op.name in _OF_CLASSES and rows and rows[0].size[:1] + rows[0].size[2:] == size:
            return rows[:1]
        if op.name in _COUNTING_OFF and rows:
            return rows[:1]  # as many rows as before: each holds what it held
        if op.name in ARRANGING and rows and sorted(rows[0].size) == sorted(size) and axis_before(op, 0) == 0:
            return rows[:1]
        return [one for one in rows if one.size == size or _without_ones(one.size) == _without_ones(size)]

    def _goes_in(self, seen: Seen) -> bool:
        """The model is given what is computed from it, element by element: samples come first there."""
        mine = {seen.key}
        for op in self.trace.ops:
            if any(one.key in mine for one in op.ins):
                mine.update(one.key for one in op.outs if one.size == seen.size)
        return any(key in mine and one.size == seen.size for key, one in self.entering.items())


def _with_parameters(trace: Trace, op: Op) -> bool:
    return any(seen.key in trace.parameters for seen in op.ins)


def _without_ones(size: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in size if n != 1)

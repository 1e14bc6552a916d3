"""Results of single positions: what a loop over a sequence takes out of it step by step, and what it makes of that.

Such a result has no axis for positions. It may move in those rows that have padding at its own step. A state that is handed from
step to step may have gone through padding, too, as long as only the steps' own results are made of it.
"""

from __future__ import annotations

import collections

import torch

from torchsleuth.auditor.laboratory.compare import May
from torchsleuth.auditor.tracing.trace import Op, Seen, Trace

_GATHERING = {"stack", "cat", "concat", "concatenate", "__setitem__", "copy_"}  # one result of all steps
LEAST_SHARE = 0.5  # of all steps; one that takes the first and the last only is no loop


class Steps:
    """The step that each result of a trace stands for, learned call by call."""

    def __init__(self, trace: Trace, may: May) -> None:
        self.may = may
        self.of: dict[int, int] = {}
        found: dict[int, dict[int, int]] = collections.defaultdict(dict)
        for op in trace.ops if may.stepwise and may.length is not None else ():
            for key, step in self._taken(op):
                found[op.ins[0].key][key] = step
        for taken in found.values():
            if len(set(taken.values())) >= max(3, LEAST_SHARE * (may.length or 0)):
                self.of.update(taken)

    def allow(self, seen: Seen, flags: torch.Tensor) -> bool:
        """Is this the result of one step, which moved only in rows that have padding there?"""
        step = self.of.get(seen.key)
        if step is None:
            return False
        padded = self.may.table[:, step].to(flags.device)
        axis = next((axis for axis, size in enumerate(flags.shape) if size == self.may.batch), None)
        if axis is None or bool(flags.movedim(axis, 0)[~padded].any()):
            return False
        return True

    def before(self, trace: Trace, keys: set[int]) -> set[int]:
        """The results of steps that these were made of, themselves included."""
        found, todo = set(), [key for key in keys if key in self.of]
        while todo:
            key = todo.pop()
            if key not in found:
                found.add(key)
                index = trace.producer.get(key)
                todo += [seen.key for seen in trace.ops[index].ins if seen.key in self.of] if index is not None else []
        return found

    def carries(self, op: Op) -> bool:
        """Does it make something of the results of more than one step?"""
        return len({self.of[one.key] for one in op.ins if one.key in self.of}) > 1

    def learn(self, op: Op) -> None:
        """What is made of the results of one step, or of several, belongs to the last of them."""
        known = [self.of[seen.key] for seen in op.ins if seen.key in self.of] if self.of else []
        if known and op.name not in _GATHERING and not op.name.startswith("new_") and not op.name.endswith("_like"):
            self.of.update((seen.key, max(known)) for seen in op.outs)

    def _taken(self, op: Op) -> list[tuple[int, int]]:
        """What this call takes out of a sequence, and at which step."""
        whole, batch, length = op.ins[0].size if op.ins else (), self.may.batch, self.may.length
        if op.name not in ("__getitem__", "select", "unbind") or length is None or whole[:2] not in ((batch, length), (length, batch)):
            return []
        axis = 1 if whole[:2] == (batch, length) else 0
        if op.name == "unbind":
            return [(seen.key, step) for step, seen in enumerate(op.outs)] if len(op.outs) == length else []
        step = op.argument(1, "index") if op.name == "__getitem__" else op.argument(2, "index")
        if isinstance(step, tuple):
            step = tuple(one for one in step if one is not None)  # an axis of size 1 beside it
            step = step[axis] if len(step) > axis and all(isinstance(one, slice) for one in step[:axis]) else None
        elif op.name == "__getitem__" and axis:
            step = None
        if type(step) is not int or not op.outs or _without_ones(op.outs[0].size) != _without_ones(whole[:axis] + whole[axis + 1 :]):
            return []
        return [(op.outs[0].key, step % length)]


def _without_ones(size: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in size if n != 1)

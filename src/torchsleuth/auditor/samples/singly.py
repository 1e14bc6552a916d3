"""Results of single samples: what a loop over the batch takes out of it one by one, and what it makes of that.

Such a result has no axis for samples, and says itself whose it is. What is made of two samples' results is where they are mixed;
`stack` and `cat` only put them side by side.
"""

from __future__ import annotations

import collections

import torch

from torchsleuth.auditor.laboratory.compare import May
from torchsleuth.auditor.tracing.trace import Op, Seen, Trace

_BESIDE = frozenset({"stack", "cat", "concat", "concatenate", "hstack", "vstack"})
_PIECES = frozenset({"unbind", "split", "chunk", "tensor_split"})
LEAST_SHARE = 0.5  # of all samples; one that takes the first and the last only is no loop


class Singly:
    """The samples that each result of a trace without an axis for them was made of, learned call by call."""

    def __init__(self, trace: Trace, may: May) -> None:
        self.may, self.parameters = may, trace.parameters
        ops = trace.ops if may.batch > 1 else []
        parted: dict[int, set[int]] = collections.defaultdict(set)
        self._learn(ops, parted)
        self._learn(ops, {key: samples for key, samples in parted.items() if len(samples) >= max(2, LEAST_SHARE * may.batch)})

    def _learn(self, ops: list[Op], parted: dict[int, set[int]]) -> None:
        """`parted`: what samples are taken out of, one by one; where it is still to be filled, all that some are taken out of."""
        self.of: dict[int, frozenset[int]] = {}
        self._together: set[int] = set()  # results of several samples, side by side
        self._takers: dict[int, Op] = {}  # the first call that took this sample out of the batch
        for op in ops:
            known = [self.of[seen.key] for seen in op.ins if seen.key in self.of]
            if known:
                self._made(op, frozenset[int]().union(*known))
                continue
            for key, sample in _taken(op, self.may.batch):
                if isinstance(parted, collections.defaultdict):
                    parted[op.ins[0].key].add(sample)
                if op.ins[0].key in parted:
                    self.of[key] = frozenset({sample})
                    self._takers.setdefault(sample, op)

    def _made(self, op: Op, samples: frozenset[int]) -> None:
        if any(self._of_all(seen) for seen in op.ins):
            return
        if op.name in _BESIDE and (len(samples) > 1 or any(seen.key in self._together for seen in op.ins)):
            self._together.update(seen.key for seen in op.outs)
        else:
            self.of.update((seen.key, samples) for seen in op.outs if seen.key not in self.of)

    def allow(self, seen: Seen, flags: torch.Tensor) -> bool:
        """Is this the result of one sample, which may move (there)? Or of several, side by side?"""
        if seen.key in self._together and self.may.batch not in seen.size:
            return True
        samples = self.of.get(seen.key, frozenset())
        if len(samples) != 1:
            return False
        (sample,) = samples
        if self.may.length is None:
            return bool(self.may.table[sample])
        padded = self.may.table[sample].to(flags.device)
        axis = next((axis for axis, size in enumerate(flags.shape) if size == self.may.length), None)
        return axis is not None and not bool(flags.movedim(axis, 0)[~padded].any())

    def crossing(self, op: Op) -> Op | None:
        """If it makes something of what several samples gave, one after the other: the call that took the last of them out of the batch."""
        made = frozenset[int]().union(*(self.of.get(seen.key, ()) for seen in op.ins))
        return self._takers[max(made)] if len(made) > 1 and op.name not in _BESIDE else None

    def _of_all(self, seen: Seen) -> bool:
        """Holds all samples, on an axis of theirs: what one sample meets there is no longer its own."""
        return seen.key not in self.of and seen.key not in self.parameters and seen.size[:1] == (self.may.batch,)


def _taken(op: Op, batch: int) -> list[tuple[int, int]]:
    """What this call takes out of the batch, and whose it is."""
    if not op.ins or op.ins[0].size[:1] != (batch,) or not op.outs:
        return []
    if op.name in _PIECES:
        along = op.argument(1, "dim", 0) if op.name == "unbind" else op.argument(2, "dim", 0)
        return [(seen.key, sample) for sample, seen in enumerate(op.outs)] if along == 0 and len(op.outs) == batch else []
    if op.name == "select":
        index = op.argument(2, "index") if op.argument(1, "dim") == 0 else None
    elif op.name == "__getitem__":
        index = op.argument(1, "index")
        index = index[0] if isinstance(index, tuple) and index else index
        if isinstance(index, slice) and op.outs[0].size[:1] == (1,):  # `x[i:i + 1]`
            index = index.start
    else:
        return []
    return [(op.outs[0].key, index % batch)] if type(index) is int else []

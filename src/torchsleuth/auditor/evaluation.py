"""Is a result that was computed without gradients compared with targets? Then the program evaluates a model."""

from __future__ import annotations

from torchsleuth.auditor.trace import EXITS, Op, Trace
from torchsleuth.auditor.watchers import LOSSES

_CHOOSING = {"argmax", "topk", "max", "sort", "argsort", "round", "gt", "ge", "lt", "le", "__gt__", "__ge__", "__lt__", "__le__"}
_EQUAL = {"eq", "ne", "__eq__", "__ne__"}
_APART = {"sub", "__sub__", "__rsub__", "rsub", "subtract"}
_READING = EXITS | {"__format__"}


def comparison(trace: Trace, output: set[int]) -> Op | None:
    """The call that compares what was computed from `output` with something else: a loss that gives one number, a
    chosen class against a label, or a difference that is read out as one number."""
    derived, chosen = set(output), set()
    apart: dict[int, Op] = {}  # key -> the difference it was computed from
    for op in trace.ops:
        mine = [seen for seen in op.ins if seen.key in derived]
        if not mine:
            continue
        first = next((apart[seen.key] for seen in mine if seen.key in apart), None)
        if first is not None and op.name in _READING and mine[0].size == ():
            return first
        if op.grad_enabled:
            continue  # part of a training step: a teacher's or a pseudo label's use
        foreign = any(seen.key not in derived and seen.size for seen in op.ins)
        if op.name in LOSSES and foreign and op.outs and op.outs[0].size == ():
            return op
        if op.name in _EQUAL and foreign and any(seen.key in chosen for seen in mine):
            return op
        if op.name in _APART and foreign:
            first = op
        for seen in op.outs:
            derived.add(seen.key)
            if op.name in _CHOOSING or any(one.key in chosen for one in mine):
                chosen.add(seen.key)
            if first is not None:
                apart[seen.key] = first
    return None

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
    chosen class against a label, or a difference that is read out as one number.

    Where history is on again, the comparison must be read out, and nothing on the way may have a history, or come from what has one: what
    a teacher or a pseudo label is compared with in a training step does.
    """
    derived, chosen = set(output), set()
    apart: dict[int, Op] = {}  # key -> the difference it was computed from
    trained: set[int] = set()  # taken from what has a history
    for op in trace.ops:
        if any(seen.requires_grad or seen.key in trained for seen in op.ins):
            trained.update(seen.key for seen in op.outs)
        mine = [seen for seen in op.ins if seen.key in derived]
        if not mine:
            continue
        first = next((apart[seen.key] for seen in mine if seen.key in apart), None)
        if first is not None and op.name in _READING and mine[0].size == ():
            return first
        if op.grad_enabled and any(seen.requires_grad for seen in (*op.ins, *op.outs)):
            continue
        foreign = any(seen.key not in derived and seen.size and not (op.grad_enabled and seen.key in trained) for seen in op.ins)
        compares = (op.name in LOSSES and op.outs and op.outs[0].size == ()) or (op.name in _EQUAL and any(seen.key in chosen for seen in mine))
        if compares and foreign and not op.grad_enabled:
            return op
        if (compares or (op.name in _APART and not op.grad_enabled)) and foreign:
            first = op
        for seen in op.outs:
            derived.add(seen.key)
            if op.name in _CHOOSING or any(one.key in chosen for one in mine):
                chosen.add(seen.key)
            if first is not None:
                apart[seen.key] = first
    return None

"""Is a result that was computed without gradients compared with targets? Then the program evaluates a model."""

from __future__ import annotations

import typing

from torchsleuth.auditor.tracing.trace import ARRANGING, EXITS, MOST_VALUES, Op, Trace, quietly
from torchsleuth.auditor.tracing.watchers import LOSSES

_CHOOSING = {"argmax", "topk", "max", "sort", "argsort", "round", "gt", "ge", "lt", "le", "__gt__", "__ge__", "__lt__", "__le__"}
_EQUAL = {"eq", "ne", "__eq__", "__ne__"}
_APART = {"sub", "__sub__", "__rsub__", "rsub", "subtract"}
_LEAVING = ("tolist", "numpy", "__array__")
MOST_LEAVING = 8
_READING = EXITS | {"__format__"}


def tracing(most: int) -> Trace:
    """A trace that also notes which integers leave it."""
    return Trace(most=most, watchers={name: [quietly(_note_integers)] for name in _LEAVING})


def _note_integers(op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
    flat = result.ravel().tolist() if hasattr(result, "ravel") else result
    if isinstance(flat, list) and all(isinstance(value, (int, bool)) for value in flat):
        op.values = tuple(flat[:MOST_VALUES])


def comparison(trace: Trace, output: set[int], given: set[int]) -> Op | None:
    """The call that compares what was computed from `output` with something else: a loss that gives one number, a
    chosen class against a label, or a difference that is read out as one number.

    Where history is on again, the comparison must be read out, and nothing on the way may have a history, or come from what has one: what
    a teacher or a pseudo label is compared with in a training step does. Or chosen classes leave as a list, and so do their labels.
    `given`: what a model is about to be given, which is no label (a prompt that is printed before it is gone on with).
    """
    derived, chosen = set(output), set()
    classes: dict[int, int] = {}  # of those that were chosen along an axis: among how many
    leaving: list[tuple[Op, int]] = []  # 0 classes: numbers
    computed = trace.descendants(set(trace.parameters))  # by this model or another one: the predictions for the next batch are no labels
    apart: dict[int, Op] = {}  # key -> the difference it was computed from
    trained: set[int] = set()  # taken from what has a history
    for op in trace.ops:
        if any(seen.requires_grad or seen.key in trained for seen in op.ins):
            trained.update(seen.key for seen in op.outs)
        mine = [seen for seen in op.ins if seen.key in derived]
        if not mine:
            if op.name in _LEAVING and not op.grad_enabled and not any(seen.key in computed for seen in op.ins):
                left = next((one for one, count in leaving if _are_labels(op, one, count)), None)
                if left is not None and not _fed(trace, op, given | computed):
                    return left
            continue
        if op.name in _LEAVING and not op.grad_enabled and len(leaving) < MOST_LEAVING:
            if mine[0].key in classes or mine[0].dtype.is_floating_point:
                leaving.append((op, classes.get(mine[0].key, 0)))
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
        among = _among(op, mine[0].size) if op.name in _CHOOSING else next((classes[seen.key] for seen in mine if seen.key in classes), 0)
        for seen in op.outs:
            derived.add(seen.key)
            if among and not seen.dtype.is_floating_point:
                classes[seen.key] = among
            if op.name in _CHOOSING or any(one.key in chosen for one in mine):
                chosen.add(seen.key)
            if first is not None:
                apart[seen.key] = first
    return None


def _fed(trace: Trace, op: Op, keys: set[int]) -> bool:
    """Is what leaves here, or what it is a part or another shape of, also what a model computes from?"""
    mine = {op.ins[0].key, *(seen.key for made in trace.made_through(op.ins[0], ARRANGING) for seen in made.ins)}
    return bool(mine & trace.ancestors(keys))


def _among(op: Op, size: tuple[int, ...]) -> int:
    """How many classes this chooses from; of a threshold 2."""
    if op.name in ("argmax", "max", "topk", "sort", "argsort"):
        axis = op.argument(1 if op.name != "topk" else 2, "dim", -1)
        return size[axis] if size and isinstance(axis, int) and -len(size) <= axis < len(size) else 0
    return 2


def _are_labels(op: Op, predictions: Op, classes: int) -> bool:
    """Do these, which leave in the same way as predictions, stand for what was to be predicted?

    Of classes: integers, as many, none beyond the classes, and not all different, as numbers of samples are. Of numbers: as many, from the same function.
    """
    given, values = op.ins[:1], op.values
    if not classes:
        sizes = [tuple(n for n in seen.size if n > 1) for seen in (*given, predictions.ins[0])]
        same = bool(given) and given[0].dtype.is_floating_point and sizes[0] == sizes[-1] != ()
        return same and op.name == predictions.name and op.place.user_code is predictions.place.user_code
    if not given or given[0].dtype.is_floating_point or given[0].size != predictions.ins[0].size or not given[0].size:
        return False
    return len(values) > 1 and all(0 <= value < classes for value in values) and len(set(values)) < len(values)

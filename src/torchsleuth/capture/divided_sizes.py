"""Feature maps that went apart: the calls on the way to one that divided a size and left a rest (15 halved is 7, and doubled again 14)."""

from __future__ import annotations

import typing

from torchsleuth.evidence_forward import Divided
from torchsleuth.record.oplog import Mark, Operation

if typing.TYPE_CHECKING:
    from torchsleuth.capture.origins import Origins

_MOST_STEPS = 200
_MOST_TIMES = 4


def divided_with_rest(origins: Origins, mark: Mark) -> tuple[Divided, ...]:
    """Newest first, along the first operand of each call that has as many dimensions."""
    before, found = origins.limit, []
    for _ in range(_MOST_STEPS if len(mark.shape) in (3, 4, 5) else 0):
        made = origins.producer(mark, before)
        if made is None:
            break
        operation = made[0]
        given = next((operand for operand in operation.operands if len(operand.shape) == len(mark.shape) and not (operand.is_leaf and operand.requires_grad)), None)
        if given is None:
            break
        for axis in range(2, len(mark.shape)) if _divides(operation) else ():
            had, has = given.shape[axis], mark.shape[axis]
            times = round(had / has) if has else 0
            where = origins.made_by(operation) if 1 < times <= _MOST_TIMES and had != times * has else None
            if where is not None:
                found.append(Divided(axis, had, has, times, where))
        mark, before = given, operation.index
    return tuple(found)


def _divides(operation: Operation) -> bool:
    """Pooling, and convolutions with a stride. What pools to a size of its own is no division."""
    name = operation.name
    return "_pool" in name and "adaptive" not in name or name.startswith("conv") and "transpose" not in name

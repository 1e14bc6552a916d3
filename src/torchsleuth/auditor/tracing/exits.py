"""Values that leave torch as Python numbers or arrays: do they come back into what the loss is computed from, or were they only looked at?"""

from __future__ import annotations

import math
import typing

from torchsleuth.auditor.tracing.trace import ENTRIES, Op, Trace

CLOSE = 1e-6  # a sum in another order, and in single precision
ARRAYS = {"numpy", "__array__", "tolist"}


class Leaving(typing.NamedTuple):
    op: Op  # the call that hands the values out
    named: int  # the call that is to blame for it
    who: set[str]  # parameters whose history ends there


def chooses(op: Op) -> bool:
    """A truth value or a whole number: it says which branch, action or entry is taken, and is no part of what is computed."""
    return op.name in ("__bool__", "is_nonzero", "__index__", "__int__") or not any(s.dtype.is_floating_point or s.dtype.is_complex for s in op.ins)


def asked_by_torch(op: Op) -> bool:
    """A check of arguments in torch's own code (`Categorical` looks whether its logits are numbers)."""
    return op.name in ("__bool__", "is_nonzero") and not op.place.direct


def come_back(trace: Trace, on_the_way: set[int], leaving: list[Leaving]) -> tuple[list[Leaving], dict[int, Op | None]]:
    """For each parameter the exits that explain it best, and those of them (`named`) whose values were seen to come back: in the tensor
    that this call makes of numbers, or as an argument (None).

    A number that is found again among the arguments on the way to the loss was not read out for a log. Where none is found again (it was
    computed with in between) and arrays are made into tensors on the way, an array that went out is more likely to be in them than a number.
    """
    if not leaving:
        return [], {}
    ops = [op for op in trace.ops if any(seen.key in on_the_way for seen in op.outs)]
    made = [op for op in ops if op.name in ENTRIES and not op.ins]
    numbers: dict[float, Op | None] = {number: None for op in ops for number in arguments(op) if telling(number)}
    numbers |= {number: op for op in made for number in op.values if telling(number)}
    seen = {one.named: numbers[number] for one in leaving for number in one.op.values if number in numbers}
    for several in _together(leaving) if numbers else ():
        if not any(one.named in seen for one in several) and (number := _put_together(several, numbers)) is not None:
            seen.update((one.named, numbers[number]) for one in several)
    kept: list[Leaving] = []
    for one in leaving:
        who = set()
        for name in one.who:
            others = [other for other in leaving if name in other.who]
            best = [other for other in others if other.named in seen] or [o for o in others if made and o.op.name in ARRAYS] or others
            if any(other is one for other in best):
                who.add(name)
        if who:
            kept.append(one._replace(who=who))
    return kept, seen


def _together(leaving: list[Leaving]) -> list[list[Leaving]]:
    """Single numbers that leave by one expression, in a loop; and all of them."""
    single = [one for one in leaving if len(one.op.values) == 1]
    places: dict[typing.Any, list[Leaving]] = {}
    for one in single:
        places.setdefault((one.op.place.user_code, one.op.place.user_offset), []).append(one)
    return [several for several in (*places.values(), single) if len(several) > 1]


def _put_together(several: list[Leaving], numbers: dict[float, Op | None]) -> float | None:
    """The number that comes back and is their sum or their mean: `np.mean([loss.item() for ...])`."""
    total = math.fsum(one.op.values[0] for one in several)
    wanted = [value for value in (total, total / len(several)) if telling(value)]
    return next((number for number in numbers if any(math.isclose(number, value, rel_tol=CLOSE) for value in wanted)), None)


def arguments(op: Op) -> typing.Iterator[float]:
    for value in (*op.plain[0], *op.plain[1].values()):
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, float):
                yield number


def telling(number: float) -> bool:
    """0.5 and 1e-3 are written in programs."""
    return number == number and round(number, 4) != number and float(f"{number:.2g}") != number

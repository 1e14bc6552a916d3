"""Terms of a loss that are plain numbers which were read out of what is trained: `loss + penalty.item()`.

A number is known again by its value: as it was read out, as the sum of what one expression gave in a loop, or times a factor as
programs write them (0.01, 1e-4, 0.5).
"""

from __future__ import annotations

import math
import typing

from torchsleuth.auditor.losses.terms import SUMS, sums_of
from torchsleuth.auditor.observation_training import Cut
from torchsleuth.auditor.tracing.exits import arguments, telling
from torchsleuth.auditor.tracing.trace import ENTRIES, EXITS, Op, Trace

CLOSE = 1e-6  # a sum in another order
MOST_READ = 256


def number_terms(trace: Trace, loss: int | None, keys: dict[str, int], trained: set[str]) -> list[Cut]:
    """One for each expression that read such a number out. What counts for the loss all the same, or has a backward pass of its own, is none."""
    given = list(_numbers(trace, loss))
    if loss is None or not given:
        return []
    counts = trace.ancestors({loss})
    asked = {seen.key for op in trace.ops if op.name == "backward" for seen in op.ins[:1]}
    counts |= trace.ancestors(asked)
    places: dict[typing.Any, list[Op]] = {}
    for op in trace.ops:
        if op.name in EXITS and len(op.values) == 1 and len(op.ins) == 1 and op.ins[0].requires_grad and op.ins[0].dtype.is_floating_point and op.ins[0].key not in counts:
            places.setdefault((op.place.user_code, op.place.user_offset), []).append(op)
    found = []
    for several in list(places.values())[:MOST_READ]:
        first, total = several[0], math.fsum(op.values[0] for op in several)
        single = {first.values[0], several[-1].values[0]}
        used, number = next(((op, number) for op, number in given if op.index > first.index and any(_made_of(number, value) for value in (*single, total))), (None, 0.0))
        before = trace.ancestors({seen.key for op in several for seen in op.ins})
        who = tuple(sorted(name for name, key in keys.items() if key in before and name in trained))
        site, term = trace.site(first), trace.site(used) if used is not None else None
        if used is not None and who and site is not None and term is not None and not site.library:
            times = 1 if any(_made_of(number, value) for value in single) else len(several)
            found.append(Cut(first.name, "item", site, who, partly=True, times=times, term=term, number=number))
    return found


def _numbers(trace: Trace, loss: int | None) -> typing.Iterator[tuple[Op, float]]:
    """Numbers that are added to the loss, or to a term of it; and tensors made of one that are."""
    for op in sums_of(trace, loss):
        if op.name in SUMS:
            yield from ((op, abs(number)) for number in arguments(op) if telling(number))
        elif op.name in ENTRIES and not op.ins and len(op.values) == 1 and telling(op.values[0]):
            yield op, abs(op.values[0])


def _made_of(number: float, value: float) -> bool:
    if not value or not telling(value):
        return False
    factor = abs(number / value)
    return factor > 0 and math.isclose(factor, float(f"{factor:.2g}"), rel_tol=CLOSE)

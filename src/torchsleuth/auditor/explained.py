"""Of several findings about one expression, the one that says why stays; what the others saw there is its evidence. No torch."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from torchsleuth.model import Diagnosis, Fix, Known

# What is wrong with an expression, and what an experiment sees there because of it. Two rules that are not named together
# may both be right about one line: an attention can lack two masks.
EFFECTS = {
    "activation-before-loss": {"not-finite"},  # the logarithm of a negative target, say
    "silent-broadcast": {"batch-mixing", "view-for-transpose", "causal-leak", "padding-leak"},
    "softmax-axis": {"batch-mixing", "causal-leak", "padding-leak"},
    "saturated-activation": {"zero-gradient"},
    "batch-mixing": {"view-for-transpose", "causal-leak", "padding-leak"},
    "view-for-transpose": {"causal-leak", "padding-leak"},
    "unregistered-parameters": {"dropout-in-eval"},  # neither the optimizer nor the mode reaches such layers
}


def explained(found: Sequence[Diagnosis]) -> tuple[Diagnosis, ...]:
    kept: list[Diagnosis] = [d for d in found if not any(_explains(other, d) for other in found)]
    return tuple(_with_evidence(d, [other for other in found if _explains(d, other)]) for d in kept)


def joined(found: Sequence[Diagnosis]) -> tuple[Diagnosis, ...]:
    """Findings that say the same as one: of one expression, each for another use of it; or of several in one function (queries, keys and values)."""
    first: dict[tuple, Diagnosis] = {}
    for one in found:
        if not one.culprits:
            first[(id(one),)] = one
            continue
        said = (one.rule, one.title, one.explanation, one.culprits[0].label)
        here = (*said, one.culprits[0].span)
        beside = (*said, tuple(_kind(fix.title) for fix in one.fixes), one.culprits[0].span.file, one.culprits[0].function)
        if (known := first.get(here)) is not None:
            facts = (*known.facts, *one.facts)
        elif (known := next((d for d in first.values() if d.culprits and beside == _beside(d)), None)) is not None and len(one.culprits) == 1 == len({c.role for c in known.culprits}):
            facts = (*known.facts, *one.facts[:1])
        else:
            first[here] = one
            continue
        where = next(key for key, value in first.items() if value is known)
        fixes = _together(known.fixes, one.fixes)
        first[where] = dataclasses.replace(known, culprits=tuple(dict.fromkeys((*known.culprits, *one.culprits))), facts=tuple(dict.fromkeys(facts)), fixes=fixes)
    return tuple(first.values())


def _beside(known: Diagnosis) -> tuple:
    lead = known.culprits[0]
    return (known.rule, known.title, known.explanation, lead.label, tuple(_kind(fix.title) for fix in known.fixes[:1]), lead.span.file, lead.function)


def _together(fixes: tuple[Fix, ...], more: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """One remedy for all places: what is to be written at each of them stands in one sentence."""
    if len(fixes) != 1 or len(more) != 1 or fixes[0].title == more[0].title or _kind(fixes[0].title) != _kind(more[0].title):
        return tuple({fix.title: fix for fix in (*fixes, *more)}.values())
    written = re.findall("`[^`]*`", more[0].title)[0]
    if written in fixes[0].title:
        return fixes
    return (dataclasses.replace(fixes[0], title=re.sub("`[^`]*`( and `[^`]*`)*", lambda known: f"{known[0]} and {written}", fixes[0].title, count=1)),)


def _kind(remedy: str) -> str:
    """A remedy without the expressions of this place."""
    return re.sub("`[^`]*`( and `[^`]*`)*", "`…`", remedy)


def _explains(why: Diagnosis, what: Diagnosis) -> bool:
    if why.rule == "result-dropped" and what.rule in ("causal-leak", "padding-leak"):  # scores that were to be filled, and the softmax of them
        return "`masked_fill`" in why.title and any((one.span.file, one.function) == (c.span.file, c.function) for one in why.culprits[:1] for c in what.culprits[:1])
    return what.rule in EFFECTS.get(why.rule, ()) and bool({c.span for c in why.culprits} & {c.span for c in what.culprits})


def _with_evidence(why: Diagnosis, effects: list[Diagnosis]) -> Diagnosis:
    seen = [next(iter(fact for fact in what.facts if fact.known is Known.RECOMPUTED), None) for what in effects]
    return dataclasses.replace(why, facts=(*why.facts, *(fact for fact in seen if fact is not None))) if effects else why

"""Of several findings about one expression, the one that says why stays; what the others saw there is its evidence. No torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from torchsleuth.model import Diagnosis, Known

# What is wrong with an expression, and what an experiment sees there because of it. Two rules that are not named together
# may both be right about one line: an attention can lack two masks.
EFFECTS = {
    "activation-before-loss": {"not-finite"},  # the logarithm of a negative target, say
    "silent-broadcast": {"batch-mixing", "view-for-transpose", "causal-leak", "padding-leak"},
    "softmax-axis": {"batch-mixing", "causal-leak", "padding-leak"},
    "batch-mixing": {"view-for-transpose", "causal-leak", "padding-leak"},
    "view-for-transpose": {"causal-leak", "padding-leak"},
}


def explained(found: Sequence[Diagnosis]) -> tuple[Diagnosis, ...]:
    kept: list[Diagnosis] = [d for d in found if not any(_explains(other, d) for other in found)]
    return tuple(_with_evidence(d, [other for other in found if _explains(d, other)]) for d in kept)


def joined(found: Sequence[Diagnosis]) -> tuple[Diagnosis, ...]:
    """Findings that say the same of the same expression, each for another use of it, as one: with the places and numbers of all."""
    first: dict[tuple, Diagnosis] = {}
    for one in found:
        key = (one.rule, one.title, one.explanation, one.culprits[0].span, one.culprits[0].label) if one.culprits else (id(one),)
        known = first.get(key)
        if known is None:
            first[key] = one
            continue
        places, facts = dict.fromkeys((*known.culprits, *one.culprits)), dict.fromkeys((*known.facts, *one.facts))
        first[key] = dataclasses.replace(known, culprits=tuple(places), facts=tuple(facts))
    return tuple(first.values())


def _explains(why: Diagnosis, what: Diagnosis) -> bool:
    return what.rule in EFFECTS.get(why.rule, ()) and bool({c.span for c in why.culprits} & {c.span for c in what.culprits})


def _with_evidence(why: Diagnosis, effects: list[Diagnosis]) -> Diagnosis:
    seen = [next(iter(fact for fact in what.facts if fact.known is Known.RECOMPUTED), None) for what in effects]
    return dataclasses.replace(why, facts=(*why.facts, *(fact for fact in seen if fact is not None))) if effects else why

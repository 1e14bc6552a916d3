"""The usual form of a forward diagnosis."""

from __future__ import annotations

from collections.abc import Iterable

from torchsleuth.evidence_forward import FailedOperation, Made, Operand
from torchsleuth.model import Applicability, Confidence, Diagnosis, Fact, Fix, Role
from torchsleuth.rules.forward._culprits import Culprits
from torchsleuth.rules.forward._offenders import naming, offender_facts, offenders
from torchsleuth.rules.forward._words import operand_facts, other_facts, setting_facts, shape


def advice(*titles: str) -> tuple[Fix, ...]:
    return tuple(Fix(title, Applicability.DISPLAY_ONLY) for title in titles if title)


def for_the_input(operation: FailedOperation, fixes: Iterable[str]) -> list[str]:
    """A layer that has taken other inputs is not to be built for this one."""
    kept = list(fixes)
    if operation.took is None:
        return kept
    kept = [fix for fix in kept if not fix.startswith("Build the ")]
    return kept or [f"The layer has taken inputs of shape {shape(operation.took.shape)}: make this one alike where it is made."]


def report(
    rule: str,
    operation: FailedOperation,
    *,
    title: str,
    why: str,
    label: str,
    role: Role = Role.OPERAND,
    lead: Operand | None = None,
    creates: Iterable[tuple[Made | None, str]] = (),
    facts: Iterable[Fact] = (),
    fixes: Iterable[str] = (),
    confidence: Confidence = Confidence.CERTAIN,
    shown: int = 6,
    mentioned: Iterable[Operand | None] = (),
) -> Diagnosis:
    """The usual form: the failing expression, where its parts came from, the given facts, every operand, the setting."""
    culprits = Culprits()
    culprits.lead(operation, role, label, lead)
    for made, words in creates:
        culprits.create(made, words)
    about = [item for item in offenders(operation, 2) if item is not lead]
    if lead is not None and naming(lead.argument, operation.message):
        about = []  # the message names the leading operand, too: that is said already
    mentioned = list(mentioned)
    described = other_facts(operation, *mentioned) if mentioned else operand_facts(operation, shown)
    seen = [*facts, *offender_facts(about), *described, *setting_facts(operation)]
    return Diagnosis(rule, title, confidence, culprits.done(), tuple(seen), why, advice(*for_the_input(operation, fixes)))

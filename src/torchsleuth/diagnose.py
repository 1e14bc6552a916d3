"""From a crash to diagnoses: messages nominate rules, evidence convicts, the best goes first, or nobody does."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Callable, Iterable

from torchsleuth.errors import message_of
from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import shortened
from torchsleuth.model import Confidence, Diagnosis, Fact, Known, Role
from torchsleuth.rule import CrashRule, rules_of
from torchsleuth.rules.device._words import printed_fact
from torchsleuth.wording import upper_first

_WORD = re.compile(r"(the|its|this|that|an) [^:]")
_ORDER = {Confidence.CERTAIN: 0, Confidence.LIKELY: 1, Confidence.POSSIBLE: 2}


def nominated(type_name: str, message: str) -> list[CrashRule]:
    return [rule for rule in rules_of(CrashRule) if rule.nominated_by(type_name, message)]


def diagnose(
    type_name: str, message: str, collect: Callable[[Iterable[str]], Evidence], only: str = ""
) -> tuple[tuple[Diagnosis, ...], Evidence | None]:
    """Diagnoses, best first. `collect` gathers the evidence for the sections the nominated rules need; `only` one rule is heard."""
    rules = [rule for rule in nominated(type_name, message) if not only or rule.name == only]
    if not rules:
        return (), None
    evidence = collect(need for rule in rules for need in rule.needs)
    convicted: list[tuple[int, int, Diagnosis]] = []
    for rule in rules:
        diagnosis = rule.diagnose(evidence)
        if diagnosis is not None:
            convicted.append((-rule.priority, _ORDER[diagnosis.confidence], diagnosis))
    if not convicted:
        return (), evidence
    # Rules of lower priority are there for what nothing better explains.
    convicted.sort(key=lambda item: item[:2])
    return (_in_sentences(_on_the_device(_within_backward(convicted[0][2], evidence), evidence)),), evidence


def _in_sentences(diagnosis: Diagnosis) -> Diagnosis:
    """With a capital where rules begin with an operand's description, "the input of `net.2`"; `input: …` is a name and stays."""
    facts = tuple(dataclasses.replace(fact, text=_sentence(fact.text)) for fact in diagnosis.facts)
    return dataclasses.replace(diagnosis, title=_sentence(diagnosis.title), facts=facts)


def _sentence(text: str) -> str:
    return upper_first(text) if _WORD.match(text) else text


def _within_backward(diagnosis: Diagnosis, evidence: Evidence) -> Diagnosis:
    """Whatever was raised inside a custom backward or hook, the forward call it belongs to is part of the answer."""
    custom = evidence.custom
    if custom is None or not custom.raised_inside or custom.forward_call is None:
        return diagnosis
    call = custom.forward_call.via or custom.forward_call
    if any(culprit.span == call.span for culprit in diagnosis.culprits):
        return diagnosis
    label = "made the tensor the hook is on" if custom.is_hook else "the forward call this backward belongs to"
    return dataclasses.replace(diagnosis, culprits=(*diagnosis.culprits, call.culprit(Role.CALL, label)))


def _on_the_device(diagnosis: Diagnosis, evidence: Evidence) -> Diagnosis:
    """What a recorded call on the GPU explains: how its values were had, and what the traceback's own line has to do with it."""
    device = evidence.device
    if device is None or not device.recovered:
        return diagnosis
    before = "the compiled code ran" if device.compiled else "the kernel that refused them"
    facts = [Fact(f"These values were copied to the host on the same stream, just before {before}: nothing was run again.", Known.OBSERVED)]
    if device.noticed is not None and device.behind:
        seen = device.noticed.via or device.noticed
        where = f"{seen.span.file}:{seen.span.line}"
        facts.append(Fact(f"The traceback ends at {where}, `{shortened(seen.source)}`: there the program first noticed that the GPU had stopped.", Known.OBSERVED))
    if device.text is not None:
        facts.append(printed_fact(device.text))
    facts.append(Fact("After such an error a process cannot use the GPU any more: restart it (or the notebook's kernel).", Known.OBSERVED))
    return dataclasses.replace(diagnosis, facts=(*diagnosis.facts, *facts))


def is_nominated(error: BaseException) -> bool:
    """Cheap enough to ask for every exception: does any rule with messages of its own claim this one?"""
    type_name, message = type(error).__name__, message_of(error)
    return any(rule.messages and rule.nominated_by(type_name, message) for rule in rules_of(CrashRule))


__all__: typing.Final = ("diagnose", "is_nominated", "nominated")

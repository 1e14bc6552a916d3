"""From an observation to a report: every audit rule is asked, the strongest findings lead. No torch."""

from __future__ import annotations

import typing

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule
from torchsleuth.model import Confidence, Diagnosis, Outcome, RaisedException, Report
from torchsleuth.rule import rules_of

_STRENGTH = {Confidence.CERTAIN: 0, Confidence.LIKELY: 1, Confidence.POSSIBLE: 2}


def findings(observation: Observation) -> tuple[Diagnosis, ...]:
    found: list[tuple[int, int, Diagnosis]] = []
    for rule in rules_of(AuditRule):
        for diagnosis in rule.judge(observation):
            found.append((_STRENGTH[diagnosis.confidence], rule.order, diagnosis))
    return tuple(diagnosis for _, _, diagnosis in sorted(found, key=lambda item: item[:2]))


def report_of(command: str, observation: Observation, exception: RaisedException | None = None) -> Report:
    diagnoses = findings(observation)
    notes: typing.Iterable[str] = observation.notes
    if exception is not None and not diagnoses:
        notes = (*notes, f"the model could not be run: {observation.crash}; nothing but its inputs was looked at")
        return Report(command, Outcome.CRASH, exception, (), tuple(notes))
    outcome = Outcome.FINDINGS if diagnoses else Outcome.OK
    if exception is not None:
        notes = (*notes, f"the model could not be run: {observation.crash}; no experiment was made")
    return Report(command, outcome, exception, diagnoses, tuple(notes))

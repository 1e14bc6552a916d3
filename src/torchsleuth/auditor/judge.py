"""From an observation to a report: every audit rule is asked, the strongest findings lead. No torch."""

from __future__ import annotations

import dataclasses
import typing

from torchsleuth.auditor.explained import explained, joined
from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, turned_title
from torchsleuth.model import Confidence, Diagnosis, Fact, Known, Outcome, RaisedException, Report, Role
from torchsleuth.rule import rules_below

_FLAGS = "Give the mask as flags (`bool`), or as numbers that are 0 where a key is seen and `-inf` where it is hidden: numbers are added to the scores."
_STRENGTH = {Confidence.CERTAIN: 0, Confidence.LIKELY: 1, Confidence.POSSIBLE: 2}


def findings(observation: Observation) -> tuple[Diagnosis, ...]:
    found: list[tuple[int, int, Diagnosis]] = []
    for rule in rules_below("training"):
        assert isinstance(rule, AuditRule)
        for diagnosis in rule.judge(observation):
            found.append((_STRENGTH[diagnosis.confidence], rule.order, diagnosis))
    return _causes(observation, tuple(diagnosis for _, _, diagnosis in sorted(found, key=lambda item: item[:2])))


def _causes(observation: Observation, found: tuple[Diagnosis, ...]) -> tuple[Diagnosis, ...]:
    """Without findings that only repeat what another one has caused: a NaN in the data makes NaN gradients."""
    rules = {diagnosis.rule for diagnosis in found}
    if observation.not_finite is not None and observation.not_finite.kind == "later":
        rules.discard("not-finite")  # which says nothing of the first step
    kinds = {fact.kind for fact in observation.inputs}
    caused: set[str] = set()
    if "not-finite" in kinds and not observation.finite:  # in the inputs
        caused |= {"nan-gradient", "loss-at-start", "not-finite"}
    if "not-finite" in rules:
        caused |= {"nan-gradient", "zero-gradient", "loss-at-start", "no-update"}
    if kinds & {"unscaled-image", "stretched-image"}:
        caused |= {"loss-at-start", "zero-gradient"}
    if "softmax-axis" in rules or any(move.inverted for move in observation.moves):
        caused.add("zero-gradient")
    if any(alias.returned for alias in observation.aliases):  # which says what has become of it
        found = tuple(d for d in found if not (d.rule == "unused-parameters" and "is dropped" in d.title))
    if "mask-transposed" in kinds:
        caused |= {"padding-leak", "batch-mixing", "zero-gradient", "nan-gradient", "not-finite"}
    if kinds & {"length-too-long", "lengths-reordered"}:
        caused.add("padding-leak")
    if "mask-inverted" in kinds or "mask-polarity" in kinds:  # a full row of an inverted mask hides everything
        found = tuple(d for d in found if not (d.rule == "suspicious-input" and "hides everything" in d.title))
    if "mask-inverted" in kinds:
        caused |= {"zero-gradient", "nan-gradient", "not-finite"}
        if "mask-polarity" in kinds or any(move.inverted for move in observation.moves):  # which say it of the input, or by experiment
            said = {turned_title(fact.polarity) for fact in observation.inputs if fact.polarity is not None}
            found = tuple(d for d in found if d.rule != "suspicious-input" or d.title not in said)
        else:
            caused.add("padding-leak")
    if "mask-polarity" in kinds:
        caused |= {"padding-leak", "zero-gradient", "causal-leak"}  # where all that a position may see is hidden, its weights are the same for all
    if rules - {"loss-at-start", "loop-in-step", "cannot-overfit"}:
        caused.add("loss-at-start")  # a guess at the cause, where a cause is known
    if "additive-mask" in kinds:
        found = _with_reason(observation, found)
    idle = observation.no_update
    if idle is not None and idle.zeros:  # which names what is zero, and where it is made
        caused.add("zero-gradient")
    nothing = {"zero-gradient"} - caused | ({"softmax-axis"} if any(fact.kind == "one-element" for fact in observation.axes) else set())
    if "gradient-cut" in rules or (nothing & rules and idle is not None and idle.reason == "zero-gradient" and not idle.zeros):
        caused |= {"no-update"}
    return joined(explained([diagnosis for diagnosis in found if diagnosis.rule not in caused]))


def across(found: list[Diagnosis]) -> tuple[Diagnosis, ...]:
    """Of the findings about all models of one step: without a step that did nothing because no gradient came to what the optimizer holds."""
    rules = {diagnosis.rule for diagnosis in found}
    if not rules & {"gradient-cut", "optimizer-parameters"}:
        return joined(found)
    return joined([d for d in found if d.rule != "no-update" or not any("has a gradient" in fact.text for fact in d.facts)])


def report_of(command: str, observation: Observation, exception: RaisedException | None = None) -> Report:
    diagnoses = findings(observation)
    notes: typing.Iterable[str] = observation.notes
    if exception is not None and not diagnoses:
        notes = (*notes, f"{observation.crash}; nothing but its inputs was looked at")
        return Report(command, Outcome.CRASH, exception, (), tuple(notes))
    outcome = Outcome.FINDINGS if diagnoses else Outcome.OK
    if exception is not None:
        notes = (*notes, f"{observation.crash}; no experiment was made")
    return Report(command, outcome, exception, diagnoses, tuple(notes))


def _with_reason(observation: Observation, found: tuple[Diagnosis, ...]) -> tuple[Diagnosis, ...]:
    """A leak through an attention whose mask is added instead of selecting: one finding, with its reason first."""
    reasons = {fact.site.span: fact for fact in observation.inputs if fact.kind == "additive-mask" and fact.site is not None}
    leaks = {c.span for d in found if d.rule in ("padding-leak", "causal-leak") for c in d.culprits}
    merged = []
    for diagnosis in found:
        mine = [reasons[c.span] for c in diagnosis.culprits if c.span in reasons]
        if mine and diagnosis.rule == "suspicious-input" and any(c.span in leaks for c in diagnosis.culprits):
            continue
        if mine and diagnosis.rule in ("padding-leak", "causal-leak"):
            made = mine[0].made
            named = made is not None and any(c.span == made.span for c in diagnosis.culprits)
            first = () if made is None or named else (culprit(made, Role.CREATE, "this mask holds 0 and 1, which are added to the scores"),)
            diagnosis = dataclasses.replace(diagnosis, culprits=(*first, *diagnosis.culprits), facts=(Fact(mine[0].text, Known.OBSERVED), *diagnosis.facts), fixes=(advice(_FLAGS),))
        merged.append(diagnosis)
    return tuple(merged)

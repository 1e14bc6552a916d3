"""From trials to one report: rules judge, surrogates may be accepted, right Functions get a bill of what was tried.

Torch-free: a trial that was stored as JSON can be judged again.
"""

from __future__ import annotations

import dataclasses
import typing

from torchsleuth.checker.trial import Finding, FunctionRule, Trial
from torchsleuth.frozen import frozen
from torchsleuth.model import Diagnosis, Outcome, Report
from torchsleuth.rule import rules_of


@frozen
class CheckReport(Report):
    """A report with the trials behind it."""

    trials: tuple[Trial, ...] = ()


def report_of(trials: typing.Sequence[Trial], accept_surrogate: bool | None = None, notes: typing.Sequence[str] = (), strict: bool = False) -> CheckReport:
    """Diagnoses for what is wrong; what may well be meant, or may never matter, becomes a note unless `strict`."""
    accept = not strict if accept_surrogate is None else accept_surrogate
    diagnoses: list[Diagnosis] = []
    found = False
    lines: list[str] = []
    kept = []
    for trial in trials:
        trial = _accepting(trial) if accept else trial
        trial, harmless = (trial, []) if strict else _without_harmless(trial)
        judged = _judged(trial)
        wrong = any(not rule.advice for rule, _ in judged)
        found |= wrong
        diagnoses += [diagnosis for _, diagnosis in judged]
        lines += [f"{trial.function}: {line}" for line in (*bill(trial, wrong), *(harmless if not wrong else ()))]
        kept.append(trial)
    return CheckReport("check", Outcome.FINDINGS if found else Outcome.OK, None, tuple(diagnoses), (*lines, *notes), tuple(kept))


def _judged(trial: Trial) -> list[tuple[FunctionRule, Diagnosis]]:
    if not trial.findings:
        return []
    rules = sorted(rules_of(FunctionRule), key=lambda rule: -rule.priority)
    return [(rule, diagnosis) for rule in rules for diagnosis in rule.judge(trial)]


def _accepting(trial: Trial) -> Trial:
    accepted = trial.of_kind("not-derivative")
    rest = tuple(f for f in trial.findings if f.kind != "not-derivative")
    return dataclasses.replace(trial, findings=rest, accepted=accepted)


# The gradient is right, and these matter only to a program that differentiates twice, or writes into the output.
SECOND = ("double-backward", "double-backward-raises")
MARKS = ("view", "unmarked-integer")


def _without_harmless(trial: Trial) -> tuple[Trial, list[str]]:
    """The trial without what no program here suffers from, and that as sentences."""
    idle = MARKS if trial.twice else MARKS + SECOND
    apart = tuple(f for f in trial.findings if f.kind in idle or _of_nothing(f))
    if not apart:
        return trial, []
    said = []
    for _, diagnosis in _judged(dataclasses.replace(trial, findings=apart)):
        place = f" ({diagnosis.culprits[0].span.file}:{diagnosis.culprits[0].span.line})" if diagnosis.culprits else ""
        use = "; its file takes no second derivative" if diagnosis.rule == "function-double-backward" else ""
        said.append(f"{diagnosis.title}{place}{use}")
    return dataclasses.replace(trial, findings=tuple(f for f in trial.findings if f not in apart)), said


def _of_nothing(finding: Finding) -> bool:
    """`reshape(n, c, -1)` refuses an empty batch, aloud: no gradient is wrong for that, and few programs ever have one."""
    return finding.kind == "raises" and finding.case == "size 0"


def bill(trial: Trial, wrong: bool) -> list[str]:
    """What was tried, for a Function that is right; only the remarks for one that is not."""
    out = []
    if not wrong:
        names = ", ".join(i.name for i in trial.inputs if i.checked)
        shapes = ", ".join(f"{i.name} {list(i.shape)}" for i in trial.inputs if i.tensor)
        verdict = f"accepted: backward is not the derivative of forward{_purposes(trial)}" if trial.accepted else "right"
        digits = f"{trial.dtype} on {trial.device}, tolerance {trial.tolerance:g}, {trial.directions} random direction{'s' * (trial.directions != 1)} per input"
        out.append(f"{verdict}. Gradient for {names} compared with differences of forward: {shapes} in {digits}")
        tried = [f"{name} ({shapes})" if shapes and name in SHAPED else name for name, shapes in trial.cases if name]
        if tried:
            out.append(("the same with: " if trial.accepted else "also right: ") + "; ".join(tried))
        doubled = {"right": "right", "refused": "refused by @once_differentiable, as it should be"}.get(trial.double_backward)
        if doubled:
            out.append(f"double backward: {doubled}")
        if trial.refused:
            out.append("not tried, forward refuses: " + "; ".join(f"{name} ({why[:80]})" for name, why in trial.refused))
    return out + list(trial.remarks)


def _purposes(trial: Trial) -> str:
    """`, on purpose: forward is flat in `x`, a straight-through or surrogate gradient (ops.py:12)`."""
    kinds = {"zero": "forward is flat in {}, a straight-through or surrogate gradient", "rounds": "forward rounds {}, a straight-through or surrogate gradient",
             "steps": "one of forward's outputs is flat in {}, a surrogate gradient", "unchanged": "forward passes {} on unchanged, a changed gradient"}  # fmt: skip
    said = []
    for finding in trial.accepted:
        if finding.detail in kinds:
            place = f" ({finding.culprit.span.file}:{finding.culprit.span.line})" if finding.culprit is not None else ""
            said.append(kinds[finding.detail].format(f"`{trial.inputs[finding.input].name}`") + place)
    return ", apparently on purpose" + (f": {'; '.join(said)}" if said else "")


SHAPED = frozenset(("a batch of 1", "a batch of 3", "size 0", "unequal dimensions"))

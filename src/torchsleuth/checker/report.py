"""From trials to one report: rules judge, surrogates may be accepted, right Functions get a bill of what was tried.

Torch-free: a trial that was stored as JSON can be judged again.
"""

from __future__ import annotations

import dataclasses
import io
import typing
from dataclasses import dataclass

from torchsleuth.checker.trial import FunctionRule, Trial
from torchsleuth.model import Diagnosis, Outcome, Report
from torchsleuth.rule import rules_of


@dataclass(frozen=True)
class CheckReport(Report):
    """A report that can be asked and printed: `report.ok`, `print(report)`."""

    trials: tuple[Trial, ...] = ()

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK

    def __str__(self) -> str:
        from torchsleuth.render.terminal import console_for, show

        stream = io.StringIO()
        show(self, console_for(stream))
        return stream.getvalue().rstrip("\n")


def report_of(trials: typing.Sequence[Trial], accept_surrogate: bool = False, notes: typing.Sequence[str] = ()) -> CheckReport:
    trials = tuple(_accepting(trial) if accept_surrogate else trial for trial in trials)
    diagnoses: list[Diagnosis] = []
    found = False
    lines: list[str] = []
    for trial in trials:
        judged = _judged(trial)
        wrong = any(not rule.advice for rule, _ in judged)
        found |= wrong
        diagnoses += [diagnosis for _, diagnosis in judged]
        lines += [f"{trial.function}: {line}" for line in bill(trial, wrong)]
    return CheckReport("check", Outcome.FINDINGS if found else Outcome.OK, None, tuple(diagnoses), (*lines, *notes), trials)


def _judged(trial: Trial) -> list[tuple[FunctionRule, Diagnosis]]:
    if not trial.findings:
        return []
    rules = sorted(rules_of(FunctionRule), key=lambda rule: -rule.priority)
    return [(rule, diagnosis) for rule in rules for diagnosis in rule.judge(trial)]


def _accepting(trial: Trial) -> Trial:
    accepted = trial.of_kind("not-derivative")
    rest = tuple(f for f in trial.findings if f.kind != "not-derivative")
    return dataclasses.replace(trial, findings=rest, accepted=accepted)


def bill(trial: Trial, wrong: bool) -> list[str]:
    """What was tried, for a Function that is right; only the remarks for one that is not."""
    out = []
    if not wrong:
        names = ", ".join(i.name for i in trial.inputs if i.checked)
        shapes = ", ".join(f"{i.name} {list(i.shape)}" for i in trial.inputs if i.tensor)
        verdict = "accepted: backward is not the derivative of forward, on purpose" if trial.accepted else "right"
        digits = f"{trial.dtype} on {trial.device}, tolerance {trial.tolerance:g}, {trial.directions} random direction{'s' * (trial.directions != 1)} per input"
        out.append(f"{verdict}. Gradient for {names} compared with differences of forward: {shapes} in {digits}")
        tried = [f"{name} ({shapes})" if shapes and name in SHAPED else name for name, shapes in trial.cases if name]
        if tried:
            out.append("also right: " + "; ".join(tried))
        doubled = {"right": "right", "refused": "refused by @once_differentiable, as it should be"}.get(trial.double_backward)
        if doubled:
            out.append(f"double backward: {doubled}")
        if trial.refused:
            out.append("not tried, forward refuses: " + "; ".join(f"{name} ({why[:80]})" for name, why in trial.refused))
    return out + list(trial.remarks)


SHAPED = frozenset(("a batch of 1", "a batch of 3", "size 0", "unequal dimensions"))

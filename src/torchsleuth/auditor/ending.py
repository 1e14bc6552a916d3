"""When a watched program has ended: the experiments on what its first step captured, judged together with what all steps showed."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass

from torchsleuth.auditor.alternating import OtherSteps
from torchsleuth.auditor.captured import Captured, called_name
from torchsleuth.auditor.judge import across, findings
from torchsleuth.auditor.later import LaterWatch
from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.optimizers import OptimizerWatch
from torchsleuth.auditor.session import Session
from torchsleuth.auditor.stepview import StepView
from torchsleuth.model import Diagnosis

MOST_EXPERIMENTS = 2  # of the models called in the step, so many are experimented on; the facts of the step are read for all


@dataclass
class Parts:
    """What the watch found, for a report of whichever command it ran under."""

    diagnoses: tuple[Diagnosis, ...] = ()
    notes: tuple[str, ...] = ()
    observations: tuple[Observation, ...] = ()


@dataclass
class Ending:
    """`view` is the traced first step; `fields` what was read from it for each captured model, by its identity."""

    view: StepView
    captured: list[Captured]
    fields: dict[int, dict[str, typing.Any]]
    optimizers: OptimizerWatch
    later: LaterWatch | None
    others: OtherSteps | None
    budget_s: float

    def look_for_idleness(self, never: bool) -> None:
        """Over the whole program: was no step taken (`never`), or none that changed anything, or none by one of several optimizers?"""
        for one in self.captured:
            self._forget_trained_elsewhere(one)
        largest = max(self.captured, key=lambda c: c.size)
        fields = self.fields.setdefault(id(largest.model), {})
        steps = self.later.steps if self.later is not None else 0
        if never:
            fields["no_update"] = self.optimizers.never()
        elif fields.get("no_update") is not None:
            fields["no_update"] = self.optimizers.still(fields["no_update"], steps)
        elif steps >= 3:
            beside = self.optimizers.idle_beside([one.model for one in self.captured])
            others = self.others
            idle = others.idle() if others is not None else None
            explained = others.explained if others is not None else set()  # it is known why these have no gradients
            fields["no_update"] = beside or idle or (self.later.barren(explained) if self.later is not None else None)

    def _forget_trained_elsewhere(self, one: Captured) -> None:
        """What the optimizer does not hold has changed all the same: the program has an optimizer of its own for it."""
        fields = self.fields.get(id(one.model), {})
        if not fields.get("optimizer"):
            return
        changed = self.optimizers.changed()
        names = {n for n, p in one.model.named_parameters() if id(p) in changed}
        prefix = f"{called_name(one.site)}."
        left = [(f, tuple(w for w in f.weights if w not in names and w.removeprefix(prefix) not in names)) for f in fields["optimizer"]]
        fields["optimizer"] = tuple(dataclasses.replace(fact, weights=weights) for fact, weights in left if weights)

    def parts(self, silent: list[Observation], notes: list[str]) -> Parts:
        """`silent` are modules that ran without gradients although they were to be trained."""
        diagnoses: list[Diagnosis] = [d for observation in silent for d in findings(observation)]
        observations = list(silent)
        self._add_later_facts(notes)
        for rank, one in enumerate(sorted(self.captured, key=lambda c: -c.size)):
            kept = self.fields.get(id(one.model), {})
            try:
                observation = self._observation(one) if rank < MOST_EXPERIMENTS else _plain_observation(one, kept)
            except Exception as error:  # a device that died with the program, for one
                notes.append(f"no experiment was made: {type(error).__name__}: {first_line(error)}")
                observation = _plain_observation(one, kept)
            observations.append(observation)
            notes += observation.notes
        observations += self.others.found if self.others is not None else []
        for observation in observations[len(silent) :]:
            for diagnosis in findings(observation):
                if diagnosis not in diagnoses and not _repeats(diagnosis, diagnoses):
                    diagnoses.append(diagnosis)
        return Parts(across(diagnoses), tuple(dict.fromkeys(notes)), tuple(observations))

    def _add_later_facts(self, notes: list[str]) -> None:
        """What the steps after the first one showed, into the fields of the models it is about."""
        if self.later is None:
            return
        try:
            modes = [*self.later.turned(), *self.later.evaluations()]
        except Exception as error:
            notes.append(f"the mode of an evaluation could not be tested: {type(error).__name__}: {first_line(error)}")
            modes = self.later.turned()
        for key, fact in modes:
            fields = self.fields.setdefault(key, {})
            fields["modes"] = (*fields.get("modes", ()), fact)
        kept = tuple(self.later.kept_gradients())
        if kept:
            largest = max(self.captured, key=lambda c: c.size)
            self.fields.setdefault(id(largest.model), {})["kept"] = kept

    def _observation(self, one: Captured) -> Observation:
        fields = self.fields.get(id(one.model), {})
        if one.copy is None:
            return _plain_observation(one, fields, "the inputs of the first step were too large to copy; no experiment was made")
        session = Session(one.model, one.copy, None, one.site, one.autocast, self.budget_s)
        was = [(m, m.training) for m in one.model.modules()]
        try:
            if one.training != one.model.training:
                one.model.train(one.training)
            session.experiments_after(self.view, fields)
        finally:
            for module, training in was:
                module.training = training
        return session.observation()


def _plain_observation(one: Captured, fields: dict[str, typing.Any], *notes: str) -> Observation:
    """What was seen of the step, without experiments."""
    return Observation(type(one.model).__name__, one.site, training=one.training, notes=notes, **fields)


def _repeats(diagnosis: Diagnosis, others: list[Diagnosis]) -> bool:
    spans = {c.span for c in diagnosis.culprits}
    return any(o.rule == diagnosis.rule and spans and spans == {c.span for c in o.culprits} for o in others)


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0]

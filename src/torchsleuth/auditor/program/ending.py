"""When a watched program has ended: the experiments on what its first step captured, judged together with what all steps showed."""

from __future__ import annotations

import dataclasses
import typing
import weakref
from dataclasses import dataclass

import torch

from torchsleuth.auditor.gradients.gradients import grad_state, grad_states
from torchsleuth.auditor.gradients.symmetry import stay_equal
from torchsleuth.auditor.judge import across, findings
from torchsleuth.auditor.losses.leftout import LEFT_OUT
from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.observation_training import KeptGradient, MixedGradient, NoUpdate, OptimizerFact
from torchsleuth.auditor.program.alternating import OtherSteps
from torchsleuth.auditor.program.arrivals import Mixed
from torchsleuth.auditor.program.averages import never_moved
from torchsleuth.auditor.program.captured import Captured, called_name
from torchsleuth.auditor.program.clipping import clipped_late
from torchsleuth.auditor.program.later import LaterWatch
from torchsleuth.auditor.program.notfrozen import not_frozen
from torchsleuth.auditor.program.optimizers import OptimizerWatch
from torchsleuth.auditor.program.rates import with_setting
from torchsleuth.auditor.program.uncalled import with_uncalled
from torchsleuth.auditor.session import Session
from torchsleuth.auditor.tracing.sites import Place, site_of
from torchsleuth.auditor.tracing.stepview import StepView
from torchsleuth.model import Diagnosis

LEAST_STEPS = 3  # in which what began at zero, and what lies before it, would have moved
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
    outermost: list[tuple[int, weakref.ref, Place]]  # the calls of modules in the first step: before which operation, which one, and from where
    budget_s: float
    by_hand: tuple[KeptGradient, ...] = ()

    def look_for_idleness(self, never: bool, vanished: NoUpdate | None) -> None:
        """Over the whole program: was no step taken (`never`), or none that changed anything, or none by one of several optimizers?"""
        for one in self.captured:
            self._forget_trained_elsewhere(one)
            self._forget_woken(one)
            self._forget_parted(one)
        self._forget_effects()
        largest = max(self.captured, key=lambda c: c.size)
        fields = self.fields.setdefault(id(largest.model), {})
        steps = self.later.steps if self.later is not None else 0
        if never:
            idle = self.optimizers.never()
            asked = [op for op in self.view.trace.ops if op.name == "backward"]
            unused = idle is not None and idle.reason == "never-stepped" and asked  # where the step belongs, if it stands nowhere
            fields["no_update"] = dataclasses.replace(idle, backward=self.view.trace.site(asked[-1])) if idle is not None and unused else idle
        elif fields.get("no_update") is not None:
            idle = self.optimizers.still(fields["no_update"], steps)
            fields["no_update"] = with_setting(idle) if idle is not None else None
        elif steps >= 3:
            beside = self.optimizers.idle_beside([one.model for one in self.captured])
            others = self.others
            idle = others.idle() if others is not None else None
            explained = others.explained if others is not None else set()  # it is known why these have no gradients
            called = [m for _, ref, _ in self.outermost if (m := ref()) is not None]
            near = [*(one.site for one in self.captured), *(site for _, _, site in self.optimizers.copies.values())]
            vanished = vanished or never_moved(self.optimizers, [one.model for one in self.captured], called, near)
            fields["no_update"] = beside or idle or (self.later.barren(explained) if self.later is not None else None) or vanished

    def _forget_trained_elsewhere(self, one: Captured) -> None:
        """What the optimizer does not hold has changed all the same: the program has an optimizer of its own for it."""
        fields = self.fields.get(id(one.model), {})
        if not fields.get("optimizer"):
            return
        changed = self.optimizers.changed()
        names = {n for n, p in one.model.named_parameters() if id(p) in changed}
        prefix = f"{called_name(one.site)}."
        left = [(f, tuple(w for w in f.weights if f.copied_later or (w not in names and w.removeprefix(prefix) not in names))) for f in fields["optimizer"]]
        fields["optimizer"] = tuple(dataclasses.replace(fact, weights=weights) for fact, weights in left if weights)

    def _forget_effects(self) -> None:
        """Where what an optimizer holds gets no gradient: one finding, either that it is cut off from the loss, or that the loss trains something else.

        `detach()` of what an optimizer holds is right where that optimizer should hold another model, which the loss trains and nobody
        holds. And a copy that has a gradient (a target network) is not the model to train if the other one is called, and cut off.
        """
        every = [self.fields.get(id(one.model), {}) for one in self.captured]
        apart = any(fact.copied is None and fact.apart for fields in every for fact in fields.get("optimizer", ()))
        for fields in every:
            if apart and fields.get("cuts"):
                fields["cuts"] = tuple(cut for cut in fields["cuts"] if cut.reason not in ("detach", "no-grad") or cut.partly)
        leaves = {cut.site.span for fields in every for cut in fields.get("cuts", ()) if cut.reason == "parameter"}  # what is put there is no new model to train
        for fields in every if leaves else ():
            fields["optimizer"] = tuple(fact for fact in fields.get("optimizer", ()) if fact.rebound is None or fact.rebound.span not in leaves)
        if any(cut.sure and not cut.partly for fields in every for cut in fields.get("cuts", ())):
            for fields in every:
                if fields.get("optimizer"):
                    fields["optimizer"] = tuple(fact for fact in fields["optimizer"] if fact.copied is None)

    def _forget_woken(self, one: Captured) -> None:
        """What stopped the gradient in the first step lets one through at the end: a factor that warms up, a unit outside its range for a while."""
        fields = self.fields.get(id(one.model), {})
        if any(fact.kind == "zero" for fact in fields.get("vanished", ())):
            prefix = f"{called_name(one.site)}."
            awake = {name for n, p in one.model.named_parameters() if grad_state(p.grad) == "ok" for name in (n, prefix + n)}
            fields["vanished"] = tuple(fact for fact in fields["vanished"] if fact.kind != "zero" or fact.of_one or not awake & set(fact.weights))
            moved = {name for n, p in one.model.named_parameters() if n in one.begun and not torch.equal(p.detach(), one.begun[n]) for name in (n, prefix + n)}
            steps = self.later.steps if self.later is not None else 0
            still = [dataclasses.replace(fact, steps=steps) if fact.steps else fact for fact in fields["vanished"] if not fact.steps or (steps >= LEAST_STEPS and not moved & {*fact.weights, *fact.zeros})]
            fields["vanished"] = tuple(still)
            one.begun = {}
        if any(fact.how in LEFT_OUT for fact in fields.get("unused", ())):
            prefix = f"{called_name(one.site)}."
            written = {name for n, p in one.model.named_parameters() if p._version != one.versions.get(n, p._version) for name in (n, prefix + n)}
            fields["unused"] = tuple(fact for fact in fields["unused"] if fact.how not in LEFT_OUT or not written & set(fact.weights))
        idle = fields.get("no_update")
        if idle is not None and idle.reason == "zero-gradient" and "ok" in grad_states(p.grad for p in one.model.parameters()):
            fields["no_update"] = None

    def _forget_parted(self, one: Captured) -> None:
        """Units that were equal in the first step only."""
        fields = self.fields.get(id(one.model), {})
        if fields.get("equal_units"):
            named = dict(one.model.named_parameters())
            fields["equal_units"] = tuple(fact for fact in fields["equal_units"] if fact.weight in named and stay_equal(named[fact.weight]))

    def parts(self, silent: list[Observation], notes: list[str]) -> Parts:
        """`silent` are modules that ran without gradients although they were to be trained."""
        diagnoses: list[Diagnosis] = [d for observation in silent for d in findings(observation)]
        observations = list(silent)
        self._add_later_facts(notes)
        self._join_optimizer_facts()
        for rank, one in enumerate(sorted(self.captured, key=lambda c: -c.size)):
            kept = self.fields[id(one.model)] = with_uncalled(self.fields.get(id(one.model), {}))
            try:
                observation = self._observation(one) if rank < MOST_EXPERIMENTS else _plain_observation(one, kept)
            except Exception as error:  # a device that died with the program, for one
                notes.append(f"no experiment was made: {type(error).__name__}: {first_line(error)}")
                observation = _plain_observation(one, kept)
            observations.append(observation)
            notes += observation.notes
        observations += self.others.found if self.others is not None else []
        if self.others is not None and self.others.scaled is not None and not any(one.scaled for one in observations):
            observations.append(Observation("the program", self.others.scaled.site, scaled=self.others.scaled))
        for observation in observations[len(silent) :]:
            for diagnosis in findings(observation):
                if diagnosis not in diagnoses and not _repeats(diagnosis, diagnoses):
                    diagnoses.append(diagnosis)
        return Parts(across(diagnoses), tuple(dict.fromkeys(notes)), tuple(observations))

    def _join_optimizer_facts(self) -> None:
        """One optimizer that lacks the parameters of several models: one fact, with those of all."""
        first: dict[tuple, tuple[int, OptimizerFact]] = {}
        total = len({id(p) for one in self.captured for p in one.model.parameters() if p.requires_grad})
        for one in self.captured:
            fields = self.fields.get(id(one.model), {})
            for fact in fields.get("optimizer", ()):
                key = (fact.kind, fact.optimizer, fact.site, fact.rebound, fact.copied)
                owner, before = first.get(key, (id(one.model), dataclasses.replace(fact, weights=())))
                first[key] = (owner, dataclasses.replace(before, weights=before.weights + fact.weights, total=total))
        for one in self.captured:
            if self.fields.get(id(one.model), {}).get("optimizer"):
                self.fields[id(one.model)]["optimizer"] = tuple(fact for owner, fact in first.values() if owner == id(one.model))

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
        arrivals = self.later.arrivals
        largest = self.fields.setdefault(id(max(self.captured, key=lambda c: c.size).model), {})
        largest.update(kept=(*arrivals.kept(), *self.by_hand), discarded=tuple(arrivals.discarded()), mixed=tuple(self._with_entry(one) for one in arrivals.mixed()))
        largest["broadcasts"] = (*largest.get("broadcasts", ()), *self.later.metrics.found.values())
        largest["duplicates"] = (*largest.get("duplicates", ()), *self.later.metrics.lost.values())
        near = [one.site for one in self.captured]
        for one in self.captured:
            self.fields.setdefault(id(one.model), {})["not_frozen"] = not_frozen(one.model, self.optimizers.changed, [*near, *self.optimizers.built.values()])
        if (every := self.optimizers.every) is not None:
            largest.update(idle_schedule=every.schedules.found(), made_anew=every.anew.found())
        if largest.get("finite") is not False and largest.get("not_finite") is None:
            largest["not_finite"] = self.later.spoilt.fact(one.model for one in self.captured)
        largest["unclipped"] = largest.get("unclipped") or clipped_late(arrivals.late(), near)

    def _with_entry(self, mixed: Mixed) -> MixedGradient:
        """Where a part that the other optimizer trains is given what still has its history."""
        trace, key = self.view.trace, self.view.trace.known_key(mixed.parameter)
        if key is None:
            return mixed.fact
        below = trace.descendants({key})
        ends = [at for at, _, _ in self.outermost[1:]] + [len(trace.ops)]
        for (at, reference, place), end in zip(self.outermost, ends, strict=True):
            if (module := reference()) is not None and any(id(p) in mixed.trained for p in module.parameters()):
                if any(seen.key in below and seen.requires_grad for op in trace.ops[at:end] for seen in op.ins):
                    return dataclasses.replace(mixed.fact, entry=site_of(place))
        return mixed.fact

    def _observation(self, one: Captured) -> Observation:
        fields = self.fields.get(id(one.model), {})
        if one.copy is None:
            return _plain_observation(one, fields, "the inputs of the first step were too large to copy; no experiment was made")
        session = Session(one.model, one.copy, None, one.site, one.autocast, self.budget_s)
        was = [(m, m.training) for m in one.model.modules()]
        try:
            if one.training != one.model.training:
                one.model.train(one.training)
            session.experiments_after(self.view, fields, one.begins)
        finally:
            for module, training in was:
                module.training = training
        return session.observation()


def joined(parts: list[Parts]) -> Parts:
    """What the watches of several models found, each finding once."""
    first, *more = parts
    diagnoses = list(first.diagnoses)
    for one in more:
        diagnoses += [d for d in one.diagnoses if d not in diagnoses and not _repeats(d, diagnoses)]
    notes = dict.fromkeys(note for one in parts for note in one.notes)
    return Parts(tuple(diagnoses), tuple(notes), tuple(seen for one in parts for seen in one.observations))


def _plain_observation(one: Captured, fields: dict[str, typing.Any], *notes: str) -> Observation:
    """What was seen of the step, without experiments."""
    return Observation(type(one.model).__name__, one.site, training=one.training, notes=notes, **fields)


def _repeats(diagnosis: Diagnosis, others: list[Diagnosis]) -> bool:
    spans = {c.span for c in diagnosis.culprits}
    return any(o.rule == diagnosis.rule and spans and spans == {c.span for c in o.culprits} for o in others)


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0]

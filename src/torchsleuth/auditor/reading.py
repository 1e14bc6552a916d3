"""What was seen of the first training step of a running program, read while its tensors are still there: `StepReading`."""

from __future__ import annotations

import dataclasses
import gc
import typing

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from torchsleuth.auditor.backward import BackwardWatch
from torchsleuth.auditor.captured import Captured, called_name, mode_dependent, path_of, renamed
from torchsleuth.auditor.gradients import is_lone_bias, optimizer_facts
from torchsleuth.auditor.later import ModeNotes
from torchsleuth.auditor.observation import ModeFact, Vanish
from torchsleuth.auditor.optimizers import OptimizerWatch, parameters_of
from torchsleuth.auditor.preflight import traced_facts
from torchsleuth.auditor.silent import SilentCalls
from torchsleuth.auditor.stepview import StepView, padded


class StepReading:
    """The state that the watch fills in, and the facts that it adds up to."""

    def __init__(self) -> None:
        self.view = StepView()
        self.captured: list[Captured] = []
        self._backward = BackwardWatch(self.view.trace)
        self._optimizers = OptimizerWatch()
        self._modes = ModeNotes()
        self._silent = SilentCalls(self.view)
        self._loss: torch.Tensor | None = None
        self._loss_seen = False
        self._more: list[torch.Tensor] = []  # losses whose backward passes add to the same gradients
        self._backward_at: int | None = None
        self._asked: tuple[torch.Tensor, int] | None = None  # a loss whose gradients `torch.autograd.grad` gave, and when
        self._states: dict[int, str] = {}
        self._keys: dict[int, dict[str, int]] = {}
        self._optimizer: Optimizer | None = None

    def _facts(self, one: Captured) -> dict[str, typing.Any]:
        one.dependent = mode_dependent(one.model, self.view.trace.ops[one.inside])
        states = self._states_of(one)
        optimizer = self._optimizer
        optimized = {id(p) for p in parameters_of(optimizer)} if optimizer is not None else None
        elsewhere, step = self._elsewhere(one), self._step
        fields = self.view.facts(one.model, one.output, self._loss, states, self._keys[id(one.model)], optimized, one.live.batch_size, one.inside, elsewhere | (optimized or set()), step, beside=self._more)
        paddings, _ = padded(one.live)
        losses, extra = self.view.losses(paddings)
        fields["losses"] = losses
        fields["inputs"] = (*self.view.watch.inputs, *extra, *traced_facts(one.live, self.view.trace))
        if optimizer is not None:
            fields.update(self._optimizer_fields(one, states))
        elif not self._loss_seen:
            fields["no_update"] = self._optimizers.no_update
        if states:
            fields["vanished"] = tuple(self._vanished(one.model, states))
            fields["cuts"] = (*fields.get("cuts", ()), *self._backward.refusals(one.model, states, optimized))
        return renamed(fields, called_name(one.site)) if len(self.captured) > 1 else fields

    def _trains_something(self, optimizer: Optimizer) -> bool:
        """If none of what it holds got a gradient, it was given the wrong model: what it holds is not meant to be trained."""
        return any(self._states.get(id(p)) == "ok" for p in parameters_of(optimizer)) or "ok" not in self._states.values()

    @property
    def _step(self) -> slice:
        return slice(self.captured[0].inside.start, self._backward_at)

    def _states_of(self, one: Captured) -> dict[str, str] | None:
        return {name: self._states.get(id(p), "unknown") for name, p in one.model.named_parameters()} if self._loss_seen else None

    def _elsewhere(self, one: Captured) -> set[int]:
        """Parameters that another optimizer holds, or another model."""
        others = {id(p) for other in self.captured if other is not one for p in other.model.parameters()}
        return self._optimizers.elsewhere(self._optimizer) | others

    def _optimizer_fields(self, one: Captured, states: dict[str, str] | None) -> dict[str, typing.Any]:
        """What the optimizer that took the step holds and did."""
        optimizer, trace = self._optimizer, self.view.trace
        assert optimizer is not None
        taken = {seen.key for op in trace.ops[self._step] for seen in op.ins}
        used = {id(p) for key, ref in trace.parameters.items() if key in taken and (p := ref()) is not None}
        rebound = {f"{path_of(one.model, module)}{name}": site for module, name, site in self._optimizers.rebound}
        facts = optimizer_facts(one.model, optimizer, states, self._optimizers.built.get(id(optimizer)), rebound, self._elsewhere(one), used)
        if self._fixed(one):
            facts = []
        held, named = {id(p) for p in parameters_of(optimizer)}, dict(one.model.named_parameters())
        if any(self._states.get(key) == "ok" for key in held):
            held = set()  # what it holds is trained; a copy of that which has a gradient, too, is a teacher
        facts = [dataclasses.replace(f, copied=self._optimizers.copy_site(named[f.weights[0]], held)) for f in facts]
        if len(self.captured) > 1 and (name := called_name(one.site)):
            facts = [dataclasses.replace(f, weights=tuple(f"{name}.{w}" for w in f.weights)) for f in facts]
        fields: dict[str, typing.Any] = {"optimizer": tuple(facts), "no_update": self._optimizers.no_update}
        if not one.training and one.dependent and not self._fixed(one):
            changed = self._modes.site(one.model, False)
            fields["modes"] = (ModeFact("eval-in-training", tuple(one.dependent[:4]), one.site, changed=changed),)
        return fields

    def _fixed(self, one: Captured) -> bool:
        """No optimizer holds any of it, and the program has put it in eval mode or runs it without gradients, too: features to compare, not to train."""
        held = {id(p) for optimizer in self._optimizers.known for p in parameters_of(optimizer)}
        if any(id(p) in held for p in one.model.parameters()) or len(self.captured) < 2:
            return False
        still = not any(m.training for m in one.model.modules() if m._parameters)
        return still or any(silent.model is one.model for silent in self._silent.calls)

    def _vanished(self, model: nn.Module, states: dict[str, str]) -> list[Vanish]:
        """NaN, unless a gradient scaler is at work (its first steps overflow by design); zero, unless a layer starts at zero."""
        zero_start = any(not p.detach().any() for n, p in model.named_parameters() if "bias" not in n)
        wanted = {}
        for name, state in states.items():
            if state == "nan" or (state == "zero" and not zero_start and not is_lone_bias(name, states)):
                wanted[name] = state
        if "nan" in wanted.values() and _scaled():
            wanted = {n: s for n, s in wanted.items() if s != "nan"}
        return self._backward.vanished(wanted, self._keys[id(model)], model) if wanted else []


def _scaled() -> bool:
    """Is a gradient scaler at work? Its first steps overflow by design and are skipped."""
    return any(type(o).__name__ == "GradScaler" and o.is_enabled() for o in gc.get_objects() if type(o).__name__ == "GradScaler")

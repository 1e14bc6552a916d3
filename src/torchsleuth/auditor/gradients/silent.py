"""Modules that the program runs under `no_grad` in its first step, although the optimizer holds their parameters."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

from torchsleuth.auditor.gradients.gradients import grad_states
from torchsleuth.auditor.inputs.batch import Call
from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.program.captured import Captured, called_name
from torchsleuth.auditor.tracing.sites import place_here, site_of
from torchsleuth.auditor.tracing.stepview import StepView, parameter_keys

MOST = 8  # modules looked at


class SilentCalls:
    def __init__(self, view: StepView) -> None:
        self.view = view
        self.calls: list[Captured] = []
        self._keys: dict[int, dict[str, int]] = {}

    def note(self, module: nn.Module) -> None:
        if len(self.calls) < MOST and id(module) not in self._keys and any(p.requires_grad for p in module.parameters()):
            self._keys[id(module)] = parameter_keys(self.view.trace, module)
            self.calls.append(Captured(module, Call(module, (), {}), site_of(place_here(3)), None))

    def observations(self, optimized: set[int], loss: torch.Tensor | None, captured: list[Captured]) -> list[Observation]:
        """Those whose way to the loss is cut, under the names that the program gives them."""
        found = []
        trained = {id(m) for one in captured for m in one.model.modules()}
        for one in self.calls:
            if id(one.model) in trained or not any(id(p) in optimized for p in one.model.parameters()):
                continue
            named = dict(one.model.named_parameters())
            states = dict(zip(named, grad_states(p.grad for p in named.values()), strict=True))
            fields = self.view.facts(one.model, None, loss, states, self._keys[id(one.model)], optimized, None, slice(0, 0), (), slice(0, 0))
            cuts, weights = fields.get("cuts", ()), fields.get("weights", ())
            if not cuts:
                continue
            if name := called_name(one.site):
                cuts = tuple(dataclasses.replace(c, weights=tuple(f"{name}.{w}" for w in c.weights)) for c in cuts)
                weights = tuple(dataclasses.replace(w, name=f"{name}.{w.name}") for w in weights)
            found.append(Observation(type(one.model).__name__, one.site, cuts=cuts, weights=weights))
        return found

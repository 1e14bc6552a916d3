"""Parameters that two optimizers hold and pull in opposite directions, step by step: a critic's optimizer that holds the generator, too. `ContestedWatch`.

A body that two optimizers share, each with a loss of its own, is none of it: their gradients do not undo one another in every step.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from torchsleuth.auditor.observation_training import Contested
from torchsleuth.auditor.program.optimizers import OptimizerWatch, parameters_of
from torchsleuth.auditor.tracing.modestack import unseen

MOST_STEPS = 12
LEAST_TURNS = 4
AGAINST = -0.5  # the cosine of two gradients that undo one another
MOST_NUMBERS = 4096


@dataclass
class Shared:
    parameter: torch.Tensor
    steps: list[tuple[weakref.ref, torch.Tensor]] = field(default_factory=list)  # which optimizer took it, with which gradient


class ContestedWatch:
    """Told of each step before it is taken; asked at the end."""

    def __init__(self, optimizers: OptimizerWatch) -> None:
        self._optimizers = optimizers
        self._shared: Shared | None = None
        self._steps = 0

    def before_step(self, optimizer: Optimizer) -> None:
        if self._steps < MOST_STEPS:
            self._steps += 1
            unseen(self._look)(optimizer)

    def _look(self, optimizer: Optimizer) -> None:
        mine = parameters_of(optimizer)
        if self._shared is None:
            others = {id(p) for other in self._optimizers.known if other is not optimizer for p in parameters_of(other)}
            fit = [p for p in mine if id(p) in others and p.grad is not None and not p.grad.is_sparse and p.grad.is_floating_point() and p.numel() > 1 and bool(p.grad.any())]
            if not fit:
                return
            self._shared = Shared(min(fit, key=torch.Tensor.numel))
        parameter = self._shared.parameter
        if parameter.grad is not None and any(p is parameter for p in mine) and all(group.get("lr") != 0 for group in optimizer.param_groups):
            self._shared.steps.append((weakref.ref(optimizer), parameter.grad.detach().flatten()[:MOST_NUMBERS].float().clone()))

    def forget(self) -> None:
        self._shared = None

    def found(self, models: list[tuple[str, nn.Module]]) -> Contested | None:
        turns = self._shared.steps if self._shared is not None else []
        pairs = [(one, two) for one, two in zip(turns, turns[1:], strict=False) if one[0]() is not two[0]()]
        cosines = [float(torch.nn.functional.cosine_similarity(one[1], two[1], dim=0)) for one, two in pairs]
        if self._shared is None or len(cosines) < LEAST_TURNS or max(cosines) >= AGAINST:
            return None
        both = list({id(o): o for one, _ in pairs[:2] if (o := one[0]()) is not None}.values())
        if len(both) != 2:
            return None
        held = [{id(p) for p in parameters_of(optimizer)} for optimizer in both]
        more = 0 if held[0] > held[1] else 1 if held[1] > held[0] else None  # the one that holds other parameters beside all of the other one's
        common = held[0] & held[1]
        names = tuple(dict.fromkeys(f"{called}.{n}" if called else n for called, model in models for n, p in model.named_parameters() if id(p) in common))
        if more is None or not names or (site := self._optimizers.built.get(id(both[more]))) is None:
            return None
        return Contested(type(both[more]).__name__, site, self._optimizers.built.get(id(both[1 - more])), names, len(cosines), max(cosines))

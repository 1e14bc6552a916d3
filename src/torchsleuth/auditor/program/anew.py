"""Optimizers that are made anew for every step: what they have gathered (momentum, mean squares) is lost each time. `AnewWatch`."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import torch
from torch.optim.optimizer import Optimizer

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import MadeAnew
from torchsleuth.auditor.program.optimizers import OptimizerWatch

LEAST = 4
_WITHIN = ("LBFGS",)  # many iterations in one step, which gather what they need


@dataclass
class Line:
    """All optimizers that one expression has made."""

    kind: str
    site: Site
    latest: weakref.ref
    parameter: weakref.ref
    version: int  # of that parameter after the latest step: what else writes into it counts (a state that is loaded)
    count: int = 1
    kept: str = ""  # what they gather
    apart: bool = False  # one has taken several steps, or trains something else than the one before


class AnewWatch:
    """Told of each step; asked at the end."""

    def __init__(self, optimizers: OptimizerWatch) -> None:
        self._optimizers = optimizers
        self._lines: dict[object, Line] = {}

    def before_step(self, optimizer: Optimizer) -> None:
        site = self._optimizers.built.get(id(optimizer))
        line = self._lines.get(site.span) if site is not None else None
        if line is None or line.apart:
            return
        parameter = line.parameter()
        same = parameter is not None and any(p is parameter for group in optimizer.param_groups for p in group["params"])
        line.apart = line.latest() is optimizer or not same or parameter is None or parameter._version != line.version
        line.count += 1

    def after_step(self, optimizer: Optimizer) -> None:
        site = self._optimizers.built.get(id(optimizer))
        if site is None or site.library:
            return
        line = self._lines.get(site.span)
        if line is None:
            first = next((p for group in optimizer.param_groups for p in group["params"] if p.grad is not None), None)
            if first is None:
                return
            line = self._lines[site.span] = Line(type(optimizer).__name__, site, weakref.ref(optimizer), weakref.ref(first), first._version)
        parameter = line.parameter()
        if line.apart or parameter is None:
            return
        line.latest, line.version = weakref.ref(optimizer), parameter._version
        line.kept = next((name for name, value in optimizer.state.get(parameter, {}).items() if isinstance(value, torch.Tensor) and value.shape == parameter.shape), "")

    def forget(self) -> None:
        self._lines.clear()

    def found(self) -> MadeAnew | None:
        for line in self._lines.values():
            if line.count >= LEAST and line.kept and not line.apart and line.kind not in _WITHIN:
                return MadeAnew(line.kind, line.site, line.count, line.kept)
        return None

"""Where the program clears gradients: `zero_grad()` of optimizers and modules, noted as it is called."""

from __future__ import annotations

import functools
import typing

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.program.optimizers import parameters_of
from torchsleuth.auditor.tracing.modestack import unseen
from torchsleuth.auditor.tracing.sites import place_here, site_of

Holder = Optimizer | nn.Module
Listener = typing.Callable[[Holder, Site | None], None]


class ClearingNotes:
    """`start()` until `stop()`: each listener is told before gradients are cleared, and by which expression."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self._originals: list[tuple[type, typing.Any]] = []

    def start(self) -> None:
        for owner in (Optimizer, nn.Module):
            original = owner.__dict__["zero_grad"]
            self._originals.append((owner, original))
            owner.zero_grad = self._noting(original)  # type: ignore[attr-defined, method-assign]

    def _noting(self, original: typing.Any) -> typing.Any:
        notes = self

        @functools.wraps(original)
        def zero_grad(holder: typing.Any, *args: typing.Any, **kwargs: typing.Any) -> None:
            if notes.listeners and not torch.compiler.is_compiling():
                site = site_of(place_here(2))
                for listener in tuple(notes.listeners):
                    unseen(listener)(holder, site)
            return original(holder, *args, **kwargs)

        zero_grad.torchsleuth = self  # type: ignore[attr-defined]
        return zero_grad

    def stop(self) -> None:
        self.listeners.clear()
        for owner, original in self._originals:
            if getattr(owner.__dict__.get("zero_grad"), "torchsleuth", None) is self:
                owner.zero_grad = original  # type: ignore[attr-defined]
        self._originals.clear()


def clears(holder: Holder, parameter: torch.Tensor) -> bool:
    """Is this parameter one of those whose gradients `holder.zero_grad()` clears?"""
    held = parameters_of(holder) if isinstance(holder, Optimizer) else holder.parameters()
    return any(one is parameter for one in held)

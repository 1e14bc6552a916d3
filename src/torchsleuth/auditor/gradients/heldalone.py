"""Parameters that the optimizer holds and that belong to no module of the step (a temperature, a weight of losses): where their way to the loss is cut."""

from __future__ import annotations

import sys
import types
import typing
import weakref

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.program.optimizers import parameters_of
from torchsleuth.auditor.tracing.stepview import StepView
from torchsleuth.origin import Origin, origin_of_file
from torchsleuth.probe.names import Names

MOST = 16


class HeldAlone:
    """`note()` when the first step is over; `found()` at the end, if nothing has written into them until then."""

    def __init__(self) -> None:
        self._noted: Observation | None = None
        self._tensors: list[tuple[weakref.ref, int]] = []

    def note(self, view: StepView, optimizer: Optimizer, loss: torch.Tensor | None, owned: typing.Container[int]) -> None:
        lone = [p for p in parameters_of(optimizer) if p.requires_grad and p.is_leaf and p.grad is None and id(p) not in owned]
        keyed = [(p, key) for p in lone[:MOST] if (key := view.trace.known_key(p)) is not None]
        if not keyed or len(lone) > MOST or loss is None:
            return
        names = Names(_frames())
        holder, keys = nn.Module(), {}
        for at, (p, key) in enumerate(keyed):
            known = names.by_id(id(p))
            name = known.name if known is not None else f"parameter {at} of {list(p.shape)}"
            holder._parameters[name], keys[name] = p, key  # type: ignore[assignment]
        states = dict.fromkeys(keys, "none")
        fields = view.facts(holder, None, loss, states, keys, {id(p) for p, _ in keyed}, None, slice(0, 0), (), slice(0, 0))
        cuts = tuple(cut for cut in fields.get("cuts", ()) if not cut.partly)
        cut_off = {name for cut in cuts for name in cut.weights}
        if cuts:
            self._noted = Observation("the program", cuts[0].site, cuts=cuts, weights=fields.get("weights", ()))
            self._tensors = [(weakref.ref(p), p._version) for name, p in holder._parameters.items() if name in cut_off and p is not None]

    def found(self) -> list[Observation]:
        still = all(p is None or (p.grad is None and p._version == version) for reference, version in self._tensors for p in [reference()])
        return [self._noted] if self._noted is not None and still else []


def _frames() -> list[types.FrameType]:
    """The functions of the program that are running, the innermost last."""
    found, frame = [], sys._getframe(1)
    while frame is not None:
        if origin_of_file(frame.f_code.co_filename) is Origin.USER:
            found.append(frame)
        frame = frame.f_back  # type: ignore[assignment]
    return found[::-1]

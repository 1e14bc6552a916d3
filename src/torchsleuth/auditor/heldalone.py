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
from torchsleuth.auditor.optimizers import parameters_of
from torchsleuth.auditor.stepview import StepView
from torchsleuth.origin import Origin, origin_of_file

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
        names = _names([p for p, _ in keyed])
        holder, keys = nn.Module(), {}
        for at, (p, key) in enumerate(keyed):
            name = names.get(id(p), f"parameter {at} of {list(p.shape)}")
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


def _names(tensors: list[torch.Tensor]) -> dict[int, str]:
    """What the functions of the program that are running call them: by a name of their own, or as an attribute of what has one."""
    wanted, found = {id(t) for t in tensors}, dict[int, str]()
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if origin_of_file(frame.f_code.co_filename) is Origin.USER:
            for name, value in (*frame.f_locals.items(), *frame.f_globals.items()):
                if id(value) in wanted:
                    found.setdefault(id(value), name)
                elif hasattr(type(value), "__dict__") and not isinstance(value, (type, types.ModuleType, types.FunctionType)):
                    for attribute, inner in (*_held(value, "__dict__"), *_held(value, "_parameters")):
                        if id(inner) in wanted:
                            found.setdefault(id(inner), f"{name}.{attribute}")
        frame = frame.f_back
    return found


def _held(value: typing.Any, name: str) -> list[tuple[str, typing.Any]]:
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return []
    inside = own if name == "__dict__" else own.get(name)
    return list(inside.items()) if isinstance(inside, dict) else []

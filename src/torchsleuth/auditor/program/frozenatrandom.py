"""Layers that stay as the random numbers they began with: put in the place of another one, or left out by a state that was loaded, and frozen. `Exchanges`.

A layer that a class builds and freezes may be meant so (a random projection); one that was made for this task, in the place of one for
another, is there to be trained.
"""

from __future__ import annotations

import dataclasses
import typing
import weakref
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from torchsleuth.auditor.gradients.symmetry import own_numbers
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import FrozenAtRandom
from torchsleuth.auditor.tracing.sites import place_here, site_of
from torchsleuth.auditor.tracing.trace import Trace

MOST = 1000
_RANDOM = {f"{name}_" for name in ("uniform", "normal", "trunc_normal", "kaiming_uniform", "kaiming_normal", "xavier_uniform", "xavier_normal", "orthogonal")}
_ZEROS = {"zeros_", "zero_"}


@dataclass
class Exchange:
    holder: weakref.ref
    name: str
    layer: weakref.ref
    site: Site
    versions: list[tuple[weakref.ref, int]]  # of its parameters: whatever writes into one counts


class Exchanges:
    """Told of each module that is put into another one; asked at the end."""

    def __init__(self) -> None:
        self._noted: list[Exchange] = []

    def registered(self, holder: nn.Module, name: str, value: typing.Any, depth: int = 3) -> None:
        before = holder._modules.get(name)
        if before is None or before is value or not isinstance(value, nn.Module) or len(self._noted) >= MOST or not any(True for _ in before.parameters()):
            return
        old = {id(p) for p in before.parameters()}
        mine = [p for p in value.parameters() if p.requires_grad and id(p) not in old]  # what wraps the old layer may keep it frozen
        if any(p.dim() > 1 for p in mine) and (site := site_of(place_here(depth))) is not None:
            self._noted.append(Exchange(weakref.ref(holder), name, weakref.ref(value), site, [(weakref.ref(p), p._version) for p in mine]))

    def frozen(self, models: Iterable[nn.Module], trace: Trace, trained: bool) -> list[FrozenAtRandom]:
        """`trained`: something else of the program has changed."""
        found: dict[tuple, FrozenAtRandom] = {}
        for one in self._noted if trained else ():
            holder, layer = one.holder(), one.layer()
            parameters = [p for ref, version in one.versions if (p := ref()) is not None and not p.requires_grad and p._version == version]
            model = next((m for m in models if any(part is holder for part in m.modules())), None)
            if holder is None or layer is None or model is None or holder._modules.get(one.name) is not layer or len(parameters) < len(one.versions):
                continue
            weights = [p for p in parameters if p.dim() > 1]
            began = [_last_write(trace, p) for p in weights]
            froze = [site for p in weights if _used(trace, p) and (site := _frozen_at(trace, p)) is not None]
            # A layer that begins at zero is one of a pair: the random one before it is frozen, too.
            if set(began) & _RANDOM and set(began) <= _RANDOM | _ZEROS and len(froze) == len(weights):
                mine = {id(p) for p in parameters}
                fact = FrozenAtRandom(type(layer).__name__, tuple(n for n, p in model.named_parameters() if id(p) in mine), one.site, froze[0])
                known = found.get((fact.site.span, fact.frozen.span))
                found[(fact.site.span, fact.frozen.span)] = dataclasses.replace(known, weights=known.weights + fact.weights) if known is not None else fact
        return list(found.values())


def _last_write(trace: Trace, weight: torch.Tensor) -> str:
    """What was done last to give it its values."""
    own = own_numbers(trace, weight)
    aliases = {seen.key for op in trace.ops if op.name in ("data", "detach") and op.ins and op.ins[0].key in own for seen in op.outs}
    written = [op.name for op in trace.ops if op.writes and op.name != "requires_grad_" and op.ins and op.ins[0].key in own | aliases]
    return written[-1] if written else ""


def _used(trace: Trace, weight: torch.Tensor) -> bool:
    own = own_numbers(trace, weight)
    return any(len(op.ins) > 1 and not op.writes and any(seen.key in own for seen in op.ins[1:]) for op in trace.ops)


def _frozen_at(trace: Trace, weight: torch.Tensor) -> Site | None:
    own = own_numbers(trace, weight)
    switched = [op for op in trace.ops if op.name == "requires_grad_" and op.ins and op.ins[0].key in own]
    return trace.site(switched[-1]) if switched else None

"""Parameters that the model computes with and does not own, and what holds them: a plain container, another object, or nothing at all."""

from __future__ import annotations

import collections
import itertools
import types
import typing
from collections.abc import Iterator

import torch
from torch import nn

from torchsleuth.auditor.observation_training import Unregistered
from torchsleuth.auditor.tracing.bydesign import origin_of_place
from torchsleuth.auditor.tracing.owners import built
from torchsleuth.auditor.tracing.trace import Op, Trace
from torchsleuth.origin import Origin


def unregistered(model: nn.Module, trace: Trace, loss_key: int | None, elsewhere: typing.Container[int], inside: slice) -> list[Unregistered]:
    """Parameters used in the model's forward pass (the calls `inside`) that it does not own and nothing else trains."""
    own = {id(p) for p in model.parameters()}
    on_the_way = trace.ancestors({loss_key}) if loss_key is not None else set()
    strange: dict[int, torch.Tensor] = {}
    for key, reference in trace.parameters.items():
        parameter = reference()
        if parameter is not None and parameter.requires_grad and id(parameter) not in own and id(parameter) not in elsewhere and key in on_the_way:
            strange[key] = parameter
    if not strange:
        return []
    groups: dict[tuple, list[int]] = collections.defaultdict(list)
    first: dict[tuple, Op] = {}
    made: dict[int, Op] = {}
    for op in trace.ops[inside]:
        if op.writes and op.outs and op.outs[0].requires_grad:
            made[op.outs[0].key] = op  # initialised in the forward pass itself
            continue
        mine = [seen.key for seen in op.ins if seen.key in strange]
        if not mine or not op.grad_enabled or origin_of_place(op) is not Origin.USER:
            continue
        at = (op.place.code, op.place.offset)
        first.setdefault(at, op)
        groups[at] += [key for key in mine if key not in groups[at]]
    found = []
    for at, keys in groups.items():
        site = trace.site(first[at])
        if site is None:
            continue
        held: dict[str, tuple[nn.Module | None, str, list[int]]] = {}
        for key in keys:
            holder, name, kind = _holder(model, strange[key])
            held.setdefault(name, (holder, kind, []))[2].append(key)
        for name, (holder, kind, mine) in held.items():
            sizes = tuple(tuple(strange[k].shape) for k in mine)
            maker = next((made[key] for key in mine if key in made), None) if holder is None else None
            found.append(Unregistered(sizes, site, name, built(holder, name) if holder is not None else None, kind, trace.site(maker) if maker is not None else None))
    return found


def _holder(model: nn.Module, wanted: torch.Tensor) -> tuple[nn.Module | None, str, str]:
    """The module and attribute that hold this parameter unregistered: in a plain list, tuple or dict, or in an object of the kind named."""
    for module in model.modules():
        for name, value in vars(module).items():
            if not name.startswith("_") and any(p is wanted for p in _within(value)):
                return module, name, "" if isinstance(value, (list, tuple, dict)) else type(value).__name__
    return None, "", ""


def _within(value: typing.Any, depth: int = 0) -> Iterator[torch.Tensor]:
    if isinstance(value, nn.Module):
        yield from value.parameters()
    elif isinstance(value, nn.Parameter):
        yield value
    elif depth < 3 and not isinstance(value, (torch.Tensor, type, types.ModuleType)):
        own = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else getattr(value, "__dict__", {}).values()
        for item in [*itertools.islice(own, 1000)]:
            yield from _within(item, depth + 1)

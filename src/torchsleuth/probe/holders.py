"""What the variables of a frame lead to, through objects, modules and containers, each with the expression that could be assigned to."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator

import torch

from torchsleuth.probe.names import is_plain_object, locals_of

_DEPTH = 4
_MOST = 4000  # values looked at


class Held(typing.NamedTuple):
    path: str  # `model.memory.state`
    kind: str  # what lies there: "tensor", or "list", "tuple", "dict" of tensors
    tensor: torch.Tensor  # it, or one of its elements


def held_in(frame: types.FrameType) -> Iterator[Held]:
    """Behind the frame's own variables first, then behind those of its file."""
    seen: set[int] = set()
    for scope in (locals_of(frame), dict(frame.f_globals)):
        for name, value in scope.items():
            if isinstance(name, str) and not name.startswith("__"):
                yield from _held(name, value, _DEPTH, seen)


def _held(path: str, value: object, depth: int, seen: set[int]) -> Iterator[Held]:
    if isinstance(value, torch.Tensor):
        yield Held(path, "tensor", value)
        return
    if depth <= 0 or id(value) in seen or len(seen) > _MOST:
        return
    if type(value) in (list, tuple, dict):
        elements = list(value.values()) if isinstance(value, dict) else list(value)
        if all(isinstance(element, torch.Tensor) for element in elements):
            yield from (Held(path, type(value).__name__, element) for element in elements)
    elif isinstance(value, torch.nn.Module):
        seen.add(id(value))
        for key, part in _attributes(value):
            yield from _held(_part(path, value, key), part, depth if isinstance(part, torch.nn.Module) else depth - 1, seen)
    elif is_plain_object(value) and not _is_frozen(value):
        seen.add(id(value))
        for key, part in list(vars(value).items())[:64]:
            yield from _held(f"{path}.{key}", part, depth - 1, seen)


def _attributes(module: torch.nn.Module) -> list[tuple[str, object]]:
    own = [(key, part) for key, part in vars(module).items() if not key.startswith("_") or isinstance(part, (torch.Tensor, list, tuple, dict)) and key not in _TORCHS]
    return [*own, *vars(module).get("_buffers", {}).items(), *vars(module).get("_modules", {}).items()]


_TORCHS = frozenset(vars(torch.nn.Module()))


def _part(path: str, module: torch.nn.Module, key: str) -> str:
    if isinstance(module, (torch.nn.Sequential, torch.nn.ModuleList)) and key.isdigit():
        return f"{path}[{key}]"
    return f"{path}[{key!r}]" if isinstance(module, torch.nn.ModuleDict) else f"{path}.{key}"


def _is_frozen(value: object) -> bool:
    """Nothing can be assigned to its attributes."""
    return dataclasses.is_dataclass(value) and type(value).__dataclass_params__.frozen

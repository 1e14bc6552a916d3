"""What the variables of a frame lead to, through objects, modules and containers, each with the expression that could be assigned to."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import types
import typing
from collections.abc import Iterator

import torch

from torchsleuth.probe.names import is_plain_object, locals_of

_DEPTH = 4
_MOST = 4000  # values looked at


class Stored(typing.NamedTuple):
    """A tensor in an element of a list or queue: `self.data` holds tuples, and it is the first of one."""

    name: str  # of the variable or attribute that holds the list
    owner: object  # whose attribute it is; None for a variable
    within: tuple[int | str, ...]  # where in its element: a position, a key or an attribute; () for the element itself
    nodes: list[typing.Any]  # that made what lies in the same place of each element


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
        # A dictionary under a variable's name may be another's too: its entries are what can be assigned to.
        if all(isinstance(element, torch.Tensor) for element in elements) and not (isinstance(value, dict) and path.isidentifier()):
            yield from (Held(path, type(value).__name__, element) for element in elements)
        elif isinstance(value, dict):
            seen.add(id(value))
            for key, part in list(value.items())[:64]:
                yield from _held(f"{path}[{key!r}]", part, depth - 1, seen) if type(key) in (str, int) else ()
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


def stored_in(frame: types.FrameType, made_by: object) -> Stored | None:
    """The list or queue, behind the frame's variables, that has the result of this node in one of its elements."""
    seen: set[int] = set()
    for scope in (locals_of(frame), dict(frame.f_globals)):
        for name, value in scope.items():
            if isinstance(name, str) and not name.startswith("__"):
                found = _stored(name, value, None, made_by, _DEPTH, seen)
                if found is not None:
                    return found
    return None


def _stored(name: str, value: object, owner: object, made_by: object, depth: int, seen: set[int]) -> Stored | None:
    if depth <= 0 or id(value) in seen or len(seen) > _MOST:
        return None
    if isinstance(value, (list, collections.deque)):
        seen.add(id(value))
        for element in itertools.islice(value, _MOST):
            for within, part in _parts(element):
                if isinstance(part, torch.Tensor) and part.grad_fn is made_by:
                    alike = (dict(_parts(other)).get(within) for other in itertools.islice(value, _MOST))
                    return Stored(name, owner, within, [other.grad_fn for other in alike if isinstance(other, torch.Tensor) and other.grad_fn is not None])
        return None
    if isinstance(value, dict):  # of lists: `self.memory[label].append(z)`
        seen.add(id(value))
        lists = (part for part in itertools.islice(dict.values(value), _MOST) if isinstance(part, (list, collections.deque)))
        return next((found for part in lists if (found := _stored(name, part, owner, made_by, depth - 1, seen)) is not None), None)
    if isinstance(value, torch.nn.Module):
        parts = _attributes(value)
    elif is_plain_object(value):
        parts = list(vars(value).items())[:64]
    else:
        return None
    seen.add(id(value))
    return next((found for key, part in parts if (found := _stored(key, part, value, made_by, depth - 1, seen)) is not None), None)


def _parts(element: object) -> list[tuple[tuple[int | str, ...], object]]:
    if isinstance(element, tuple) and hasattr(element, "_fields"):
        return [((field,), part) for field, part in zip(element._fields, element)]
    if isinstance(element, (tuple, list)):
        return [((position,), part) for position, part in enumerate(element[:16])]
    if isinstance(element, dict):
        return [((key,), part) for key, part in element.items() if isinstance(key, str)]
    if is_plain_object(element) and not isinstance(element, torch.Tensor):
        return [((key,), part) for key, part in vars(element).items()]
    return [((), element)]

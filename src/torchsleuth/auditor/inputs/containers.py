"""What a batch is made of: tensors in mappings, sequences and objects, and copies of these with one tensor exchanged."""

from __future__ import annotations

import collections.abc
import copy
import dataclasses
import types
import typing

import torch
from torch import nn

Path = tuple[typing.Any, ...]


class Attribute(str):
    """A step of a path that is an attribute of an object, and no key."""

    __slots__ = ()


def attributes_of(value: typing.Any) -> list[tuple[str, typing.Any]]:
    """What an object of the program's own (a dataclass, a plain class) holds; nothing for what is no container of data."""
    if isinstance(value, (type, nn.Module, types.ModuleType, str, bytes)) or callable(value):
        return []
    if dataclasses.is_dataclass(value):
        return [(field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value)]
    return [(name, item) for name, item in getattr(value, "__dict__", {}).items() if name[:1] != "_"]


def with_tensor(value: typing.Any, path: Path, tensor: torch.Tensor) -> typing.Any:
    """A copy with this tensor at the end of the path; everything beside the path is the same object."""
    if not path:
        return tensor
    if isinstance(path[0], Attribute):
        changed = copy.copy(value)
        object.__setattr__(changed, path[0], with_tensor(getattr(value, path[0]), path[1:], tensor))  # of a frozen dataclass, too
        return changed
    if isinstance(value, collections.abc.Mapping):
        try:
            table: typing.Any = dict(value) if type(value) is dict else copy.copy(value)
            table[path[0]] = with_tensor(value[path[0]], path[1:], tensor)
        except TypeError:  # it cannot be changed
            table = {**value, path[0]: with_tensor(value[path[0]], path[1:], tensor)}
        return table
    items = list(value)
    items[path[0]] = with_tensor(items[path[0]], path[1:], tensor)
    if hasattr(value, "_fields"):
        return type(value)(*items)
    return type(value)(items) if type(value) in (list, tuple) else items

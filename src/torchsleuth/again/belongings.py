"""What a model's attributes hold besides tensors and modules, as it was: containers, counters and meters, arrays, generators."""

from __future__ import annotations

import collections
import operator
import random
import sys
import types
import typing
from collections.abc import Callable, Iterable

import torch
from torch import nn

from torchsleuth.origin import Origin, origin_of_file

_SCALARS = {bool, int, float, complex, str, bytes, type(None)}
_CONTAINERS = (list, dict, set, collections.deque)
DEPTH = 5
MOST = 2000  # objects looked at
MOST_BYTES = 1 << 26  # of an array


class Belongings:
    """`hold` is told of each tensor that is found."""

    def __init__(self, hold: Callable[[torch.Tensor], None]) -> None:
        self._hold = hold
        self._seen: set[int] = set()
        self._containers: list[tuple[typing.Any, typing.Any]] = []  # live, as it was
        self._arrays: list[tuple[typing.Any, typing.Any]] = []
        self._states: list[tuple[Callable[[typing.Any], typing.Any], typing.Any]] = []

    def add(self, value: typing.Any, depth: int = 0) -> None:
        if type(value) in _SCALARS or depth > DEPTH or id(value) in self._seen or len(self._seen) > MOST:
            return
        self._seen.add(id(value))
        if isinstance(value, torch.Tensor):
            if not isinstance(value, nn.Parameter):
                self._hold(value)
        elif isinstance(value, tuple):
            self._add_all(value, depth)
        elif isinstance(value, _CONTAINERS):
            self._containers.append((value, value.copy()))
            self._add_all(value.values() if isinstance(value, dict) else value, depth)
        elif type(value) is torch.Generator:
            self._states.append((value.set_state, value.get_state()))
        elif isinstance(value, random.Random):
            self._states.append((value.setstate, value.getstate()))
        else:
            self._add_other(value, depth)

    def _add_all(self, values: Iterable[typing.Any], depth: int) -> None:
        for value in list(values)[:MOST]:
            self.add(value, depth + 1)

    def _add_other(self, value: typing.Any, depth: int) -> None:
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.ndarray):
            if value.nbytes <= MOST_BYTES and not value.dtype.hasobject:
                self._arrays.append((value, value.copy()))
        elif numpy is not None and isinstance(value, numpy.random.Generator):
            bits = value.bit_generator
            self._states.append((lambda state: setattr(bits, "state", state), bits.state))
        elif numpy is not None and isinstance(value, numpy.random.RandomState):
            self._states.append((value.set_state, value.get_state()))
        elif _of_the_program(type(value)) and not isinstance(value, nn.Module) and type(vars(value)) is dict:
            self._containers.append((vars(value), vars(value).copy()))
            self._add_all(vars(value).values(), depth)

    def put_back(self) -> None:
        for container, before in self._containers:
            if not _same(container, before):
                container.clear()
                container.extend(before) if isinstance(container, (list, collections.deque)) else container.update(before)
        for array, before in self._arrays:
            array[...] = before
        for restore, state in self._states:
            restore(state)


def _same(container: typing.Any, before: typing.Any) -> bool:
    if len(container) != len(before) or isinstance(container, set):
        return container == before
    if isinstance(container, dict):
        return all(map(operator.is_, container.keys(), before.keys())) and all(map(operator.is_, container.values(), before.values()))
    return all(map(operator.is_, container, before))


def _of_the_program(kind: type) -> bool:
    """A class of the user's own, whose objects hold nothing but what the program puts there. A library's may hold threads and locks."""
    if kind is types.SimpleNamespace:
        return True
    if kind.__flags__ & (1 << 9) == 0 or kind.__dictoffset__ == 0:  # not a class made in Python, or its objects have no attributes
        return False
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return kind.__module__ == "__main__" if file is None else origin_of_file(file) is Origin.USER

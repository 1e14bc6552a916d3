"""The random generators a Function may draw from: remembered, rewound and put back.

torch's generators are always included. Copying the states of Python's `random` and of NumPy takes as
long as a dozen small experiments, so that is done only where the Function's code can reach them.
"""

from __future__ import annotations

import functools
import random
import sys
import types
import typing

import torch

State = tuple  # torch, Python or None, NumPy or None, CUDA or None

_HARMLESS = ("torch", "math", "typing", "builtins", "functools", "operator", "itertools")


def random_state(reached: frozenset[str] = frozenset(("random", "numpy"))) -> State:
    numpy = sys.modules.get("numpy") if "numpy" in reached else None
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    return (
        torch.get_rng_state(),
        random.getstate() if "random" in reached else None,
        numpy.random.get_state() if numpy is not None else None,
        cuda,
    )


def restore_random(state: State) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        random.setstate(state[1])
    if state[2] is not None:
        sys.modules["numpy"].random.set_state(state[2])
    if state[3] is not None:
        torch.cuda.set_rng_state_all(state[3])


def unchanged(state: State) -> bool:
    """Whether no generator has been drawn from since."""
    if state[1] is None and state[2] is None and state[3] is None:
        return _same(state[0], torch.default_generator.get_state())
    reached = frozenset(name for name, part in (("random", state[1]), ("numpy", state[2])) if part is not None)
    now = random_state(reached)
    return (
        _same(state[0], now[0])
        and state[1] == now[1]
        and (state[2] is None or (state[2][2] == now[2][2] and bool((state[2][1] == now[2][1]).all())))
        and (state[3] is None or all(torch.equal(a, b) for a, b in zip(state[3], now[3], strict=True)))
    )


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.view(torch.int64), b.view(torch.int64))  # eight bytes at a time


def reached_by(function: type, values: typing.Iterable) -> frozenset[str]:
    """Which of Python's and NumPy's generators the code of a Function, or what it is given to call, may reach."""
    for value in values:
        if callable(value):
            return frozenset(("random", "numpy"))
    return _reached_by(function.forward, function.setup_context, function.backward, function.vjp)


@functools.lru_cache(maxsize=512)
def _reached_by(*methods: typing.Any) -> frozenset[str]:
    return frozenset().union(*(_reached(_code(method)) for method in methods))


def _code(function: typing.Any) -> types.FunctionType | None:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function if isinstance(function, types.FunctionType) else None


@functools.lru_cache(maxsize=512)
def _reached(function: types.FunctionType | None) -> frozenset[str]:
    everything = frozenset(("random", "numpy"))
    pending, seen = [function], set()
    found: set[str] = set()
    while pending:
        current = pending.pop()
        if current is None or len(seen) > 60:
            return everything
        if current in seen:
            continue
        seen.add(current)
        if (current.__module__ or "").partition(".")[0] == "torch":
            continue
        if current.__closure__:
            return everything
        for name in _names(current.__code__):
            value = current.__globals__.get(name)
            if value is None or isinstance(value, (int, float, str, tuple, torch.Tensor, torch.dtype)):
                continue
            home = (value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)) or ""
            top = home.partition(".")[0]
            if top in _HARMLESS:
                continue
            if isinstance(value, types.FunctionType):
                pending.append(value)
            elif top in ("random", "numpy"):
                found.add(top)
            else:
                return everything  # a class, an object or a module that could do anything
    return frozenset(found)


def _names(code: types.CodeType) -> set[str]:
    out = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            out |= _names(constant)
    return out

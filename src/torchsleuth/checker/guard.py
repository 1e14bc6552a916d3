"""Leaving everything of the user's as it was: random numbers, gradients, buffers, modes."""

from __future__ import annotations

import contextlib
import functools
import types
import typing

import torch

from torchsleuth.checker.randomness import random_state, restore_random


@contextlib.contextmanager
def untouched(values: typing.Iterable, reached: frozenset[str]) -> typing.Iterator[tuple]:
    """Runs the body and puts back the random state, and what modules among `values` own. Yields that state."""
    state = random_state(reached)
    modules = list(modules_among(values))
    kept = [_kept(module) for module in modules]
    dtype, threads = torch.get_default_dtype(), torch.is_grad_enabled()
    try:
        with torch.enable_grad():
            yield state
    finally:
        if torch.get_default_dtype() is not dtype:
            torch.set_default_dtype(dtype)
        torch.set_grad_enabled(threads)
        for restore in kept:
            restore()
        restore_random(state)


def _kept(module: torch.nn.Module) -> typing.Callable[[], None]:
    modes = [(part, part.training) for part in module.modules()]
    grads = [(p, p.grad, None if p.grad is None else p.grad.clone()) for p in module.parameters()]
    buffers = [(b, b.clone()) for b in module.buffers()]

    def restore() -> None:
        for part, mode in modes:
            part.training = mode
        for parameter, grad, copy in grads:
            if grad is not None and not torch.equal(grad, copy):
                with torch.no_grad():
                    grad.copy_(copy)
            parameter.grad = grad
        for buffer, copy in buffers:
            if not torch.equal(buffer, copy):
                with torch.no_grad():
                    buffer.copy_(copy)

    return restore


def modules_among(values: typing.Iterable) -> typing.Iterator[torch.nn.Module]:
    """The modules among arguments: themselves, in containers, behind bound methods, partials and closures."""
    pending, seen = list(values), set()
    while pending and len(seen) < 1000:
        value = pending.pop()
        if id(value) in seen or isinstance(value, (torch.Tensor, str, int, float)):
            continue
        seen.add(id(value))
        if isinstance(value, torch.nn.Module):
            yield value
        elif isinstance(value, (list, tuple, set)):
            pending += list(value)
        elif isinstance(value, dict):
            pending += list(value.values())
        elif isinstance(value, types.MethodType):
            pending.append(value.__self__)
        elif isinstance(value, functools.partial):
            pending += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, types.FunctionType) and value.__closure__:
            for cell in value.__closure__:
                with contextlib.suppress(ValueError):
                    pending.append(cell.cell_contents)

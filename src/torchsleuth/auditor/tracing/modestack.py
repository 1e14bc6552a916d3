"""torch's stack of function modes: a mode put at its bottom or taken out from anywhere; and hooks that disturb neither it nor the program."""

from __future__ import annotations

import contextlib
import functools
import os
import typing

import torch
from torch.utils._python_dispatch import _disable_current_modes

from torchsleuth import unnoticed

_NOTHING: contextlib.AbstractContextManager[typing.Any] = contextlib.nullcontext()


def enter_below(mode: typing.Any) -> None:
    """Enter at the bottom of the stack of modes: a recorder above it sees the program's own frames, not ours."""
    others = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]
    unnoticed.begin(mode)
    mode.__enter__()
    for other in reversed(others):
        torch._C._push_on_torch_function_stack(other)


def take_out(mode: typing.Any) -> None:
    depth = torch._C._len_torch_function_stack()
    if not any(torch._C._get_function_stack_at(level) is mode for level in range(depth)):
        return
    others = []
    while (top := torch._C._pop_torch_function_stack()) is not mode:
        others.append(top)
    unnoticed.end(mode)
    for other in reversed(others):
        torch._C._push_on_torch_function_stack(other)


@contextlib.contextmanager
def paused(mode: typing.Any) -> typing.Iterator[None]:
    """Out of its place on the stack, and back there: our own tensor work inside a traced run is not the program's."""
    depth = torch._C._len_torch_function_stack()
    level = next((level for level in reversed(range(depth)) if torch._C._get_function_stack_at(level) is mode), depth)
    _replaced(level, [])
    try:
        yield
    finally:
        if level < depth:
            _replaced(level, [mode], 0)


def _replaced(level: int, modes: list[typing.Any], gone: int = 1) -> None:
    """Puts `modes` in the place of the `gone` modes from this level of the stack on."""
    above = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack() - level)]
    for mode in (*modes, *reversed(above[: len(above) - gone] if gone else above)):
        torch._C._push_on_torch_function_stack(mode)


def transformed() -> bool:
    """Inside `torch.func.grad`, `vmap` and the like tensors are wrappers that must not be kept: they mean nothing when the transform has ended."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def undispatched() -> contextlib.AbstractContextManager[typing.Any]:
    """The program's own dispatch modes (a counter of operations, a tracer) do not see what is done meanwhile."""
    return _disable_current_modes() if torch._C._len_torch_dispatch_stack() else _NOTHING


def imagined() -> bool:
    """Inside `FakeTensorMode` tensors have shapes and no numbers (an estimate of memory, a plan): nothing is trained there."""
    return torch._C._len_torch_dispatch_stack() > 0 and torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None


def unseen(hook: typing.Callable) -> typing.Callable:
    """What a hook does with tensors is not the program's doing: no mode sees it, this watch's own trace least of all."""

    @functools.wraps(hook)
    def work(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        with torch._C.DisableTorchFunction(), undispatched():
            return hook(*args, **kwargs)

    return work


def harmless(hook: typing.Callable) -> typing.Callable:
    """A method that is called in the middle of the program: if it fails, its object gives up (`failed(error)`) and the program goes on."""

    @functools.wraps(hook)
    def work(self: typing.Any, *args: typing.Any, **kwargs: typing.Any) -> None:
        if torch.compiler.is_compiling() or imagined():
            return  # what the compiler makes of this is nothing
        try:
            with undispatched():
                hook(self, *args, **kwargs)
        except Exception as error:
            if os.environ.get("TORCHSLEUTH_DEBUG"):
                raise
            self.failed(error)

    return work

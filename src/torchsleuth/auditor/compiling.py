"""Notices that the program compiles its code (`torch.compile`), before the compiler looks at what watches the program.

A compiler takes function modes and hooks for part of the program: it would compile them into its graphs, or refuse. So
the trace is taken off when the program compiles anything, and a compiled model's calls are seen from outside of it.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import typing

import torch
from torch import nn

Called = typing.Callable[[nn.Module, tuple, dict], None]


class CompileWatch:
    """`start()` until `stop()`; `begins(whole_model)` is called each time the program asks for something compiled."""

    def __init__(self, begins: typing.Callable[[bool], None], called: Called) -> None:
        self._begins, self._called = begins, called
        self._original: typing.Any = None
        self._handles: list[typing.Any] = []

    def start(self) -> None:
        watch, original = self, torch.compile
        self._original = original

        @functools.wraps(original)
        def compile(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
            compiled = original(*args, **kwargs)
            return watch._watched(args[0] if args else kwargs.get("model"), compiled)

        compile.torchsleuth = self  # type: ignore[attr-defined]
        torch.compile = compile

    def stop(self) -> None:
        if self._original is not None and getattr(torch.compile, "torchsleuth", None) is self:
            torch.compile = self._original
        self.release()

    def release(self) -> None:
        """Calls of compiled models are of no interest any more."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _watched(self, given: typing.Any, compiled: typing.Any) -> typing.Any:
        if given is None:
            return compiled  # a decorator with options, which asks again
        module = getattr(given, "__self__", None)
        inside = isinstance(module, nn.Module) and getattr(given, "__name__", "") == "_call_impl"  # `model.compile()`
        self._begins(isinstance(compiled, nn.Module) or inside)
        if isinstance(compiled, nn.Module):
            self._handles.append(compiled.register_forward_pre_hook(self._called, with_kwargs=True))
        elif inside:
            called = self._called

            @functools.wraps(compiled)
            def call(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
                called(module, args, kwargs)
                return compiled(*args, **kwargs)

            return call
        return compiled


@contextlib.contextmanager
def uncompiled() -> typing.Iterator[None]:
    """Compiled functions run as they were written: an experiment wants to see their calls, and new sizes would be compiled anew."""
    if "torch._dynamo.eval_frame" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield

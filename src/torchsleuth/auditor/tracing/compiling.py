"""Notices that the program compiles its code (`torch.compile`), before the compiler looks at what watches the program.

A compiler takes function modes and hooks for part of the program: it would compile them into its graphs, or refuse. So
the trace is taken off before the program calls anything compiled, and a compiled model's calls are seen from outside of it.
A function that is only wrapped disturbs nothing: libraries decorate functions of theirs that most programs never call.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
import typing

import torch
from torch import nn

Called = typing.Callable[[nn.Module, tuple, dict], None]


class CompileWatch:
    """`start()` until `stop()`; `begins(whole_model)` is called each time the program asks for a compiled model, and at the first
    call of each compiled function."""

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
        if given is None or compiled is given:
            return compiled  # a decorator with options, which asks again; or nothing is compiled here
        module = getattr(given, "__self__", None)
        inside = isinstance(module, nn.Module) and getattr(given, "__name__", "") == "_call_impl"  # `model.compile()`
        if not (isinstance(compiled, nn.Module) or inside):
            return self._function(compiled)
        self._begins(True)
        if isinstance(compiled, nn.Module):
            self._handles.append(compiled.register_forward_pre_hook(self._called, with_kwargs=True))
            return compiled
        called = self._called

        @functools.wraps(compiled)
        def call(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
            called(module, args, kwargs)
            return compiled(*args, **kwargs)

        return call

    def _function(self, compiled: typing.Any) -> typing.Any:
        """`compiled`, with a look at its first call. A compiler that meets it in other code goes past this one: `wraps` has
        copied what torch marks the original with."""
        if not isinstance(compiled, types.FunctionType):
            self._begins(False)
            return compiled
        begun = False

        @functools.wraps(compiled)
        def call(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
            nonlocal begun
            if not begun:
                begun = True
                self._begins(False)
            return compiled(*args, **kwargs)

        return call


@contextlib.contextmanager
def uncompiled() -> typing.Iterator[None]:
    """Compiled functions run as they were written: an experiment wants to see their calls, and new sizes would be compiled anew."""
    if "torch._dynamo.eval_frame" not in sys.modules:
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield

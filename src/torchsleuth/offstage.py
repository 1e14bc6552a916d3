"""Keeps torchsleuth out of a program's sight where it runs in the same interpreter: its frames below the program's own, and the
modules that it has loaded before the program could.

`inspect.stack()` and `faulthandler` still see the frames.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import itertools
import os
import sys
import traceback
import types
import typing

from torchsleuth import env
from torchsleuth.record import tracebacks


class frames_hidden:  # noqa: N801  (not by `contextlib`, which assigns to the exceptions that pass: a frozen data class would refuse)
    """The stack of what runs in here ends at the first frame of the launcher's file: as it is printed (by `traceback`, by
    `logging` and by torch's anomaly mode), and as it counts against the recursion limit."""

    def __init__(self, launcher: str) -> None:
        self._launcher = launcher

    def __enter__(self) -> None:
        walk, self._limit, launcher = traceback.walk_stack, sys.getrecursionlimit(), self._launcher

        def walk_stack(frame):
            if frame is None:  # it finds its caller by counting frames, when it is iterated
                return walk(frame)
            return _seen_from_outside(itertools.takewhile(lambda entry: entry[0].f_code.co_filename != launcher, walk(frame)))

        self._walk, self._ours = walk, walk_stack
        traceback.walk_stack = walk_stack
        self._raised = self._limit + _depth()
        sys.setrecursionlimit(self._raised)

    def __exit__(self, *exception: object) -> None:
        if traceback.walk_stack is self._ours:
            traceback.walk_stack = self._walk
        if sys.getrecursionlimit() == self._raised:
            sys.setrecursionlimit(self._limit)


def _seen_from_outside(frames: typing.Iterator[tuple[types.FrameType, int]]) -> typing.Iterator[tuple[types.FrameType, int]]:
    """Innermost first, without what stands between torch's function and its caller while calls are logged: see `tracebacks`."""
    skipped = 0
    for frame, line in frames:
        code = frame.f_code
        if code.co_name == tracebacks.TRAMPOLINE_NAME or tracebacks.is_ours(code):
            skipped = 2 if code.co_name == "__torch_function__" and frame.f_back.f_code.co_name == "handle_torch_function" else 0
        elif skipped:
            skipped -= 1
        else:
            yield frame, line


def _depth() -> int:
    """How much deeper a program runs than without us."""
    frame, found = sys._getframe(2), 1  # the frame that has entered the context, and the function that it calls in it
    while frame is not None:
        found += 1
        frame = frame.f_back
    return found + (2 if env.RECURSION_COUNTS_C_CALLS else 0)  # `exec` for our own `__main__`, and for the program's


class Shadowed:
    """Modules of ours, the standard library's mostly, of whose name the program has one in its own folder.

    Plain `python` would import the program's. So ours are taken away while it runs, and are back while we report.
    """

    def __init__(self, folder: str) -> None:
        self._ours: dict[str, types.ModuleType] = {}
        # What the interpreter needs itself it has loaded first; the program's would not be found by plain python either.
        early = set(itertools.takewhile(lambda name: name not in ("runpy", "torchsleuth"), sys.modules))
        try:
            names = {entry.partition(".")[0] for entry in os.listdir(folder or ".")}
        except OSError:
            return
        for name in names.intersection(sys.modules) - early - {"torchsleuth", "torch"}:
            if _is_another(name, folder or "."):
                self._ours |= {key: module for key, module in sys.modules.items() if key == name or key.startswith(f"{name}.")}

    def give_way(self) -> None:
        for name in self._ours:
            sys.modules.pop(name, None)

    @contextlib.contextmanager
    def back(self) -> typing.Iterator[None]:
        theirs = {name: sys.modules[name] for name in self._ours if name in sys.modules}
        sys.modules.update(self._ours)
        try:
            yield
        finally:
            self.give_way()
            sys.modules.update(theirs)


def _is_another(name: str, folder: str) -> bool:
    spec = importlib.machinery.PathFinder.find_spec(name, [folder])
    if spec is None or spec.origin is None:  # a folder without `__init__.py` gives way to any module
        return False
    file = getattr(sys.modules[name], "__file__", None)
    return file is None or os.path.realpath(file) != os.path.realpath(spec.origin)

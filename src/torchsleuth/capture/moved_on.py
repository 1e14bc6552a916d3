"""Frames that have run on since the exception left them: what they have bound anew since then is not shown to anybody.

A program may keep an exception and raise it later, after a loop over all batches or from a list of failures. The traceback
still has the frame of that loop, and its variables are those of the last round, not of the one that failed.
"""

from __future__ import annotations

import ast
import functools
import types
import typing

from torchsleuth import source
from torchsleuth.probe.names import locals_of

_BINDINGS = frozenset({
    "STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "DELETE_FAST", "DELETE_NAME", "DELETE_GLOBAL", "DELETE_DEREF",
    "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST",
})  # fmt: skip
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


class MovedOn:
    """Stands in for such a frame, without the variables that may be others by now."""

    def __init__(self, frame: types.FrameType, hidden: frozenset[str]) -> None:
        self.f_code, self.f_lasti, self.f_back, self.f_lineno = frame.f_code, frame.f_lasti, frame.f_back, frame.f_lineno
        self._frame, self._hidden = frame, hidden
        own = frame.f_code.co_name == "<module>"
        self.f_globals = {name: value for name, value in frame.f_globals.items() if name not in hidden} if own else frame.f_globals

    @property
    def f_locals(self) -> dict[str, typing.Any]:
        return {name: value for name, value in locals_of(self._frame).items() if name not in self._hidden}


def as_it_was(frame: types.FrameType, lasti: int) -> typing.Any:
    """The frame, as far as it still is what it was when an exception came out of its instruction `lasti`."""
    if frame.f_lasti == lasti:
        return frame
    hidden = _bound_since(frame.f_code, lasti, frame.f_lasti)
    return MovedOn(frame, hidden) if hidden else frame


@functools.lru_cache(maxsize=256)
def _bound_since(code: types.CodeType, lasti: int, now: int) -> frozenset[str]:
    """The names that what ran between two instructions may have bound: that of a handler, if it is there, else all that follows."""
    bindings = [(line, name) for line, name in _bindings(code) if line is not None]
    failed, current = _line(code, lasti), _line(code, now)
    tree = source.tree_of(code.co_filename)
    if tree is None or failed is None:
        return frozenset(name for _, name in bindings)
    around = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno <= failed <= node.end_lineno]
    handled = [part for node in around if isinstance(node, (ast.Try, ast.TryStar)) and _within(node.body, failed) for part in (*node.handlers, *node.finalbody)]
    leaving = current is None or _instruction(code, now) in ("RERAISE", "CLEANUP_THROW", "WITH_EXCEPT_START")
    if leaving or any(part.lineno <= current <= part.end_lineno for part in handled):
        ranges = [(part.lineno, part.end_lineno) for part in handled]
    else:
        ranges = [(node.lineno, node.end_lineno) for node in around if isinstance(node, _LOOPS)] + [(failed, float("inf"))]
    return frozenset(name for line, name in bindings if any(first <= line <= last for first, last in ranges))


def _bindings(code: types.CodeType) -> typing.Iterator[tuple[int | None, str]]:
    for instruction in source.instructions(code):
        if instruction.opname in _BINDINGS:
            names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
            for name in names:
                yield _line(code, instruction.offset), name


def _within(body: list[ast.stmt], line: int) -> bool:
    return any(statement.lineno <= line <= statement.end_lineno for statement in body)


def _line(code: types.CodeType, lasti: int) -> int | None:
    where = source.instruction_range(code, lasti)
    return where[0] if where is not None else None


def _instruction(code: types.CodeType, lasti: int) -> str:
    return next((item.opname for item in source.instructions(code) if item.offset == lasti), "")

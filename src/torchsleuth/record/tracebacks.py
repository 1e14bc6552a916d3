"""Takes torchsleuth's own frames out of tracebacks, so that a program sees the traceback it would have had.

Through the operation log a call that raises leaves entries like these (innermost last):

    train.py            the user's line
    functional.py       softmax                  only where torch's function is written in Python:
    overrides.py        handle_torch_function    it first hands the call to the mode …
    oplog.py            __torch_function__
    train.py            torchsleuth_call         the trampoline
    functional.py       softmax                  … and is then called for real

All but the first and the last go. So do frames of the recorders, where a signal's handler or the end of the stack has met them.
"""

from __future__ import annotations

import os
import types

from torchsleuth.origin import Origin, origin_of_file

TRAMPOLINE_NAME = "torchsleuth_call"
_FOLDER = os.path.dirname(os.path.abspath(__file__))
_OURS = (os.path.join(_FOLDER, ""), os.path.join(os.path.dirname(_FOLDER), "origin.py"))


FEW = 8  # of a chain: those further back have been handled before


def strip(error: BaseException, most: int = 10_000) -> None:
    """Relink `error`'s traceback (and those of its causes, and of a group's members) without our frames, in place."""
    pending, seen = [error], {id(error)}
    while pending and len(seen) <= most:
        current = pending.pop()
        BaseException.with_traceback(current, _stripped(current.__traceback__))  # an assignment would run the `__setattr__` of a frozen data class
        members = current.exceptions if isinstance(current, BaseExceptionGroup) else ()
        for other in (current.__cause__, current.__context__, *members):
            if other is not None and id(other) not in seen:
                seen.add(id(other))
                pending.append(other)


def is_ours(code: types.CodeType) -> bool:
    """Code of the log and of the recorders."""
    return code.co_filename.startswith(_OURS)


def is_the_programs(error: BaseException) -> bool:
    """Of what was raised while our own code ran: whether a signal's handler (or another thread) has raised it there.

    That is for the program, and must reach it. A mistake of ours must not.
    """
    return not isinstance(error, Exception) or type(error).__module__ != "builtins" or was_in_the_program(error)


def was_in_the_program(error: BaseException) -> bool:
    """Whether it comes out of the program's own code."""
    entry = error.__traceback__
    while entry is not None:
        if origin_of_file(entry.tb_frame.f_code.co_filename).is_program:
            return True
        entry = entry.tb_next
    return False


def _stripped(traceback: types.TracebackType | None) -> types.TracebackType | None:
    entries: list[types.TracebackType] = []
    changed = False
    entry = traceback
    while entry is not None:
        code = entry.tb_frame.f_code
        if code.co_name == "__torch_function__" and origin_of_file(code.co_filename) is Origin.OURS:
            changed = True
            in_python = bool(entries) and entries[-1].tb_frame.f_code.co_name == "handle_torch_function"
            if len(entries) < (3 if in_python else 1):
                # torch's own `with` blocks see the exception on its way out, before the caller's entry is there:
                # what belongs together is not complete yet.
                return traceback
            if in_python:
                del entries[-2:]
        elif code.co_name == TRAMPOLINE_NAME or is_ours(code):
            changed = True
        else:
            entries.append(entry)
        entry = entry.tb_next
    if not changed:
        return traceback
    for current, following in zip(entries, [*entries[1:], None]):
        current.tb_next = following
    return entries[0] if entries else None


def strip_before_handler(traceback: types.TracebackType) -> None:
    """For a trace function's `exception` event, where `traceback` begins at the frame the event is in."""
    _stripped(traceback)

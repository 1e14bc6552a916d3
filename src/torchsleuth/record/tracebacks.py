"""Takes torchsleuth's own frames out of tracebacks, so that a program sees the traceback it would have had.

Through the operation log a call that raises leaves entries like these (innermost last):

    train.py            the user's line
    functional.py       softmax                  only where torch's function is written in Python:
    overrides.py        handle_torch_function    it first hands the call to the mode …
    oplog.py            __torch_function__
    train.py            torchsleuth_call         the trampoline
    functional.py       softmax                  … and is then called for real

All but the first and the last go.
"""

from __future__ import annotations

import types

from torchsleuth.origin import Origin, origin_of_file

TRAMPOLINE_NAME = "torchsleuth_call"


def strip(error: BaseException, depth: int = 8) -> None:
    """Relink `error`'s traceback (and those of its causes) without our frames, in place."""
    error.__traceback__ = _stripped(error.__traceback__)
    if depth:
        for other in (error.__cause__, error.__context__):
            if other is not None and other is not error:
                strip(other, depth - 1)


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
        elif code.co_name == TRAMPOLINE_NAME:
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

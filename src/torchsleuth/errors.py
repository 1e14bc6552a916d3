"""What torchsleuth itself raises (users see the message only, never a traceback of ours), and how others' messages are read."""

from __future__ import annotations


class TorchsleuthError(Exception):
    """Something the user can put right; the message says what and how."""


class UsageError(TorchsleuthError):
    """The command line or a call's arguments do not make sense."""


def message_of(error: BaseException) -> str:
    """An exception's own words; in Python's where it cannot say them."""
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"

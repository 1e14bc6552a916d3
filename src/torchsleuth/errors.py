"""What torchsleuth itself raises. Users see the message only, never a traceback of ours."""

from __future__ import annotations


class TorchsleuthError(Exception):
    """Something the user can put right; the message says what and how."""


class UsageError(TorchsleuthError):
    """The command line or a call's arguments do not make sense."""

"""torchsleuth: run a PyTorch program at full speed and, when it fails, name the expressions responsible.

The names below are loaded on first use, so that `lint` and `explain` start without torch.
"""

from __future__ import annotations

import importlib
import typing

from torchsleuth.uncollected import uncollected as _uncollected

_HOMES = {
    "install": "torchsleuth.doors",
    "uninstall": "torchsleuth.doors",
    "watch": "torchsleuth.doors",
    "check": "torchsleuth.checker",
    "audit": "torchsleuth.doors",
    "explain": "torchsleuth.explainer",
}
_MODULES = ("testing",)  # of the public interface: `torchsleuth.testing` is there without an import of its own
__all__ = list(_HOMES)


def __getattr__(name: str) -> typing.Any:
    if name in _HOMES:
        with _uncollected():
            value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return importlib.import_module(f"torchsleuth.{name}")
    raise AttributeError(f"module 'torchsleuth' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOMES) | set(_MODULES))

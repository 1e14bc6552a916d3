"""Work without the garbage collector: it looks for cycles among all that torch has loaded, which takes longer than the work."""

from __future__ import annotations

import contextlib
import gc
import typing


@contextlib.contextmanager
def uncollected() -> typing.Iterator[None]:
    """No search for cycles inside; afterwards the collector is as it was."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()

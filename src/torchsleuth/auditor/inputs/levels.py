"""Pictures whose values are bytes, divided by a number below one: normalised with constants that are meant for values from 0 to 1."""

from __future__ import annotations

import torch

NEAR_ZERO = 8.0  # where black lies: a mean below one was taken off, and not one of bytes
FEWEST, MOST = 16, 256  # levels of a channel
APART = 1.2  # bytes lie one apart
_CLOSE = 0.05
_NUMBERS = 1 << 16  # of one channel that are looked at


def stretched_bytes(values: torch.Tensor) -> list[float] | None:
    """How far apart the levels of each channel of these pictures lie, if they are those of bytes and further apart."""
    found = []
    for channel in values.unbind(1):
        levels = channel.reshape(-1)[:_NUMBERS].unique()
        if not FEWEST <= levels.numel() <= MOST:
            return None
        apart = float(levels.diff().min())
        counted = (levels - levels[0]) / apart if apart > APART else None
        if counted is None or float((counted - counted.round()).abs().max()) > _CLOSE or float(counted[-1]) > MOST - 1 + _CLOSE:
            return None
        if not _CLOSE < -float(levels[0]) / apart % 1 < 1 - _CLOSE:
            return None  # no fraction was taken off: numbers that are so far apart by themselves
        found.append(apart)
    return found

"""The ring tells how much was written without a word of Python's about it: programs make errors of warnings."""

from __future__ import annotations

import warnings

from torchsleuth.record.ring import Ring


def test_how_much_was_written_is_told_without_a_warning() -> None:
    ring = Ring(1 << 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (ring.written, ring.oldest) == (0, 0)
        for _ in range(1500):
            next(ring.slots)
        assert (ring.written, ring.oldest) == (1500, 1500 - 1024)
        assert next(ring.slots) == 1500, "asking takes no number"

"""What is noted at the start of a program so that it can be started again in the same state. Only with `--verify`."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
import typing

from torchsleuth.evidence import Evidence
from torchsleuth.verify.job import Launch

if typing.TYPE_CHECKING:
    from torchsleuth.verify.verdict import Verifier


class Replay:
    """Made before the program starts; reading generators' states does not move them."""

    def __init__(self) -> None:
        self.launch: Launch | None = None
        self._began = time.monotonic()
        self._environment = dict(os.environ)
        self._states: dict[str, typing.Any] = {"python": random.getstate()}
        self._seed: int | None = None

    def note_torch(self) -> None:
        """torch has just been imported."""
        import torch

        self._seed = torch.initial_seed()
        if "numpy" in sys.modules:
            with contextlib.suppress(Exception):
                kind, keys, *rest = sys.modules["numpy"].random.get_state()
                self._states["numpy"] = [kind, [int(key) for key in keys], *rest]

    def verifier(self, error: BaseException, evidence: Evidence, roots: typing.Iterable, say: typing.Callable[[str], None]) -> Verifier:
        from torchsleuth.verify.verdict import Failure, Verifier
        from torchsleuth.verify.watching import number_of

        numbers: tuple[float, ...] = ()
        with contextlib.suppress(Exception):  # a device that has died cannot be read
            numbers = tuple(number_of(root) for root in roots)
        frame = evidence.user_frame
        failure = Failure(type(error).__name__, str(error), frame.place.span if frame is not None else None, numbers)
        seconds = time.monotonic() - self._began
        return Verifier(self.launch, failure, seconds, self._seed, self._states, self._environment, say)

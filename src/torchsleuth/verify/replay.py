"""What is noted at the start of a program so that it can be started again in the same state. Only with `--verify`."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
import types
import typing

from torchsleuth import source
from torchsleuth.errors import message_of
from torchsleuth.model import Span
from torchsleuth.origin import Origin, origin_of
from torchsleuth.record.ring import Kind
from torchsleuth.verify.instrument import found_statement, head_lines
from torchsleuth.verify.job import Launch

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash
    from torchsleuth.verify.verdict import Failure, Verifier

# Their code stands inside a statement of the function around them, or runs far from where it stands.
_INNER = ("<lambda>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")


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

    def failure(self, error: BaseException, crash: Crash, caught: bool = False) -> Failure:
        """What must not come again; taken while the frames and tensors of the failure live."""
        from torchsleuth.probe.names import locals_of
        from torchsleuth.verify.verdict import Failure
        from torchsleuth.verify.watching import number_of, numbers_of

        numbers: tuple[float, ...] = ()
        seen: tuple[tuple[str, float], ...] = ()
        with contextlib.suppress(Exception):  # a device that has died cannot be read
            numbers = tuple(number_of(root) for root in crash.roots)
        entry = next(((f, i) for f, i in reversed(crash.entries) if origin_of(f.f_code) is Origin.USER and f.f_code.co_name not in _INNER), None)
        place, visit = None, 0
        if entry is not None:
            found = source.place_of_instruction(entry[0].f_code, entry[1])
            place = found.span if found is not None else None
            with contextlib.suppress(Exception):
                seen = numbers_of(locals_of(entry[0]))
            if place is not None:
                visit = _visits(crash, entry[0], place)
        return Failure(type(error).__name__, message_of(error), place, numbers, seen, visit, caught, time.monotonic() - self._began)

    def verifier(self, failure: Failure, say: typing.Callable[[str], None]) -> Verifier:
        from torchsleuth.verify.verdict import Verifier

        return Verifier(self.launch, failure, failure.seconds, self._seed, self._states, self._environment, say)


def _visits(crash: Crash, frame: types.FrameType, place: Span) -> int:
    """How often the failing statement had been begun, this time included; 0 where the recording does not tell."""
    recording = crash.recording
    if recording is None or recording.ring.oldest or recording.ring.gaps:
        return 0
    tree = source.tree_of(frame.f_code.co_filename)
    found = found_statement(tree, place.line, place.column) if tree is not None else None
    if found is None:
        return 0
    first, last = head_lines(found[0][found[1]])
    ring = recording.ring
    code, mask = id(frame.f_code), ring.mask
    visits, before = 0, 0
    for index in range(ring.written):
        if ring.codes[index & mask] != code:
            continue
        where = ring.wheres[index & mask]
        line = where >> 2 if where & 3 == Kind.LINE else 0
        # Coming back to the first line from another one of the same statement is no new visit.
        if first <= line <= last and (not first <= before <= last or (first == last == before)):
            visits += 1
        before = line
    return visits

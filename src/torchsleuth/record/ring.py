"""The bounded ring of events: packed numbers, no Python objects per event but the shared code table."""

from __future__ import annotations

import enum
import itertools
import types
from array import array
from collections.abc import Iterator

from torchsleuth.frozen import frozen

DEFAULT_HISTORY = 1 << 20  # 32 bytes each: 32 MiB


class Kind(enum.IntEnum):
    LINE = 0
    START = 1  # a function of the program's begins (or a generator resumes)
    RETURN = 2  # it returns (or yields)


START, RETURN = int(Kind.START), int(Kind.RETURN)  # `.value` of an enum's member is a call, and a recorder may run where the stack ends


@frozen
class Event:
    index: int  # counts all events ever written
    sequence: int  # the next autograd node made in this thread gets this number, or a later one
    code: types.CodeType
    kind: Kind
    where: int  # a line number; for RETURN an instruction offset
    thread: int


def taken(counter: itertools.count) -> int:
    """How many numbers were taken from a counter. Only its text tells, without taking one: copies of it are gone from Python 3.14."""
    return int(repr(counter)[len("count(") : -1])


class Ring:
    """Writers take a slot from `slots` (atomic under the GIL) and fill the four columns in place."""

    def __init__(self, history: int = DEFAULT_HISTORY) -> None:
        capacity = 1 << max(10, (history - 1).bit_length())
        self.mask = capacity - 1
        self.slots = itertools.count()
        self.sequences = array("q", bytes(8 * capacity))
        self.codes = array("q", bytes(8 * capacity))
        self.wheres = array("q", bytes(8 * capacity))
        self.threads = array("Q", bytes(8 * capacity))
        self.code_table: dict[int, types.CodeType] = {}
        self._kept: list[types.CodeType] = []
        self.gaps: set[int] = set()  # events after which lines of plain Python went unrecorded

    def keep(self, code: types.CodeType) -> None:
        """Hold on to a code object that was told apart by its `id`, so that the `id` stays its own."""
        self._kept.append(code)

    @property
    def written(self) -> int:
        return taken(self.slots)

    @property
    def oldest(self) -> int:
        return max(0, self.written - self.mask - 1)

    def event(self, index: int) -> Event | None:
        slot = index & self.mask
        code = self.code_table.get(self.codes[slot])
        if code is None or not self.oldest <= index < self.written:
            return None
        where = self.wheres[slot]
        return Event(index, self.sequences[slot], code, Kind(where & 3), where >> 2, self.threads[slot])

    def newest_first(self) -> Iterator[Event]:
        for index in range(self.written - 1, self.oldest - 1, -1):
            event = self.event(index)
            if event is not None:
                yield event

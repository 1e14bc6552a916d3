"""Chooses a recorder, says why, and holds what it wrote: the `Recording`."""

from __future__ import annotations

import contextlib
import os
import threading
import types
import typing
from dataclasses import dataclass, field

import torch

from torchsleuth import env
from torchsleuth.record.blackbox.box import BlackBox
from torchsleuth.record.oplog import OperationLog
from torchsleuth.record.ring import DEFAULT_HISTORY, Ring

STOPPED_WITH_PROGRAM = "the program ended"

# Told of an exception that the program is about to handle, and of the frame that does.
OnHandled = typing.Callable[[BaseException, types.FrameType], None]


class LineRecorder(typing.Protocol):
    """What both recorders are: they write the ring until stopped, and attend the operation log."""

    name: str

    def start(self) -> str | None: ...
    def attend(self, log: OperationLog | None, on_handled: OnHandled | None) -> None: ...
    def stop(self) -> None: ...


@dataclass
class Recording:
    """What ran. Written by the recorder, read after a failure."""

    ring: Ring
    log: OperationLog | None
    box: BlackBox
    thread: int  # the thread the operation log belongs to
    notes: list[str] = field(default_factory=list)  # what limits the precision, in words for the user
    choice: str = ""  # which recorder, and why


class Recorder:
    """Starts and stops its layers together: the lines, the exact log of the first operations, the GPU's black box."""

    def __init__(
        self,
        history: int = DEFAULT_HISTORY,
        exact_seconds: float | None = 2.0,  # None: without limit; 0: no operation log at all
        on_handled: OnHandled | None = None,
        guard: bool = False,  # check indices before the GPU does, and wait for it
    ) -> None:
        sequence_number = torch._C._autograd._get_sequence_nr
        ring = Ring(history)
        oplog = None if exact_seconds == 0 else OperationLog(sequence_number, exact_seconds)
        self.recording = Recording(ring, oplog, _guard() if guard else BlackBox(), threading.get_ident())
        self._lines = self._chosen(ring, sequence_number)
        self._on_handled = on_handled
        self._running = False

    def _chosen(self, ring: Ring, sequence_number: typing.Callable[[], int]) -> LineRecorder | None:
        if env.HAS_MONITORING:
            from torchsleuth.record.sysmon import SysmonRecorder

            self.recording.choice = "sys.monitoring, since this Python is 3.12 or later"
            return SysmonRecorder(ring, sequence_number)
        if env.CPYTHON:
            from torchsleuth.record.settrace import SettraceRecorder

            self.recording.choice = "the interpreter's trace hook, since sys.monitoring needs Python 3.12"
            return SettraceRecorder(ring, sequence_number)
        self.recording.choice = "none: this Python has neither sys.monitoring nor a C trace hook"
        return None

    def start(self) -> Recording:
        self._running = True
        refusal = self._lines.start() if self._lines else "no line recorder on this Python"
        if refusal:
            self._lines = None
            self.recording.notes.append(f"lines were not recorded ({refusal}); only the first operations were observed")
        log = self.recording.log
        if log is not None:
            log.start()
        if self._lines:
            self._lines.attend(log, self._on_handled)
        self.recording.box.arm_with_cuda()
        self._process = os.getpid()
        _live.add(self)
        return self.recording

    @contextlib.contextmanager
    def paused(self) -> typing.Iterator[None]:
        """While torchsleuth itself uses torch in the program's thread, it does not log itself."""
        log = self.recording.log
        if log is None or log.finished:
            yield
            return
        log.finished = True
        try:
            yield
        finally:
            log.finished = False

    def stop(self) -> None:
        if not self._running:
            return
        self._running = False
        _live.discard(self)
        log = self.recording.log
        if log is not None:
            log.stop_observing(STOPPED_WITH_PROGRAM)
            log.take_off()
        if self._lines:
            self._lines.stop()
        self.recording.box.disarm()


def _guard() -> BlackBox:
    from torchsleuth.record.blackbox.guard import Guard  # only where asked for: every program pays for what is imported here

    return Guard()


_live: set[Recorder] = set()


def _stop_in_child() -> None:
    """What the parent began does not go on in a forked child (a DataLoader worker, say)."""
    for recorder in list(_live):
        if recorder._process != os.getpid():
            recorder.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_stop_in_child)

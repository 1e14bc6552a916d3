"""Collects the evidence that the nominated rules need, and nothing else."""

from __future__ import annotations

import importlib
import os
import typing
from collections.abc import Iterable

from torchsleuth.capture.crash import Crash
from torchsleuth.evidence import Evidence
from torchsleuth.record.recorder import STOPPED_WITH_PROGRAM

if typing.TYPE_CHECKING:
    from torchsleuth.record.recorder import Recording


def collect(crash: Crash, needs: Iterable[str]) -> Evidence:
    sections, notes = {}, []
    for need in sorted(set(needs)):
        module = importlib.import_module(f"torchsleuth.capture.investigations.{need}")
        try:
            sections[need] = module.investigate(crash)
        except Exception as error:  # one broken investigation must not silence the others
            if os.environ.get("TORCHSLEUTH_DEBUG"):
                raise
            notes.append(f"the investigation {need!r} failed ({type(error).__name__}: {error})")
    recording = crash.recording
    return Evidence(crash.exception, crash.frames(), recording=_quality(recording), notes=tuple(notes), **sections)


def _quality(recording: Recording | None) -> str:
    if recording is None:
        return "none"
    log = recording.log
    # `reason` is set when the log had to end before the program did.
    return "observed" if log is not None and log.reason in ("", STOPPED_WITH_PROGRAM) else "lines"

"""A death on the GPU: what was recorded of the last operations that check their indices, and what the GPU printed."""

from __future__ import annotations

import os
import re
import typing

from torchsleuth import source
from torchsleuth.capture import assert_text, blackbox, compiled
from torchsleuth.capture.blackbox import Judged
from torchsleuth.capture.failure import place_at
from torchsleuth.evidence_device import AssertText, DeviceDeath, Watched
from torchsleuth.evidence_forward import FailedOperation
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_KINDS = (
    ("assert", r"device-side assert"),
    ("illegal access", r"illegal memory access|invalid device pointer"),
    ("misaligned", r"misaligned address"),
    ("cublas", r"CUBLAS_STATUS_|cublas\w+\("),
    ("cudnn", r"CUDNN_STATUS_|cuDNN error"),
    ("other", r"CUDA error|HIP error"),
)
_MOST_SHOWN = 8


def kind_of(message: str) -> str:
    return next((kind for kind, pattern in _KINDS if re.search(pattern, message)), "")


def investigate(crash: Crash) -> DeviceDeath | None:
    kind = kind_of(crash.message)
    if not kind:
        return None
    box = crash.recording.box if crash.recording is not None else None
    text = crash.assert_text if kind == "assert" else None
    calls = _shown(crash.watched_calls)
    culprit = crash.culprit_call
    noticed = crash.place_of_failure()
    blocking = os.environ.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0")
    behind = False
    if culprit is not None:
        entry = crash.program_entry()
        behind = entry is None or (entry[0].f_code, entry[1]) != culprit.entry.program
    watching = ""
    if box is None:
        watching = "nothing was recorded on the GPU"
    elif box.ring is None:
        watching = box.broken or "the GPU was not in use when the recording ended"
    return DeviceDeath(
        kind,
        noticed,
        blocking,
        text,
        tuple(calls),
        watching,
        box is not None and box.capturing,
        text is not None and assert_text.is_generated(text),
        culprit is not None,
        behind,
    )


def recovered(crash: Crash) -> FailedOperation | None:
    """The recorded call that breaks its range, as a failed operation."""
    if crash.culprit_call is None:
        return None
    from torchsleuth.capture.recovered import operation_of

    return operation_of(crash, crash.culprit_call)


def watched_calls(crash: Crash) -> list[Judged]:
    box = crash.recording.box if crash.recording is not None else None
    return blackbox.judged(box) if box is not None and box.ring is not None else []


def culprit_of(crash: Crash, text: AssertText | None) -> Judged | None:
    """The newest call whose recorded values break its range and whose kernel could have said what was printed.

    Newest, because on its stream nothing has run after it: what was recorded earlier did run.
    """
    if text is not None and assert_text.is_generated(text):
        box = crash.recording.box if crash.recording is not None else None
        return compiled.culprit(box, text) if box is not None else None
    return next((call for call in crash.watched_calls if call.verdict == "bad" and assert_text.may_be(text, call.entry.watched.operator)), None)


def _shown(calls: typing.Sequence[Judged]) -> list[Watched]:
    found: list[Watched] = []
    for call in calls:
        code, lasti = call.entry.program
        via = None
        if call.entry.user != call.entry.program:
            via = source.place_of_instruction(*call.entry.user)
        place = place_at(code, lasti, Known.OBSERVED, via)
        if place is None or origin_of(code) is Origin.OURS:
            continue
        found.append(Watched(call.entry.watched.name, place, call.verdict, _detail(call)))
        if len(found) == _MOST_SHOWN:
            break
    return found


def _detail(call: Judged) -> str:
    if call.count is not None:
        return f"{call.count} True"
    if call.values is None:
        return ""
    return f"values {call.values.minimum} … {call.values.maximum}, legal {call.values.low} … {call.values.high}"

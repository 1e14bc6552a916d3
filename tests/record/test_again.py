"""A second recording in the same process sees what the first one saw, though the first has switched locations off."""

from __future__ import annotations

import pytest
import torch

from torchsleuth.record.recorder import Recorder


def _attempt() -> str:
    x = torch.ones(3, requires_grad=True)
    try:
        x.add_(1)
    except RuntimeError as error:
        return str(error)
    return ""


def _doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.parametrize("seconds", [0, 60.0], ids=["ring", "log"])
def test_handled_errors(seconds: float) -> None:
    for _ in range(3):
        told = []
        recorder = Recorder(1 << 10, seconds, on_handled=lambda error, frame: told.append((str(error), frame.f_code.co_name)))
        recorder.start()
        messages = [_attempt(), _attempt()]
        recorder.stop()
        assert told == [(message, "_attempt") for message in messages]
        _attempt()
        assert len(told) == 2


def test_a_compiler_ends_the_exact_log_each_time() -> None:
    for _ in range(3):
        recorder = Recorder(1 << 10, 60.0)
        recording = recorder.start()
        torch.ones(2) + 1
        assert not recording.log.finished
        torch.jit.trace(lambda x: x + 1, torch.ones(2))
        assert recording.log.finished
        recorder.stop()


def test_what_is_only_wrapped_or_scripted_leaves_the_log_alone() -> None:
    """Libraries decorate functions of theirs while they are imported; the compiler looks when one is called."""
    recorder = Recorder(1 << 10, 60.0)
    recording = recorder.start()
    compiled = torch.compile(_doubled, backend="eager")
    scripted = torch.jit.script(_doubled)
    scripted(torch.ones(2))
    assert not recording.log.finished
    compiled(torch.ones(2))
    assert recording.log.finished
    recorder.stop()


def test_lines() -> None:
    for _ in range(3):
        recorder = Recorder(1 << 10, 0)
        ring = recorder.start().ring
        _attempt()
        recorder.stop()
        events = [ring.event(number) for number in range(ring.written)]
        lines = [event for event in events if event is not None and event.code.co_name == "_attempt"]
        assert len(lines) >= 5

"""The recording keeps nothing alive and stays within its bounds."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch
from torch import nn

from torchsleuth.record.recorder import Recorder
from torchsleuth.record.ring import Kind, Ring


@pytest.fixture(params=[0, 60.0], ids=["ring", "log"])
def recording(request):
    recorder = Recorder(1 << 12, request.param)
    yield recorder.start()
    recorder.stop()


def _train(step):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    refs = []
    for _ in range(step):
        x = torch.randn(3, 4)
        out = model(x)
        refs += [weakref.ref(x), weakref.ref(out)]
        out.sum().backward()
    refs += [weakref.ref(p) for p in model.parameters()]
    return refs


def test_no_tensor_outlives_its_last_use(recording) -> None:
    gc.disable()
    try:
        refs = _train(20)
        assert [ref for ref in refs if ref() is not None] == []
    finally:
        gc.enable()


def test_the_ring_forgets_the_oldest(recording) -> None:
    for _ in range(5):
        _train(200)
    ring = recording.ring
    assert ring.written > ring.mask + 1
    assert ring.event(0) is None
    newest = ring.event(ring.written - 1)
    assert newest is not None and newest.code.co_name in ("test_the_ring_forgets_the_oldest", "_train")
    assert sum(len(column) * 8 for column in (ring.sequences, ring.codes, ring.wheres, ring.threads)) == 32 * (1 << 12)


def test_events_of_threads_are_told_apart(recording) -> None:
    thread = threading.Thread(target=_train, args=(3,))
    thread.start()
    ident = thread.ident
    thread.join()
    seen = {event.thread for event in recording.ring.newest_first() if event.code is _train.__code__}
    assert seen == {ident}


def test_starts_and_returns_pair_up(recording) -> None:
    def inner():
        return 1

    def outer():
        return inner() + inner()

    outer()
    names = [
        (event.code.co_name, event.kind)
        for event in reversed(list(recording.ring.newest_first()))
        if event.code in (inner.__code__, outer.__code__) and event.kind is not Kind.LINE
    ]
    start, end = Kind.START, Kind.RETURN
    assert names == [("outer", start), ("inner", start), ("inner", end), ("inner", start), ("inner", end), ("outer", end)]


def test_a_ring_is_as_large_as_asked() -> None:
    assert Ring(5000).mask + 1 == 8192


def test_stopping_leaves_no_trace() -> None:
    before = torch._C._len_torch_function_stack()
    recorder = Recorder(1 << 12, 60.0)
    recorder.start()
    torch.ones(2) + 1
    recorder.stop()
    assert torch._C._len_torch_function_stack() == before
    count = len(recorder.recording.log.operations)
    written = recorder.recording.ring.written
    torch.ones(2) + 1
    assert len(recorder.recording.log.operations) == count
    assert recorder.recording.ring.written == written


def test_the_log_ends_when_its_time_is_spent_and_leaves_the_mode_stack() -> None:
    recorder = Recorder(1 << 12, 1e-6)
    recording = recorder.start()
    torch.ones(2) + 1
    torch.ones(2) + 1
    assert recording.log.finished
    assert torch._C._len_torch_function_stack() == 0
    recorder.stop()

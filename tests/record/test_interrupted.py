"""What a signal's handler raises reaches the program, exactly once, also where it runs in the middle of a recorder's own code."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import signal
import sys
import types
import typing

import pytest
import torch

from torchsleuth import env
from torchsleuth.record import tracebacks
from torchsleuth.record.recorder import LineRecorder, Recorder
from torchsleuth.record.ring import Ring

MOST_ROUNDS = 100_000  # far more than a timer leaves time for: a lost exception must not hang the tests


class Late(Exception):
    pass


@pytest.fixture
def raised() -> typing.Iterator[list[Exception]]:
    """What the handler of SIGALRM has raised so far.

    The collector rests meanwhile: what is raised in a callback of its (hypothesis has one) is lost in plain Python, too.
    """
    made: list[Exception] = []

    def handler(number: int, frame: types.FrameType | None) -> None:
        made.append(Late(len(made)) if len(made) % 2 else ValueError(len(made)))  # of a class of its own, and of Python's
        raise made[-1]

    gc.disable()
    before = signal.signal(signal.SIGALRM, handler)
    yield made
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    gc.enable()


def _apart(work: typing.Callable[..., object], *arguments: object) -> typing.Iterator[object]:
    """A generator knows for itself what is being handled. Python loses track of that where a trace function raises at the first
    instruction of a handler, which cannot fail otherwise; the tests that follow must not be told of it."""
    yield work(*arguments)


def _added(count: int) -> int:
    total = 0
    for number in range(count):
        total = _sum(total, number)
    return total


def _sum(a: int, b: int) -> int:
    with contextlib.suppress(KeyError):
        raise KeyError
    return a + b


def _lines(sequence_number: typing.Callable[[], int]) -> LineRecorder:
    if env.HAS_MONITORING:
        from torchsleuth.record.sysmon import SysmonRecorder as Chosen
    else:
        from torchsleuth.record.settrace import SettraceRecorder as Chosen
    return Chosen(Ring(1 << 10), sequence_number)


def _interrupted(number: int, after: int) -> list[BaseException]:
    """What arrives in a program that gets a signal while the recorder asks for the sequence number, so many events after its start.

    What it asks is written in C like the real one, so that its frames do not stand in the traceback.
    """
    counted = itertools.count()
    lines = _lines(counted.__next__)
    lines.start()
    lines.stop()
    answers = itertools.chain(itertools.repeat(0, next(counted) + after), map(signal.raise_signal, [number]), itertools.repeat(0))
    lines = _lines(answers.__next__)
    arrived = []
    try:
        lines.start()
        lines.attend(None, None)
        next(_apart(_added, 20))
    except BaseException as error:
        arrived.append(error)
    try:
        assert _added(3) == 3
    finally:
        lines.stop()
    return arrived


@pytest.mark.parametrize("after", range(4, 40))
def test_in_a_callback(after: int, raised: list[Exception]) -> None:
    arrived = _interrupted(signal.SIGALRM, after)
    assert len(raised) == 1
    assert arrived == raised


@pytest.mark.parametrize("after", range(4, 40))
def test_control_c_in_a_callback(after: int) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    arrived = _interrupted(signal.SIGINT, after)
    signal.signal(signal.SIGINT, before)
    assert [type(error) for error in arrived] == [KeyboardInterrupt]


@pytest.mark.skipif(env.HAS_MONITORING, reason="a callback of sys.monitoring's does nothing that can fail")
def test_a_mistake_of_ours_does_not_reach_the_program() -> None:
    lines = _lines(functools.partial(int, "no number"))
    lines.start()
    lines.attend(None, None)
    total = _added(20)
    lines.stop()
    assert total == sum(range(20))


def _timed(microseconds: int, work: typing.Callable[[], object]) -> None:
    signal.setitimer(signal.ITIMER_REAL, microseconds * 1e-6)
    for _ in range(MOST_ROUNDS):
        work()


@pytest.mark.parametrize("seconds", [0, 600.0], ids=["ring", "log"])
@pytest.mark.parametrize("caught", [False, True], ids=["", "told of handled ones"])
def test_at_any_moment(seconds: float, caught: bool, raised: list[Exception]) -> None:
    x = torch.ones(2, requires_grad=True)
    recorder = Recorder(1 << 10, seconds, on_handled=(lambda error, frame: None) if caught else None)
    recorder.start()
    arrived, places = [], []
    for number in range(300):
        try:
            next(_apart(_timed, 20 + 7 * (number % 31), (lambda: torch.relu(x * 2)) if number % 3 else (lambda: _added(4))))
        except Exception as error:
            arrived.append(error)
            places.append([frame.f_code for frame, _ in _walk(error)])
        if len(arrived) <= number:
            break
    recorder.stop()
    assert [str(error) for error in arrived] == [str(number) for number in range(300)]
    assert arrived == raised
    assert all(codes[-1].co_name == "handler" for codes in places)
    if seconds or not env.HAS_MONITORING:
        assert not any(tracebacks.is_ours(code) or code.co_name == tracebacks.TRAMPOLINE_NAME for codes in places for code in codes)


def _walk(error: BaseException) -> typing.Iterator[tuple[types.FrameType, int]]:
    entry = error.__traceback__
    while entry is not None:
        yield entry.tb_frame, entry.tb_lineno
        entry = entry.tb_next


def _deepest() -> int:
    depth = 0

    def deeper() -> None:
        nonlocal depth
        depth += 1
        deeper()

    try:
        deeper()
    except RecursionError:
        return depth


@pytest.mark.parametrize("seconds", [0, 600.0], ids=["ring", "log"])
def test_where_the_stack_ends(seconds: float) -> None:
    plain, limit = _deepest(), sys.getrecursionlimit()
    recorder = Recorder(1 << 10, seconds)
    recorder.start()
    depths = [_deepest(), _deepest(), _deepest(), _deepest()]
    recorder.stop()
    assert len(set(depths)) == 1
    # A callback of sys.monitoring's takes a frame or two, and one more where another test has left torch.compile's hook on frames.
    assert plain - 2 - ("torch._dynamo.eval_frame" in sys.modules) <= depths[0] <= plain
    assert sys.getrecursionlimit() == limit


def test_no_debugger_is_seen() -> None:
    outer, inner = Recorder(1 << 10, 600.0), Recorder(1 << 10, 600.0)
    asked = sys.gettrace
    outer.start()
    seen = [sys.gettrace()]
    inner.start()
    torch.ones(2) + 1
    seen.append(sys.gettrace())
    inner.stop()
    torch.ones(2) + 1
    seen.append(sys.gettrace())
    assert not outer.recording.log.finished
    outer.stop()
    assert seen == [None] * 3
    assert sys.gettrace is asked


@pytest.mark.skipif(env.HAS_MONITORING, reason="the trace hook's")
def test_it_makes_way_for_a_tracer_of_opcodes() -> None:
    """Python would crash: the C function that serves the trace hook knows nothing of them."""

    def traced() -> int:
        sys._getframe().f_trace_opcodes = True
        return 1 + len("a")

    recorder = Recorder(1 << 10, 0)
    recorder.start()
    assert traced() == 2
    recorder.stop()
    written = recorder.recording.ring.written
    again = Recorder(1 << 10, 0)
    again.start()
    _added(3)
    again.stop()
    assert written > 0
    assert again.recording.ring.written > 0

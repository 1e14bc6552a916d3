"""The fast recorder (Python >= 3.12): `sys.monitoring` events on the program's code objects only.

PY_START is asked for globally and decides once per code object: torch's and the standard library's
answer DISABLE and cost nothing from then on; the program's get local LINE, PY_RETURN, PY_YIELD and
PY_RESUME events. CALL events would name the call within a line, at more than the cost of all others
together (97 of 168 events of a small transformer's step); `capture/alignment.py` does it from the syntax.

An event costs about 0.2 µs in a tight loop and several times that between torch's kernels, where the caches are
cold. So lines that only move references about are switched off where they occur, and library functions that write
into nothing are left alone after many calls (at once few, where they make no nodes: a configuration's
`__getattribute__`, say); from then on what they do counts as done by the user's own call. The callbacks are closures
over plain arrays because they are the hot path. An exception in a callback surfaces in user code: as it should where a
signal's handler has raised it; else they do nothing that can raise.
"""

from __future__ import annotations

import sys
import threading
import types
import typing

import torch

from torchsleuth.record import tracebacks
from torchsleuth.record.bytecode import inert_lines, may_write
from torchsleuth.record.program import is_compiler_code, is_library_code, is_program_code
from torchsleuth.record.ring import RETURN, START, Ring

if typing.TYPE_CHECKING:
    from torchsleuth.record.oplog import OperationLog
    from torchsleuth.record.recorder import OnHandled

# So many events without one autograd node in between: this is plain Python at work (reading data,
# tokenising), and the location is switched off so that it runs at full speed. When nodes are made
# again (training after a long evaluation, say) all locations are switched on again.
IDLE_EVENTS = 50_000

# After so many calls a library's function is left alone: one that makes no nodes, and one that does. By then the report of
# a failure can name the user's call into it, and, with `--deep`, the library's line.
QUIET_CALLS = 24
FAMILIAR_CALLS = 1000
_SWITCHED_OFF = -1

_PREFERRED_IDS = (3, 4, 2, 1, 0, 5)


class SysmonRecorder:
    name = "sys.monitoring"

    def __init__(self, ring: Ring, sequence_number: typing.Callable[[], int]) -> None:
        self._ring = ring
        self._sequence_number = sequence_number
        self._tool: int | None = None
        self._codes: list[types.CodeType] = []

    def start(self) -> str | None:
        """None, or why it could not start."""
        monitoring = sys.monitoring
        for tool in _PREFERRED_IDS:
            if monitoring.get_tool(tool) is None:
                try:
                    monitoring.use_tool_id(tool, "torchsleuth")
                except ValueError:
                    continue
                self._tool = tool
                break
        if self._tool is None:
            return "all tool ids of sys.monitoring are taken"
        self._register()
        monitoring.set_events(self._tool, monitoring.events.PY_START)
        # What an earlier recording switched off stays off for this tool id, even though the id was freed in between
        # (code that did not run meanwhile never learns of it): a second recording would not see torch.compile start.
        monitoring.restart_events()
        self._adopt_running_frames()
        return None

    def attend(self, log: OperationLog | None, on_handled: OnHandled | None) -> None:
        """Serve the operation log while it observes, and whoever wants to know of handled exceptions."""
        monitoring, events, tool = sys.monitoring, sys.monitoring.events, self._tool
        on_line, on_start = self._on_line, self._on_start

        def detach() -> None:
            if log.take_off() and self._tool is not None:
                monitoring.register_callback(tool, events.LINE, on_line)
                monitoring.register_callback(tool, events.PY_START, on_start)
                if on_handled is None:
                    monitoring.set_events(tool, events.PY_START)

        def on_line_meanwhile(code, line):
            if log.finished:
                detach()
            return on_line(code, line)

        def on_start_meanwhile(code, offset):
            if is_compiler_code(code):
                log.stop_observing("the program compiles or traces its code")
            if log.finished:
                detach()
            return on_start(code, offset)

        def on_exception_handled(code, offset, error):
            try:
                tracebacks.strip(error, tracebacks.FEW)
                if on_handled is not None and is_program_code(code):
                    on_handled(error, sys._getframe(1))
            except Exception as mistake:
                if tracebacks.is_the_programs(mistake):
                    raise

        if log is not None:
            monitoring.register_callback(tool, events.LINE, on_line_meanwhile)
            monitoring.register_callback(tool, events.PY_START, on_start_meanwhile)
        if log is not None or on_handled is not None:
            monitoring.register_callback(tool, events.EXCEPTION_HANDLED, on_exception_handled)
            monitoring.set_events(tool, events.PY_START | events.EXCEPTION_HANDLED)

    def stop(self) -> None:
        if self._tool is None:
            return
        tool, self._tool = self._tool, None
        monitoring = sys.monitoring
        monitoring.set_events(tool, 0)
        for code in self._codes:
            monitoring.set_local_events(tool, code, 0)
        for event in (*self._local_events(), monitoring.events.PY_START, monitoring.events.EXCEPTION_HANDLED):
            monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)

    @staticmethod
    def _local_events() -> tuple[int, ...]:
        events = sys.monitoring.events
        return (events.LINE, events.PY_RETURN, events.PY_YIELD, events.PY_RESUME)

    def _register(self) -> None:
        monitoring, events, tool = sys.monitoring, sys.monitoring.events, self._tool
        ring = self._ring
        next_slot, mask = ring.slots.__next__, ring.mask
        sequences, codes, wheres, threads = ring.sequences, ring.codes, ring.wheres, ring.threads
        table, ours, gaps = ring.code_table, self._codes, ring.gaps
        sequence_number, thread, disable = self._sequence_number, threading.get_ident, monitoring.DISABLE
        grad_enabled = torch.is_grad_enabled
        local_events = 0
        for event in self._local_events():
            local_events |= event
        last_sequence, idle = -1, 0
        inert: dict[int, set[int]] = {}
        calls: dict[int, int] = {}  # of library functions that write into nothing
        enough: dict[int, int] = {}  # after how many of them they are left alone
        started: dict[int, int] = {}

        def on_line(code, line):
            nonlocal last_sequence, idle
            if line in inert[id(code)]:
                return disable
            index = next_slot()
            slot = index & mask
            sequence = sequence_number()
            sequences[slot] = sequence
            codes[slot] = id(code)
            wheres[slot] = line << 2
            threads[slot] = thread()
            if sequence != last_sequence:
                if idle > IDLE_EVENTS:
                    monitoring.restart_events()
                last_sequence, idle = sequence, 0
            else:
                idle += 1
                if idle > IDLE_EVENTS:
                    gaps.add(index)
                    return disable

        def on_start(code, offset):
            nonlocal last_sequence, idle
            key = id(code)
            if key not in table:
                if not is_program_code(code):
                    return disable
                table[key] = code
                ours.append(code)
                inert[key] = inert_lines(code)
                if is_library_code(code) and not may_write(code):
                    calls[key], enough[key] = 0, QUIET_CALLS
                monitoring.set_local_events(tool, code, local_events)
            sequence = sequence_number()
            if key in calls:
                if calls[key] == _SWITCHED_OFF:
                    return disable
                started[key] = sequence
            slot = next_slot() & mask
            if idle > IDLE_EVENTS and sequence != last_sequence:
                last_sequence, idle = sequence, 0
                monitoring.restart_events()
            sequences[slot] = sequence
            codes[slot] = key
            wheres[slot] = code.co_firstlineno << 2 | START
            threads[slot] = thread()

        def on_return(code, offset, value):
            key = id(code)
            slot = next_slot() & mask
            sequences[slot] = sequence = sequence_number()
            codes[slot] = key
            if key in calls:
                if sequence != started.get(key):
                    enough[key] = FAMILIAR_CALLS
                if grad_enabled():
                    calls[key] += 1
                    if calls[key] >= enough[key]:
                        calls[key] = _SWITCHED_OFF
                        monitoring.set_local_events(tool, code, 0)
            wheres[slot] = offset << 2 | RETURN
            threads[slot] = thread()

        for event, callback in (
            (events.LINE, on_line),
            (events.PY_START, on_start),
            (events.PY_RESUME, on_start),
            (events.PY_RETURN, on_return),
            (events.PY_YIELD, on_return),
        ):
            monitoring.register_callback(tool, event, callback)
        self._on_line, self._on_start = on_line, on_start

    def _adopt_running_frames(self) -> None:
        """Functions already running (a notebook cell, `with watch():`) will not start again: adopt them."""
        for frame in sys._current_frames().values():
            while frame is not None:
                code = frame.f_code
                if is_program_code(code) and id(code) not in self._ring.code_table:
                    self._on_start(code, 0)
                frame = frame.f_back

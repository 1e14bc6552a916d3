"""The recorder for Python 3.11: the interpreter's trace hook, set from C level through ctypes.

`sys.settrace` would do, but its trampoline copies every function's locals into a dictionary that the
frame keeps (`PyFrame_FastToLocalsWithError` before each callback, up to 3.11), torch's own functions
included: tensors would be freed later than without us. `PyEval_SetTrace` with a C callback does not
touch the locals, and `sys.gettrace()` goes on saying what it said.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import types
import typing

from torchsleuth.record import tracebacks
from torchsleuth.record.program import is_compiler_code, is_program_code
from torchsleuth.record.ring import Kind, Ring

if typing.TYPE_CHECKING:
    from torchsleuth.record.oplog import OperationLog
    from torchsleuth.record.recorder import OnHandled

_CALL, _EXCEPTION, _LINE, _RETURN = range(4)
_TraceFunction = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.py_object, ctypes.c_int, ctypes.c_void_p
)  # int (*Py_tracefunc)(PyObject *obj, PyFrameObject *frame, int what, PyObject *arg)

IDLE_EVENTS = 50_000  # as in `sysmon`: long stretches of plain Python go untraced, frame by frame


class SettraceRecorder:
    name = "trace hook"

    def __init__(self, ring: Ring, sequence_number: typing.Callable[[], int]) -> None:
        self._ring = ring
        self._sequence_number = sequence_number
        self._log: OperationLog | None = None
        self._on_handled: OnHandled | None = None
        self._active = False
        self._hook = _TraceFunction(self._callback())
        self._set_trace = ctypes.pythonapi.PyEval_SetTrace
        self._set_trace.argtypes = [_TraceFunction, ctypes.py_object]
        self._set_trace.restype = None

    def start(self) -> str | None:
        if sys.gettrace() is not None:
            return "a debugger or coverage tool holds the trace hook"
        self._active = True
        frame = sys._getframe()
        while frame is not None:
            if not is_program_code(frame.f_code):
                frame.f_trace_lines = False
            else:
                self._ring.code_table[id(frame.f_code)] = frame.f_code
            frame = frame.f_back
        if threading.gettrace() is None:
            threading.settrace(self._begin_thread)
        self._set_trace(self._hook, None)
        return None

    def attend(self, log: OperationLog | None, on_handled: OnHandled | None) -> None:
        """Serve the operation log while it observes, and whoever wants to know of handled exceptions."""
        self._log, self._on_handled = log, on_handled

    def stop(self) -> None:
        if not self._active:
            return
        self._active = False
        if threading.gettrace() == self._begin_thread:
            threading.settrace(None)
        if sys.gettrace() is None:  # else someone has taken the hook since, and it is theirs to clear
            sys.settrace(None)

    def _begin_thread(self, frame, event, argument):
        """Runs once as the Python-level trace function of a new thread, and hands over to the C hook."""
        if self._active:
            self._set_trace(self._hook, None)
        else:
            sys.settrace(None)

    def _callback(self) -> typing.Callable[..., int]:
        ring, recorder = self._ring, self
        next_slot, mask = ring.slots.__next__, ring.mask
        sequences, codes, wheres, threads = ring.sequences, ring.codes, ring.wheres, ring.threads
        table, others = ring.code_table, set()
        sequence_number, thread = self._sequence_number, threading.get_ident
        last_sequence, idle, muted = -1, 0, False
        busiest, lead = 0, 0

        def on_event(_, frame, what, argument):
            nonlocal last_sequence, idle, muted, busiest, lead
            try:
                code = frame.f_code
                key = id(code)
                if muted and sequence_number() != last_sequence:
                    muted, idle, lead = False, 0, 0
                    _unmute(frame)
                if key not in table:
                    if key not in others:
                        if is_program_code(code):
                            table[key] = code
                        else:
                            others.add(key)
                            ring.keep(code)
                    if key in others:
                        if what == _CALL:
                            frame.f_trace_lines = False
                            if recorder._log is not None and is_compiler_code(code):  # not `re.compile`
                                recorder._log.stop_observing("the program compiles or traces its code")
                                recorder._detach_log()
                        return 0
                if recorder._log is not None:
                    if what == _EXCEPTION:
                        tracebacks.strip_before_handler(ctypes.cast(argument, ctypes.py_object).value[2])
                    elif recorder._log.finished:
                        recorder._detach_log()
                if what == _EXCEPTION:
                    if recorder._on_handled is not None:  # handled here or further out: the end of the run will tell
                        _, error, traceback = ctypes.cast(argument, ctypes.py_object).value
                        error.__traceback__ = traceback  # on its way out an exception knows only where it was last handled
                        recorder._on_handled(error, frame)
                    return 0
                slot = next_slot() & mask
                sequence = sequence_number()
                sequences[slot] = sequence
                codes[slot] = key
                threads[slot] = thread()
                if what == _LINE:
                    wheres[slot] = frame.f_lineno << 2
                    if sequence != last_sequence:
                        last_sequence, idle, lead = sequence, 0, 0
                    else:
                        idle += 1
                        # A majority vote finds the one code object that is busy; only its frames are muted.
                        if key == busiest:
                            lead += 1
                            if idle > IDLE_EVENTS and lead > IDLE_EVENTS // 2:
                                frame.f_trace_lines, muted = False, True
                                ring.gaps.add(ring.written - 1)
                        elif lead:
                            lead -= 1
                        else:
                            busiest = key
                elif what == _CALL:
                    wheres[slot] = code.co_firstlineno << 2 | Kind.START.value
                elif what == _RETURN:
                    wheres[slot] = frame.f_lasti << 2 | Kind.RETURN.value
            except BaseException:  # never into the user's program
                return 0
            return 0

        return on_event

    def _detach_log(self) -> None:
        if self._log is not None and self._log.take_off():
            self._log = None


def _unmute(frame: types.FrameType | None) -> None:
    while frame is not None:
        if is_program_code(frame.f_code):
            frame.f_trace_lines = True
        frame = frame.f_back

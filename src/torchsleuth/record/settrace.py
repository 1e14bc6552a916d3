"""The recorder for Python 3.11: the interpreter's trace hook, set at C level.

`sys.settrace` would do, but its trampoline copies every function's locals into a dictionary that the
frame keeps (`PyFrame_FastToLocalsWithError` before each callback, up to 3.11), torch's own functions
included: tensors would be freed later than without us. A C function set with `PyEval_SetTrace` does not
touch the locals. A ctypes callback would be one, but what is raised in it is printed and lost, also when a
signal's handler or Ctrl-C raised it, and where the stack ends it returns what happens to lie in memory.

CPython has one function that fits as it is: `PyObject_RichCompareBool(object, frame, what)` takes the arguments of a trace
function but the last, calls `object.__lt__(frame)` for a call, `__le__` for an exception, `__eq__` for a line and `__ne__` for a
return (`PyTrace_CALL` is `Py_LT`, and so on), answers 0 if that is false, and -1 with the exception set if it raises.
So exceptions go into the program, and the callbacks let pass only those that are the program's own. There is no comparison
for opcode events, so the recorder makes way for code that is about to ask for them.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
import threading
import types
import typing

import torch

from torchsleuth.record import tracebacks
from torchsleuth.record.bytecode import may_write
from torchsleuth.record.program import is_compiler_code, is_library_code, is_program_code
from torchsleuth.record.ring import RETURN, START, Ring

if typing.TYPE_CHECKING:
    from torchsleuth.record.oplog import OperationLog
    from torchsleuth.record.recorder import OnHandled

_COMPARE = ctypes.cast(ctypes.pythonapi.PyObject_RichCompareBool, ctypes.c_void_p)
_set_trace = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.py_object)(("PyEval_SetTrace", ctypes.pythonapi))

# As in `sysmon`: so many calls of a library's function are recorded, of one that makes no nodes and of one that does.
QUIET_CALLS = 24
FAMILIAR_CALLS = 1000
IDLE_EVENTS = 50_000  # as in `sysmon`: long stretches of plain Python go untraced, frame by frame


EVENT_DEPTH = 2  # what an event needs on top of the program's stack: the comparison, and the callback

# With the collector disabled the youngest generation may hold millions of objects: see `_raised_in`.
MANY_YOUNG_OBJECTS = 20_000


class TraceHook:
    """What the trace function is called with. `sys.gettrace()` would show it; see `_gettrace_without_us`."""


_gettrace = sys.gettrace
_recording: set[SettraceRecorder] = set()


def _gettrace_without_us() -> object:
    """Stands in for `sys.gettrace` while we record: programs ask it whether a debugger is at work, and it is not."""
    found = _gettrace()
    return None if isinstance(found, TraceHook) else found


class SettraceRecorder:
    name = "trace hook"

    def __init__(self, ring: Ring, sequence_number: typing.Callable[[], int]) -> None:
        self._ring = ring
        self._sequence_number = sequence_number
        self._log: OperationLog | None = None
        self._on_handled: OnHandled | None = None
        self._active = False
        self._limit = 0
        self._hook = self._made_hook()

    def start(self) -> str | None:
        if sys.gettrace() is not None:
            return "a debugger or coverage tool holds the trace hook"
        frame = sys._getframe()
        while frame is not None:
            if frame.f_trace_opcodes or _asks_for_opcodes(frame.f_code):
                return "the program traces opcodes"
            frame = frame.f_back
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
        _recording.add(self)
        if sys.gettrace is _gettrace:
            sys.gettrace = _gettrace_without_us
        self._limit = sys.getrecursionlimit() + EVENT_DEPTH
        sys.setrecursionlimit(self._limit)
        _set_trace(_COMPARE, self._hook)
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
        if _gettrace() is self._hook:  # else someone has taken it since, and it is theirs to clear
            sys.settrace(None)
        if sys.getrecursionlimit() == self._limit:
            with contextlib.suppress(RecursionError):  # it refuses where the stack is that deep already
                sys.setrecursionlimit(self._limit - EVENT_DEPTH)
        _recording.discard(self)
        if not _recording and sys.gettrace is _gettrace_without_us:
            sys.gettrace = _gettrace

    def _begin_thread(self, frame, event, argument):
        """Runs once as the Python-level trace function of a new thread, and hands over to the C hook."""
        if self._active:
            _set_trace(_COMPARE, self._hook)
        else:
            sys.settrace(None)

    def _made_hook(self) -> TraceHook:
        ring, recorder = self._ring, self
        next_slot, mask = ring.slots.__next__, ring.mask
        sequences, codes, wheres, threads = ring.sequences, ring.codes, ring.wheres, ring.threads
        table, others, compilers = ring.code_table, set(), set()
        sequence_number, thread = self._sequence_number, threading.get_ident
        last_sequence, idle, muted = -1, 0, False
        busiest, lead = 0, 0
        grad_enabled, is_the_programs = torch.is_grad_enabled, tracebacks.is_the_programs
        calls: dict[int, int] = {}  # of library functions that write into nothing
        enough: dict[int, int] = {}  # after how many of them they are left alone
        started: dict[int, int] = {}

        def recognised(code: types.CodeType) -> bool:
            """A code object seen for the first time: is it the program's?"""
            key = id(code)
            if _asks_for_opcodes(code):
                ring.gaps.add(ring.written - 1)
                recorder.stop()
            if is_program_code(code):
                table[key] = code
                if is_library_code(code) and not may_write(code):
                    calls[key], enough[key] = 0, QUIET_CALLS
                return True
            others.add(key)
            ring.keep(code)
            if is_compiler_code(code):  # not `re.compile`
                compilers.add(key)
            return False

        # Each looks first whether the code is the program's. Most is not: importing a large library makes a million calls.

        def on_call(hook, frame):
            nonlocal idle, muted, lead
            try:
                code = frame.f_code
                key = id(code)
                if muted and sequence_number() != last_sequence:
                    muted, idle, lead = False, 0, 0
                    _unmute(frame)
                if key in others or (key not in table and not recognised(code)):
                    frame.f_trace_lines = False
                    if key in compilers and recorder._log is not None:
                        recorder._log.stop_observing("the program compiles or traces its code")
                        recorder._detach_log()
                    return False
                if recorder._log is not None and recorder._log.finished:
                    recorder._detach_log()
                slot = next_slot() & mask
                sequence = sequence_number()
                sequences[slot] = sequence
                codes[slot] = key
                threads[slot] = thread()
                wheres[slot] = code.co_firstlineno << 2 | START
                if key in calls:
                    started[key] = sequence
            except RecursionError:  # the program fits on the stack, but what we call here does not
                pass
            except BaseException as error:
                if is_the_programs(error):
                    raise
            return False

        def on_line(hook, frame):
            nonlocal last_sequence, idle, muted, busiest, lead
            try:
                code = frame.f_code
                key = id(code)
                sequence = sequence_number()
                if muted and sequence != last_sequence:
                    muted, idle, lead = False, 0, 0
                    _unmute(frame)
                if key in others or (key not in table and not recognised(code)):
                    return False
                if recorder._log is not None and recorder._log.finished:
                    recorder._detach_log()
                slot = next_slot() & mask
                sequences[slot] = sequence
                codes[slot] = key
                threads[slot] = thread()
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
            except RecursionError:  # see `on_call`
                pass
            except BaseException as error:
                if is_the_programs(error):
                    raise
            return False

        def on_return(hook, frame):
            nonlocal idle, muted, lead
            try:
                code = frame.f_code
                key = id(code)
                sequence = sequence_number()
                if muted and sequence != last_sequence:
                    muted, idle, lead = False, 0, 0
                    _unmute(frame)
                if key in others or (key not in table and not recognised(code)):
                    return False
                slot = next_slot() & mask
                sequences[slot] = sequence
                codes[slot] = key
                threads[slot] = thread()
                wheres[slot] = frame.f_lasti << 2 | RETURN
                if key in calls:
                    if sequence != started.get(key):
                        enough[key] = FAMILIAR_CALLS
                    if grad_enabled():
                        calls[key] += 1
                        if calls[key] >= enough[key]:
                            del calls[key]
                            others.add(key)
            except RecursionError:  # see `on_call`
                pass
            except BaseException as error:
                if is_the_programs(error):
                    raise
            return False

        def on_exception(hook, frame):
            try:
                if id(frame.f_code) not in table and (id(frame.f_code) in others or not recognised(frame.f_code)):
                    return False
                if recorder._log is None and recorder._on_handled is None and gc.get_count()[0] > MANY_YOUNG_OBJECTS:
                    return False
                raised = _raised_in(frame)
                if raised is None:
                    return False
                _, error, traceback = raised
                further_in = traceback.tb_next  # if the program's, all has been stripped there, but for the log's entries
                if recorder._log is not None or (further_in is not None and id(further_in.tb_frame.f_code) not in table):
                    tracebacks.strip_before_handler(traceback)
                if recorder._on_handled is not None:  # handled here or further out: the end of the run will tell
                    BaseException.with_traceback(error, traceback)  # on its way out an exception knows only where it was last handled
                    recorder._on_handled(error, frame)
            except RecursionError:  # see `on_call`
                pass
            except BaseException as error:
                if is_the_programs(error):
                    raise
            return False

        events = {"__lt__": on_call, "__le__": on_exception, "__eq__": on_line, "__ne__": on_return}
        return type("TraceHook", (TraceHook,), events)()

    def _detach_log(self) -> None:
        if self._log is not None and self._log.take_off():
            self._log = None


def _asks_for_opcodes(code: types.CodeType) -> bool:
    return "f_trace_opcodes" in code.co_names and not tracebacks.is_ours(code)


def _unmute(frame: types.FrameType | None) -> None:
    while frame is not None:
        if is_program_code(frame.f_code):
            frame.f_trace_lines = True
        frame = frame.f_back


def _raised_in(frame: types.FrameType) -> tuple[type, BaseException, types.TracebackType] | None:
    """What the interpreter hands to a trace function with an exception, which a comparison has no place for.

    It makes this tuple right before the call, so that it is the youngest object but for what a signal's handler or another
    thread has made since.
    """
    for generation in (0, 1):
        for found in reversed(gc.get_objects(generation)):
            if type(found) is tuple and len(found) == 3 and isinstance(found[2], types.TracebackType) and found[2].tb_frame is frame:
                return found
    return None

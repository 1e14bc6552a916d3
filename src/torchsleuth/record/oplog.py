"""The operation log: every torch call the program makes in its first seconds, observed exactly.

A `TorchFunctionMode` sees each call from Python. For each one it notes the source expression (the
program's frame and its `f_lasti`), shape, dtype, version and storage of every tensor that goes in and
comes out, and which of them the call wrote into (`_version` before and after). It keeps numbers, never
tensors. When the time it has added reaches its budget, it takes itself off and the ring goes on alone.

Two things keep the program from noticing. A warning raised by torch is attributed to the Python frame
that called, which would be ours: so the call is made from a *trampoline*, a one-line function that
carries the caller's file, line and globals. And exceptions pass through our frames: `tracebacks.py`
takes them out of the traceback before anyone can look at it.
"""

from __future__ import annotations

import sys
import threading
import types
import typing
from collections import deque
from time import perf_counter_ns

import torch
from torch.overrides import TorchFunctionMode, handle_torch_function

from torchsleuth import unnoticed
from torchsleuth.origin import Origin, origin_of_file
from torchsleuth.record.tracebacks import TRAMPOLINE_NAME, was_in_the_program

MOST_ENTRIES = 40_000  # at some 1.5 kB each: 60 MB at the very most
MOST_ENTRIES_DEEP = 10 * MOST_ENTRIES  # `--deep` has asked for it

_HANDLE = handle_torch_function.__code__

# Property reads worth a line in the log; all others (shape, dtype, device, …) say nothing about values.
_PROPERTIES = {"data", "T", "mT", "H", "mH", "real", "imag"}
_SETTERS = {"data", "requires_grad"}
# Reads that cannot warn need no trampoline either. (`grad` can: on a tensor that is not a leaf.)
_SILENT_PROPERTIES = {
    "shape", "dtype", "device", "ndim", "requires_grad", "is_leaf", "grad_fn", "layout", "is_cuda", "is_sparse",
    "is_quantized", "is_meta", "is_nested", "is_mps", "is_xla", "is_cpu", "itemsize", "nbytes", "names", "_version", "_base",
}  # fmt: skip
# Questions about a tensor, not operations on it.
_QUESTIONS = {
    "size", "dim", "ndimension", "numel", "nelement", "stride", "storage_offset", "element_size", "__len__", "__hash__",
    "__repr__", "__format__", "data_ptr", "is_contiguous", "is_floating_point", "is_complex", "is_signed", "get_device",
    "untyped_storage", "_typed_storage", "storage", "is_same_size", "is_tensor", "is_storage", "is_inference", "has_names",
    "is_pinned", "is_shared", "type", "_is_view", "_backward_hooks", "register_hook", "is_conj", "is_neg", "is_nonzero",
    "is_set_to", "__reduce_ex__", "__setstate__", "__dir__", "retain_grad", "result_type", "can_cast", "compile",
}  # fmt: skip


# Their sizes are numbers that some caller may have given; so are those of calls that are given no tensor.
_GIVES_SIZES = {"view", "reshape", "expand", "repeat", "pad", "unflatten", "one_hot", "narrow", "unfold", "tile", "interpolate"}

# Who called the function matters for these, too: it may freeze whatever it is given.
_CALLERS_MATTER = _GIVES_SIZES | {"requires_grad=", "requires_grad_"}

# Named tuples, and made with `tuple.__new__`: a dataclass's generated `__init__` costs ten times as much.
_new = tuple.__new__


class Mark(typing.NamedTuple):
    """What is remembered of a tensor that took part in a call: numbers only."""

    ident: int  # id() of the Python object at that time
    storage: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype | None
    device: torch.device | None
    version: int  # -1: not tracked
    requires_grad: bool
    is_leaf: bool


class Write(typing.NamedTuple):
    """`operand` (its position among the operands) went from version `before` to `after` in this call."""

    operand: int
    before: int
    after: int


class Operation(typing.NamedTuple):
    """One logged call."""

    index: int
    name: str
    code: types.CodeType  # the program's frame that made the call
    lasti: int
    user_code: types.CodeType  # the nearest frame of the user's own, where that one is a library's
    user_lasti: int
    sequence: int  # nodes made by this call have numbers in sequence .. sequence_after - 1
    sequence_after: int
    grad_enabled: bool
    operands: tuple[Mark, ...]
    results: tuple[Mark, ...]
    writes: tuple[Write, ...]
    raised: int  # id() of the exception that came out of it, else 0
    stack: tuple[tuple[types.CodeType, int], ...]  # where grad mode was off, sizes are made or weights are frozen: the program's frames, innermost first
    module: int  # id() of torch's own module that asked for a result in place (`nn.ReLU(inplace=True)`), else 0
    index_used: object  # the index of an assignment `x[index] = …` made of plain numbers and slices, else None
    arguments: tuple[int, ...]  # for each operand, which of the call's arguments it was, or was in


class OperationLog(TorchFunctionMode):
    """Entered once in the thread to observe; `finished` says that it has had its time."""

    def __init__(self, sequence_number: typing.Callable[[], int], budget_seconds: float | None) -> None:
        super().__init__()
        self.operations: deque[Operation] = deque(maxlen=MOST_ENTRIES if budget_seconds is not None else MOST_ENTRIES_DEEP)
        self.finished = False
        self.reason = ""
        self.on_finished: typing.Callable[[], None] | None = None
        self._sequence_number = sequence_number
        self._budget_ns = None if budget_seconds is None else int(budget_seconds * 1e9)
        self._spent_ns = 0
        self._count = 0
        self._home = 0
        self._off = False
        self._tracer: typing.Any = None  # the trace function that was there before us
        self._trampolines: dict[tuple[int, int], types.FunctionType] = {}

    # -- on and off -----------------------------------------------------------------------------

    def start(self) -> None:
        self._home = threading.get_ident()
        self._tracer = _gettrace()
        unnoticed.begin(self)
        self.__enter__()

    def stop_observing(self, reason: str) -> None:
        if not self.finished:
            self.finished, self.reason = True, reason
            if self.on_finished is not None:
                self.on_finished()

    def take_off(self) -> bool:
        """Leave the mode stack if we are on top of it in this thread; True once that is done.

        While a call is being handled torch has taken us off itself, to put us back after it: that is not it.
        """
        if self._off:
            return True
        depth = torch._C._len_torch_function_stack()
        if threading.get_ident() != self._home or depth == 0 or torch._C._get_function_stack_at(depth - 1) is not self:
            return False
        self._off = True  # first: `__exit__` itself starts a function, and a recorder's start event may ask again
        self.__exit__(None, None, None)
        unnoticed.end(self)
        self._trampolines.clear()
        return True

    # -- the hot path ---------------------------------------------------------------------------
    # One body, few calls: on Python 3.11 each Python call made here is an event for the trace hook.

    def __torch_function__(self, func, types, args=(), kwargs=None):  # noqa: A002 (torch's own name)
        if kwargs is None:
            kwargs = {}
        name = getattr(func, "__name__", "")  # a library may hand any callable over
        if name == "__get__" and func.__self__.__name__ in _SILENT_PROPERTIES:
            return func(*args, **kwargs)
        frame = sys._getframe(1)
        in_python = frame.f_code is _HANDLE  # a Python function of torch's: its caller is two frames up
        if in_python:
            frame = frame.f_back.f_back
        call = self._trampolines.get((id(frame.f_code), frame.f_lasti))
        if call is None or call.__globals__ is not frame.f_globals:
            call = self._trampoline(frame)
        if in_python:
            call = self._with_callers(frame, call)
        if _gettrace() is not self._tracer and sys.gettrace() is not None:  # the second takes longer, and does not count our own hook
            self.stop_observing("a debugger traces the program")
        if self.finished or name in _QUESTIONS:
            del frame
            return call(func, args, kwargs)
        if name == "__get__" or name == "__set__":
            attribute = getattr(getattr(func, "__self__", None), "__name__", "")
            if attribute not in (_PROPERTIES if name == "__get__" else _SETTERS):
                del frame
                return call(func, args, kwargs)
            name = attribute if name == "__get__" else f"{attribute}="

        began = perf_counter_ns()
        while frame.f_code.co_name == TRAMPOLINE_NAME:  # another log's (`watch()` inside `torchsleuth run`): it has our caller's file
            frame = frame.f_back.f_back
        module = _asking_module(frame) if kwargs and kwargs.get("inplace") is True else 0
        program = None
        while frame is not None:
            origin = _origins.get(frame.f_code.co_filename) or _learn_origin(frame.f_code.co_filename)
            if origin is _USER:
                program = program or frame
                break
            if origin is _LIBRARY and program is None:
                program = frame
            frame = frame.f_back
        if program is None:  # torch or torchsleuth talking to itself, at import for example
            return call(func, args, kwargs)
        user = frame or program
        place = (program.f_code, program.f_lasti, user.f_code, user.f_lasti)
        grad_enabled = _is_grad_enabled()
        operands = []
        arguments = []
        position = 0
        for value in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(value, _Tensor):
                operands.append(value)
                arguments.append(position)
            elif type(value) is tuple or type(value) is list:
                _collect(value, operands, 3)
                arguments += [position] * (len(operands) - len(arguments))
            position += 1
        stack = () if grad_enabled and operands and name not in _CALLERS_MATTER else _program_stack(program)
        del frame, program, user
        marks = _marks(operands)
        sequence = self._sequence_number()
        self._spent_ns += perf_counter_ns() - began
        result = None
        raised = 1
        try:
            result = call(func, args, kwargs)
            raised = 0
            return result
        finally:
            began = perf_counter_ns()
            if raised:
                raised = id(sys.exc_info()[1])
            writes = []
            for position, mark in enumerate(marks):
                operand = operands[position]
                if mark[7] >= 0 and (version := operand._version if type(operand) in _PLAIN else _version_of(operand)) != mark[7]:
                    writes.append(_new(Write, (position, mark[7], version)))
            if raised or result is None:
                results = ()
            elif isinstance(result, _Tensor):
                results = _marks((result,))
            else:
                results = _marks(_tensors_of(result))
            index = _plain_index(args[1]) if name == "__setitem__" and len(args) > 1 else None
            self._count += 1
            self.operations.append(
                _new(Operation, (self._count, name, *place, sequence, self._sequence_number(), grad_enabled,
                                 marks, results, tuple(writes), raised, stack, module, index, tuple(arguments)))
            )  # fmt: skip
            operands = operand = None
            self._spent_ns += perf_counter_ns() - began
            if self._budget_ns is not None and self._spent_ns > self._budget_ns:
                self.stop_observing("its time budget was spent")

    def _with_callers(self, frame: types.FrameType, call: typing.Callable) -> typing.Callable:
        """`call` from trampolines for its callers, too, out to the program: torch's Python functions may warn for one further out."""
        callers = []
        while len(callers) < _FURTHEST_WARNED and frame.f_back is not None:
            if (_origins.get(frame.f_code.co_filename) or _learn_origin(frame.f_code.co_filename)) is not _TORCH:
                break
            frame = frame.f_back
            callers.append(self._trampoline(frame))
        if not callers:
            return call

        def called(func, args, kwargs):
            target, given = call, (func, args, kwargs)
            for caller in callers[:-1]:
                target, given = caller, (target, given, {})
            return callers[-1](target, given, {})

        return called

    def _trampoline(self, frame: types.FrameType) -> types.FunctionType:
        code = frame.f_code
        key = (id(code), frame.f_lasti)
        made = self._trampolines.get(key)
        if made is None or made.__globals__ is not frame.f_globals:
            template = _call.__code__.replace(
                co_filename=code.co_filename, co_firstlineno=frame.f_lineno or 1, co_name=TRAMPOLINE_NAME
            )
            made = self._trampolines[key] = types.FunctionType(template, frame.f_globals, TRAMPOLINE_NAME)
        return made


def _call(func, args, kwargs): return func(*args, **kwargs)  # fmt: skip  # noqa: E704  (one line: all of it has the caller's line number)


_Tensor = torch.Tensor
_is_grad_enabled = torch.is_grad_enabled
_storage_address = torch._C._storage_address
_gettrace = sys.gettrace
_REFUSALS = (RuntimeError, TypeError, ValueError, AttributeError)  # torch's
_USER, _LIBRARY, _TORCH = Origin.USER, Origin.LIBRARY, Origin.TORCH
_FURTHEST_WARNED = 4  # `nn.Softmax` without `dim` warns for the caller of its `forward`'s caller
# A tensor of any other class may have a `__torch_function__` of the program's, which must not see our questions.
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
_origins: dict[str, Origin] = {}


def _learn_origin(filename: str) -> Origin:
    origin = _origins[filename] = origin_of_file(filename)
    return origin


def _asking_module(frame: types.FrameType) -> int:
    """In a `Sequential` several modules write in the course of one line of the program: this says which."""
    if (_origins.get(frame.f_code.co_filename) or _learn_origin(frame.f_code.co_filename)).is_program:
        return 0
    module = frame.f_locals.get("self")
    return id(module) if isinstance(module, torch.nn.Module) else 0


def _program_stack(frame: types.FrameType | None) -> tuple[tuple[types.CodeType, int], ...]:
    """So that the `with torch.no_grad():` around a call can be found, however far out it stands."""
    found = []
    while frame is not None and len(found) < 12:
        if (_origins.get(frame.f_code.co_filename) or _learn_origin(frame.f_code.co_filename)).is_program:
            found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(found)


def _collect(values: typing.Iterable, found: list[torch.Tensor], depth: int) -> None:
    for value in values:
        if isinstance(value, _Tensor):
            found.append(value)
        elif depth and (type(value) is tuple or type(value) is list):
            _collect(value, found, depth - 1)


def _tensors_of(result: object) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    if isinstance(result, (tuple, list)):
        _collect(result, found, 2)
    return found


def _marks(tensors: typing.Sequence[torch.Tensor]) -> tuple[Mark, ...]:
    made = []
    for tensor in tensors:
        if type(tensor) not in _PLAIN and torch._C._is_torch_function_enabled():
            with torch._C.DisableTorchFunction():
                made += _marks((tensor,))
            continue
        try:
            made.append(_new(Mark, (
                id(tensor),
                _storage_address(tensor),
                tuple(tensor.shape),
                tensor.stride(),
                tensor.storage_offset(),
                tensor.dtype,
                tensor.device,
                -1 if tensor.is_inference() else tensor._version,
                tensor.requires_grad,
                tensor.is_leaf,
            )))  # fmt: skip
        except _REFUSALS as error:  # sparse, functorch wrappers, subclasses of any kind: less is known of them
            if type(tensor) in _PLAIN and was_in_the_program(error):  # a signal's handler has raised it
                raise
            made.append(_opaque_mark(tensor))
    return tuple(made)


def _version_of(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunction():
        return tensor._version


def _plain_index(index: object) -> object:
    """The index itself if it is made of numbers, slices, `...` and None only; it keeps nothing alive then."""
    parts = index if type(index) is tuple else (index,)
    for part in parts:
        if type(part) is slice:
            if not all(end is None or type(end) is int for end in (part.start, part.stop, part.step)):
                return None
        elif not (type(part) is int or part is None or part is Ellipsis):
            return None
    return index


def _opaque_mark(tensor: torch.Tensor) -> Mark:
    try:
        shape = tuple(int(size) for size in tensor.shape)
        return Mark(id(tensor), 0, shape, (), 0, tensor.dtype, tensor.device, -1, tensor.requires_grad, False)
    except _REFUSALS:
        return Mark(id(tensor), 0, (), (), 0, None, None, -1, False, False)

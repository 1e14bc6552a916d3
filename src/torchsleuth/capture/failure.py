"""Did torch raise this, and at which expression of which frame? Separates torch's failures from the program's own.

An exception is torch's when its traceback ends in torch's own Python code, or in an instruction of the program that
is no `raise` and that works on tensors: the operation log saw the call fail there, or the live operands say so.
"""

from __future__ import annotations

import ast
import functools
import re
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.evaluate import UNKNOWN, Evaluator, is_torch_function
from torchsleuth.capture.foreign_kinds import asked_of_no_tensor, plain_operand
from torchsleuth.capture.results import results_unpacked
from torchsleuth.capture.unpacked import unpacked
from torchsleuth.errors import message_of
from torchsleuth.evidence import Place
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of
from torchsleuth.record.oplog import Operation
from torchsleuth.record.recorder import STOPPED_WITH_PROGRAM
from torchsleuth.record.tracebacks import TRAMPOLINE_NAME

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_KINDS = (RuntimeError, IndexError, ValueError, TypeError, AssertionError, NotImplementedError, AttributeError)
# What Python itself raises as RuntimeError without a `raise` statement.
_PYTHONS_OWN = re.compile(
    r"changed size during iteration|generator raised StopIteration|coroutine|event loop|deque mutated|super\(\)|"
    r"cannot schedule new futures|can't start new thread|reentrant call|lost sys\.|dictionary keys changed|set changed"
)
# Words that only torch uses, for temporaries that nothing in sight can tell about.
_TORCHS_WORDS = re.compile(
    r"[Tt]ensor|non-singleton dimension|mat1 and mat2|out of bounds for dimension|Dimension out of range|scalar type|"
    r"invalid for input of size|einsum\(\)|dtype|\bat::|out of range in self|^[a-z]\w*\(\): |numel\(\)"
)
_CALL_IMPL = frozenset({"_wrapped_call_impl", "_call_impl"})


def place_at(code: types.CodeType, lasti: int, known: Known = Known.OBSERVED, via: Place | None = None) -> Place | None:
    """The expression of an instruction; of a loop or `with` statement only what it runs over."""
    where = source.instruction_range(code, lasti)
    node = source.expression_at(code.co_filename, where) if where is not None else None
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return source.place_of_node(code, node.iter, known, via)
    if isinstance(node, (ast.If, ast.While)):
        return source.place_of_node(code, node.test, known, via)
    if isinstance(node, ast.comprehension):
        return source.place_of_node(code, node.iter, known, via)
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return source.place_of_node(code, node.items[0].context_expr, known, via)
    return source.place(code, where, known, via)


class Entry:
    """One frame of the traceback with the expression that was running in it."""

    def __init__(self, frame: types.FrameType, lasti: int, position: int) -> None:
        self.frame, self.lasti, self.position = frame, lasti, position
        self.code = frame.f_code
        self.origin = origin_of(frame.f_code)

    @functools.cached_property
    def evaluator(self) -> Evaluator:
        return Evaluator(self.frame)

    @functools.cached_property
    def where(self) -> tuple[int, int, int, int] | None:
        return source.instruction_range(self.code, self.lasti)

    @functools.cached_property
    def node(self) -> ast.AST | None:
        """The expression or statement of the running instruction."""
        if self.where is None:
            return None
        node = source.expression_at(self.code.co_filename, self.where)
        while isinstance(node, (ast.Expr, ast.Module, ast.Expression, ast.Await)):
            node = node.body[0] if isinstance(node, ast.Module) and node.body else getattr(node, "value", None) or node.body
        return node

    def place(self, via: Place | None = None) -> Place | None:
        return place_at(self.code, self.lasti, Known.OBSERVED, via)

    @functools.cached_property
    def statement(self) -> ast.stmt | None:
        return source.statement_at(self.code.co_filename, self.where[0]) if self.where else None

    @property
    def raises_itself(self) -> bool:
        """The running instruction is a `raise` or a failed `assert` of this very code."""
        instruction = next((i for i in source.instructions(self.code) if i.offset == self.lasti), None)
        if instruction is not None and instruction.opname in ("RAISE_VARARGS", "RERAISE"):
            return True
        return isinstance(self.node, (ast.Raise, ast.Assert))


class Failure:
    """A failure of torch's, located. `of(crash)` is None where it is not torch's."""

    def __init__(self, crash: Crash, entries: list[Entry], program: Entry, user: Entry | None) -> None:
        self.crash = crash
        self.entries = entries
        self.program = program  # the program's innermost frame (user's or library's)
        self.user = user  # the user's own innermost frame
        self.inner = entries[-1]  # the innermost frame at all
        self.operation = _logged(crash, program)
        self.recorded = ""  # the operation's name, where it is known from elsewhere than the log
        for entry in entries:
            crash.will_release(entry)

    def place(self) -> Place | None:
        """The program's innermost expression, with the user's own call behind it."""
        via = self.user.place() if self.user is not None and self.user is not self.program else None
        return self.program.place(via)

    @property
    def torch_entries(self) -> list[Entry]:
        """torch's own frames below the program's, outermost first."""
        return self.entries[self.program.position + 1 :]

    @property
    def is_direct(self) -> bool:
        return self.inner is self.program

    @classmethod
    def at_the_users_call(cls, crash: Crash) -> Failure | None:
        """Everything below the user's own innermost frame counts as the library's, whoever raised."""
        entries = _without_ours(crash.entries)
        user = next((entry for entry in reversed(entries) if entry.origin is Origin.USER), None)
        return cls(crash, entries, user, user) if user is not None and user is not entries[-1] else None

    @classmethod
    def anywhere(cls, crash: Crash) -> Failure | None:
        """Where the program was, whoever raised: Python itself, for one."""
        entries = _without_ours(crash.entries)
        program = next((entry for entry in reversed(entries) if entry.origin.is_program), None)
        user = next((entry for entry in reversed(entries) if entry.origin is Origin.USER), None)
        return cls(crash, entries, program, user) if program is not None else None

    @classmethod
    def of(cls, crash: Crash) -> Failure | None:
        error = crash.error
        if not isinstance(error, _KINDS) and not (type(error).__module__ or "").startswith("torch"):
            return None
        entries = _without_ours(crash.entries)
        program = next((entry for entry in reversed(entries) if entry.origin.is_program), None)
        if program is None:
            return None
        user = next((entry for entry in reversed(entries) if entry.origin is Origin.USER), None)
        inner = entries[-1]
        if inner.origin is Origin.STDLIB:
            # `concurrent.futures` re-raises what a worker thread raised with its traceback intact: then the innermost
            # frame is torch's or the program's. Ending in the standard library means that it raised.
            return None
        if isinstance(error, AssertionError) and any("/testing/" in entry.code.co_filename for entry in entries[program.position + 1 :]):
            return None  # `torch.testing.assert_close` found what it was asked to look for
        if isinstance(error, TypeError) and is_module_call(inner):
            return None  # the program's own `forward` was called with the wrong arguments: Python says that best
        asked = inner.origin is Origin.USER and (asked_of_no_tensor(error) or plain_operand(error, inner.node, inner.evaluator.value) is not None)
        if isinstance(error, AttributeError) and not asked and (inner.origin is not Origin.TORCH or inner.code.co_name == "__getattr__"):
            return None  # a misspelt name, not an operation that failed
        failure = cls(crash, entries, program, user)
        if inner.origin is Origin.TORCH or failure.operation is not None or asked:
            return failure
        if inner.raises_itself:
            return None
        if _works_on_tensors(error, inner) or unpacked(crash, inner) is not None:
            return failure
        return failure if results_unpacked(message_of(error), inner.statement, inner.evaluator) is not None else None


def _without_ours(frames: typing.Iterable[tuple[types.FrameType, int]]) -> list[Entry]:
    """The traceback without the frames of the operation log (an exception that the program handles still has them)."""
    kept: list[tuple[types.FrameType, int]] = []
    for frame, lasti in frames:
        code = frame.f_code
        if origin_of(code) is Origin.OURS:
            if code.co_name == "__torch_function__" and kept and kept[-1][0].f_code.co_name == "handle_torch_function":
                del kept[-2:]  # torch's Python function handed the call to the log first, and is there once more below
        elif code.co_name != TRAMPOLINE_NAME:
            kept.append((frame, lasti))
    return [Entry(frame, lasti, position) for position, (frame, lasti) in enumerate(kept)]


def _logged(crash: Crash, program: Entry) -> Operation | None:
    """The log's own entry for the failing call: that of this exception, or the newest at this very instruction, if it raised.

    Only where the log went on to the end: an older entry may tell of an exception that the program had handled.
    """
    if not log_ran_to_the_end(crash):
        return None
    newest = crash.timeline.operations[-400:][::-1]
    for operation in newest:  # another exception may have had its id, but none since it was raised
        if operation.raised == id(crash.error) and operation.code is program.code and operation.lasti == program.lasti:
            return operation
    for operation in newest:
        if operation.code is program.code and operation.lasti == program.lasti:
            return operation if operation.raised else None
    return None


def log_ran_to_the_end(crash: Crash) -> bool:
    log = crash.recording.log if crash.recording is not None else None
    return log is not None and log.reason in ("", STOPPED_WITH_PROGRAM)


_PYTHONS_INDEXING = re.compile(
    r"(list|tuple) (assignment )?index out of range|(list|tuple) indices must be integers or slices|values to unpack"
)


def container_of(error: BaseException, entry: Entry) -> typing.Any:
    """For Python's own indexing errors: the list of tensors, or the shape of a tensor, that was indexed or unpacked."""
    if not _PYTHONS_INDEXING.search(message_of(error)):
        return None
    node = entry.node
    if isinstance(node, ast.Subscript):
        value = entry.evaluator.value(node.value)
    elif "unpack" in message_of(error) and isinstance(entry.statement, ast.Assign):
        value = entry.evaluator.value(entry.statement.value)
    else:
        return None
    if isinstance(value, torch.Size) or isinstance(value, torch.Tensor) and "unpack" in message_of(error):
        return value
    if type(value) in (list, tuple) and value and all(isinstance(item, torch.Tensor) for item in value):
        return value
    return None


def _works_on_tensors(error: BaseException, entry: Entry) -> bool:
    message = message_of(error)
    if _PYTHONS_INDEXING.search(message):
        return container_of(error, entry) is not None
    if _PYTHONS_OWN.search(message):
        return False
    involved, unknown = [], False
    for value in _involved(entry):
        if value is UNKNOWN:
            unknown = True
        else:
            involved.append(value)
    if isinstance(error, TypeError) and _calls_program(entry):
        return False  # Python itself found the arguments wrong: the function has not even begun
    if any(_is_torch_thing(value) for value in involved):
        return type(error) is not TypeError or bool(_TORCHS_WORDS.search(message) or _names_torch_call(entry, message))
    return unknown and isinstance(error, (RuntimeError, IndexError)) and bool(_TORCHS_WORDS.search(message))


def _calls_program(entry: Entry) -> bool:
    """The failing instruction calls a Python function, method or class that is not torch's."""
    if not isinstance(entry.node, ast.Call):
        return False
    called = entry.evaluator.value(entry.node.func)
    called = called.func if isinstance(called, functools.partial) else called
    if isinstance(called, type):
        return (called.__module__ or "").split(".", 1)[0] not in ("torch", "builtins")
    function = getattr(called, "__func__", called) if isinstance(called, (types.FunctionType, types.MethodType)) else None
    return isinstance(function, types.FunctionType) and origin_of(function.__code__) is not Origin.TORCH


def _names_torch_call(entry: Entry, message: str) -> bool:
    """`TypeError: sum() received an invalid combination of arguments`: the function that complains is the one called here."""
    node = entry.node
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return message.startswith(f"{name}()") or "invalid combination of arguments" in message
    return isinstance(node, (ast.BinOp, ast.Subscript, ast.AugAssign, ast.UnaryOp, ast.Compare))


def _involved(entry: Entry) -> typing.Iterator[typing.Any]:
    """The values that the failing instruction works on, as far as they can be had."""
    node, evaluator = entry.node, entry.evaluator
    if isinstance(node, ast.BinOp):
        parts: list[ast.AST] = [node.left, node.right]
    elif isinstance(node, ast.AugAssign):
        parts = [node.target, node.value]
    elif isinstance(node, ast.Compare):
        parts = [node.left, *node.comparators]
    elif isinstance(node, ast.UnaryOp):
        parts = [node.operand]
    elif isinstance(node, ast.Subscript):
        parts = [node.value]
    elif isinstance(node, ast.Attribute):
        parts = [node.value]
    elif isinstance(node, ast.Call):
        parts = [node.func.value, node.func] if isinstance(node.func, ast.Attribute) else [node.func, *node.args]
    elif isinstance(node, ast.expr):
        parts = [node]
    elif isinstance(node, (ast.If, ast.While, ast.Assert)):
        parts = [node.test]
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        parts = [node.iter]
    else:
        parts = []
    for part in parts:
        yield evaluator.value(part)


def _is_torch_thing(value: object) -> bool:
    return isinstance(value, (torch.Tensor, torch.nn.Module)) or is_torch_function(value)


def is_module_call(entry: Entry) -> bool:
    return entry.code.co_name in _CALL_IMPL and entry.code.co_filename.endswith("module.py")

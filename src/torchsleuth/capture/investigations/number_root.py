"""`loss.backward()` where `loss` is a plain number: what it holds, and which call took the number out of a tensor."""

from __future__ import annotations

import ast
import numbers
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.live_values import values_of
from torchsleuth.capture.operand_sources import operand_name
from torchsleuth.capture.syntax import feeding_statements, node_at, returns_of
from torchsleuth.evidence import GradientCut, NumberRoot, TensorFact
from torchsleuth.probe.tensors import dtype_name
from torchsleuth.record.oplog import Operation

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_TO_PYTHON = {"item", "tolist", "numpy", "__float__", "__int__", "__array__", "detach"}  # numpy takes what was detached before
_DEPTH = 2  # calls into functions of the program


def investigate(crash: Crash) -> NumberRoot | None:
    entry = crash.user_entry()
    node = node_at(entry[0].f_code, entry[1]) if entry is not None and crash.entries[-1][0] is entry[0] else None
    node = node.func if isinstance(node, ast.Call) else node
    if not isinstance(node, ast.Attribute) or node.attr != "backward":
        return None
    code = entry[0].f_code
    values = values_of(crash, code, node.value)
    call = source.place_of_node(code, node)
    if call is None or len(values) != 1 or not isinstance(values[0], numbers.Number) and type(values[0]).__module__ != "numpy":
        return None
    value = f"{float(values[0]):.4g}" if isinstance(values[0], numbers.Real) else ""
    kind = type(values[0]).__name__ if type(values[0]).__module__ == "builtins" else f"numpy.{type(values[0]).__name__}"
    return NumberRoot(ast.unparse(node.value), kind, value, call, tuple(_cuts(crash, code, node)))


def _cuts(crash: Crash, code: types.CodeType, node: ast.Attribute) -> list[GradientCut]:
    """Calls since the last backward that handed values of a tensor with history to Python, in a statement that the number was
    computed by: of the same function, or of one that is called there and on the way to what that returns."""
    done = max((op.index for op in crash.timeline.operations if op.name == "backward" and not op.raised), default=-1)
    taken = [op for op in crash.timeline.operations if op.index > done and op.name in _TO_PYTHON and any(mark.requires_grad for mark in op.operands)]
    found: dict[object, GradientCut] = {}
    pending = [(code, feeding_statements(code, node.value, node.lineno), _DEPTH)]
    seen: set[types.CodeType] = set()
    while pending:
        where, statements, depth = pending.pop()
        if where in seen:
            continue
        seen.add(where)
        for op in taken:
            # A comprehension is code of its own, and stands in a statement of this one.
            range_ = source.instruction_range(op.user_code, op.user_lasti) if op.user_code.co_filename == where.co_filename else None
            statement = source.statement_at(where.co_filename, range_[0]) if range_ is not None else None
            place = crash.timeline.place_of_operation(op)
            if statement in statements and place is not None:
                found.setdefault(place.span, GradientCut(op.name, "python", place, _losing(crash, op)))
        for call in (inner for statement in statements for inner in ast.walk(statement) if isinstance(inner, ast.Call) and depth):
            for inner in (_code_of(value) for value in values_of(crash, where, call.func)):
                returns = returns_of(inner) if inner is not None else []
                feeding = [s for item in returns if item.value is not None for s in (*feeding_statements(inner, item.value, item.lineno), item)]
                pending += [(inner, feeding, depth - 1)] if feeding else []
    return list(found.values())


def _losing(crash: Crash, operation: Operation) -> TensorFact:
    position, mark = next((at, mark) for at, mark in enumerate(operation.operands) if mark.requires_grad)
    return TensorFact(operand_name(crash, operation, position), mark.shape, dtype_name(mark.dtype), "", True, mark.is_leaf, "variable")


def _code_of(value: object) -> types.CodeType | None:
    """The code that a call of this runs: a function's, a method's, a module's `forward`, an object's `__call__`."""
    function = getattr(type(value), "forward", None) if isinstance(value, torch.nn.Module) else getattr(value, "__func__", value)
    if not isinstance(function, types.FunctionType) and not isinstance(value, (type, types.BuiltinFunctionType)):
        function = getattr(type(value), "__call__", None)
    return function.__code__ if isinstance(function, types.FunctionType) else None

"""Writes by the lines that ran and their syntax, and what the targets stand for now: what they say is *inferred*."""

from __future__ import annotations

import ast
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.live_values import values_of
from torchsleuth.evidence import WriteSite
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of
from torchsleuth.probe.tensors import shares_memory
from torchsleuth.record.ring import Kind

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_MOST_EVENTS = 300_000  # looked back over for the syntax of writes
_NAMESPACES = ("torch", "init", "functional", "F")  # `nn.init.zeros_(weight)` is a function and no method


def writes_by_syntax(crash: Crash, tensor: torch.Tensor, sequence: int) -> tuple[list[WriteSite], list[WriteSite]]:
    """Lines that ran since the save and whose syntax is a write: with a target that shares the memory, and with one
    that can no longer be read (its function has returned)."""
    if crash.recording is None:
        return [], []
    times: dict[tuple[int, int], int] = {}
    codes: dict[int, types.CodeType] = {}
    saving: tuple[int, int] | None = None
    for count, event in enumerate(crash.timeline.events_since(sequence)):
        if count == 0:
            saving = (id(event.code), event.where)
        if event.kind is Kind.LINE:
            times[(id(event.code), event.where)] = times.get((id(event.code), event.where), 0) + 1
            codes[id(event.code)] = event.code
        if count > _MOST_EVENTS:
            break
    reached, unknown = [], []
    for (code_id, line), count in times.items():
        code = codes[code_id]
        statement = source.statement_at(code.co_filename, line)
        if statement is None or statement.lineno != line:
            continue
        for target, node, how in written_targets(statement):
            if how == "call" and count == 1 and (code_id, line) == saving:
                continue  # the very call that saved it
            answer = _reaches(crash, code, target, how, tensor)
            place = source.place_of_node(code, node, Known.INFERRED)
            if answer is False or place is None:
                continue
            site = WriteSite(how, place, count, None, None, None, target=ast.unparse(target), steps=count * max(1, len(_chain(node))))
            (reached if answer else unknown).append(site)
    return reached, unknown


def written_targets(statement: ast.stmt) -> typing.Iterator[tuple[ast.expr, ast.AST, str]]:
    """(expression written into, node to show, operation) for every write that the syntax of a statement shows."""
    if isinstance(statement, ast.AugAssign):
        target = statement.target
        yield (target.value if isinstance(target, ast.Subscript) else target), statement, "in-place operator"
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Subscript):
                yield target.value, target, "__setitem__"
    nested = [statement] if not hasattr(statement, "body") else []
    for top in nested:
        beginnings: set[ast.AST] = set()  # of `x.mul_(2).add_(1)`: it is one expression that writes twice
        for node in ast.walk(top):
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            if isinstance(function, ast.Attribute):
                if node in beginnings:
                    continue
                if function.attr.endswith("_") and not function.attr.endswith("__") and function.attr != "requires_grad_":
                    beginnings.update(_chain(node)[1:])
                    is_function = ast.unparse(function.value).rpartition(".")[2] in _NAMESPACES
                    for written in node.args[:1] if is_function else [_written_through(function.value)]:
                        yield written, node, function.attr
                elif function.attr == "step":
                    yield function.value, node, "step"
                    for argument in node.args[:1]:  # `scaler.step(optimizer)`
                        yield argument, node, "step"
                elif function.attr == "load_state_dict":
                    yield function.value, node, "load_state_dict"
            yield function, node, "call"
            for keyword in node.keywords:
                if keyword.arg == "out":
                    yield keyword.value, node, "out="
                elif keyword.arg == "inplace" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True:
                    for argument in node.args[:1]:
                        yield argument, node, "inplace=True"


def _chain(node: ast.AST) -> list[ast.Call]:
    """`x.mul_(2).add_(1)` and `x.mul_(2)`: an in-place method returns the tensor that it wrote into."""
    found: list[ast.Call] = []
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
        found.append(node)
        node = node.func.value
    return found


def _written_through(target: ast.expr) -> ast.expr:
    """`x` of `x.mul_(2).add_(1)`."""
    chain = _chain(target)
    return chain[-1].func.value if chain else target


def _reaches(crash: Crash, code: types.CodeType, target: ast.expr, how: str, tensor: torch.Tensor) -> bool | None:
    """None where the target cannot be read any more."""
    values = values_of(crash, code, target)
    if not values:
        return False if how == "call" or origin_of(code) is not Origin.USER else None
    for value in values:
        if how == "step":
            if isinstance(value, torch.optim.Optimizer) and any(
                shares_memory(parameter, tensor) for group in value.param_groups for parameter in group["params"]
            ):
                return True
        elif how == "load_state_dict":
            if isinstance(value, torch.nn.Module) and any(shares_memory(held, tensor) for held in (*value.parameters(), *value.buffers())):
                return True
        elif how == "call":
            if isinstance(value, torch.nn.Module) and any(getattr(sub, "inplace", False) is True for sub in value.modules()):
                return True
        elif isinstance(value, torch.Tensor) and shares_memory(value, tensor):
            return True
    return False

"""What an expression of the source stands for now: in the frames that are still there, or in live objects of its class."""

from __future__ import annotations

import ast
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.bindings import function_node
from torchsleuth.capture.scopes import bound_to, parameter_of
from torchsleuth.origin import Origin, origin_of
from torchsleuth.probe.names import locals_of

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_MOST_OWNERS, _DEEPEST_OWNER = 2000, 3  # of plain objects looked through


def values_of(crash: Crash, code: types.CodeType, expression: ast.expr) -> list[object]:
    """What the expression stands for in the live frames of this code, or in live objects of its class."""
    found = []
    for frame, _ in crash.entries:
        if frame.f_code is code:
            scope = {**frame.f_globals, **locals_of(frame)}
            value = _resolved(expression, scope)
            if value is not None:
                found.append(value)
    found.extend(_looped_over(crash, code, expression))
    if not found and isinstance(expression, (ast.Attribute, ast.Subscript, ast.Name)):
        for owner in _owners(crash, lambda kind: _defines(kind, code)):
            value = _resolved(expression, {"self": owner})
            if value is not None:
                found.append(value)
    return found


def in_objects(crash: Crash, filename: str, scope: ast.AST, expression: ast.expr) -> list[object]:
    """What an expression in a method stands for in the live objects of its class; in another function, what its global names do."""
    root = expression
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    if not isinstance(root, ast.Name):
        return []
    if isinstance(scope, ast.FunctionDef) and scope.args.args and root.id == scope.args.args[0].arg:
        owners = _owners(crash, lambda kind: _has_method(kind, filename, scope))
        return [value for owner in owners if (value := _resolved(expression, {root.id: owner})) is not None]
    if parameter_of(scope, root.id) is not None or not isinstance(scope, ast.Module) and bound_to(scope, root.id):
        return []
    for frame, _ in crash.entries:
        if frame.f_code.co_filename == filename and root.id in frame.f_globals:
            value = _resolved(expression, frame.f_globals)
            return [value] if value is not None else []
    return []


def _has_method(kind: type, filename: str, scope: ast.FunctionDef) -> bool:
    code = _code_of(vars(kind).get(scope.name))
    return code is not None and code.co_filename == filename and function_node(code) is scope


def _owners(crash: Crash, defines: typing.Callable[[type], bool]) -> list[object]:
    """Live objects of a class with a certain method: modules, and what the variables in sight and their attributes hold."""
    modules = [module for _, root in crash.names.modules for module in root.modules() if defines(type(module))]
    if modules:
        return modules
    known: dict[int, object] = {}
    pending = [value for frame, _ in crash.entries if origin_of(frame.f_code) is Origin.USER for value in (*locals_of(frame).values(), *frame.f_globals.values())]
    for _ in range(_DEEPEST_OWNER):
        plain = [value for value in pending if id(value) not in known and type(type(value)) is type and isinstance(getattr(value, "__dict__", None), dict)]
        plain = [value for value in plain if not isinstance(value, (type, types.ModuleType, types.FunctionType, torch.Tensor))]
        known.update((id(value), value) for value in plain[:_MOST_OWNERS])
        pending = [held for value in plain[:_MOST_OWNERS] for held in vars(value).values()]
    return [value for value in known.values() if defines(type(value))]


def _looped_over(crash: Crash, code: types.CodeType, expression: ast.expr) -> list[object]:
    """For the variable of `for p in net.parameters():`, every parameter: the variable itself holds only the last one."""
    tree = source.tree_of(code.co_filename)
    if not isinstance(expression, ast.Name) or tree is None:
        return []
    found: list[object] = []
    for loop in ast.walk(tree):
        if not isinstance(loop, ast.For) or not loop.lineno <= expression.lineno <= (loop.end_lineno or loop.lineno):
            continue
        names = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
        call = loop.iter
        if expression.id in names and isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            if call.func.attr in ("parameters", "named_parameters", "buffers", "named_buffers"):
                for owner in values_of(crash, code, call.func.value):
                    if isinstance(owner, torch.nn.Module):
                        found += [*owner.parameters(), *owner.buffers()]
    return found


def _resolved(expression: ast.expr, scope: dict[str, object]) -> object:
    """Names, attributes of plain objects and constant subscripts only: nothing that could run user code."""
    if isinstance(expression, ast.Name):
        return scope.get(expression.id)
    if isinstance(expression, ast.Attribute):
        owner = _resolved(expression.value, scope)
        if owner is None:
            return None
        if isinstance(owner, torch.nn.Module):
            for table in ("_parameters", "_buffers", "_modules"):
                if expression.attr in owner.__dict__.get(table, {}):
                    return owner.__dict__[table][expression.attr]
        if isinstance(owner, torch.Tensor):
            return owner if expression.attr in ("data", "T", "mT") else None
        return getattr(owner, "__dict__", {}).get(expression.attr)
    if isinstance(expression, ast.Subscript):
        owner = _resolved(expression.value, scope)
        if isinstance(owner, torch.Tensor):
            return owner
        if isinstance(expression.slice, ast.Constant) and isinstance(owner, (list, tuple, dict)):
            try:
                return owner[expression.slice.value]
            except (KeyError, IndexError, TypeError):
                return None
    return None


def _defines(cls: type, code: types.CodeType) -> bool:
    return any(_code_of(value) is code for base in cls.__mro__ for value in vars(base).values())


def _code_of(value: object) -> types.CodeType | None:
    """Of a function, behind decorators such as `torch.no_grad()` too."""
    value = getattr(value, "__func__", value) if isinstance(value, (staticmethod, classmethod)) else value
    for _ in range(8):
        inner = vars(value).get("__wrapped__") if isinstance(value, types.FunctionType) else None
        if inner is None:
            break
        value = inner
    return getattr(value, "__code__", None)

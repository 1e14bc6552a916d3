"""Calls that are over, as the log noted them: the function that ran, the call that ran it, and the one around that."""

from __future__ import annotations

import ast
import types
import typing

from torchsleuth import source
from torchsleuth.bindings import function_node


class Frame(typing.NamedTuple):
    """A call that is over: its code, and the call expression of the one that made it."""

    filename: str
    scope: ast.AST  # the function's definition, or the module
    name: str
    call: ast.Call | None  # the call that ran it, in `outer`
    outer: Frame | None
    arguments: str = ""  # how the call's arguments lie: "" plain, "self" for the first parameter left out
    made: tuple[ast.Call, Frame] | None = None  # for a method: the call that made its object, and where that stands


def frames_of(stack: typing.Sequence[tuple[types.CodeType, int]]) -> Frame | None:
    """From the program's frames as they were noted, innermost first."""
    outer: Frame | None = None
    inside: tuple[types.CodeType, int] | None = None
    for code, lasti in reversed(stack):
        scope = function_node(code)
        if scope is None and code.co_name.startswith("<") and inside is not None and outer is not None:
            inside = (code, lasti)  # a comprehension's own frame (up to Python 3.11): its names lie in the function's
            continue
        if scope is None:
            return None
        call = node_in(*inside) if inside is not None else None
        call = call if isinstance(call, ast.Call) and _may_call(call, code.co_name) else None
        known = outer if call is not None else None
        outer = Frame(code.co_filename, scope, getattr(code, "co_qualname", code.co_name), call, known, _binding_of(code, scope))
        inside = (code, lasti)
    return outer


def _may_call(call: ast.Call, name: str) -> bool:
    """Between two frames of the program a library's may stand: `DataLoader(Data())` did not call `__getitem__` with its own arguments."""
    if name in ("forward", "__call__", "__init__", "__new__", "<lambda>"):
        return True  # called by another name
    return (call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")) == name


def frame_at(filename: str, node: ast.AST, name: str = "") -> Frame | None:
    """The function around an expression, where nobody has noted who called it."""
    tree = source.tree_of(filename)
    if tree is None:
        return None
    scope: ast.AST = tree
    for candidate in ast.walk(tree):
        if isinstance(candidate, (ast.FunctionDef, ast.AsyncFunctionDef)) and any(inner is node for inner in ast.walk(candidate)):
            scope = candidate  # the walk goes outside in
    word = "self" if isinstance(scope, ast.FunctionDef) and [a.arg for a in scope.args.args][:1] in (["self"], ["cls"]) else ""
    return Frame(filename, scope, name or getattr(scope, "name", ""), None, None, word)


def node_in(code: types.CodeType, lasti: int) -> ast.AST | None:
    where = source.instruction_range(code, lasti)
    node = source.expression_at(code.co_filename, where) if where is not None else None
    while isinstance(node, (ast.Expr, ast.Await)):
        node = node.value
    return node


def _binding_of(code: types.CodeType, scope: ast.AST) -> str:
    first = code.co_varnames[0] if code.co_argcount else ""
    return "self" if first in ("self", "cls") and not isinstance(scope, ast.Module) else ""

"""Tensors that came into being unseen (`torch.from_numpy`) and are kept in an object: what its class sets the attribute to."""

from __future__ import annotations

import ast
import types

from torchsleuth import source
from torchsleuth.bindings import function_node
from torchsleuth.capture.imported import definition_of
from torchsleuth.capture.returns import bound_at, is_unseen, unseen_result
from torchsleuth.capture.scopes import class_of, first_parameter, stored_in
from torchsleuth.capture.unlogged import operation_word, stand_in
from torchsleuth.evidence_forward import Made
from torchsleuth.model import Known


def kept_unseen(method: types.CodeType, node: ast.AST | None) -> Made | None:
    """For `self.x` or `self.x[i]` in a method: the unseen constructor of that tensor, where the class sets it in one place."""
    while isinstance(node, ast.Subscript):
        node = node.value
    filename, scope = method.co_filename, function_node(method)
    owner = class_of(filename, scope) if scope is not None and isinstance(node, ast.Attribute) else None
    if owner is None or not isinstance(node, ast.Attribute) or getattr(node.value, "id", "") != first_parameter(scope):  # type: ignore[arg-type]
        return None
    methods = [item for item in owner.body if isinstance(item, ast.FunctionDef)]
    stored = [(where, statement, *found) for where in methods for statement in ast.walk(where) for found in stored_in(statement, first_parameter(where), node.attr)]
    if len(stored) != 1:
        return None
    where, statement, value, selectors = stored[0]
    if isinstance(value, ast.Name) and not selectors:
        value = bound_at(where, value.id, statement)
    found = _constructor(filename, value, selectors[0] if selectors else None)
    if found is None:
        return None
    home, constructor, function = found
    place = source.place_of_node(stand_in(home, function or f"{owner.name}.{where.name}"), constructor, Known.INFERRED)
    return Made(operation_word(constructor), place) if place is not None else None


def _constructor(filename: str, value: ast.AST | None, position: int | None) -> tuple[str, ast.Call, str] | None:
    """The constructor itself, or the one whose tensor a function of the program's returns."""
    if position is None and is_unseen(value):
        return filename, value, ""  # type: ignore[return-value]
    if isinstance(value, ast.Tuple) and position is not None:
        part = value.elts[position] if position < len(value.elts) else None
        return (filename, part, "") if is_unseen(part) else None  # type: ignore[return-value]
    called = definition_of(filename, value.func) if isinstance(value, ast.Call) else None
    if called is None or not isinstance(called[1], ast.FunctionDef) or called[1].decorator_list:
        return None
    if any(isinstance(inner, (ast.Yield, ast.YieldFrom)) for inner in ast.walk(called[1])):
        return None
    found = unseen_result(called[1], position)
    return (called[0], found, called[1].name) if found is not None else None

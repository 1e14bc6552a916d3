"""Which statements of its class set an attribute of a live object."""

from __future__ import annotations

import ast
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.bindings import function_node, returns_of
from torchsleuth.origin import Origin


def attribute_definition(owner: object, name: str) -> tuple[types.CodeType, ast.AST] | None:
    """The one `self.name = …` in the class of a live object of the program's own."""
    found = _assignments(owner, name)
    if len(found) > 1:  # `self.state = None` in the constructor is no value to ask about
        found = [(code, statement) for code, statement in found if not (isinstance(statement.value, ast.Constant) and statement.value.value is None)]
    return (found[0][0], found[0][1].value) if len(found) == 1 and not isinstance(found[0][1], ast.AugAssign) else None


def kept_as_plain_attribute(value_of: typing.Callable[[ast.AST], object], node: ast.AST | None) -> tuple[types.CodeType, ast.AST] | None:
    """For `self.table[:n]`, where `table` is a tensor that its module does not know as a buffer: what the class sets it to."""
    while node is not None:
        if isinstance(node, ast.Attribute):
            owner = value_of(node.value)
            if isinstance(owner, torch.nn.Module) and isinstance(vars(owner).get(node.attr), torch.Tensor):
                return attribute_definition(owner, node.attr)
        node = node.func if isinstance(node, ast.Call) else node.value if isinstance(node, (ast.Attribute, ast.Subscript)) else None
    return None


def counted(owner: object, name: str) -> tuple[types.CodeType, ast.AST] | None:
    """The one `self.name += …` of a counter, in a class that else sets it to constants only."""
    found = _assignments(owner, name)
    steps = [(code, statement) for code, statement in found if isinstance(statement, ast.AugAssign)]
    others = [statement for _, statement in found if not isinstance(statement, ast.AugAssign)]
    if len(steps) == 1 and all(isinstance(statement.value, ast.Constant) for statement in others):
        return steps[0]
    return None


def computed(owner: object, name: str) -> tuple[types.CodeType, ast.AST] | None:
    """What a property of a class of the program's returns, where it has one `return`."""
    asked = next((vars(base)[name] for base in type(owner).__mro__ if name in vars(base)), None) if _is_programs_class(type(owner)) else None
    function = asked.fget if isinstance(asked, property) else getattr(asked, "func", None)  # a `functools.cached_property`
    code = getattr(function, "__code__", None)
    scope = function_node(code) if isinstance(code, types.CodeType) and source.origin_of(code) is Origin.USER else None
    returns = [statement.value for statement in returns_of(scope)] if scope is not None else []
    return (code, returns[0]) if len(returns) == 1 and returns[0] is not None else None


def _assignments(owner: object, name: str) -> list[tuple[types.CodeType, typing.Any]]:
    """Every statement of the owner's class, or else of the nearest base, that assigns to the attribute."""
    if not isinstance(owner, torch.nn.Module) and not _is_programs_class(type(owner)):
        return []
    for base in type(owner).__mro__:
        found = []
        for function in vars(base).values():
            code = getattr(function, "__code__", None)
            if code is None or not isinstance(function, types.FunctionType):
                continue
            scope = function_node(code)
            if scope is None or source.origin_of(code) not in (Origin.USER, Origin.LIBRARY):
                continue
            first = code.co_varnames[0] if code.co_argcount else "self"
            for statement in ast.walk(scope):
                targets = statement.targets if isinstance(statement, ast.Assign) else (
                    [statement.target] if isinstance(statement, (ast.AnnAssign, ast.AugAssign)) and statement.value is not None else [])  # fmt: skip
                for target in targets:
                    if isinstance(target, ast.Attribute) and target.attr == name and isinstance(target.value, ast.Name):
                        if target.value.id == first:
                            found.append((code, statement))
        if found:
            return found
    return []


def _is_programs_class(cls: type) -> bool:
    return (cls.__module__ or "").split(".", 1)[0] not in ("torch", "builtins", "numpy", "typing", "collections")

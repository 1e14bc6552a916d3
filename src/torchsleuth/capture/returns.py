"""Into a function that has returned: the expression it returned, where syntax leaves only one.

`returned` is for tensors that came into being unseen. The log sees every operation but a few constructors, which torch does not
announce: `torch.from_numpy` and the constructors of the old style. Behind `X, y = load()` those are worth a look.
"""

from __future__ import annotations

import ast
import inspect
import types
import typing

from torchsleuth.bindings import bindings, function_node, returns_of
from torchsleuth.capture.scopes import parameter_of
from torchsleuth.origin import Origin, origin_of

# Constructors that no `TorchFunctionMode` is told of.
UNSEEN = frozenset({
    "from_numpy", "frombuffer", "Tensor", "FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "LongTensor", "IntTensor", "ShortTensor",
    "CharTensor", "ByteTensor", "BoolTensor",
})  # fmt: skip


def returned(function: typing.Any, scope: ast.AST | None, position: int | None) -> ast.Call | None:
    """The unseen constructor whose tensor a call of `function` gave back, alone or as one of several results."""
    if type(function) is not types.FunctionType or not isinstance(scope, ast.FunctionDef) or origin_of(function.__code__) is not Origin.USER:
        return None
    if function.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR) or hasattr(function, "__wrapped__"):
        return None
    return unseen_result(scope, position)


def unseen_result(scope: ast.FunctionDef, position: int | None) -> ast.Call | None:
    """The same for the syntax of a plain function alone."""
    returns = list(returns_of(scope))
    if len(returns) != 1:
        return None
    value = returns[0].value
    if position is not None:
        if not isinstance(value, ast.Tuple) or any(isinstance(element, ast.Starred) for element in value.elts) or position >= len(value.elts):
            return None
        value = value.elts[position]
    if isinstance(value, ast.Name):
        value = bound_at(scope, value.id, returns[0])
    return value if is_unseen(value) else None  # type: ignore[return-value]


def is_unseen(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in UNSEEN


def returned_part(code: types.CodeType, key: int | str | None) -> ast.AST | None:
    """The expression that a function returns, or puts at `key` of the tuple or dict it returns; its value, for a name bound once."""
    scope = function_node(code)
    returns = list(returns_of(scope)) if scope is not None else []
    value = returns[0].value if len(returns) == 1 else None
    if isinstance(key, int):
        parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
        value = parts[key] if key < len(parts) and not any(isinstance(part, ast.Starred) for part in parts) else value
    elif isinstance(key, str) and isinstance(value, ast.Dict):
        value = next((part for name, part in zip(value.keys, value.values) if isinstance(name, ast.Constant) and name.value == key), value)
    if isinstance(value, ast.Name):
        once = sum(bound[0] == value.id for bound in bindings(scope)) == 1
        found = bound_at(scope, value.id, returns[0])
        value = found if found is not None and (once or is_unseen(found)) else value
    return value


def bound_at(scope: ast.FunctionDef, name: str, statement: ast.stmt) -> ast.AST | None:
    """What a name was bound to when this statement ran: where it was bound but once, or last by one that always runs
    (`x, y = load()`, and then `x = torch.from_numpy(x)`)."""
    bound = [found for found in bindings(scope) if found[0] == name]
    last = bound[-1] if bound else None
    if last is None or last[3] != "assign" or last[1].lineno > statement.lineno:  # type: ignore[attr-defined]
        return None
    always = last[1] in scope.body and statement in scope.body
    return last[2] if always or len(bound) == 1 and parameter_of(scope, name) is None else None

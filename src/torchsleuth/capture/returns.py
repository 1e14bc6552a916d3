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
    returns = list(returns_of(scope))
    if len(returns) != 1:
        return None
    value = returns[0].value
    if position is not None:
        if not isinstance(value, ast.Tuple) or any(isinstance(element, ast.Starred) for element in value.elts) or position >= len(value.elts):
            return None
        value = value.elts[position]
    if isinstance(value, ast.Name):
        found = [bound for bound in bindings(scope) if bound[0] == value.id]
        if len(found) != 1 or found[0][3] != "assign" or value.id in inspect.getfullargspec(function).args:
            return None
        value = found[0][2]
    if isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
        return value if name in UNSEEN else None
    return None


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
        bound = [found for found in bindings(scope) if found[0] == value.id]
        value = bound[0][2] if len(bound) == 1 and bound[0][3] == "assign" else value
    return value

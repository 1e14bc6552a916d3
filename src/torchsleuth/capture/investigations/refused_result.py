"""A tensor that is no leaf where torch takes leaves only: for an optimizer, for `copy.deepcopy`, for a change of `requires_grad`."""

from __future__ import annotations

import ast
import typing

import torch

from torchsleuth.capture.failure import Failure
from torchsleuth.capture.investigations.backward_root import made_at
from torchsleuth.evidence import RefusedResult
from torchsleuth.probe import graph

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_HISTORY, _MOST_NAMED = 2000, 6


def investigate(crash: Crash) -> RefusedResult | None:
    failure = Failure.anywhere(crash)
    place = failure.user.place() if failure is not None and failure.user is not None else None
    found = _refused(crash, failure) if place is not None else None
    if found is None or found[0].grad_fn is None:
        return None
    tensor, wanted, asked = found
    variables = (getattr(node, "variable", None) for node in graph.walk([tensor.grad_fn], _HISTORY))
    named = (crash.names.by_id(id(variable)) for variable in variables if variable is not None)
    leaves = tuple(dict.fromkeys(item.name for item in named if item is not None))[:_MOST_NAMED]
    return RefusedResult(crash.names.fact(tensor), place, wanted, made_at(crash, tensor)[0], leaves, asked)


def _refused(crash: Crash, failure: Failure) -> tuple[torch.Tensor, str, bool] | None:
    for function, name, end, wanted in (("add_param_group", "param", "optimizer.py", "optimize"), ("__deepcopy__", "self", "_tensor.py", "copy")):
        found = crash.local(function, name, end)
        if isinstance(found, torch.Tensor):
            return found, wanted, False
    node, statement = failure.user.node, failure.user.statement
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_":
        owner, given = node.func.value, next(iter(node.args), None)
    elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute) and statement.targets[0].attr == "requires_grad":
        owner, given = statement.targets[0].value, statement.value
    else:
        return None
    value = failure.user.evaluator.value(owner)
    asked = given is None or failure.user.evaluator.value(given) is True
    return (value, "flag", asked) if isinstance(value, torch.Tensor) else None

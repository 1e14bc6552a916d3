"""`p.grad = value` that torch refused: the tensor, the value, and where that was computed."""

from __future__ import annotations

import ast
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.failure import Failure
from torchsleuth.capture.investigations.backward_root import made_at
from torchsleuth.evidence import AssignedGradient

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash


def investigate(crash: Crash) -> AssignedGradient | None:
    failure = Failure.anywhere(crash)
    entry = failure.user if failure is not None else None
    statement = entry.statement if entry is not None else None
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    if not isinstance(target, ast.Attribute) or target.attr != "grad":
        return None
    tensor, value = entry.evaluator.value(target.value), entry.evaluator.value(statement.value)
    use = source.place_of_node(entry.code, statement.value)
    if not isinstance(tensor, torch.Tensor) or use is None:
        return None
    fact = crash.names.fact(value) if isinstance(value, torch.Tensor) else None
    live = fact is not None and not entry.evaluator.is_recomputed(value)
    made = made_at(crash, value)[0] if live else None
    return AssignedGradient(crash.names.fact(tensor), ast.unparse(target.value), fact, ast.unparse(statement.value), use, made)

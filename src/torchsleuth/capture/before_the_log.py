"""Where an operand has its tensor from that came into being unseen (`torch.from_numpy`), before the call that the log saw first."""

from __future__ import annotations

import ast
import typing

import torch

from torchsleuth.capture.definitions import Definitions
from torchsleuth.capture.finished import node_in
from torchsleuth.capture.kept_unseen import kept_unseen
from torchsleuth.capture.returns import UNSEEN
from torchsleuth.evidence_forward import Made
from torchsleuth.origin import Origin, origin_of
from torchsleuth.record.oplog import Mark, Operation

if typing.TYPE_CHECKING:
    from torchsleuth.capture.failure import Failure


def made_before_the_log(failure: Failure, definitions: Definitions, operation: Operation, operand: Mark) -> Made | None:
    """What it was bound to in a frame that is still alive, or what the class of the object sets it to that keeps it."""
    call = node_in(operation.user_code, operation.user_lasti)
    for entry in failure.entries:
        if entry.code is not operation.user_code or entry.origin is not Origin.USER:
            continue
        for node in ast.iter_child_nodes(call) if call is not None else ():
            node = node.value if isinstance(call, ast.Call) and isinstance(node, ast.Attribute) and node is call.func else node
            value = entry.evaluator.value(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
            if isinstance(value, torch.Tensor) and id(value) == operand.ident and tuple(value.shape) == operand.shape:
                made = definitions.made(entry, node)
                return made if made is not None and made.operation in UNSEEN else kept_unseen(entry.code, node)
    receiver = call.value if isinstance(call, ast.Subscript) else call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
    is_first = operation.operands[:1] == (operand,) and origin_of(operation.user_code) is Origin.USER
    return kept_unseen(operation.user_code, receiver) if receiver is not None and is_first else None

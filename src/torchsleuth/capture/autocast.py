"""Results in a lower precision than what went in, as `torch.autocast` makes them: the call, and the context that was on."""

from __future__ import annotations

import ast
import dataclasses
import typing

from torchsleuth import source
from torchsleuth.capture.failure import Failure
from torchsleuth.capture.unlogged import stand_in
from torchsleuth.evidence_forward import Made
from torchsleuth.model import Known
from torchsleuth.origin import Origin
from torchsleuth.record.oplog import Mark, Operation

if typing.TYPE_CHECKING:
    from torchsleuth.capture.origins import Origins

_MOST_STEPS = 200
# These take operands of one dtype and give a result of it; what else comes out of them is autocast's doing.
_NEVER_CONVERT = frozenset(
    {"linear", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addbmm", "bilinear", "einsum"}
    | {"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "scaled_dot_product_attention"}
    | {"lstm", "gru", "rnn_tanh", "rnn_relu", "multi_head_attention_forward"}
)


def lowered(failure: Failure, origins: Origins, mark: Mark) -> Made | None:
    """The last call on the way to this tensor that gave its dtype to operands of another one, with the `autocast(...)` that was on."""
    found = _lowering(origins, mark)
    made = origins.made_by(found) if found is not None else None
    return dataclasses.replace(made, given=_context(failure)) if made is not None else None


def _lowering(origins: Origins, mark: Mark) -> Operation | None:
    before = origins.limit
    for _ in range(_MOST_STEPS):
        made = origins.producer(mark, before)
        if made is None or mark.dtype is None or not mark.dtype.is_floating_point:
            return None
        operation, _ = made
        others = [operand for operand in operation.operands if operand.dtype is not None and operand.dtype.is_floating_point and operand.dtype != mark.dtype]
        if operation.name in _NEVER_CONVERT and others:
            return operation
        same = [operand for operand in operation.operands if operand.dtype == mark.dtype]
        if not same or others:
            return None  # a cast, or a promotion
        mark, before = same[0], operation.index
    return None


def _context(failure: Failure) -> Made | None:
    """The one `autocast(...)` that the user's files use, where there is just one."""
    found = {}
    for entry in failure.entries:
        if entry.origin is Origin.USER and entry.code.co_filename not in found:
            tree = source.tree_of(entry.code.co_filename)
            found[entry.code.co_filename] = [call for node in (ast.walk(tree) if tree is not None else ()) for call in _contexts(node)]
    calls = [(filename, call) for filename, calls in found.items() for call in calls]
    if len(calls) != 1:
        return None
    filename, call = calls[0]
    place = source.place_of_node(stand_in(filename), call, Known.INFERRED)
    return Made("autocast", place) if place is not None else None


def _contexts(node: ast.AST) -> list[ast.expr]:
    taken = [item.context_expr for item in node.items] if isinstance(node, (ast.With, ast.AsyncWith)) else list(getattr(node, "decorator_list", ()))
    return [call for call in taken if isinstance(call, ast.Call) and getattr(call.func, "attr", getattr(call.func, "id", "")) == "autocast"]

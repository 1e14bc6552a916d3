"""The tensor on which autograd refused an in-place write: what it is and where it (or the view) was made."""

from __future__ import annotations

import ast
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.evaluate import Evaluator
from torchsleuth.capture.live_values import values_of
from torchsleuth.capture.writes_by_syntax import written_targets
from torchsleuth.evidence import InplaceTarget, Place
from torchsleuth.probe.graph import operation_of
from torchsleuth.probe.tensors import storage_of

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

def investigate(crash: Crash) -> InplaceTarget | None:
    place = crash.place_of_failure()
    if place is None:
        return None
    failed = crash.timeline.failing_operation()
    tensor, operation = None, ""
    if failed is not None and failed.operands:
        operation = failed.name
        for mark in failed.operands:  # an out= or in-place target is a leaf, or a view of one; take the first that fits
            named = crash.names.by_id(mark.ident)
            if named is not None and (named.tensor.requires_grad or named.tensor._base is not None):
                tensor = named.tensor
                break
    if tensor is None:
        tensor, operation = _by_syntax(crash, operation)
    if tensor is None:
        return None
    base = tensor._base
    made, made_by = _making(crash, tensor)
    return InplaceTarget(
        crash.names.fact(tensor), operation, place, made, made_by, crash.names.fact(base) if base is not None else None, _same_as(crash, tensor)
    )


def _same_as(crash: Crash, tensor: torch.Tensor) -> tuple[str, str] | None:
    """`average[k].mul_(0.9).add_(p, alpha=0.1)` where `average[k]` is `p` itself: meant to be two tensors, and one."""
    entry = crash.program_entry()
    where = source.instruction_range(entry[0].f_code, entry[1]) if entry is not None else None
    statement = source.statement_at(entry[0].f_code.co_filename, where[0]) if entry is not None and where else None
    if statement is None or hasattr(statement, "body"):
        return None
    evaluator = Evaluator(entry[0])
    texts: list[str] = []
    for node in ast.walk(statement):
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and evaluator.value(node) is tensor:
            texts.append(ast.unparse(node))
    written = next((ast.unparse(target) for target, _, _ in written_targets(statement) if ast.unparse(target) in texts), None)
    other = next((text for text in texts if text != written), None)
    return (written, other) if written is not None and other is not None else None


def _by_syntax(crash: Crash, operation: str) -> tuple[torch.Tensor | None, str]:
    entry = crash.program_entry()
    if entry is None:
        return None, operation
    frame, lasti = entry
    where = source.instruction_range(frame.f_code, lasti)
    filename = frame.f_code.co_filename
    statement = source.statement_at(filename, where[0]) if where else None
    tree = source.tree_of(filename)
    for node in ast.walk(tree) if tree is not None and where else ():
        # Of several on one line, `w -= a; b -= c`, the one that the instruction belongs to.
        if isinstance(node, ast.stmt) and not hasattr(node, "body") and node.lineno <= where[0] <= (node.end_lineno or node.lineno):
            whole = source.node_range(filename, node)
            if whole is not None and whole[:2] <= where[:2] and where[2:] <= whole[2:]:
                statement = node
    if statement is None:
        return None, operation
    for target, _, how in written_targets(statement):
        for value in values_of(crash, frame.f_code, target):
            if isinstance(value, torch.Tensor) and (value.requires_grad or value._base is not None):
                return value, operation or how
    return None, operation

def _making(crash: Crash, tensor: torch.Tensor) -> tuple[Place | None, str]:
    timeline = crash.timeline
    if tensor.grad_fn is not None:
        place = timeline.place_of_node(tensor.grad_fn)
        if place is not None:
            return place, operation_of(tensor.grad_fn.name())
    storage = storage_of(tensor)
    producer = timeline.maker(id(tensor), storage) or timeline.first_with_storage(storage)
    if producer is None or producer.raised:
        return None, ""
    return timeline.place_of_operation(producer), producer.name

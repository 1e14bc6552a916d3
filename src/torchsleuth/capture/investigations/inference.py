"""Tensors made under `inference_mode` that autograd was asked to work with."""

from __future__ import annotations

import ast
import typing

from torchsleuth import source
from torchsleuth.capture.operand_sources import operand_source
from torchsleuth.capture.syntax import enclosing_no_grad, node_at
from torchsleuth.evidence import GradientCut, Place, TensorFact
from torchsleuth.probe.tensors import dtype_name

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash
    from torchsleuth.record.oplog import Operation


def investigate(crash: Crash) -> tuple[GradientCut, ...]:
    """For each such operand of the failing call: where it was made, and under which `inference_mode`."""
    failed = crash.timeline.failing_operation()
    found = []
    for position, mark in enumerate(failed.operands if failed is not None else ()):
        named = crash.names.by_id(mark.ident)
        if named is not None and not named.tensor.is_inference():
            continue
        producer = crash.timeline.producer(mark.ident, mark.storage, failed.index)
        place = crash.timeline.place_of_operation(producer) if producer is not None else None
        if place is None:
            continue
        wrapper = _wrapper(producer)
        if named is None and (wrapper is None or "inference_mode" not in wrapper.source or producer.grad_enabled):
            continue  # no variable holds it that could be asked
        name = named.name if named is not None else _operand(crash, failed, position)
        fact = TensorFact(name, mark.shape, dtype_name(mark.dtype), str(mark.device), False, True)
        found.append(GradientCut(producer.name, "inference", place.via or place, fact, wrapper))
    return tuple(found)


def _operand(crash: Crash, operation: Operation, position: int) -> str:
    """The operand as the source has it; what a module works on first is its one argument."""
    expression, call = operand_source(crash, operation, position), node_at(operation.code, operation.lasti)
    if expression is None and position == 0 and isinstance(call, ast.Call) and len(call.args) == 1 and not call.keywords:
        expression = call.args[0]
    text = ast.unparse(expression) if expression is not None else ""
    return text if len(text) <= 40 else ""


def _wrapper(operation: Operation) -> Place | None:
    for code, lasti in operation.stack if not operation.grad_enabled else ():
        node = enclosing_no_grad(code, lasti)
        if node is not None:
            return source.place_of_node(code, node)
    return None

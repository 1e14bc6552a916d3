"""Tensors made under `inference_mode` that autograd was asked to work with."""

from __future__ import annotations

import typing

from torchsleuth import source
from torchsleuth.capture.syntax import enclosing_no_grad, node_at, operand_expressions, simple_text
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
        if named is None or not named.tensor.is_inference():
            continue
        producer = crash.timeline.producer(mark.ident, mark.storage, failed.index)
        place = crash.timeline.place_of_operation(producer) if producer is not None else None
        if place is None:
            continue
        fact = TensorFact(
            named.name or simple_text(_operand(failed, position)), mark.shape, dtype_name(mark.dtype), str(mark.device), False, True
        )
        found.append(GradientCut(producer.name, "inference", place.via or place, fact, _wrapper(producer)))
    return tuple(found)


def _operand(operation: Operation, position: int):
    operands = operand_expressions(node_at(operation.code, operation.lasti))
    return operands[position] if position < len(operands) else None


def _wrapper(operation: Operation) -> Place | None:
    for code, lasti in operation.stack:
        node = enclosing_no_grad(code, lasti)
        if node is not None:
            return source.place_of_node(code, node)
    return None

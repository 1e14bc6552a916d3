"""A backward that went further than it had to: into weights that were not updated after it, and that another one is for.

The discriminator's loss is computed on `fake` itself, so its backward goes through the generator and frees that graph;
then only the discriminator's optimizer steps. The generator's own backward finds it gone.
"""

from __future__ import annotations

import typing

from torchsleuth.evidence import Place
from torchsleuth.probe import graph
from torchsleuth.record.oplog import Mark, Operation

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash


def needless_use(crash: Crash, older: typing.Any, first: int) -> tuple[Place, tuple[str, ...]] | None:
    """(the expression that took the result of node `older` into the backward that the log has at index `first`, the weights
    behind it), where an optimizer has updated others since, and the gradients that these got are gone (`zero_grad()`)."""
    operations = crash.timeline.operations
    behind = {id(node.variable): node.variable for node in graph.walk([older], 20_000) if hasattr(node, "variable")}
    held = [{id(p) for group in optimizer.param_groups for p in group["params"]} for _, optimizer in crash.names.optimizers]
    written = {mark.ident for operation in operations if operation.index > first for mark in _written(operation) if mark.is_leaf}
    stepped = {ident for idents in held for ident in idents if ident in written}
    if not stepped or stepped & set(behind) or not any(behind.keys() & idents for idents in held):
        return None
    if any(p.grad is not None and p.grad.any() for p in behind.values()):
        return None  # both gradients may be wanted: `zero_grad()` came before, and the step comes after both
    maker = crash.timeline.operation_of_sequence(graph.sequence_of(older))
    made = {(mark.ident, mark.storage) for mark in maker.results} if maker is not None else set()
    for operation in operations:
        if maker is not None and maker.index < operation.index < first and operation.grad_enabled and not operation.name.startswith(("detach", "__")):
            if operation.sequence_after > operation.sequence and any((mark.ident, mark.storage) in made for mark in operation.operands):
                place = crash.timeline.place_of_operation(operation)
                names = [named.name for ident in behind if (named := crash.names.by_id(ident)) is not None]
                return (place, tuple(names)) if place is not None else None
    return None


def _written(operation: Operation) -> list[Mark]:
    return [operation.operands[write.operand] for write in operation.writes]

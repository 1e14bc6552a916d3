"""A table of the model's (positions, a causal mask) that is shorter than the sequence: the number that says how long it is."""

from __future__ import annotations

import ast

from torchsleuth.evidence_forward import Made, Operand
from torchsleuth.fixes.forward.operands import Failed
from torchsleuth.fixes.forward.resizing import number_in
from torchsleuth.fixes.script import Script, called
from torchsleuth.model import Fix

_KEEPERS = {"Parameter", "register_buffer"}


def lengthened(failed: Failed, one: Operand, other: Operand) -> Fix | None:
    """Only along a dimension that is not the last alone: as many features as that has no layer may simply be given."""
    rank = min(len(one.shape), len(other.shape))
    axes = [axis for axis in range(-rank, 0) if one.shape[axis] != other.shape[axis] and 1 not in (one.shape[axis], other.shape[axis])]
    if not axes or axes == [-1]:
        return None
    for table, data in ((one, other), (other, one)):
        now, size = table.shape[axes[0]], data.shape[axes[0]]
        if not _is_kept(failed, table, axes[0]) or _is_kept(failed, data, axes[0]) or any((table.shape[axis], data.shape[axis]) != (now, size) for axis in axes):
            continue
        found = _number(failed, table.origin_of(axes[0]), now) if now < size else None
        if found is not None:
            meaning = f"Right if sequences of {size} are what is meant; if {now} is the limit, cut what the model is given."
            return failed.scripts.fix(f"Make the table long enough: {size} in place of {now}.", [found[0].replace(found[1], str(size))], meaning, safe=False)
    return None


def _is_kept(failed: Failed, operand: Operand, axis: int) -> bool:
    """A parameter, a buffer, or cut out of one."""
    if operand.tensor.kind in ("parameter", "buffer"):
        return True
    made = operand.origin_of(axis)
    while made is not None:
        found = failed.scripts.node_at(made.place)
        if found is not None and any(isinstance(node, ast.Call) and called(node) in _KEEPERS for node in found[0].ancestors(found[1])):
            return True
        made = made.given
    return False


def _number(failed: Failed, made: Made | None, now: int) -> tuple[Script, ast.AST] | None:
    """The one bare number at the far end of the way on which the table was given its length."""
    while made is not None and made.given is not None:
        made = made.given
    found = failed.scripts.node_at(made.place) if made is not None else None
    if found is None:
        return None
    script, node = found
    node = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None else node
    numbers = [part for part in ast.walk(node) if isinstance(part, ast.Constant) and number_in(part) == now]
    return (script, numbers[0]) if len(numbers) == 1 else None

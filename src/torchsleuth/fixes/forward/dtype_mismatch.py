"""Operands of two dtypes: the odd one is cast to that of the other."""

from __future__ import annotations

import ast
import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import Operand
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.forward.operands import CASTS, Failed
from torchsleuth.fixes.script import Scripts
from torchsleuth.model import Diagnosis, Fix

_NAMES = {"Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16"}
_WRITES = re.compile(r"__setitem__$|(index|scatter|masked)_(add|copy|put|reduce|scatter)_?$|scatter_?$")
_FLOATS = ("float32", "float64", "float16", "bfloat16")


class DtypeMismatchFixer(Fixer):
    rule = "dtype-mismatch"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        operation = failed.operation
        if operation is None or failed.in_library:
            return []
        if operation.name in ("neg", "__neg__", "negative") and isinstance(failed.call, ast.UnaryOp) and failed.script is not None:
            text = failed.script.segment(failed.call.operand)
            return [scripts.fix(f"Invert the mask: `~{text}`.", [failed.script.replace(failed.call, f"~{text}")], "Minus is taken to mean `not` here.", safe=False)]
        if operation.name in ("cross_entropy", "nll_loss", "nll_loss_nd") and failed.script is not None:
            return [swapped(failed)]
        if operation.name == "requires_grad_":
            return [_cast_and_kept(failed)]
        odd, wanted = _odd_one(operation.operands, operation.name)
        said = re.search(r"does not match weight dtype \(torch\.(\w+)\)", failed.message)
        if said:
            odd, wanted = operation.operand("input"), said[1]
        if any(_NAMES.get(lacking) == wanted for lacking in re.findall(r"not implemented for '(\w+)'", failed.message)):
            return []  # it is just that dtype which the operation does not work for
        cast = CASTS.get(wanted)
        if odd is None or cast is None or odd.tensor.dtype == wanted:
            return []
        return [_inverted(failed, odd), failed.suffixed(odd, cast, f"Cast {odd.called} from {odd.tensor.dtype} to {wanted}: `{cast}`.")]


def swapped(failed: Failed) -> Fix | None:
    """`criterion(labels, scores)` → `criterion(scores, labels)`, where the first are class numbers, one for each row of the second."""
    labels, scores = failed.operand("input", "self"), failed.operand("target")
    found = [failed.node_of(labels), failed.node_of(scores)]
    if labels is None or scores is None or any(place is None for place in found) or labels.tensor.dtype != "int64" or scores.tensor.dtype not in _FLOATS:
        return None
    if len(scores.shape) < 2 or labels.shape != (scores.shape[0], *scores.shape[2:]):
        return None
    (script, first), (_, second) = found
    if not isinstance(failed.call, ast.Call) or failed.call.args[:2] != [first, second]:
        return None
    edits = [script.replace(first, script.segment(second)), script.replace(second, script.segment(first))]
    return failed.scripts.fix(f"The scores come first, then the class numbers: `({script.segment(second)}, {script.segment(first)})`.", edits)


def _cast_and_kept(failed: Failed) -> Fix | None:
    """`images.requires_grad_()`, a statement: a cast gives a new tensor, which has to be kept."""
    call, script = failed.call, failed.script
    if script is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or not isinstance(script.parent(call), ast.Expr):
        return None
    if not isinstance(call.func.value, ast.Name):
        return None
    name = call.func.value.id
    edits = [script.insert(script.start(call), f"{name} = "), *script.wrapped(call.func.value, ".float()")]
    return failed.scripts.fix(f"Cast it first, and keep the new tensor: `{name} = {name}.float()...`.", edits)


def _inverted(failed: Failed, mask: Operand) -> Fix | None:
    """`1 - mask` → `~mask`."""
    call, found = failed.call, failed.node_of(mask)
    if mask.tensor.dtype != "bool" or found is None or not isinstance(call, ast.BinOp) or not isinstance(call.op, ast.Sub) or found[1] is not call.right:
        return None
    if not isinstance(call.left, ast.Constant) or call.left.value != 1 or type(call.left.value) is not int or not isinstance(call.right, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
        return None
    text = found[0].segment(call.right)
    return failed.scripts.fix(f"Invert the mask: `~{text}`.", [found[0].replace(call, f"~{text}")], "The result is boolean, as the mask is.", safe=False)


def _odd_one(operands: tuple[Operand, ...], name: str) -> tuple[Operand | None, str]:
    """The operand to cast and the dtype it should have: data follows parameters, integers follow floats."""
    kinds = {operand.tensor.dtype for operand in operands}
    written = next((operand for operand in operands if operand.argument in ("value", "src", "source")), None)
    if _WRITES.match(name) and written is not None:  # what is written to decides
        wanted = operands[0].tensor.dtype
        return (written, wanted) if wanted in _FLOATS and written is not operands[0] else (None, "")
    lowered = [operand for operand in operands if operand.lowered is not None]
    others = {operand.tensor.dtype for operand in operands if operand.lowered is None} & set(_FLOATS)
    if len(lowered) == len(others) == 1:
        return lowered[0], next(iter(others))
    if len(operands) == 1 and not kinds & set(_FLOATS):
        return operands[0], "float32"
    if name.endswith("_") or name.startswith("__i"):
        return None, ""  # the result has to go back into the first: which of the two is wrong cannot be told
    fixed = {operand.tensor.dtype for operand in operands if operand.tensor.kind in ("parameter", "buffer")}
    free = [operand for operand in operands if operand.tensor.kind not in ("parameter", "buffer")]
    if len(fixed) == 1:
        wanted = next(iter(fixed))
        odd = [operand for operand in free if operand.tensor.dtype != wanted]
        return (odd[0], wanted) if len(odd) == 1 and wanted in _FLOATS else (None, "")
    if len(kinds) != 2 or fixed:
        return None, ""
    floats = kinds & set(_FLOATS)
    if len(floats) == 1:
        wanted = next(iter(floats))
    elif floats == {"float32", "float64"}:
        wanted = "float32"
    else:
        return None, ""
    odd = [operand for operand in free if operand.tensor.dtype != wanted]
    return (odd[0], wanted) if len(odd) == 1 else (None, "")

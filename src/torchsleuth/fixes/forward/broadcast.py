"""Shapes that do not line up: the missing dimension added where the sizes say where it belongs."""

from __future__ import annotations

import ast

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import Operand
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.forward.masking import placed, shortened
from torchsleuth.fixes.forward.operands import Failed, text_of
from torchsleuth.fixes.forward.tables import lengthened
from torchsleuth.fixes.script import Scripts, called, path_of
from torchsleuth.model import Diagnosis, Fix

_REDUCTIONS = {"sum", "mean", "amax", "amin", "norm", "std", "var", "prod", "logsumexp", "median", "all", "any"}


class BroadcastFixer(Fixer):
    rule = "broadcast-mismatch"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        if len(failed.operands) != 2 or failed.in_library:
            return []
        small, large = sorted(failed.operands, key=lambda operand: len(operand.shape))
        return [_to_size(failed, small, large) or _to_size(failed, large, small), _missing(failed, small, large) or placed(failed, small, large), shortened(failed, *failed.operands), lengthened(failed, *failed.operands), _swapped(failed, small, large)]


def _to_size(failed: Failed, resized: Operand, other: Operand) -> Fix | None:
    """`f + interpolate(m, scale_factor=2)` of sizes that were not halved without a rest: resized to the other's own size."""
    found = failed.node_of(resized)
    sizes = list(zip(resized.shape[2:], other.shape[2:]))
    call = found[1] if found is not None and isinstance(found[1], ast.Call) and called(found[1]) == "interpolate" else None
    scale = next((k for k in call.keywords if k.arg == "scale_factor"), None) if call is not None else None
    if found is None or scale is None or len(resized.shape) != len(other.shape) or resized.shape[:2] != other.shape[:2] or not text_of(other) or any(abs(a - b) > 3 for a, b in sizes):
        return None
    text = f"{text_of(other)}.shape[2:]"
    script = found[0]
    edits = [script.edit(script.start(scale), script.end(scale), f"size={text}")]
    return failed.scripts.fix(f"Resize to the size of {other.called}: `size={text}`.", edits, "Sizes that are odd do not come back by doubling what was halved.", safe=False)


def _missing(failed: Failed, small: Operand, large: Operand) -> Fix | None:
    """The one place to add a dimension to the smaller operand so that it lines up."""
    if len(small.shape) + 1 != len(large.shape) or not small.shape:
        return None
    places = [axis for axis in range(1, len(large.shape)) if _fits([*small.shape[:axis], 1, *small.shape[axis:]], large.shape)]
    if len(places) != 1:
        return None
    axis = places[0]
    found = failed.node_of(small)
    call = _reduction(found[1]) if found is not None else None
    if found is not None and call is not None:
        fix = _kept(failed, found[0], call, axis, len(large.shape))
        if fix is not None:
            return fix
    shown = -1 if axis == len(small.shape) else axis
    meaning = f"{small.called} is then lined up with the first dimension{'s' * (axis > 1)} of {large.called}."
    return failed.suffixed(small, f".unsqueeze({shown})", f"Add the missing dimension: `.unsqueeze({shown})`.", meaning, safe=False)


def _reduction(node: ast.expr) -> ast.Call | None:
    """`x.sum(1)`, and `x.max(dim=1)` of `x.max(dim=1).values` or `x.max(dim=1)[0]`."""
    if isinstance(node, ast.Call) and called(node) in _REDUCTIONS:
        return node
    inner = node.value if isinstance(node, (ast.Attribute, ast.Subscript)) else None
    first = isinstance(node, ast.Attribute) and node.attr == "values" or isinstance(node, ast.Subscript) and ast.unparse(node.slice) == "0"
    return inner if first and isinstance(inner, ast.Call) and called(inner) in ("max", "min", "median", "mode", "kthvalue") else None


def _fits(one: list[int], other: tuple[int, ...]) -> bool:
    return len(one) == len(other) and all(a == b or a == 1 or b == 1 for a, b in zip(one, other, strict=True))


def _kept(failed: Failed, script, call: ast.Call, axis: int, rank: int) -> Fix | None:
    """`x.sum(dim=1)` → `x.sum(dim=1, keepdim=True)`, where the reduced dimension is the missing one."""
    if not _reduces(call, axis, rank):
        return None
    calls = [call]
    # The same slip further down in the same function would be the next failure: `e / e.sum(1)`.
    for node in script.own_nodes(script.scope_of(call)):
        if isinstance(node, ast.BinOp) and isinstance(node.left, ast.Name) and node.lineno > call.lineno:
            other = _reduction(node.right)
            if other is not None and path_of(other.func).split(".")[0] == node.left.id and _reduces(other, axis, rank) and _follows(script, call, node.left.id):
                calls.append(other)
    edits = [script.insert(max(script.end(node) for node in [*c.args, *(k.value for k in c.keywords)]), ", keepdim=True") for c in calls]
    where = f" (also in line {', '.join(str(c.lineno) for c in calls[1:])})" if len(calls) > 1 else ""
    return failed.scripts.fix(f"Keep the reduced dimension: `keepdim=True`{where}.", edits)


def _reduces(call: ast.Call, axis: int, rank: int) -> bool:
    """Along this one dimension, which it does not keep."""
    dim = next((k.value for k in call.keywords if k.arg in ("dim", "axis")), call.args[-1] if call.args else None)
    try:
        value = ast.literal_eval(dim) if dim is not None else None
    except ValueError:
        return False
    return isinstance(value, int) and not isinstance(value, bool) and value % rank == axis and all(k.arg != "keepdim" for k in call.keywords)


def _follows(script, call: ast.Call, name: str) -> bool:
    """The variable is made by the statement that failed: it has the shape of its result."""
    statement = script.statement_of(call)
    return isinstance(statement, ast.Assign) and any(path_of(target) == name for target in statement.targets)


def _swapped(failed: Failed, one: Operand, other: Operand) -> Fix | None:
    """Two dimensions exchanged in a parameter or buffer against the data."""
    if len(one.shape) != len(other.shape) or one.shape == other.shape:
        return None
    fixed = [operand for operand in (one, other) if operand.tensor.kind in ("parameter", "buffer")]
    if len(fixed) != 1:
        return None
    mine, theirs = fixed[0], other if fixed[0] is one else one
    turns = []
    for a in range(len(mine.shape)):
        for b in range(a + 1, len(mine.shape)):
            sizes = list(mine.shape)
            sizes[a], sizes[b] = sizes[b], sizes[a]
            if tuple(sizes) == theirs.shape:
                turns.append((a, b))
    if len(turns) != 1:
        return None
    a, b = turns[0]
    meaning = f"Right if dimensions {a} and {b} of {mine.called} are in another order than those of {theirs.called}."
    return failed.suffixed(mine, f".transpose({a}, {b})", f"Exchange dimensions {a} and {b}: `.transpose({a}, {b})`.", meaning, safe=False)

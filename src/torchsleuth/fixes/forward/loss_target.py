"""Targets that do not suit a loss: dtype, a dimension too many, classes at the wrong axis, logits for probabilities."""

from __future__ import annotations

import ast
import re

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.forward.operands import Failed, one_squeezed, product
from torchsleuth.fixes.forward.resizing import number_in
from torchsleuth.fixes.forward.view_size import reflattened
from torchsleuth.fixes.script import Scripts, called
from torchsleuth.model import Diagnosis, Fix


class LossTargetFixer(Fixer):
    rule = "loss-target"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        operation = failed.operation
        if operation is None or operation.name == "ctc_loss":
            return []
        scores, target = failed.operand("input", "self"), failed.operand("target", "targets")
        if scores is None or target is None:
            return []
        if "between 0 and 1" in failed.message:
            return [_with_logits(failed)]
        classes = operation.name in ("nll_loss", "nll_loss_nd") or ("cross_entropy" in operation.name and "binary" not in operation.name)
        if classes and len(scores.shape) == 1 and target.shape:
            alone = failed.suffixed(scores, ".unsqueeze(0)", f"Give {scores.called} the batch dimension of the target: `.unsqueeze(0)`.")
            return [one_squeezed(failed, scores) or alone] if target.shape == (1,) else []
        if scores.shape and target.shape and scores.shape[0] != target.shape[0]:
            return [_same_steps(failed), _rows(failed)]
        if classes:
            return _classes(failed, scores, target)
        whole = target.tensor.dtype in ("int64", "int32", "bool", "uint8")
        if whole and scores.shape == target.shape:
            return [failed.suffixed(target, ".float()", f"Make {target.called} floating point: `.float()`.")]
        if scores.shape == (*target.shape, 1) and whole:
            title = f"Drop the last dimension of {scores.called}, `.squeeze(-1)`, and make {target.called} floating point, `.float()`."
            return [failed.suffixed_each([(scores, ".squeeze(-1)"), (target, ".float()")], title)]
        if scores.shape == (*target.shape, 1):
            return [failed.suffixed(scores, ".squeeze(-1)", f"Drop the last dimension of {scores.called}: `.squeeze(-1)`.")]
        if scores.shape != target.shape and scores.shape and target.shape[:1] == scores.shape[:1] and product(scores.shape) == product(target.shape):
            longer, other = (target, scores) if len(target.shape) > len(scores.shape) else (scores, target)
            if len(other.shape) == 2 and len(longer.shape) > 2:
                return [failed.suffixed(longer, ".flatten(1)", f"Give {longer.called} the shape of {other.called}: `.flatten(1)`.")]
        if target.shape == (*scores.shape, 1):
            bare = one_squeezed(failed, scores) if target.shape == (1,) else None
            if bare is not None:
                return [bare]
            return [failed.suffixed(target, ".squeeze(-1)", f"Drop the last dimension of {target.called}: `.squeeze(-1)`.")]
        return []


def _same_steps(failed: Failed) -> Fix | None:
    """Scores of `ids[:, :-1]` against all of `ids`: what is to be predicted is the next one, `ids[:, 1:]`; and the other way round."""
    scores, target = failed.operand("input", "self"), failed.operand("target", "targets")
    first, second = scores.parts_of(0), target.parts_of(0)
    if len(first) != 2 or len(second) != 2 or first[0].size != second[0].size or abs(first[1].size - second[1].size) != 1:
        return None
    short, long, mine = (first[1], target, "target") if first[1].size < second[1].size else (second[1], scores, "scores")
    cut = re.search(r"\[:, (:-1|1:)\]$", short.made.place.source)
    found = failed.node_of(long)
    call = found[1] if found is not None else None
    flat = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and called(call) in ("view", "reshape", "flatten")
    # The scores of a step are for the next one: what they were computed from loses its last, what they are compared with its first.
    if cut is None or not flat or cut[1] != (":-1" if mine == "target" else "1:"):
        return None
    script, base = found[0], call.func.value
    suffix = "[:, 1:]" if mine == "target" else "[:, :-1]"
    edits = [*script.wrapped(base, suffix), *(failed.renamed_in(script, call, "reshape") if called(call) == "view" else [])]
    meaning = f"The scores of each step are then compared with the next token, because the other side is cut to `{cut[0]}`."
    return failed.scripts.fix(f"Cut {long.called} in the same way: `{suffix}`.", edits, meaning, safe=False)


def _rows(failed: Failed) -> Fix | None:
    """A `view(-1, 512)` before the last layers that made two rows of each sample: it must be the number that one sample has."""
    scores, target = failed.operation.operand("input", "self"), failed.operation.operand("target", "targets")
    made = scores.origin_of(0)
    found = failed.scripts.node_at(made.place) if made is not None and made.operation in ("view", "reshape") else None
    call = found[1] if found is not None else None
    if not isinstance(call, ast.Call) or called(call) not in ("view", "reshape") or len(call.args) != 2 or ast.unparse(call.args[0]) != "-1":
        return None
    now = number_in(call.args[1])
    if now is None or now * scores.shape[0] % target.shape[0]:
        return None
    return reflattened(failed, found[0], call.args[1], now, (now * scores.shape[0] // target.shape[0],))


def _classes(failed: Failed, scores, target) -> list[Fix | None]:
    if target.shape == scores.shape and target.made is not None and target.made.operation == "one_hot":
        return [failed.suffixed(target, ".float()", f"One-hot rows are probabilities: `.float()` on {target.called}.")]
    if target.shape == (*scores.shape[:1], *scores.shape[2:]) and target.tensor.dtype != "int64":
        meaning = "" if not target.tensor.dtype.startswith("float") else "Fractions, if there are any, are cut off."
        return [failed.suffixed(target, ".long()", f"Class numbers are integers: `.long()` on {target.called}.", meaning, safe=not meaning)]
    if len(scores.shape) >= 3 and scores.shape[:-1] == target.shape and scores.shape[1] != scores.shape[-1]:
        axis = len(scores.shape) - 1
        order = f".transpose(1, {axis})" if axis == 2 else f".permute(0, {axis}, {', '.join(str(k) for k in range(1, axis))})"
        return [failed.suffixed(scores, order, f"Bring the classes to dimension 1: `{order}`.")]
    if target.shape == (*scores.shape[:1], 1, *scores.shape[2:]) and target.tensor.dtype in ("int64", "int32", "uint8"):
        return [failed.suffixed(target, ".squeeze(1)", f"Drop the dimension of size 1: `.squeeze(1)` on {target.called}.")]
    if target.shape == (*scores.shape[:1], 1, *scores.shape[2:]) and scores.shape[1] > 1:
        title = f"Drop the dimension of size 1, and class numbers are integers: `.squeeze(1).long()` on {target.called}."
        return [failed.suffixed(target, ".squeeze(1).long()", title, "Fractions, if there are any, are cut off.", safe=False)]
    return []


def _with_logits(failed: Failed) -> Fix | None:
    script, call = failed.script, failed.call
    values = next((operand.values for operand in failed.operation.operands if operand.values is not None and operand.values.bad), None)
    if script is None or not isinstance(call, ast.Call) or values is not None and values.minimum != values.minimum:
        return None  # NaN is no score either
    meaning = "The sigmoid is then part of the loss: right if these are scores, not probabilities."
    if called(call) == "binary_cross_entropy":
        return failed.scripts.fix("Take the loss for scores: `binary_cross_entropy_with_logits`.", failed.renamed(call, "binary_cross_entropy_with_logits"), meaning, safe=False)
    made = failed.operation.module_made
    if failed.operation.module_type != "BCELoss" or made is None or made.place.in_library:
        return None
    home = failed.scripts.get(made.place)
    node = home.node_at(made.place.span) if home is not None else None
    if home is None or not isinstance(node, ast.Call) or called(node) != "BCELoss":
        return None
    line, column = home.end(node.func)
    edits = [home.edit((line, column - len("BCELoss")), (line, column), "BCEWithLogitsLoss")]
    return failed.scripts.fix("Take the loss for scores: `BCEWithLogitsLoss`.", edits, meaning, safe=False)

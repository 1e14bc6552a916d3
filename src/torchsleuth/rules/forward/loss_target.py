"""Targets whose shape or dtype does not suit the loss."""

from __future__ import annotations

import math
import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import FailedOperation, Made, Operand
from torchsleuth.model import Diagnosis
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import elsewhere, of_axis, of_parts, of_tensor, squeezed
from torchsleuth.rules.forward._not_finite import cause_facts, cause_fixes, cause_why, causes
from torchsleuth.rules.forward._report import report
from torchsleuth.rules.forward._words import bad_values, expr, failed, inferred, line_of, plural, seen, shape

_PROBABILITY = r"all elements of (input|target) should be between 0 and 1"


_WHOLE = ("int64", "int32", "bool", "uint8")

class LossTarget(CrashRule):
    """Predictions and targets do not belong together: batch, shape, dtype or range differ from what the loss takes.

    What happened
    -------------
    Each loss has its own form. `cross_entropy`: scores [N, C, ...] and class numbers [N, ...] of dtype int64, or class
    probabilities of the same shape as the scores. `binary_cross_entropy`: probabilities in 0 … 1 and float targets of
    the same shape; `binary_cross_entropy_with_logits`: any scores. `mse_loss`: the same shape and float.

    Why
    ---
    Typical: scores of a sequence model [N, T, C] with the classes last; one target row too few; targets [N, 1]; float
    labels for `cross_entropy` or integer labels for a regression; logits given to a loss that expects probabilities.

    Example
    -------
    This raises "Expected target size [4, 5], got [4, 7]", since cross_entropy takes the classes from dimension 1:

        import torch

        scores = torch.randn(4, 7, 5)      # batch, time, classes
        target = torch.randint(0, 5, (4, 7))
        torch.nn.functional.cross_entropy(scores, target)

    Fix
    ---
    For sequences `cross_entropy(scores.transpose(1, 2), target)`, or flatten both. `target.long()` for class numbers,
    `target.float()` for regression, `.squeeze(1)` for [N, 1]; the `_with_logits` loss for raw scores.

    Common false explanations
    -------------------------
    "Apply softmax first." `cross_entropy` does that itself. This prints True:

        import torch

        x, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 1])
        both = torch.nn.functional.cross_entropy(x, y), torch.nn.functional.nll_loss(x.log_softmax(1), y)
        print(torch.allclose(*both))
    """

    name = "loss-target"
    messages = (
        r"Expected input batch_size \(\d+\) to match target batch_size \(\d+\)",
        r"Expected target size",
        r"multi-target not supported",
        r"expected target dtype to be Long",
        r"Expected floating point type for target with class probabilities",
        r"only batches of spatial targets supported",
        r"weight tensor should be defined either for all",
        r"size mismatch \(got input",
        r"For 1D input, 1D target",
        _PROBABILITY,
        r"Using a target size \(torch\.Size",
        r"Target size \(torch\.Size",
        r"Found dtype (Long|Int|Bool|Byte) but expected (Float|Double)",
        r"input_lengths|target_lengths|checking arguments for ctc_loss",
        r"expected scalar type Long but found (Float|Double|Int)",
        r"Expected a? ?floating.* for target",
        r"inconsistent target size",
    )
    needs = ("operation",)
    priority = 15

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        message = operation.message
        scores = operation.operand("input", "self", "log_probs")
        target = operation.operand("target", "targets")
        if "ctc_loss" in message or operation.name == "ctc_loss" or "_lengths" in message:
            return _ctc(self.name, operation)
        if target is None and operation.operands and not message.startswith(("Using a target", "Target size")):
            if "_loss" not in operation.name and "cross_entropy" not in operation.name:
                return None
        probability = re.search(_PROBABILITY, message)
        if probability:
            return _probability(self.name, operation, probability[1])
        facts, fixes = [], []
        title = why = line_of(message)
        label, lead = "the target does not suit the scores", target
        creates = []
        if re.search(r"batch_size|Target size|Using a target|size mismatch|For 1D input|Expected target size|multi-target|spatial targets", message):
            title, why, fixes, axis = _shapes(operation, scores, target)
            facts += squeezed(scores) or squeezed(target)
            label = f"{shape(scores.shape)} and {shape(target.shape)} do not belong together" if scores and target else label
            lead = None
            if scores is not None and target is not None:
                if axis is not None:
                    creates = [of_axis(target, axis), of_axis(scores, axis)]
                    joined = of_parts(scores, target, axis)
                    creates, facts = [*(joined[0] or creates)], [*facts, *joined[1]]
                    if _is_shifted(scores, target, axis):
                        fixes = ["One of the two is one step shorter: cut the other in the same way, e.g. scores `[:, :-1]` for targets `[:, 1:]`."]
                if operation.place.in_library and axis == 0:
                    creates += [_whole(operation, target), _whole(operation, scores)]
                elif axis is None:
                    creates = _odd_ones(operation, scores, target)
        elif re.search(r"dtype|floating point|scalar type", message) and target is not None:
            title, why, fixes = _dtypes(operation, scores, target)
            label = f"dtype {target.tensor.dtype}"
            creates = [(target.dtype_made, f"{target.called} gets its dtype {target.tensor.dtype} here")]
        elif "weight tensor" in message:
            weight = operation.operand("weight")
            label, lead = "one weight per class is needed", weight
            creates = [of_tensor(weight), of_axis(scores, 1)]
            title = f"The `weight` of the classes {shape(weight.shape) if weight else ''} does not match the classes of the scores"
        return report(self.name, operation, title=title, label=label, lead=lead, why=why, creates=creates, facts=facts, fixes=fixes)


def _odd_ones(operation: FailedOperation, scores: Operand, target: Operand) -> list[tuple[Made | None, str]]:
    """Where the two came from; of one that has just a dimension of size 1 too many, where it has that from."""
    for more, less in ((scores, target), (target, scores)):
        if len(more.shape) == len(less.shape) + 1 and more.shape[-1] == 1 and more.shape[:-1] == less.shape:
            return [elsewhere(less, operation), of_axis(more, -1)]
    if len(target.shape) == len(scores.shape) and target.shape[1:2] == (1,) and target.shape[2:] == scores.shape[2:]:
        return [elsewhere(target, operation)]
    return [elsewhere(target, operation), elsewhere(scores, operation)]


def _is_shifted(scores: Operand, target: Operand, axis: int) -> bool:
    """`[batch, steps]` flattened on both sides, and one of them has one step less."""
    one, other = scores.parts_of(axis), target.parts_of(axis)
    return len(one) == len(other) == 2 and one[0].size == other[0].size and abs(one[1].size - other[1].size) == 1


def _whole(operation: FailedOperation, operand: Operand) -> tuple[Made | None, str]:
    """The one tensor of the user's own call that has as many elements as the flattened operand has rows."""
    rows = operand.shape[0] if operand.shape else 0
    alike = [own for own in operation.call_operands if own.shape != operand.shape and len(own.shape) > 1 and math.prod(own.shape) == rows]
    if len(alike) != 1:
        return None, ""
    return alike[0].made, f"{alike[0].called} {shape(alike[0].shape)} comes from here: {rows} elements"


def _shapes(
    operation: FailedOperation, scores: Operand | None, target: Operand | None
) -> tuple[str, str, list[str], int | None]:
    message = line_of(operation.message)
    if scores is None or target is None:
        return message, message, [], None
    both = f"{scores.called} {shape(scores.shape)}, {target.called} {shape(target.shape)}"
    name = expr(target, "target")
    own = expr(scores, "scores")
    if "cross_entropy" in operation.name and not operation.name.startswith("binary") or operation.name == "nll_loss":
        why = "This loss takes scores [N, C, ...] with the classes at dimension 1, and class numbers [N, ...] without that dimension."
        if len(scores.shape) >= 3 and scores.shape[:-1] == target.shape:
            axis = len(scores.shape) - 1
            fix = [f"Bring the classes to dimension 1: `{own}.transpose(1, {axis})`, or flatten both: `{own}.flatten(0, {axis - 1})`, `{name}.flatten()`."]
            return f"The class axis is in the wrong place: {both}", why + f" Here the classes seem to be at dimension {axis}.", fix, None
        if len(scores.shape) == 1 and target.shape:
            classes = plural(scores.shape[0], "class", "classes")
            read = f" Scores of one dimension are one sample's: these are read as {classes}, and go with a single class number of shape []."
            fix = f"Give the scores the batch dimension that the target has: `{own}.unsqueeze(0)`." if target.shape == (1,) else (
                f"Give the loss scores [{target.shape[0]}, C]: one row for each of the {target.shape[0]} targets, one column for each class.")  # fmt: skip
            return f"The scores have no batch dimension: {both}", why + read, [fix], None
        if len(target.shape) == len(scores.shape) and target.shape == (*scores.shape[:1], 1, *scores.shape[2:]):
            return f"The target has an extra dimension of size 1: {both}", why, [f"Drop it: `{name}.squeeze(1)`."], None
        if target.shape == scores.shape:
            return f"The target is as large as the scores: {both}", why + " Class probabilities of that shape must be floating point.", [
                f"Class numbers from one-hot rows: `{name}.argmax(1)`; probabilities: `{name}.float()`."], None  # fmt: skip
        if scores.shape and target.shape and scores.shape[0] != target.shape[0]:
            extra = ""
            if scores.shape[0] and target.shape[0] % scores.shape[0] == 0 or target.shape[0] and scores.shape[0] % target.shape[0] == 0:
                extra = " One is a multiple of the other: one of the two was flattened or cut, the other not."
            return f"Batch sizes differ: {both}", why + extra, ["Make both from the same batch, flattened and cut the same way."], 0
        if target.tensor.dtype not in _WHOLE and len(scores.shape) == len(target.shape) > 1 and scores.shape[:1] + scores.shape[2:] == target.shape[:1] + target.shape[2:]:
            why = f"Targets with as many dimensions as the scores are probabilities, one for each class: there are {scores.shape[1]} classes in the scores and {target.shape[1]} in the targets."
            return f"Scores and targets have different numbers of classes: {both}", why, [
                f"Give the last layer {target.shape[1]} outputs, or make the targets with {scores.shape[1]} classes."], 1  # fmt: skip
        return f"Scores and targets differ in shape: {both}", why, [], None
    why = "This loss compares element by element: predictions and targets must have the same shape."
    if scores.shape == (*target.shape, 1):
        fix = f"`{own}.squeeze(-1)`, or `{name}.unsqueeze(-1)`"
        fix += f"; and `{name}.float()`, since targets of this loss are floating point." if target.tensor.dtype in _WHOLE else "."
        return f"Predictions and targets differ in shape: {both}", why, [fix], None
    axis = next((k for k, (a, b) in enumerate(zip(scores.shape, target.shape)) if a != b), None)
    if len(scores.shape) == 2 and scores.shape[:1] == target.shape and scores.shape[1] > 1:
        name = re.sub(r"\.float\(\)$", "", name)
        fix = f"If {target.called} holds class numbers: `torch.nn.functional.cross_entropy({scores.source or 'scores'}, {name}.long())`, or one column for each class: `torch.nn.functional.one_hot({name}.long(), {scores.shape[1]}).float()`."
        return f"Predictions and targets differ in shape: {both}", why, [fix], axis
    return f"Predictions and targets differ in shape: {both}", why, ["Bring both to the same shape where they are made."], axis


def _dtypes(operation: FailedOperation, scores: Operand | None, target: Operand) -> tuple[str, str, list[str]]:
    name = expr(target, "target")
    dtype = target.tensor.dtype
    if "class probabilities" in operation.message:
        why = "A target of the same shape as the scores is read as class probabilities, and those must be floating point."
        return f"{target.called} has the shape of class probabilities, and dtype {dtype}", why, [
            f"One-hot rows to class numbers: `{name}.argmax(1)`; or as probabilities: `{name}.float()`."]  # fmt: skip
    if "cross_entropy" in operation.name and not operation.name.startswith("binary") or operation.name == "nll_loss":
        fixes = [f"Class numbers must be int64: `{name}.long()`."]
        if dtype.startswith("float"):
            fixes.append("If the targets are class probabilities, they need the shape of the scores.")
        return f"{target.called} has dtype {dtype}; class numbers must be int64", "Class numbers are looked up as column numbers, so this loss takes int64 targets.", fixes
    return f"{target.called} has dtype {dtype}; this loss takes floating point targets", "The loss computes with the targets, so they need the dtype of the predictions.", [
        f"`{name}.float()`."]  # fmt: skip


def _probability(rule: str, operation: FailedOperation, which: str) -> Diagnosis:
    operand = operation.operand(which)
    facts = [seen(bad_values(operand, operand.values))] if operand is not None and operand.values is not None and operand.values.bad else []
    creates = causes(operand) or ([(operand.made, f"{operand.called} comes from here")] if operand is not None else [])
    own = operand.called if operand is not None else f"its {which}"
    if which == "input":
        why = "binary_cross_entropy takes probabilities. Scores as a layer gives them (logits) may be any number."
        fixes = ["Use `binary_cross_entropy_with_logits` (`nn.BCEWithLogitsLoss`) on the raw scores, or apply `torch.sigmoid` first."]
        if facts and operand is not None and operand.values is not None:
            if operand.values.minimum != operand.values.minimum or operand.values.maximum != operand.values.maximum:
                facts += cause_facts(operand) or [seen("There are NaN values: the computation before it went wrong.")]
                why, fixes = f"binary_cross_entropy takes probabilities, and NaN is none. {cause_why(operand)}".strip(), cause_fixes(operand, [])
            else:
                facts.append(inferred(f"{own} looks like raw scores, not probabilities."))
    else:
        why, fixes = "Targets of binary_cross_entropy are probabilities: 0, 1 or between.", ["Bring the targets to 0 … 1."]
    return report(rule, operation, title=f"{own} holds values outside 0 … 1", label="values must lie between 0 and 1", lead=operand, why=why,
                  creates=creates, facts=facts, fixes=fixes)  # fmt: skip


def _ctc(rule: str, operation: FailedOperation) -> Diagnosis:
    message = line_of(operation.message)
    bad = next((o for o in operation.operands if o.values is not None and o.values.bad), None)
    facts, creates = [], []
    if bad is not None and bad.values is not None:
        facts.append(seen(bad_values(bad, bad.values)))
        creates.append((bad.value_made, f"{bad.called} comes from here"))
    log_probs = operation.operand("log_probs")
    if log_probs is not None and len(log_probs.shape) == 3:
        facts.append(seen(f"log_probs {shape(log_probs.shape)} is read as [time {log_probs.shape[0]}, batch {log_probs.shape[1]}, classes {log_probs.shape[2]}]."))
    for name in ("input_lengths", "target_lengths"):
        argument = operation.argument(name)
        if argument is not None and argument.value and name in message:
            facts.append(seen(f"`{name}` = {argument.value}."))
            creates.append((argument.made, f"{argument.source} comes from here"))
        operand = operation.operand(name)
        if bad is None and operand is not None and name in message:
            bad = operand
            creates.append(of_tensor(operand))
    why = (
        "ctc_loss takes log_probs [T, N, C], one input length per sample (at most T) and one target length per sample "
        f"(at most the width of the targets). torch says: {message}"
    )
    title = f"{bad.called} does not fit ctc_loss" if bad is not None else "The lengths do not fit ctc_loss"
    fixes = ["Swap dimensions if the batch comes first: `log_probs.transpose(0, 1)`; compute lengths from the same tensors."]
    lengths = operation.operand("input_lengths")
    if lengths is not None and lengths is bad and log_probs is not None and len(log_probs.shape) == 3 and lengths.shape == log_probs.shape[1:2]:
        # One length for each sample: the batch is where it should be, and the time has become shorter than the lengths say.
        creates.append(of_axis(log_probs, 0))
        fixes = [f"Count the lengths on what log_probs were computed from, after everything that shortens it (a stride, a pooling): at most {log_probs.shape[0]}."]
    return report(rule, operation, title=title, label="lengths and tensors do not fit", lead=bad, why=why, creates=creates, facts=facts, fixes=fixes)

"""A class label that the scores have no column for."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import Operand
from torchsleuth.model import Diagnosis, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import of_axis
from torchsleuth.rules.forward._report import report
from torchsleuth.rules.forward._words import (
    ON_THE_GPU,
    bad_values,
    config_facts,
    expr,
    failed,
    inferred,
    is_unexplained_death,
    legal,
    made_words,
    plural,
    seen,
    shape,
    value_words,
)  # fmt: skip

_VOID = 255


class ClassOutOfRange(CrashRule):
    """A class label lies outside the classes that the scores have.

    What happened
    -------------
    Scores of shape [N, C] have one column per class: labels must lie in 0 … C-1. A label was C or more, or negative
    (and not the `ignore_index`, which is -100 unless set).

    Why
    ---
    Typical: labels that count from 1; one class more in the data than the last layer has outputs; -1 used for "no
    label" without saying so to the loss; the class axis in another place than dimension 1.

    Example
    -------
    This raises "Target 3 is out of bounds.":

        import torch

        scores = torch.randn(4, 3)
        labels = torch.tensor([1, 2, 3, 1])     # count from 1
        torch.nn.functional.cross_entropy(scores, labels)

    Fix
    ---
    Count labels from 0 (`labels - 1`), or give the last layer as many outputs as there are classes, or tell the loss
    which label to skip (`ignore_index=-1`).

    Common false explanations
    -------------------------
    "The batch size does not match." That is another error, a ValueError about batch sizes. This raises
    "Expected input batch_size (4) to match target batch_size (3)":

        import torch

        torch.nn.functional.cross_entropy(torch.randn(4, 3), torch.tensor([0, 1, 2]))

    "Labels must be one-hot." They need not be: class numbers are right. This runs and prints a shape:

        import torch

        print(torch.nn.functional.cross_entropy(torch.randn(4, 3), torch.tensor([0, 1, 2, 1])).shape)
    """

    name = "class-out-of-range"
    messages = (
        r"Target -?\d+ is out of bounds",
        r"Class values must be (smaller than num_classes|non-negative)",
        r"RuntimeError: target out of range",
        *ON_THE_GPU,
    )
    needs = ("operation", "device")
    priority = 20

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None or is_unexplained_death(evidence):
            return None
        target = next((o for o in operation.operands if o.values is not None and o.values.bad), None)
        if evidence.device is not None and (target is None or target.values.limit not in ("classes", "num_classes")):
            return None
        scores = operation.operand("input", "self") if operation.name != "one_hot" else None
        if target is None or target.values is None:
            said = re.search(r"Target (-?\d+)", operation.message)
            given = operation.operand("target")
            what = f"label {said[1]}" if said else "a label"
            return report(
                self.name, operation, title=f"{what} is outside the classes", label=f"{what} is out of range", role=Role.INDEX, lead=given,
                why="Labels must lie in 0 … C-1, where C is the size of the class dimension of the scores.",
                creates=[(given.value_made or given.made, f"{given.called} comes from here")] if given is not None else [],
            )  # fmt: skip
        used, target = target, operation.given_for(target)
        values = target.values
        assert values is not None
        classes = int(values.high) + 1
        first = values.first[0]
        facts = [seen(bad_values(target, values))]
        creates = [(target.value_made, value_words(target, f"the label {first.value}"))]
        fixes: list[str] = []
        name = expr(target, "labels")
        if values.limit == "num_classes":
            count = operation.argument("num_classes")
            if count is not None and count.made is not None:
                creates.append((count.made, f"{count.source} = {count.value} comes from here"))
            if values.counts_from_one:
                facts.append(inferred("The labels run from 1 to the number of classes: they seem to count from 1."))
                fixes.append(f"Subtract 1: `{name} - 1`, or one class more.")
            elif _VOID in values.distinct and len(values.distinct) == 1:
                facts.append(inferred(f"{_VOID} is what segmentation masks usually hold where no class is meant."))
                fixes.append(f"Leave these pixels out: `{name}.masked_fill({name} == {_VOID}, 0)` for one_hot, and a mask of `{name} != {_VOID}` for the loss.")
            else:
                fixes.append("Give `num_classes` one more than the largest label, and labels from 0 on.")
            title = f"{target.called} holds {first.value}; with num_classes={classes} labels go to {classes - 1}"
            why = f"one_hot makes one column per class, so labels must lie in {legal(values)}."
            if first.value < 0:
                title, why = f"{target.called} holds {first.value}, and one_hot takes no negative labels", "one_hot has a column for 0 and up only."
            return report(self.name, operation, title=title, label=f"holds {first.value}; legal: {legal(values)}", role=Role.INDEX,
                          lead=target, why=why, creates=creates, facts=facts, fixes=fixes)  # fmt: skip
        if used is not target:
            facts.append(seen(f"The library passes its values on as {used.called} {shape(used.shape)}."))
        facts += config_facts(operation, classes)
        story = _story(target, scores, classes)
        if story:
            facts.append(inferred(story[0]))
            fixes.append(story[1])
        if scores is not None:
            axis = 1 if len(scores.shape) > 1 else 0
            made = made_words(scores.origin_of(axis), operation)
            facts.append(seen(f"{scores.called} has shape {shape(scores.shape)}, dtype {scores.tensor.dtype}: {plural(classes, 'class', 'classes')} at dimension {axis}"
                              f"{f', from {made}' if made else ''}."))  # fmt: skip
            if not story or not story[2]:
                creates.append(of_axis(scores, axis))
        if values.maximum >= classes and values.distinct != (_VOID,):
            fixes.append(f"{'Or give' if fixes else 'Give'} the last layer {int(values.maximum) + 1} outputs, if there are that many classes.")
        return report(
            self.name,
            operation,
            title=f"{target.called} holds the label {first.value}; there are {plural(classes, 'class', 'classes')}, 0…{classes - 1}",
            label=f"holds {first.value}; legal: {legal(values)}",
            role=Role.INDEX,
            lead=target,
            why=f"The loss looks up column `label` of each row of scores. {'Only ' if classes == 1 else ''}{plural(classes, 'column')} "
            f"{'exists' if classes == 1 else 'exist'}, so labels must lie in {legal(values)}.",
            creates=creates,
            facts=facts,
            fixes=fixes,
            mentioned=[scores],
        )


def _story(target: Operand, scores: Operand | None, classes: int) -> tuple[str, str, bool] | None:
    """What the labels tell, what to do, and whether they tell that they are the ones to change."""
    values = target.values
    assert values is not None
    name = expr(target, "labels")
    if values.minimum < 0 and values.maximum < classes:
        negative = int(values.minimum)
        return (
            f"Only negative labels are bad: {negative} seems to mean \"no label\", and the loss skips {values.ignored} only.",
            f"Tell the loss: `ignore_index={negative}`, or replace {negative} by {values.ignored if values.ignored is not None else -100}.",
            True,
        )
    if values.distinct == (_VOID,):
        return f"{_VOID} is what segmentation masks usually hold where no class is meant; the loss skips {values.ignored} only.", f"Tell the loss: `ignore_index={_VOID}`.", True
    if values.counts_from_one:
        return f"The labels run from 1 to {classes}, the number of classes: they seem to count from 1.", f"Count from 0: `{name} - 1`.", True
    if classes == 1:
        return "The scores have a single column, which suits a yes/no question with `binary_cross_entropy_with_logits`.", (
            "Use `binary_cross_entropy_with_logits` with float labels, or give the layer one output per class."), False  # fmt: skip
    if scores is not None and len(scores.shape) > 2 and any(values.maximum < size for size in scores.shape[2:]):
        axis = next(k for k, size in enumerate(scores.shape) if k >= 2 and values.maximum < size)
        return (
            f"cross_entropy takes the classes from dimension 1; dimension {axis} has size {scores.shape[axis]}, which would hold all labels.",
            f"Bring the classes to dimension 1: `.transpose(1, {axis})`, or flatten: `scores.reshape(-1, {scores.shape[axis]})`.",
            False,
        )
    if values.maximum == classes and values.minimum > 0:
        return f"The largest label equals the number of classes: {classes} classes are 0…{classes - 1}.", "Check where the labels start counting.", False
    return None

"""A loss that takes positions for classes."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class ClassAxis(AuditRule):
    """The loss takes another axis for the classes than the one the last layer laid them along.

    What happened
    -------------
    `cross_entropy` was given scores whose axis 1 does not hold the classes: the layer that made them laid
    its outputs along another axis. There are as many positions as classes, so the shapes fit.

    Why
    ---
    `cross_entropy` and `nll_loss` take axis 1 for the classes: scores (batch, classes, positions) for
    labels (batch, positions). A linear layer puts its outputs last: (batch, positions, classes). With other
    sizes that raises; where there are as many positions as classes it does not, and the softmax runs over
    the positions.

    Example
    -------
    The scores are right for every label, and the loss is far from zero. This prints tensor(2.2695) and then
    tensor(0.0134):

        import torch
        import torch.nn.functional as F

        labels = torch.tensor([[0, 0, 1]])
        scores = 5.0 * F.one_hot(labels, 3)
        print(F.cross_entropy(scores, labels))
        print(F.cross_entropy(scores.transpose(1, 2), labels))

    Fix
    ---
    `scores.transpose(1, 2)`, or both flat: `scores.flatten(0, 1)` and `labels.flatten()`.

    Common false explanations
    -------------------------
    "It runs, so the shapes are right": they fit by chance, and will not for a sequence of another length.
    """

    name = "class-axis"
    order = 12

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for call in observation.losses:
            if call.layer is None:
                continue
            size = list(call.input.size)
            yield Diagnosis(
                self.name, f"`{call.function}` takes axis 1 of {size} for the classes, and they lie along another one", Confidence.LIKELY,
                (culprit(call.site, Role.OPERAND, "axis 1 is taken for the classes"), culprit(call.layer, Role.CREATE, "the classes are made here")),
                observed(f"the scores have shape {size}, the labels {list(call.target.size) if call.target else []}",
                         "followed back to the layer that made them, axis 1 of the scores is not the axis of its outputs"),
                "The softmax runs over positions (or samples) instead of classes. The sizes are equal by chance, so nothing is raised.",
                (advice("Bring the classes to axis 1 (`scores.transpose(1, 2)`), or flatten scores and labels alike."),),
            )  # fmt: skip

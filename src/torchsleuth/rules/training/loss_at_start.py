"""A classification loss that starts far above chance."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, number, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class LossAtStart(AuditRule):
    """The cross entropy of the first step is far above log(number of classes): worse than knowing nothing.

    What happened
    -------------
    A model that gives every class the same score has a cross entropy of log(C). The first loss of this
    step is several times that.

    Why
    ---
    Scores of large size at the start (inputs that are not scaled, an initialisation that is too wide, a
    missing division by the square root of the width) make the model confidently wrong. The first part
    of the training is then spent on making the scores small. A loss of that size is also what labels
    that do not belong to the scores give.

    Example
    -------
    Ten classes, scores of no meaning but a large size. This prints 2.3 (log 10) and then a much larger
    number:

        import torch
        import math

        torch.manual_seed(0)
        scores, target = torch.randn(1000, 10), torch.randint(10, (1000,))
        print(round(math.log(10), 1))
        print(torch.nn.functional.cross_entropy(50 * scores, target).item())

    Fix
    ---
    Scale the inputs (mean 0, deviation 1), use the usual initialisation, check what stands between the
    last layer and the loss.

    Common false explanations
    -------------------------
    "A large loss at the start is normal": for C classes log(C) is normal.
    """

    name = "loss-at-start"
    order = 60

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for loss in observation.losses[:1]:
            if loss.function != "cross_entropy" or not loss.classes or loss.classes < 2 or loss.value is None:
                continue
            if loss.reduction != "mean" or loss.weighted or loss.similarities or not math.isfinite(loss.value):
                continue
            chance = math.log(loss.classes)
            if loss.value < max(6 * chance, chance + 8):
                continue
            yield Diagnosis(
                self.name, f"the first loss is {number(loss.value)}; a model that knows nothing has {number(chance)}", Confidence.POSSIBLE,
                (culprit(loss.site, Role.CALL if loss.site.library else Role.OPERAND, f"loss {number(loss.value)} over {loss.classes} classes"),),
                observed(
                    f"the loss over {loss.classes} classes is {number(loss.value)}; equal scores give log({loss.classes}) = {number(chance)}",
                    f"the scores lie between {number(loss.lowest)} and {number(loss.highest)}, with a standard deviation of {number(loss.spread)}",
                ),
                "Scores this large are a confident guess. Before training there is nothing to be confident about; the likely reason is the size "
                "of the inputs or of the initial weights. For a model that was trained before, it is the labels or the preprocessing.",
                (advice("Scale the inputs and check the initialisation of the last layers."),),
            )  # fmt: skip

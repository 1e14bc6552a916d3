"""A classification loss that starts far above chance."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torchsleuth.auditor.observation import LossCall, Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, number, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class LossAtStart(AuditRule):
    """The cross entropy of the first step is far above log(number of classes): worse than knowing nothing.

    What happened
    -------------
    A model that gives every class the same score has a cross entropy of log(C) (of two answers, log(2)). The first loss of this
    step is several times that. What makes the scores large is looked for on the way to them, from the last normalisation on:
    data, weights or a bias of unusual size, a factor.

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
            chance = _chance(loss)
            if chance is None or loss.value is None or loss.reduction != "mean" or loss.weighted or loss.similarities or not math.isfinite(loss.value):
                continue
            times, beyond = min((_LEAST[cause.kind] for cause in loss.magnitudes), default=_UNEXPLAINED)
            if loss.value < max(times * chance, chance + beyond):
                continue
            outputs = f"{loss.classes} classes" if loss.classes else "2 answers"
            causes = [culprit(cause.site, Role.CREATE, _LABELS[cause.kind]) for cause in loss.magnitudes if cause.site is not None]
            causes += [culprit(cause.used, Role.OPERAND, _USES[cause.kind]) for cause in loss.magnitudes if cause.site is None and cause.used is not None]
            seat = culprit(loss.site, Role.CALL if loss.site.library else Role.OPERAND, f"loss {number(loss.value)} over {outputs}")
            yield Diagnosis(
                self.name, f"the first loss is {number(loss.value)}; a model that knows nothing has {number(chance)}", Confidence.LIKELY if causes else Confidence.POSSIBLE,
                tuple({c.span: c for c in (seat, *reversed(causes))}.values())[::-1],
                observed(
                    f"the loss over {outputs} is {number(loss.value)}; equal scores give log({loss.classes or 2}) = {number(chance)}",
                    f"the scores lie between {number(loss.lowest)} and {number(loss.highest)}, with a standard deviation of {number(loss.spread)}",
                    *(cause.text for cause in loss.magnitudes),
                ),
                "Scores this large are a confident guess. Before training there is nothing to be confident about; " + (_found(loss) or
                "the likely reason is the size of the inputs or of the initial weights. For a model that was trained before, it is the labels or the preprocessing."),
                tuple(advice(_REMEDIES[kind]) for kind in dict.fromkeys(cause.kind for cause in loss.magnitudes)) or (advice("Scale the inputs and check the initialisation of the last layers."),),
            )  # fmt: skip


# Times what equal scores cost, and how much above that: the better the reason, the less it takes. An embedding that is used for
# the scores, too, is often left as `nn.Embedding` makes it.
_UNEXPLAINED = (6.0, 8.0)
_LEAST = {"bias": (2.5, 2.5), "weight": (2.5, 2.5), "factor": (2.5, 2.5), "input": (4.0, 5.0), "tied": _UNEXPLAINED}
_LABELS = {"bias": "the bias gets its values here", "tied": "the weights get their values here", "weight": "the weights get their values here", "input": "the data comes from here", "factor": "the scores are multiplied here"}
_USES = {"bias": "the bias is used here", "tied": "the weights are used here", "weight": "the weights are used here", "input": "the data is used here"}
_REASONS = {"bias": "the bias begins too large", "tied": "the scores are products with an embedding, whose numbers `nn.Embedding` draws with a standard deviation of 1", "weight": "the weights begin too wide", "input": "the data is not scaled", "factor": "a factor makes the scores large"}
_REMEDIES = {"bias": "Begin with a bias of 0, or with the logarithms of how often each class occurs.", "tied": "Begin with a smaller embedding: `nn.init.normal_(embedding.weight, std=0.02)`.", "weight": "Begin with smaller weights: a standard deviation of about 1/sqrt(the number of inputs), as `nn.Linear` does by itself.",
             "input": "Scale the data: subtract its mean and divide by its standard deviation.",
             "factor": "Leave the factor out, or make it smaller."}  # fmt: skip


def _chance(loss: LossCall) -> float | None:
    """What equal scores cost."""
    if loss.function == "binary_cross_entropy_with_logits":
        return math.log(2)
    known = loss.function == "cross_entropy" or (loss.function == "nll_loss" and loss.normalised)
    return math.log(loss.classes) if known and loss.classes and loss.classes > 1 else None


def _found(loss: LossCall) -> str:
    reasons = [_REASONS[kind] for kind in dict.fromkeys(cause.kind for cause in loss.magnitudes)]
    return f"here {' and '.join(reasons)}." if reasons else ""

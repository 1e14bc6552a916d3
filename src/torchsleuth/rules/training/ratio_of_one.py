"""A ratio of new and old probabilities that can only be 1."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, expression_of, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class RatioOfOne(AuditRule):
    """The old probabilities are computed with the new policy, in every step: their ratio is always 1.

    What happened
    -------------
    The loss takes `exp(new - old)` of two log-probabilities and limits it to a range around 1. Both were computed in the same way from
    the same tensors, the old one without history. This is done in each round of the loop that takes the steps, and the samples were
    drawn before that loop.

    Why
    ---
    The ratio compares the policy that drew the samples with the one that is trained on them. It begins at 1 and moves away from it with
    each step; the limit ends the steps that go too far. If the old value is computed anew each time, the ratio is 1 in every step, the
    limit never acts, and nothing keeps the policy near the one that drew the samples.

    Example
    -------
    This prints True, whatever `logits` are:

        import torch

        logits = torch.randn(5, requires_grad=True)
        new = torch.log_softmax(logits, 0)
        old = torch.log_softmax(logits, 0).detach()
        print(bool((torch.exp(new - old) == 1).all()))

    Fix
    ---
    Keep the log-probabilities when the samples are drawn, under `torch.no_grad()`, and pick the rows that belong to the batch:
    `ratio = torch.exp(new - old[rows])`.

    Common false explanations
    -------------------------
    "A ratio of 1 means that the policy is stable": it says nothing, if it cannot be anything else.
    """

    name = "ratio-of-one"
    order = 12

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for fact in observation.ratios:
            same = fact.made.span == fact.site.span
            culprits = [culprit(fact.made, Role.CREATE, "the old value is computed here, in every step, with what is being trained")]
            if not same:
                culprits.append(culprit(fact.site, Role.OPERAND, "is 1 in every element, in every step"))
            limit = f" `{expression_of(fact.limit)}` never changes anything." if fact.limit is not None else ""
            yield Diagnosis(
                self.name, "the ratio of new and old probabilities is always 1: the old ones are those of the policy that is being trained", Confidence.LIKELY, tuple(culprits),
                observed(f"both log-probabilities ({fact.count} of each) are computed by the same calls from the same tensors; the old one only lacks its history",
                         "both are computed in each round of the loop that takes the steps; the samples were drawn before that loop"),
                f"`exp(x - x)` is 1, and its gradient is that of `x`: this is a step without any limit.{limit}",
                (advice("Keep the log-probabilities of the samples when they are drawn, and take those of the batch's rows as the old ones."),),
            )  # fmt: skip

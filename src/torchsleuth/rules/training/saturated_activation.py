"""An activation that is given numbers for which it is flat."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, listed, number, observed
from torchsleuth.model import Confidence, Diagnosis, Fact, Known, Role


class SaturatedActivation(AuditRule):
    """A `sigmoid` or `tanh` is given numbers so far from zero that it is flat: next to no gradient comes through.

    What happened
    -------------
    Nearly all numbers that this activation was given in the first step lie where its slope is below a ten-thousandth. A run of the
    model as the program has left it shows the same. The parameters named reach the result by no other way.

    Why
    ---
    The gradient of `sigmoid(x)` is `s * (1 - s)`, that of `tanh(x)` is `1 - t * t`: both go to zero on either side of zero. Inputs
    that were never brought to a common scale, a bias that was filled with a large number, or weights that are too large push
    everything to where the function has nearly reached its limit.

    Example
    -------
    At 14 the slope of `sigmoid` is below a millionth. This prints True:

        import torch

        x = torch.tensor(14.0, requires_grad=True)
        torch.sigmoid(x).backward()
        print(0 < x.grad.item() < 1e-6)

    Fix
    ---
    Standardise the inputs (`(x - mean) / std`, each column by itself), begin a bias near zero (a gate that is to be open: 1 or 2),
    and leave the weights as the layer makes them. A normalisation before the activation does it for a deep network.

    Common false explanations
    -------------------------
    "The learning rate is too low": a hundred times as much of nearly nothing is nearly nothing.
    """

    name = "saturated-activation"
    order = 19

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for fact in observation.saturated:
            made = [culprit(fact.cause, Role.CREATE, "makes its inputs this large")] if fact.cause is not None else []
            facts = observed(
                f"`{fact.operation}` was given numbers from {number(fact.lowest)} to {number(fact.highest)}: for {fact.beyond} of {fact.count} of them its slope is below 0.0001",
                fact.reason,
            )
            yield Diagnosis(
                self.name, f"`{fact.operation}` is nearly flat for all that it is given: next to no gradient comes to {listed(fact.weights, 2)}", Confidence.LIKELY,
                (*made, culprit(fact.site, Role.LOST_GRAD, "nearly no gradient leaves here")),
                (*facts, Fact("a run of the model as the program has left it shows the same", Known.RECOMPUTED)),
                f"The slope of `{fact.operation}` goes to zero on both sides of zero; {listed(fact.weights)} reach{'es' if len(fact.weights) == 1 else ''} the result by no other way.",
                (advice("Bring what it is given near zero: standardise the inputs of the model, begin the bias near zero, keep the weights small."),),
            )  # fmt: skip

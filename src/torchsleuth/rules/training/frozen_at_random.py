"""A layer that is frozen before it has learned anything."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, listed, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class FrozenAtRandom(AuditRule):
    """A new layer was put in the place of another one, and frozen with its random weights.

    What happened
    -------------
    The program replaced a layer of a model by a new one. Then the parameters of that new layer were told not to need a gradient, and
    up to the end of the program nothing was written into them: they hold the random numbers that they were made with.

    Why
    ---
    `for p in model.parameters(): p.requires_grad = False` freezes what the model holds at that moment. Written after the new head was
    put in, it freezes the head, too; the rest of the network is then trained to serve a random projection, or nothing is.

    Example
    -------
    The new layer is frozen with the rest. This prints False:

        import torch

        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 10))
        model[1] = torch.nn.Linear(4, 3)
        for p in model.parameters():
            p.requires_grad = False
        print(model[1].weight.requires_grad)

    Fix
    ---
    Freeze first and put the new layer in afterwards; or switch it on again: `model.fc.requires_grad_(True)`, before the optimizer is
    built from the parameters that need a gradient.

    Common false explanations
    -------------------------
    "A pretrained model needs only little training": its new layer has had none.
    """

    name = "frozen-at-random"
    order = 9

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for fact in observation.frozen_at_random:
            yield Diagnosis(
                self.name, f"{listed(fact.weights, 2)} {'is' if len(fact.weights) == 1 else 'are'} frozen as the new layer began: nothing is learned there", Confidence.LIKELY,
                (culprit(fact.frozen, Role.MUTATE, "freezes the new layer, too"), culprit(fact.site, Role.CREATE, f"a new {fact.layer} is put in the place of another layer")),
                observed(f"{listed(fact.weights)} belong{'s' if len(fact.weights) == 1 else ''} to a {fact.layer} that was put in the place of another layer; nothing but first values (random numbers) was ever written there",
                         "they needed a gradient then, do not at the end of the program, and have not been changed; other parameters have been trained"),
                "What is switched off in a loop over `parameters()` is all that the model holds at that moment.",
                (advice("Put the new layer in after the loop that freezes, or switch it on again: `requires_grad_(True)`; both before the optimizer is built."),),
            )  # fmt: skip

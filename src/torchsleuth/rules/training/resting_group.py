"""A group of parameters whose learning rate is 0."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, listed, observed
from torchsleuth.model import Confidence, Diagnosis, Known, Role


class RestingGroup(AuditRule):
    """One group of the optimizer's parameters has a learning rate of 0: it is never trained, while the others are.

    What happened
    -------------
    The optimizer was given several groups of parameters. The learning rate of one of them was 0 in every step of the program. Its
    parameters got gradients, and at the end they are bit for bit what they were before the first step. No state was loaded into
    them: they are as random as they began.

    Why
    ---
    A rate in a group goes before the rate of the optimizer. A 0 there comes from a setting that was never filled in, from a division
    of integers, a factor for each layer that runs down to nothing, or a schedule whose function for this group gives 0.

    Example
    -------
    The second group stays as it is. This prints True:

        import torch

        body, head = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
        optimizer = torch.optim.SGD([{"params": [body]}, {"params": [head], "lr": 0.0}], lr=0.1)
        (body * head).sum().backward()
        optimizer.step()
        print(body.item() < 1.0 and head.item() == 1.0)

    Fix
    ---
    Give the group a rate above 0. What is meant to stay as it is says so with `requires_grad_(False)`, and costs no gradients then.

    Common false explanations
    -------------------------
    "The layer has converged": it has not moved by one bit, and its gradient is not zero.
    """

    name = "resting-group"
    order = 9

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for fact in observation.resting:
            culprits = []
            if fact.number is not None:
                culprits.append(culprit(fact.number, Role.CREATE, "the learning rate of 0 comes from here", Known.INFERRED))
            if fact.rate is not None:
                culprits.append(culprit(fact.rate, Role.CREATE, "is 0: the learning rate of this group", Known.INFERRED))
            if fact.scheduled is not None:
                culprits.append(culprit(fact.scheduled, Role.CREATE, "this schedule gives the group a learning rate of 0"))
            elif fact.rate is None and fact.built is not None:
                culprits.append(culprit(fact.built, Role.CALL, "is given the group here"))
            yield Diagnosis(
                self.name, f"{listed(fact.weights, 2)} {'is' if len(fact.weights) == 1 else 'are'} never trained: the learning rate of this group is 0", Confidence.LIKELY, tuple(culprits),
                observed(f"group {fact.group} of the {fact.groups} groups (counted from 0) of {fact.optimizer} had a learning rate of 0 in all {fact.steps} steps; the others had one above 0",
                         f"{listed(fact.weights)} got a gradient in the first step, and {'is' if len(fact.weights) == 1 else 'are'} bit for bit the same at the end of the program; no state was loaded there"),
                "A learning rate that stands in a group goes before the one that the optimizer is given for all.",
                (advice("Give this group a learning rate above 0; what is meant to stay as it is: `requires_grad_(False)`."),),
            )  # fmt: skip

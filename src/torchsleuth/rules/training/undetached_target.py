"""A gradient through what the loss takes as given."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.observation_training import Undetached
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, listed, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class UndetachedTarget(AuditRule):
    """What the loss should take as given has a history: the step trains it, too.

    What happened
    -------------
    The loss compares a network's value with a target that is made of a reward and the same network's value for the next input; or it
    multiplies the log-probability of a sample with an advantage, from which a value network's estimate was subtracted. Both times
    autograd followed the target, or the advantage, back into parameters that the optimizer holds.

    Why
    ---
    The derivation of these losses takes the target as a constant. With its history the step also moves the target towards the guess:
    the network learns to expect less of the next state, not to predict this one. A value network that gets a gradient through the
    advantage is taught to make likely samples look bad; it has nothing to do with how good its estimate is.

    Example
    -------
    The guess is 1, the target 0 + 0.9 * 2, and one weight gives both. With the target as a constant the gradient is negative, and the
    weight grows; through the target it has another sign. This prints True:

        import torch

        w = torch.ones(1, requires_grad=True)
        guess, target = w * 1.0, 0.9 * (w * 2.0)
        (constant,) = torch.autograd.grad((guess - target.detach()).square().sum(), w, retain_graph=True)
        (followed,) = torch.autograd.grad((guess - target).square().sum(), w)
        print(constant.item() < 0 < followed.item())

    Fix
    ---
    `target.detach()`, or compute the next value under `torch.no_grad()`; `advantage.detach()` in the loss of the policy. The loss of
    the value network keeps the history of its own estimate.

    Common false explanations
    -------------------------
    "The loss goes down, so it works": the loss goes down faster when the target gives way.
    """

    name = "undetached-target"
    order = 8

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for fact in observation.undetached:
            yield _target(fact) if fact.kind == "target" else _score(fact)


def _target(fact: Undetached) -> Diagnosis:
    apart = fact.made is not None and fact.made.span.line != fact.site.span.line
    culprits = [culprit(fact.site, Role.CREATE, "the target has a history: it is computed with gradients")]
    if fact.made is not None and apart:
        culprits.append(culprit(fact.made, Role.CREATE, "the network's value for the next input, with its history"))
    return Diagnosis(
        UndetachedTarget.name, f"the gradient goes through the target, too, and trains {listed(fact.weights, 2)} to meet the guess", Confidence.LIKELY, tuple(culprits),
        observed("the loss compares a value of the network with this, which is a given number and a share of the same network's value for other inputs",
                 f"this needs a gradient, and the optimizer holds {listed(fact.weights)}, which get one through it"),
        "The target is to be taken as given: with its history, half of the step moves the target instead of the guess.",
        (advice("Cut its history: `.detach()` on the target, or compute the next value under `torch.no_grad()`."),),
    )  # fmt: skip


def _score(fact: Undetached) -> Diagnosis:
    return Diagnosis(
        UndetachedTarget.name, f"the policy's loss trains {listed(fact.weights, 2)} through the advantage", Confidence.LIKELY,
        (culprit(fact.site, Role.OPERAND, "the log-probability of a sample is multiplied with something that has a history of its own"),),
        observed("the sample was drawn without history, and its log-probability is multiplied with a return from which an estimate was subtracted",
                 f"that estimate needs a gradient here, and the optimizer holds {listed(fact.weights)}, which get one through it"),
        "The score of a sample is weighted with a number. A gradient through that number teaches the estimate to change with how likely the sample was, not to be right.",
        (advice("Multiply with `advantage.detach()`; the loss of the value network keeps the history."),),
    )  # fmt: skip

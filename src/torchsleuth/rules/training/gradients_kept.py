"""Gradients that a step has used and that the next backward pass adds to."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import KeptGradient, Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, number, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class GradientsKept(AuditRule):
    """A gradient that one step has used is still there when the next backward pass adds its own.

    What happened
    -------------
    torchsleuth watched one parameter of the optimizer over the first steps. When the second `backward()`
    reached it, its `.grad` still held what the first `step()` had used, and the second `step()` used the sum.

    Why
    ---
    `backward()` adds to `.grad`, and `step()` does not clear it. Without `zero_grad()` in between, step n
    uses the sum of n gradients, most of them of parameters as they no longer are.
    How accumulating on purpose is told from forgetting: several backward passes before one step add to a
    gradient that no step has used yet. Only one that a step *has* used is reported.

    Example
    -------
    The same gradient, added twice. This prints 3.0 and then 6.0:

        import torch

        w = torch.ones(1, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.0)
        for _ in range(2):
            (3 * w).sum().backward()
            optimizer.step()
            print(w.grad.item())

    Fix
    ---
    `optimizer.zero_grad()` once for each `optimizer.step()`, before `backward()` or right after the step.

    Common false explanations
    -------------------------
    "The optimizer clears the gradients it has used": it never does. "It acts like momentum": momentum
    lets old gradients fade, here they all count in full for ever.
    """

    name = "gradients-kept"
    order = 6

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for fact in observation.kept:
            yield _diagnosis(fact)


def _diagnosis(fact: KeptGradient) -> Diagnosis:
    culprits = []
    if fact.backward is not None:
        culprits.append(culprit(fact.backward, Role.MUTATE, "adds to gradients that the step before has already used"))
    if fact.site is not None:
        culprits.append(culprit(fact.site, Role.CALL, "uses the sum"))
    steps = f"in {fact.times} of the {fact.chances} steps watched after the first one" if fact.chances > 1 else "at the second step"
    return Diagnosis(
        GradientsKept.name, "gradients are not cleared between steps: each step uses those of the steps before it too",
        Confidence.CERTAIN, tuple(culprits),
        observed(
            f"when `backward()` reached `{fact.weight}` again, its `.grad` still held the gradient that {fact.optimizer} had used "
            f"in the step before (norm {number(fact.norm)})",
            f"this was so {steps}",
        ),
        "`backward()` adds to `.grad`, and no step clears it.",
        (advice("Call `optimizer.zero_grad()` before `backward()`, once for each step."),),
    )  # fmt: skip

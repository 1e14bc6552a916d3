"""Gradients between the steps: kept although they were used, cleared before they were used, and added to those of another loss."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.observation_training import DiscardedGradient, KeptGradient, MixedGradient
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, number, observed, uncalled
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
            yield _by_hand(fact) if not fact.optimizer else _within(fact) if fact.within else _diagnosis(fact)


def _by_hand(fact: KeptGradient) -> Diagnosis:
    culprits = [culprit(fact.backward, Role.MUTATE, "adds to gradients that the step before has already used")] if fact.backward is not None else []
    if fact.site is not None:
        culprits.append(culprit(fact.site, Role.CALL, "uses the sum, and leaves it there"))
    return Diagnosis(
        GradientsKept.name, "gradients are not cleared between steps: each step uses those of the steps before it too", Confidence.CERTAIN, tuple(culprits),
        observed(f"when `backward()` reached {fact.weight} again, its `.grad` was bit for bit what it had been before the parameter was changed (norm {number(fact.norm)})",
                 f"this was so in {fact.times} of the {fact.chances} backward passes watched after the first one; no optimizer holds it"),
        "`backward()` adds to `.grad`; where steps are taken by hand, clearing it is the program's own business.",
        (advice("Clear it after each step: `p.grad = None` (or `p.grad.zero_()`) for every parameter, or `model.zero_grad()` before `backward()`."),),
    )  # fmt: skip


def _within(fact: KeptGradient) -> Diagnosis:
    culprits = [culprit(fact.backward, Role.MUTATE, "adds to the gradients of the closure's call before")] if fact.backward is not None else []
    if fact.site is not None:
        culprits.append(culprit(fact.site, Role.CALL, "calls the closure several times"))
    return Diagnosis(
        GradientsKept.name, "gradients are not cleared between the calls of the closure: each call adds to those before it", Confidence.CERTAIN, tuple(culprits),
        observed(f"within one step of {fact.optimizer} the closure was called several times; when `backward()` reached `{fact.weight}` again, its `.grad` still held "
                 f"what the call before it had left there (norm {number(fact.norm)})",
                 f"this was so in {fact.times} of the {fact.chances} steps watched after the first one"),
        f"{fact.optimizer} asks its closure for the loss and the gradient at several points of one step; gradients of other points are no part of the answer.",
        (advice("Call `optimizer.zero_grad()` in the closure, before `backward()`: the step calls it several times."),),
    )  # fmt: skip


def _diagnosis(fact: KeptGradient) -> Diagnosis:
    culprits = uncalled(fact.named)
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
        "`backward()` adds to `.grad`, and nothing clears it between these steps.",
        (advice("Call it: `zero_grad()`, with its parentheses." if fact.named is not None else
                "Call `optimizer.zero_grad()` in the closure, before `backward()`: the step calls it several times." if fact.closure else
                "Call `optimizer.zero_grad()` before `backward()`, once for each step."),),
    )  # fmt: skip


class GradientsDiscarded(AuditRule):
    """Gradients are cleared before any step has used them: only the last of several backward passes counts.

    What happened
    -------------
    torchsleuth watched one parameter of the optimizer over a few steps. Before each step the same `backward()`
    came several times, and each time what the one before had left in `.grad` was gone.

    Why
    ---
    Gradients are accumulated over several batches by calling `backward()` for each and `step()` once; they add
    up only if nothing clears them in between. With `zero_grad()` in every round, the step uses the last batch alone:
    the others cost their time and teach nothing, and where the loss was divided by their number the step is too small.
    How gradients that are made to be looked at (an attack, a norm to log) are told from these: they come from another
    `backward()` than the one whose gradients the step uses.

    Example
    -------
    Two backward passes of 3 each, and a gradient of 3. This prints 3.0:

        import torch

        w = torch.ones(1, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            (3 * w).sum().backward()
        print(w.grad.item())

    Fix
    ---
    `zero_grad()` where `step()` is, once for each step: right after it, inside the same `if`.

    Common false explanations
    -------------------------
    "Dividing the loss by the number of batches makes it an average": of one batch and many zeros.
    """

    name = "gradients-discarded"
    order = 7

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for fact in observation.discarded:
            yield _discarded(fact)


def _discarded(fact: DiscardedGradient) -> Diagnosis:
    culprits = []
    if fact.cleared is not None:
        culprits.append(culprit(fact.cleared, Role.MUTATE, "clears gradients that no step has used"))
    elif fact.backward is not None:
        culprits.append(culprit(fact.backward, Role.CALL, f"comes {fact.count} times before each step, and finds what it left the time before gone"))
    return Diagnosis(
        GradientsDiscarded.name, f"{fact.count - 1} of {fact.count} gradients are cleared before a step has used them",
        Confidence.CERTAIN, tuple(culprits),
        observed(
            f"before each of the {fact.steps} steps watched, `backward()` reached `{fact.weight}` {fact.count} times, and each time its `.grad` was empty",
            f"{fact.optimizer} stepped with the gradient of the last of the {fact.count} backward passes alone",
        ),
        "Gradients add up over several backward passes only if they are not cleared in between.",
        (advice("Take a step for each backward pass: `optimizer.step()` right after `backward()`, in the same loop. Or, to add up gradients, clear them once "
                "for each step: `optimizer.zero_grad()` right after `optimizer.step()`, where that stands."),),
    )  # fmt: skip


class GradientsMixed(AuditRule):
    """A step uses gradients that the loss of another optimizer's step has left there, and that work against its own.

    What happened
    -------------
    Two optimizers take turns. The loss of the first one's step goes back to the second one's parameters too, and leaves
    gradients there; nothing clears them, and the second one's own loss adds to them. torchsleuth compared the two: they
    point against one another.

    Why
    ---
    `backward()` gives gradients to everything the loss was computed from, whoever is about to take a step. A
    discriminator's loss on generated samples reaches the generator, unless the samples are detached, and there it asks
    for the opposite of what the generator's loss asks for. If the generator's gradients were cleared before and not after, its step
    uses the sum of both.

    Example
    -------
    The first loss leaves its gradient with `g`, and the second adds to it: nothing is left. This prints 0.0:

        import torch

        g = torch.ones(1, requires_grad=True)
        d = torch.ones(1, requires_grad=True)
        (g * d).sum().backward()
        d.grad = None
        (-g * d).sum().backward()
        print(g.grad.item())

    Fix
    ---
    `discriminator(fake.detach())` in the discriminator's step, or `zero_grad()` of the generator's optimizer right
    before the generator's `backward()`.

    Common false explanations
    -------------------------
    "`optimizer_d.step()` only changes the discriminator, so its loss only concerns the discriminator": the step does,
    the gradients do not.
    """

    name = "gradients-mixed"
    order = 7

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for fact in observation.mixed:
            yield _mixed(fact)


def _mixed(fact: MixedGradient) -> Diagnosis:
    culprits = []
    if fact.entry is not None:
        culprits.append(culprit(fact.entry, Role.OPERAND, f"what it is given still has its history, which goes back to `{fact.weight}`"))
    elif fact.early is not None:
        culprits.append(culprit(fact.early, Role.MUTATE, f"leaves gradients with `{fact.weight}`, which the step after it does not train"))
    if fact.late is not None:
        culprits.append(culprit(fact.late, Role.MUTATE, "adds to the gradients that the other loss has left there"))
    return Diagnosis(
        GradientsMixed.name, "a step uses the gradients of another step's loss, which work against its own", Confidence.LIKELY, tuple(culprits),
        observed(
            f"`.grad` of `{fact.weight}` still held what the first loss had left there when the second one's gradient arrived; a step of another optimizer ({fact.other}) came in between",
            f"the two gradients point against one another (cosine {number(fact.cosine)}), and {fact.optimizer} used their sum",
        ),
        "`backward()` gives gradients to everything its loss was computed from, not only to what the next step trains.",
        (advice("Detach what the first loss is computed from (`discriminator(fake.detach())`), or clear these gradients between the two backward passes."),),
    )  # fmt: skip

"""Gradients of a scaled loss that are used or limited before the scale is taken out again."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import ScaledGradient
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, number, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class ScaledGradients(AuditRule):
    """The loss was multiplied by a gradient scaler, and its gradients were used or clipped without dividing them again.

    What happened
    -------------
    `scaler.scale(loss)` multiplies the loss by a large number (65536 at the start), so that small gradients survive half
    precision. The gradients are that many times too large until `scaler.unscale_(optimizer)` or `scaler.step(optimizer)`
    divides them. Here the optimizer took its step before that, or they were clipped before that.

    Why
    ---
    `optimizer.step()` knows nothing of the scaler: it takes steps that are too long by the scale, and does not skip
    gradients that have overflowed. A limit for the norm that is applied to scaled gradients is a limit of 1/65536 of what
    was meant: nearly every step is cut down to it.

    The other way round, `scaler.step(optimizer)` divides whatever gradients there are: those of a loss that was not multiplied
    come out too small by the scale. `scaler.scale(loss)` returns the product and leaves `loss` as it is.

    Example
    -------
    A gradient of 3 is clipped to a norm of 1 while it is 65536 times as large. This prints True: next to nothing is left of it
    when it is unscaled:

        import torch

        w = torch.ones(1, requires_grad=True)
        scale = 65536.0
        (3 * w * scale).sum().backward()
        torch.nn.utils.clip_grad_norm_([w], 1.0)
        print(bool((w.grad / scale).norm() < 1e-4))

    Fix
    ---
    `scaler.scale(loss).backward()`, `scaler.unscale_(optimizer)`, clip, `scaler.step(optimizer)`, `scaler.update()`, in this order.

    Common false explanations
    -------------------------
    "Adam does not care about the scale": not about a constant one; but the scale changes, overflows are no longer
    skipped, and weight decay and clipping do care.
    """

    name = "scaled-gradients"
    order = 6

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        fact = observation.scaled
        if fact is None or fact.site is None:
            return
        if fact.kind == "unscaled":
            yield _never_scaled(fact, fact.site)
            return
        stepped = fact.kind == "step"
        times = f"{fact.scale:g}"
        culprits = [culprit(fact.site, Role.CALL if stepped else Role.MUTATE, f"uses gradients that are {times} times too large" if stepped else f"limits gradients that are still {times} times too large")]
        if fact.scaled is not None and fact.scaled.span.line != fact.site.span.line:
            culprits.append(culprit(fact.scaled, Role.CREATE, "the gradients of the scaled loss"))
        yield Diagnosis(
            self.name, f"the step uses gradients of the scaled loss, {times} times too large" if stepped else f"gradients are clipped while they are scaled: the limit is {times} times smaller than meant",
            Confidence.CERTAIN, tuple(culprits),
            observed(
                f"the loss was multiplied by the scaler's scale, {times}, before `backward()`",
                f"{fact.optimizer} took its step without `scaler.step()`, and nothing had divided the gradients" if stepped else
                f"the gradients were written to by this before they were unscaled; a limit of 1 on them is one of {number(1 / fact.scale)} on the true ones",
            ),
            "`optimizer.step()` knows nothing of the scaler." if stepped else "What limits gradients has to see them as they are.",
            (advice("Call `scaler.step(optimizer)` and `scaler.update()` in the place of `optimizer.step()`." if stepped else
                    "Call `scaler.unscale_(optimizer)` before clipping; `scaler.step(optimizer)` then does not unscale again."),),
        )  # fmt: skip


def _never_scaled(fact: ScaledGradient, site: Site) -> Diagnosis:
    times = f"{fact.scale:g}"
    culprits = [culprit(fact.scaled, Role.CREATE, "the gradients of a loss that no scaler has multiplied")] if fact.scaled is not None else []
    if fact.dropped is not None:
        culprits.insert(0, culprit(fact.dropped, Role.CREATE, "returns the scaled loss, which nothing takes up"))
    return Diagnosis(
        ScaledGradients.name, f"the scaler divides gradients by {times} that were never multiplied by it", Confidence.CERTAIN,
        (*culprits, culprit(site, Role.CALL, f"divides them by {times}")),
        observed(f"the loss of this `backward()` was not computed from the scaler's scale, {times}", f"{fact.optimizer} took its step through `scaler.step()`, which divides by that"),
        f"The gradients that the step uses are {times} times too small. Adam hides much of that, until its `eps` counts; with SGD next to nothing is learned.",
        (advice("Call `scaler.scale(loss).backward()`; for every loss whose gradients `scaler.step(optimizer)` uses."),),
    )  # fmt: skip

"""Backward on something that is not a scalar, or with a gradient of the wrong shape."""

from __future__ import annotations

import re

from torchsleuth.evidence import BackwardRoot, Evidence
from torchsleuth.model import Applicability, Confidence, Diagnosis, Fact, Fix, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.wording import short


class NonscalarBackward(CrashRule):
    """`backward()` was called on a tensor with more than one element, without saying in which direction.

    What happened
    -------------
    The derivative of one number is a gradient. The tensor here has several elements, so there are as many gradients,
    and `backward()` computes only a weighted sum of them: it needs the weights, or a single number to start from.

    Why
    ---
    Usually a reduction is missing: a loss with `reduction="none"`, a `mean()` or `sum()` that was forgotten, or a
    reduction over only some of the dimensions.

    Example
    -------
    This raises "grad can be implicitly created only for scalar outputs":

        import torch

        x = torch.ones(3, requires_grad=True)
        loss = (x - 1) ** 2
        loss.backward()

    Fix
    ---
    Reduce to one number: `loss.mean().backward()` (or `sum`). Only if you do want a particular weighted sum, pass the
    weights: `loss.backward(weights)` with the shape of `loss`.

    Common false explanations
    -------------------------
    "Pass `torch.ones_like(loss)`." That runs, and it is the same as `loss.sum().backward()`: with a batch of 32 the
    gradient is 32 times that of the mean. This runs and prints both:

        import torch

        x = torch.ones(4, requires_grad=True)
        (x * 2).backward(torch.ones(4))
        ones = x.grad.clone()
        x.grad = None
        (x * 2).mean().backward()
        print(ones, x.grad)
    """

    name = "nonscalar-backward"
    messages = (
        r"grad can be implicitly created only for scalar outputs",
        r"Mismatch in shape: grad_output\[\d+\] has a shape",
        r"Expected f\(\*args\) to return a scalar Tensor, got tensor with \d+ dims",
    )
    needs = ("backward_root",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        found = evidence.backward_root
        if found is None:
            return None
        root = found.root
        if "Expected f(*args)" in evidence.exception.message:
            return self._of_function(found)
        mismatch, asked = "Mismatch in shape" in evidence.exception.message, asks_for_gradients(found)
        count = 1
        for size in root.shape:
            count *= size
        culprits = [found.call.culprit(Role.CALL, f"{root.called} has shape {root.size}, {count} elements")]
        if found.made is not None and found.made.span != found.call.span:
            place = found.made.via or found.made
            culprits.append(place.culprit(Role.CREATE, f"made {root.called} {root.size}"))
        facts = [Fact(f"{root.called} has shape {root.size} ({count} elements).", Known.OBSERVED)]
        if found.unreduced is not None:
            place = found.unreduced.via or found.unreduced
            facts.append(Fact(f"`{short(place.source)}` (line {place.span.line}) is a loss computed with `reduction=\"none\"`: one value for each element, not their mean.", Known.OBSERVED))
        if mismatch and found.gradient is not None:
            facts.append(Fact(f"The gradient passed in, {found.gradient.called}, has shape {found.gradient.size}.", Known.OBSERVED))
            call = "`autograd.grad` as `grad_outputs`" if asked else "`backward()`"
            title = f"The gradient passed to {call} has shape {found.gradient.size}, but {root.called} has {root.size}"
            why = f"The gradient given to {call} holds one weight for each element, so it must have the same shape."
            fixes = (Fix(f"Pass a gradient of shape {root.size}, or reduce to a scalar first.", Applicability.DISPLAY_ONLY),)
        else:
            title = f"{'The gradient was asked for of' if asked else '`backward()` was called on'} {root.called}, which has {count} elements, not one"
            why = (
                "Backward starts from one number. A tensor with several elements has a gradient for each of them, and PyTorch "
                "does not guess how to combine them."
            )
            name = root.name or "loss"
            fixes = (
                Fix(
                    f"Reduce it first: `{name}.sum()`, or `.mean()`." if asked else f"Reduce it first: `{name}.mean().backward()`, or `.sum()`.",
                    Applicability.DISPLAY_ONLY,
                    meaning="mean and sum differ by the number of elements, and so do their gradients.",
                ),
            )
        return Diagnosis(self.name, title, Confidence.CERTAIN, tuple(culprits), tuple(facts), why, fixes)

    def _of_function(self, found: BackwardRoot) -> Diagnosis:
        """`torch.func.grad(f)`, where `f` returns more than one number."""
        root, made = found.root, found.made
        culprits = [made.culprit(Role.CREATE, f"returns shape {root.size}")] if made is not None else []
        if made is None or made.span != found.call.span:
            culprits.append(found.call.culprit(Role.CALL, "takes the gradient of one number"))
        return Diagnosis(
            self.name,
            f"The function whose gradient is taken returns a tensor of shape {root.size}, not one number",
            Confidence.CERTAIN,
            tuple(culprits),
            (Fact(f"It returned shape {root.size}{', without the dimension that `vmap` maps over' if found.mapped else ''}.", Known.OBSERVED),),
            "`torch.func.grad` differentiates a function that returns one number. Of several numbers it would not know which combination is meant.",
            (
                Fix("Reduce it in the function: `return loss.mean()` (or `sum`).", Applicability.DISPLAY_ONLY),
                Fix("For all derivatives of all outputs use `torch.func.jacrev`.", Applicability.DISPLAY_ONLY),
            ),
        )


def asks_for_gradients(found: BackwardRoot) -> bool:
    """`torch.autograd.grad(u, x)`, which returns them; `u.backward()` adds them to the leaves."""
    return re.match(r"([\w.]+\.)?grad\(", found.call.source) is not None

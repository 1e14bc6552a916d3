"""A second derivative through a Function that allows only one."""

from __future__ import annotations

from torchsleuth.evidence import Evidence
from torchsleuth.model import Applicability, Confidence, Culprit, Diagnosis, Fact, Fix, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.wording import short


class OnceDifferentiable(CrashRule):
    """A gradient was differentiated again, through a custom Function whose backward is marked `@once_differentiable`.

    What happened
    -------------
    The loss contains a gradient (a gradient penalty, an inner step of meta learning, a Hessian), taken with `create_graph=True`. On
    the way lies a custom Function whose `backward` does not record what it does.

    Why
    ---
    `@once_differentiable` runs `backward` without recording. Its result is a gradient without a history, so it cannot be
    differentiated a second time; torch says so instead of giving a wrong second derivative.

    Example
    -------
    This raises "trying to differentiate twice a function that was marked with @once_differentiable":

        import torch
        from torch.autograd.function import once_differentiable

        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            @once_differentiable
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                return grad * 2 * x

        w, x = torch.ones(2, 3, requires_grad=True)
        (g,) = torch.autograd.grad((w * Square.apply(x)).sum(), x, create_graph=True)
        g.pow(2).sum().backward()

    Fix
    ---
    If `backward` consists of torch operations on tensors from `save_for_backward`, take the mark off: they are recorded then. If it
    uses numpy, a kernel of its own or writes in place, give its computation a Function (with a backward) of its own.

    Common false explanations
    -------------------------
    "Use `retain_graph=True`." That keeps the graph of the first derivative; there is none of the second. This raises
    "trying to differentiate twice a function that was marked with @once_differentiable" all the same:

        import torch
        from torch.autograd.function import once_differentiable

        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            @once_differentiable
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                return grad * 2 * x

        w, x = torch.ones(2, 3, requires_grad=True)
        (g,) = torch.autograd.grad((w * Square.apply(x)).sum(), x, create_graph=True, retain_graph=True)
        g.pow(2).sum().backward(retain_graph=True)
    """

    name = "once-differentiable"
    messages = (r"differentiate twice a function that was marked with @once_differentiable",)
    needs = ("second_derivative",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        found = evidence.second_derivative
        if found is None:
            return None
        culprits: list[Culprit] = []
        for place, role, label in (
            (found.mark, Role.LOST_GRAD, f"`{found.function}.backward` is not recorded"),
            (found.forward_call, Role.CALL, f"applies `{found.function}`"),
            (found.first, Role.CALL, "took the first derivative"),
            (found.second, Role.CALL, "takes the second"),
        ):
            place = place.via or place if place is not None else None
            if place is not None:
                culprits.append(place.culprit(role, label))
        facts = [Fact(f"`{found.function}.backward`, which is marked with `@once_differentiable`, had run before this second derivative was asked for.", Known.OBSERVED)]
        if found.first is not None:
            facts.append(Fact(f"`{short((found.first.via or found.first).source)}` was the last call of `autograd.grad` before.", Known.OBSERVED))
        return Diagnosis(
            self.name,
            f"The gradient through `{found.function}` is differentiated again, but its backward is marked `@once_differentiable`",
            Confidence.CERTAIN,
            tuple(culprits),
            tuple(facts),
            "A backward with this mark runs without being recorded. The gradient that it returns has no history, and a second derivative has nothing to go along.",
            (
                Fix(
                    f"Take `@once_differentiable` off `{found.function}.backward`, if that consists of torch operations on what `save_for_backward` kept.",
                    Applicability.DISPLAY_ONLY,
                ),
            ),
        )

"""A backward that does not multiply by the gradient it is given."""

from __future__ import annotations

from torchsleuth.checker.trial import FunctionRule, Trial
from torchsleuth.model import Diagnosis
from torchsleuth.rules.function.wording import diagnosis, name_of, values_with, where, whose


class IgnoresGradOutput(FunctionRule):
    """A custom backward returns a gradient that does not depend on grad_output.

    What happened
    -------------
    backward was called twice with different grad_outputs and returned the same gradient. The chain rule
    asks for the local derivative times what arrives from later layers.

    Why
    ---
    `y.sum().backward()` sends ones into backward, and with ones a forgotten factor does no harm: a test
    written that way passes. In a network the gradient of everything before this Function is then wrong.

    Example
    -------
    The gradient of 3 * x ** 2 at x = 1 is 6; this prints 2.0:

        import torch

        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, grad_output):
                (x,) = ctx.saved_tensors
                return 2 * x

        x = torch.tensor(1.0, requires_grad=True)
        (3 * Square.apply(x)).backward()
        print(x.grad.item())

    Fix
    ---
    Multiply by it: `return grad_output * 2 * x`.

    Common false explanations
    -------------------------
    "The loss is the last operation, so its grad_output is one": it is not under gradient scaling (AMP),
    gradient accumulation by `(loss / n).backward()`, or a weighted sum of losses.
    """

    name = "backward-ignores-grad-output"
    priority = 86

    def judge(self, trial: Trial) -> tuple[Diagnosis, ...]:
        out = []
        for finding in values_with(trial, "no-grad-output"):
            holds = finding.relation.holds
            title = f"{whose(trial, finding)} {'do' if len(finding.names) > 1 else 'does'} not depend on grad_output"
            if holds:
                title += ": right only when that is all ones"
            why = "Two different grad_outputs gave the same gradient. " + (
                "With a grad_output of ones, which is what `.sum().backward()` sends, the gradient is right; that hides the missing factor."
                if holds
                else "Even with a grad_output of ones it is not the true gradient."
            )
            out.append(diagnosis(self.name, title + where(finding), trial, finding, why, "multiply by grad_output"))
        for finding in values_with(trial, "not-linear"):
            name = name_of(trial, finding)
            if finding.relation.detail == "offset":
                title = f"a part of the gradient for `{name}` does not depend on grad_output"
                why = "With a grad_output of zeros backward still returns something other than zeros: one of its terms lacks the factor grad_output."
            else:
                title = f"the gradient for `{name}` is not proportional to grad_output"
                why = "With twice the grad_output the gradient is not twice as large: a term has grad_output squared, or under another function."
            out.append(diagnosis(self.name, title + where(finding), trial, finding, why, "every term must contain grad_output exactly once, as a factor"))
        return tuple(out)

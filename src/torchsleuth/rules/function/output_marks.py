"""Advice about outputs: views of inputs, and integer outputs that are not marked."""

from __future__ import annotations

from torchsleuth.checker.trial import FunctionRule, Trial
from torchsleuth.model import Applicability, Confidence, Diagnosis, Fact, Fix, Known
from torchsleuth.rules.function.wording import culprits


class OutputMarks(FunctionRule):
    """A custom forward returns a view of an input, or an integer output without marking it.

    What happened
    -------------
    An output shares its memory with an input; or an output is an integer tensor (indices, a mask) and
    `ctx.mark_non_differentiable` was not called for it. Neither makes a gradient wrong; this is advice.

    Why
    ---
    autograd cannot rebase the history of a view made inside a custom Function, so any later in-place
    operation on the output raises. An unmarked integer output makes autograd build a gradient of zeros for
    it on every backward; marking it says what is meant.

    Example
    -------
    The output is a view of x and is then changed in place. This raises "Output 0 of Flatten is a
    view and is being modified inplace":

        import torch

        class Flatten(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.shape = x.shape
                return x.view(-1)

            @staticmethod
            def backward(ctx, grad_output):
                return grad_output.view(ctx.shape)

        x = torch.randn(3, 4, requires_grad=True)
        torch.relu_(Flatten.apply(x))

    Fix
    ---
    Return a copy (`x.reshape(-1).clone()`) where the output may be changed in place; call
    `ctx.mark_non_differentiable(indices)` for integer outputs.

    Common false explanations
    -------------------------
    "Returning a view gives wrong gradients": it does not; in-place changes of it raise.
    """

    name = "function-output-marks"
    advice = True
    priority = 10

    def judge(self, trial: Trial) -> tuple[Diagnosis, ...]:
        out = []
        for finding in trial.of_kind("view"):
            name = finding.names[0]
            kind = f"`{name}` itself" if finding.detail == "same" else f"a view of `{name}`"
            out.append(
                Diagnosis(
                    self.name, f"forward returns {kind}: in-place operations on the output raise", Confidence.POSSIBLE, culprits(finding.culprit),
                    (Fact(f"the output shares the memory of `{name}`", Known.OBSERVED),),
                    "The gradient is not affected. autograd refuses in-place changes of a view made inside a custom Function.",
                    (Fix("return a copy (.clone()) if the output may be changed in place", Applicability.DISPLAY_ONLY),),
                )
            )  # fmt: skip
        for finding in trial.of_kind("unmarked-integer"):
            out.append(
                Diagnosis(
                    self.name, f"output {finding.input} is {finding.returned_dtype} and not marked non-differentiable", Confidence.POSSIBLE,
                    culprits(finding.culprit), (),
                    "The gradient is not affected: autograd never asks for one of integers. Marking it saves a tensor of zeros on every backward.",
                    (Fix("call ctx.mark_non_differentiable on it", Applicability.DISPLAY_ONLY),),
                )
            )  # fmt: skip
        return tuple(out)

"""The right numbers in the wrong places: transposed, flipped, shifted, or the map applied the wrong way round."""

from __future__ import annotations

from torchsleuth.checker.trial import FunctionRule, Trial
from torchsleuth.model import Diagnosis
from torchsleuth.rules.function.wording import diagnosis, name_of, values_with, where


class TransposedGradient(FunctionRule):
    """A custom backward returns the true gradient with its elements in other places.

    What happened
    -------------
    The returned gradient holds the right numbers, but transposed, reversed or shifted along a dimension;
    or backward applied the forward map to grad_output where its transpose was needed.

    Why
    ---
    The gradient of a linear map y = A x is A^T times grad_output. A missing or extra `.t()` shows up as a
    shape error only if the matrix is not square, and a cumulative sum's backward must run from the end.

    Example
    -------
    Here `weight` is square, so the transposed gradient fits; the true one has 3.0 at [0, 1]. This
    prints 0.0:

        import torch

        class Linear(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, weight):
                ctx.save_for_backward(x, weight)
                return x @ weight.t()

            @staticmethod
            def backward(ctx, grad_output):
                x, weight = ctx.saved_tensors
                return grad_output @ weight, x.t() @ grad_output

        x = torch.tensor([[0.0, 3.0]])
        weight = torch.zeros(2, 2, requires_grad=True)
        Linear.apply(x, weight)[0, 0].backward()
        print(weight.grad[0, 1].item())

    Fix
    ---
    Swap the factors, or transpose the result: `grad_output.t() @ x`.

    Common false explanations
    -------------------------
    "Matrix shapes match, so the formula is right": for square matrices every transposition matches.
    """

    name = "backward-transposed-gradient"
    priority = 84

    def judge(self, trial: Trial) -> tuple[Diagnosis, ...]:
        out = []
        for finding in values_with(trial, "transposed", "rearranged", "permuted", "adjoint"):
            relation, name = finding.relation, name_of(trial, finding)
            if relation.kind == "transposed":
                a, b = relation.dims
                title = f"the gradient for `{name}` is transposed (dimensions {a} and {b})"
                why = (f"The returned gradient equals the true one with dimensions {a} and {b} exchanged. It goes through only because "
                       f"those dimensions have the same size here.")  # fmt: skip
                advice = f"exchange dimensions {a} and {b} of this gradient"
            elif relation.kind == "rearranged":
                dim = relation.dims[0]
                title = f"the gradient for `{name}` is {relation.detail} along dimension {dim}"
                steps = "one" if relation.factor == 1 else f"{relation.factor:g}"
                verb = "reversed" if relation.detail == "flipped" else f"shifted by {steps}"
                why = f"The returned gradient equals the true one {verb} along dimension {dim}."
                advice = f"undo the {'reversal' if relation.detail == 'flipped' else 'shift'} along dimension {dim}"
                if relation.detail == "halves":
                    title = f"the two halves of the gradient for `{name}` along dimension {dim} are exchanged"
                    why = f"The returned gradient equals the true one with its two halves along dimension {dim} exchanged."
                    advice = f"exchange the two halves along dimension {dim}"
            elif relation.kind == "permuted":
                title = f"the gradient for `{name}` has the right values in the wrong places"
                why = ("Its elements are those of the true gradient, in another order. Frequent causes: an index where its inverse is needed (gather for "
                       "scatter), sizes in another order in a reshape, or a permutation that is not undone.")  # fmt: skip
                advice = "put the elements where they belong"
            else:
                title = f"the gradient for `{name}` applies forward's map to grad_output, not the transpose of it"
                why = ("The returned gradient equals the Jacobian times grad_output. backward needs the transposed Jacobian times "
                       "grad_output: for a cumulative sum, for instance, the sum from the end.")  # fmt: skip
                advice = "use the transpose (adjoint) of forward's linear map"
            out.append(diagnosis(self.name, title + where(finding), trial, finding, why, advice))
        return tuple(out)

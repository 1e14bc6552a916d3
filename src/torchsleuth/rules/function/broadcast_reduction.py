"""A broadcast input whose gradient is reduced wrongly, or an unbroadcast one whose gradient is reduced at all."""

from __future__ import annotations

from torchsleuth.checker.trial import FunctionRule, Trial
from torchsleuth.model import Diagnosis
from torchsleuth.rules.function.wording import diagnosis, name_of, values_with, where


class BroadcastReduction(FunctionRule):
    """A custom backward does not sum the gradient of a broadcast input the way it has to be summed.

    What happened
    -------------
    forward broadcasts an input (a bias over the batch, say), so each of its elements is used many times
    and its gradient is the sum over all those uses. backward reduced over the wrong dimensions, took one
    slice instead of the sum, or the maximum.

    Why
    ---
    The sum over the broadcast dimensions is easy to get wrong when several dimensions have the same
    size. Leaving the sum out altogether is fine in one case: if the input's shape expands to the shape of
    the returned gradient, autograd's engine does the sum itself. torchsleuth does not accuse that.

    Example
    -------
    Four rows share one bias, so each of its gradients is 4. This prints 1.0:

        import torch

        class AddBias(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, bias):
                return x + bias

            @staticmethod
            def backward(ctx, grad_output):
                return grad_output, grad_output[0]

        x, bias = torch.zeros(4, 3), torch.zeros(3, requires_grad=True)
        AddBias.apply(x, bias).sum().backward()
        print(bias.grad[0].item())

    Fix
    ---
    Sum over the dimensions that were broadcast: `grad_output.sum(0)`.

    Common false explanations
    -------------------------
    "The gradient of a bias must always be summed by hand": the engine sums a gradient whose shape the
    input's shape expands to. "A mean is the same up to scale": the scale changes with the batch size.
    """

    name = "backward-broadcast-reduction"
    priority = 83

    def judge(self, trial: Trial) -> tuple[Diagnosis, ...]:
        out = []
        for finding in values_with(trial, "reduction"):
            relation, name = finding.relation, name_of(trial, finding)
            dims = " and ".join(map(str, relation.dims))
            plural = "dimensions" if len(relation.dims) > 1 else "dimension"
            if relation.detail.startswith("engine:"):
                returned = f"[{relation.detail[7:].replace(',', ', ')}]"
                title = f"the gradient for `{name}` is left to the engine to sum, over the wrong dimensions"
                why = (f"backward returns a gradient of shape {returned} for `{name}`. The engine sums such a gradient as broadcasting goes, from the left; "
                       f"the true gradient is its sum over {plural} {dims}.")  # fmt: skip
                out.append(diagnosis(self.name, title + where(finding), trial, finding, why, f"sum over {plural} {dims} in backward"))
                continue
            if relation.detail.startswith("other:"):
                title = f"the gradient for `{name}` is summed over dimension {relation.detail[6:].replace(',', ' and ')} instead of {dims}"
            else:
                part = {"first": "the first slice", "last": "the last slice", "max": "the maximum"}.get(relation.detail, "no sum")
                title = f"the gradient for `{name}` is {part} over the broadcast {plural} {dims}, not the sum"
            why = f"forward broadcasts `{name}` over {plural} {dims} of the output, so its gradient is the sum over {plural} {dims}."
            out.append(diagnosis(self.name, title + where(finding), trial, finding, why, f"sum this gradient over {plural} {dims}"))
        return tuple(out)

"""The wrong number of gradients, or something that is no gradient at all."""

from __future__ import annotations

from torchsleuth.checker.trial import FunctionRule, Trial
from torchsleuth.model import Confidence, Diagnosis, Fact, Known
from torchsleuth.rules.function.wording import culprits, fixes, name_of


class WrongCount(FunctionRule):
    """A custom backward returns the wrong number of gradients, or something that is none.

    What happened
    -------------
    backward must return one value for every argument of forward (ctx excepted): a tensor, or None for
    arguments that have no gradient, such as integers, flags and sizes.

    Why
    ---
    Non-tensor arguments count too: `forward(ctx, x, dim)` needs two return values, the second of them
    None. A list is not a tuple, and a Python number is not a tensor.

    Example
    -------
    forward has two inputs and backward returns one gradient. This raises "returned an incorrect number of
    gradients (expected 2, got 1)":

        import torch

        class SumOver(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, dim):
                ctx.shape, ctx.dim = x.shape, dim
                return x.sum(dim)

            @staticmethod
            def backward(ctx, grad_output):
                return grad_output.unsqueeze(ctx.dim).expand(ctx.shape)

        x = torch.randn(3, 4, requires_grad=True)
        SumOver.apply(x, 1).sum().backward()

    Fix
    ---
    Return None for `dim`: `return grad_output.unsqueeze(ctx.dim).expand(ctx.shape), None`.

    Common false explanations
    -------------------------
    "Only tensors need a gradient slot": every positional input of forward has one. "Too many Nones are an
    error": trailing Nones are dropped.
    """

    name = "backward-wrong-count"
    priority = 95

    def judge(self, trial: Trial) -> tuple[Diagnosis, ...]:
        out = []
        inputs = ", ".join(i.name for i in trial.inputs)
        for finding in trial.of_kind("count"):
            title = f"backward returns {finding.returned_count} gradient{'s' * (finding.returned_count != 1)} for {finding.expected_count} inputs"
            facts = (Fact(f"forward's inputs: {inputs}", Known.OBSERVED),)
            why = "backward has to return one value per input of forward, in that order: a tensor, or None where there is no gradient."
            plain = [i.name for i in trial.inputs if not i.tensor]
            if plain and finding.returned_count < finding.expected_count:
                why += f" {', '.join(f'`{n}`' for n in plain)} {'is' if len(plain) == 1 else 'are'} no tensor and still take{'s' * (len(plain) == 1)} a place: None."
            advice = f"return {finding.expected_count} values, for {inputs}"
            out.append(Diagnosis(self.name, title, Confidence.CERTAIN, culprits(finding.culprit), facts, why, fixes(finding, advice)))
        for finding in trial.of_kind("unexpected", "not-tensor"):
            name = name_of(trial, finding)
            if finding.kind == "unexpected":
                title = f"backward returns {finding.returned_dtype} for `{name}`, which is no tensor"
                why = f"`{name}` is {trial.inputs[finding.input].value}; its place in what backward returns must be None, and autograd raises otherwise."
                advice = f"return None in position {finding.input}"
            else:
                title = f"backward returns {finding.returned_dtype} as the gradient for `{name}`, not a tensor"
                why = "A gradient is a tensor or None. Several gradients are returned as a tuple, not as a list."
                advice = "return a tensor"
            out.append(Diagnosis(self.name, title, Confidence.CERTAIN, culprits(finding.culprit), (), why, fixes(finding, advice)))
        return tuple(out)

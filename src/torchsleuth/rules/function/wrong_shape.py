"""A gradient whose shape is not, and does not expand from, the input's shape."""

from __future__ import annotations

from torchsleuth.checker.trial import FunctionRule, Trial
from torchsleuth.model import Diagnosis, Fact, Known
from torchsleuth.rules.function.wording import SPECIAL, diagnosis, name_of, relation_text, shape, where


class WrongShape(FunctionRule):
    """A custom backward returns a gradient that does not have its input's shape.

    What happened
    -------------
    The gradient of an input has that input's shape. What backward returned has another one, and autograd
    raises when it arrives.

    Why
    ---
    A reduction in forward was not undone (the gradient must be expanded back), a broadcast was not summed
    over, a matrix product has its factors the wrong way round, or the gradients come in the wrong order.
    One difference is allowed: where the input's shape expands to the gradient's shape, the engine sums.

    Example
    -------
    forward sums over dimension 1, backward passes on what it gets, of shape [3]. This raises
    "returned an invalid gradient at index 0 - got [3] but expected shape compatible with [3, 4]":

        import torch

        class Sum(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.shape = x.shape
                return x.sum(1)

            @staticmethod
            def backward(ctx, grad_output):
                return grad_output

        x = torch.randn(3, 4, requires_grad=True)
        Sum.apply(x).sum().backward()

    Fix
    ---
    Give the gradient the input's shape: `grad_output.unsqueeze(1).expand(ctx.shape)`.

    Common false explanations
    -------------------------
    "The gradient must have grad_output's shape": it has the shape of the input it belongs to. "PyTorch
    broadcasts gradients": it sums larger ones down and never expands smaller ones.
    """

    name = "backward-wrong-shape"
    priority = 90

    def judge(self, trial: Trial) -> tuple[Diagnosis, ...]:
        out = []
        for finding in trial.of_kind("shape"):
            if finding.case in SPECIAL or (finding.relation is not None and finding.relation.kind == "other-input"):
                continue
            name = name_of(trial, finding)
            title = f"the gradient for `{name}` has shape {shape(finding.returned_shape)}; `{name}` has shape {shape(finding.expected_shape)}"
            relation = relation_text(trial, finding.relation)
            facts = (Fact(f"backward returned {shape(finding.returned_shape)} for `{name}` {shape(finding.expected_shape)}", Known.OBSERVED),)
            if relation:
                facts += (Fact(relation[0].upper() + relation[1:], Known.RECOMPUTED),)
            why = f"The gradient of an input has the input's shape, and {shape(finding.expected_shape)} does not expand to {shape(finding.returned_shape)}, so autograd raises."
            if relation:
                why += f" As for its values: {relation}."
            out.append(diagnosis(self.name, title + where(finding), trial, finding, why, _advice(finding), facts))
        return tuple(out)


def _advice(finding) -> str:
    kind = finding.relation.kind if finding.relation else ""
    if kind == "transposed":
        return f"exchange dimensions {finding.relation.dims[0]} and {finding.relation.dims[1]} of this gradient"
    if kind == "reshaped":
        return f"reshape this gradient to {list(finding.expected_shape)}"
    if kind in ("grad-output-itself", "collapsed"):
        return f"expand this gradient back to {list(finding.expected_shape)}"
    if kind == "reduction":
        return f"sum over the broadcast dimensions {list(finding.relation.dims)}, and those only"
    return f"return a gradient of shape {list(finding.expected_shape)}"

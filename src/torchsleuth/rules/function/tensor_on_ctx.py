"""Inputs and outputs kept as attributes of ctx instead of through save_for_backward."""

from __future__ import annotations

from torchsleuth.checker.trial import FunctionRule, Trial
from torchsleuth.model import Applicability, Confidence, Diagnosis, Fact, Fix, Known
from torchsleuth.rules.function.wording import culprits


class TensorOnCtx(FunctionRule):
    """A custom forward keeps an input or an output as an attribute of ctx.

    What happened
    -------------
    `ctx.x = x` was used where `ctx.save_for_backward(x)` belongs. For an output this makes a reference
    cycle, and its memory stays until Python's garbage collector happens to run. For an input it switches
    off autograd's check that the tensor was not overwritten: the gradient is then computed from the new
    values, without an error.

    Why
    ---
    `save_for_backward` records the tensor's version and breaks the cycle for outputs; it also lets
    checkpointing and offloading hooks see the tensor. A plain attribute does none of that. Sizes, flags
    and numbers belong on ctx; tensors that are inputs or outputs do not.

    Example
    -------
    x is overwritten between forward and backward. The gradient of x * x at 3 is 6; this prints 20.0:

        import torch

        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.x = x
                return x * x

            @staticmethod
            def backward(ctx, grad_output):
                return grad_output * 2 * ctx.x

        leaf = torch.tensor(3.0, requires_grad=True)
        x = leaf * 1
        y = Square.apply(x)
        with torch.no_grad():
            x.fill_(10.0)
        y.backward()
        print(leaf.grad.item())

    Fix
    ---
    `ctx.save_for_backward(x)` in forward and `(x,) = ctx.saved_tensors` in backward. With it, the program
    above raises instead of computing the wrong gradient.

    Common false explanations
    -------------------------
    "save_for_backward copies the tensor": it does not. "ctx.x is freed after backward": saved tensors
    are; attributes live as long as the graph's node.
    """

    name = "function-tensor-on-ctx"
    priority = 40

    def judge(self, trial: Trial) -> tuple[Diagnosis, ...]:
        out = []
        for finding in trial.of_kind("kept-on-ctx"):
            attribute, name = finding.names
            if finding.detail == "leak":
                title = f"`ctx.{attribute}` keeps {name} alive: a reference cycle"
                facts = (Fact(f"{name} was still in memory after its last reference was gone", Known.OBSERVED),)
                why = "The output refers to its graph node, the node (ctx) to the output. Memory is freed only when the garbage collector runs."
            else:
                title = f"`ctx.{attribute}` keeps `{name}` without protection against being overwritten"
                facts = (Fact(f"`{name}` was overwritten after forward: backward raised nothing and returned another gradient", Known.RECOMPUTED),)
                why = "save_for_backward would have noticed the write and raised; an attribute is simply read again."
            fix = Fix(f"use ctx.save_for_backward({finding.names[1].replace('the ', '')}) and ctx.saved_tensors", Applicability.DISPLAY_ONLY)
            out.append(Diagnosis(self.name, title, Confidence.CERTAIN, culprits(finding.culprit), facts, why, (fix,)))
        return tuple(out)

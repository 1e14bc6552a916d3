"""None where a gradient is needed, and decisions on `needs_input_grad` that look at the wrong input."""

from __future__ import annotations

from torchsleuth.checker.trial import FunctionRule, Trial
from torchsleuth.model import Confidence, Diagnosis, Fact, Known
from torchsleuth.rules.function.wording import culprits, fixes, name_of, where


class MissingGradient(FunctionRule):
    """A custom backward returns None (or nothing useful) for an input that needs a gradient.

    What happened
    -------------
    The outputs depend on an input, and backward returned None for it: that input is never trained. Or
    backward asks `ctx.needs_input_grad` about one input and withholds the gradient of another.

    Why
    ---
    None means "zero" to autograd, without a word. `ctx.needs_input_grad` has one entry per argument of
    forward, plain values included, so with `forward(ctx, x, stride, weight)` the entry of `weight` is
    number 2.

    Example
    -------
    weight takes part in forward and gets no gradient. This prints None:

        import torch

        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, weight):
                ctx.save_for_backward(x, weight)
                return x * weight

            @staticmethod
            def backward(ctx, grad_output):
                x, weight = ctx.saved_tensors
                return grad_output * weight, None

        x = torch.ones(3, requires_grad=True)
        weight = torch.ones(3, requires_grad=True)
        Scale.apply(x, weight).sum().backward()
        print(weight.grad)

    Fix
    ---
    Return the gradient, `grad_output * x`; or, if the input is a constant by design, pass it with
    requires_grad=False.

    Common false explanations
    -------------------------
    "The optimizer skips it because the learning rate is zero": a parameter whose .grad is None is not
    touched at all. "needs_input_grad counts tensors only": it counts all arguments.
    """

    name = "backward-missing-gradient"
    priority = 87

    def judge(self, trial: Trial) -> tuple[Diagnosis, ...]:
        out = []
        for finding in trial.of_kind("none"):
            name = name_of(trial, finding)
            required = trial.inputs[finding.input].required
            sure = Confidence.CERTAIN if required and not finding.case else Confidence.LIKELY
            facts = (Fact(f"forward's values change with `{name}`: the true gradient is not zero", Known.RECOMPUTED),)
            why = f"None means zero to autograd, so `{name}` is never trained."
            if not required:
                why += f" If `{name}` is a constant by design, pass it with requires_grad=False and give another input requires_grad=True."
            out.append(Diagnosis(self.name, f"backward returns None for `{name}`, whose gradient is not zero{where(finding)}", sure,
                                 culprits(finding.culprit), facts, why, fixes(finding, f"return the gradient for `{name}`")))  # fmt: skip
        for finding in trial.of_kind("needs-input-grad"):
            name = name_of(trial, finding)
            given = "None" if finding.detail == "none" else "a different gradient"
            always = finding.detail == "always"
            title = f"backward returns None for `{name}`" if always else f"with only `{name}` requiring grad, backward returns {given} for it"
            right = f"forward's values change with `{name}`: the true gradient is not zero" if always else "right when all inputs require grad"
            facts = (
                Fact(right, Known.RECOMPUTED),
                Fact(f"`{name}` is input {finding.input} of forward, so its entry is ctx.needs_input_grad[{finding.input}]", Known.OBSERVED),
            )
            out.append(Diagnosis(self.name, title, Confidence.CERTAIN,
                                 culprits(finding.culprit), facts, "The gradient is withheld because of another input's entry in ctx.needs_input_grad.",
                                 fixes(finding, f"ask ctx.needs_input_grad[{finding.input}] for `{name}`")))  # fmt: skip
        for _ in trial.of_kind("no-backward"):
            out.append(Diagnosis(self.name, f"{trial.function} defines no backward", Confidence.CERTAIN, (), (),
                                 "Without backward, any attempt to differentiate through it raises NotImplementedError.", ()))  # fmt: skip
        return tuple(out)

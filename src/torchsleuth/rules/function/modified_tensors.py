"""Writes into tensors that belong to someone else: grad_output, saved tensors, inputs that are not marked."""

from __future__ import annotations

from torchsleuth.checker.trial import FunctionRule, Trial
from torchsleuth.model import Applicability, Confidence, Diagnosis, Fact, Fix, Known
from torchsleuth.rules.function.wording import culprits, name_of


class ModifiedTensors(FunctionRule):
    """A custom Function writes into a tensor it was given, without saying so.

    What happened
    -------------
    backward wrote into grad_output or into a saved tensor, or forward wrote into an input without
    `ctx.mark_dirty`.

    Why
    ---
    grad_output may be in use elsewhere: where an output feeds two operations, both see the same tensor.
    Saved inputs are the caller's own tensors. And an input that forward changes without mark_dirty keeps
    its old history: autograd computes gradients of the earlier computation as if nothing had happened.

    Example
    -------
    z = x * 2 is used twice, by the Function and by the sum. backward doubles grad_output in place, and the
    other use sees it. This prints 8.0 where 6.0 is right:

        import torch

        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, grad_output):
                return grad_output.mul_(2)

        x = torch.tensor([1.0], requires_grad=True)
        z = x * 2
        (z + Double.apply(z)).sum().backward()
        print(x.grad.item())

    Fix
    ---
    Use the out-of-place form, `grad_output * 2`. In forward, call `ctx.mark_dirty(x)` and return x, or
    work on a clone.

    Common false explanations
    -------------------------
    "grad_output is mine, nobody else sees it": the engine hands the same tensor to several consumers.
    "Autograd would have raised": not for these writes; no version is checked for grad_output.
    """

    name = "function-modified-tensors"
    priority = 45

    def judge(self, trial: Trial) -> tuple[Diagnosis, ...]:
        out = []
        for finding in trial.of_kind("grad-output-write"):
            out.append(
                Diagnosis(
                    self.name, f"backward writes into `{finding.names[0]}`", Confidence.CERTAIN, culprits(finding.culprit),
                    (Fact(f"`{finding.names[0]}` had other values after backward than before", Known.OBSERVED),),
                    "grad_output belongs to autograd and may be shared with other consumers, which then see the changed values.",
                    (Fix("use the out-of-place operation", Applicability.DISPLAY_ONLY),),
                )
            )  # fmt: skip
        for finding in trial.of_kind("saved-write"):
            name = finding.names[0]
            out.append(
                Diagnosis(
                    self.name, f"backward writes into `{name}`, which belongs to the caller" if finding.input >= 0 else f"backward writes into {name}",
                    Confidence.CERTAIN, culprits(finding.culprit),
                    (Fact(f"{name} had other values after backward than before", Known.OBSERVED),),
                    "A saved tensor is not a copy: the caller's tensor changes, and a second backward gives another gradient.",
                    (Fix("use the out-of-place operation", Applicability.DISPLAY_ONLY),),
                )
            )  # fmt: skip
        for finding in trial.of_kind("unmarked-write"):
            name = name_of(trial, finding)
            out.append(
                Diagnosis(
                    self.name, f"forward writes into `{name}` without ctx.mark_dirty(`{name}`)", Confidence.CERTAIN, culprits(finding.culprit),
                    (Fact(f"`{name}` had other values after forward than before, and was not marked", Known.OBSERVED),),
                    f"autograd does not know that `{name}` changed: gradients through its other uses are computed from the wrong history.",
                    (Fix(f"work on a copy ({name}.clone()), or call ctx.mark_dirty({name}) and return {name}", Applicability.DISPLAY_ONLY),),
                )
            )  # fmt: skip
        return tuple(out)

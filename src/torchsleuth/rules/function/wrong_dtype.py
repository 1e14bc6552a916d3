"""A gradient of a type or on a device that loses or refuses its values."""

from __future__ import annotations

from torchsleuth.checker.trial import FunctionRule, Trial
from torchsleuth.model import Confidence, Diagnosis, Fact, Known
from torchsleuth.rules.function.wording import culprits, diagnosis, fixes, name_of


class WrongDtype(FunctionRule):
    """A custom backward returns a gradient of the wrong type, precision or device.

    What happened
    -------------
    The returned gradient is an integer, boolean or complex tensor for a real floating-point input, lies on
    another device, or is computed so that most of its digits are lost in the input's own type.

    Why
    ---
    The engine converts between floating-point types silently, and integers too: a gradient returned as
    int64 has lost its fractions before it is converted. A complex gradient for a real input, or one on
    another device, raises.

    Example
    -------
    The gradient of 0.5 * x is 0.5; cast to an integer on the way it is 0. This prints 0.0:

        import torch

        class Half(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return 0.5 * x

            @staticmethod
            def backward(ctx, grad_output):
                return (0.5 * grad_output).long()

        x = torch.tensor(1.0, requires_grad=True)
        Half.apply(x).backward()
        print(x.grad.item())

    Fix
    ---
    Keep gradients in the input's type: leave the cast out, or use `.to(x.dtype)`.

    Common false explanations
    -------------------------
    "A float32 gradient for a float64 input raises": the engine casts it. Only digits are lost.
    """

    name = "backward-wrong-dtype"
    priority = 88

    def judge(self, trial: Trial) -> tuple[Diagnosis, ...]:
        out = []
        for finding in trial.of_kind("dtype", "device"):
            name = name_of(trial, finding)
            title = f"the gradient for `{name}` is {finding.returned_dtype}; `{name}` is {finding.expected_dtype}"
            if finding.kind == "device":
                title = f"the gradient for `{name}` is on {finding.returned_dtype}; `{name}` is on {finding.expected_dtype}"
                why = "A gradient has to be on its input's device; autograd raises."
            elif finding.returned_dtype.startswith("complex"):
                why = "A real input has a real gradient; autograd raises."
            else:
                why = f"autograd converts {finding.returned_dtype} back silently, but the fractions are lost by then."
            out.append(Diagnosis(self.name, title, Confidence.CERTAIN, culprits(finding.culprit), (), why,
                                 fixes(finding, f"return this gradient in the type and on the device of `{name}`")))  # fmt: skip
        for finding in trial.of_kind("precision"):
            name = name_of(trial, finding)
            facts = (Fact(f"relative error of backward {finding.error:.2g}, of autograd through forward {finding.detail}, both in {finding.case}", Known.RECOMPUTED),)
            out.append(diagnosis(self.name, f"in {finding.case} the gradient for `{name}` loses its digits", trial, finding,
                                 "In float64 the gradient is right. In the shorter type this formula overflows, underflows or cancels where autograd's does not.",
                                 "use a stable form of the formula, or compute it in float32 or float64", facts))  # fmt: skip
        return tuple(out)

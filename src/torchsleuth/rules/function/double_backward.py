"""Double backward that is silently wrong, or fails without having been declined."""

from __future__ import annotations

from torchsleuth.checker.trial import FunctionRule, Trial
from torchsleuth.model import Applicability, Confidence, Diagnosis, Fact, Fix, Known
from torchsleuth.rules.function.wording import culprits


class DoubleBackward(FunctionRule):
    """A custom backward gives a wrong second derivative instead of refusing it.

    What happened
    -------------
    The first derivative is right. Differentiating it again (create_graph=True: gradient penalties,
    Hessian products, meta-learning) gives a wrong result without an error, or fails with a message that
    does not name the reason.

    Why
    ---
    Double backward differentiates the code of backward. What backward computes from inputs and outputs is
    tracked; an intermediate result of forward, saved because it was at hand, is a constant to it: forward
    ran without recording. Its part of the second derivative is missing.

    Example
    -------
    The second derivative of x ** 4 at 1 is 12. x ** 3 was computed in forward, so its dependence on x is
    lost; this prints None:

        import torch

        class Fourth(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                cube = x**3
                ctx.save_for_backward(cube)
                return x * cube

            @staticmethod
            def backward(ctx, grad_output):
                (cube,) = ctx.saved_tensors
                return grad_output * 4 * cube

        x = torch.tensor(1.0, requires_grad=True)
        one = torch.tensor(1.0, requires_grad=True)
        (first,) = torch.autograd.grad(Fourth.apply(x), x, one, create_graph=True)
        print(torch.autograd.grad(first, x, allow_unused=True)[0])

    Fix
    ---
    Save inputs (or outputs) and recompute from them in backward; or decorate backward with
    `torch.autograd.function.once_differentiable`, which makes double backward raise.

    Common false explanations
    -------------------------
    "gradcheck passed": it looks at the first derivative only; gradgradcheck is the other one. "Saved
    tensors are always tracked": only those that are inputs or outputs.
    """

    name = "function-double-backward"
    priority = 30

    def judge(self, trial: Trial) -> tuple[Diagnosis, ...]:
        out = []
        for finding in trial.of_kind("double-backward"):
            names = ", ".join(f"`{n}`" for n in finding.names)
            lost = finding.detail.startswith("missing")
            title = f"double backward is silently wrong: the second derivative with respect to {names} is {'missing' if lost else 'wrong'}"
            facts = (
                Fact("the first derivative is right", Known.RECOMPUTED),
                Fact(f"differences of backward along a random direction of {names} are not zero and not what autograd returns", Known.RECOMPUTED),
            )
            why = "Double backward differentiates backward's own code. "
            if finding.detail.endswith(("saved", "attribute")):
                why += "backward uses an intermediate result of forward, which is a constant to it: forward runs without recording."
            elif finding.detail.endswith("cut"):
                cut = f": `{finding.culprit.source.strip()}` is a constant to autograd" if finding.culprit is not None else " (detach, .data, .item() or no_grad)"
                why += f"backward cuts its own graph{cut}."
            elif finding.detail.endswith("other"):
                why += f"It calls another Function (`{finding.culprit.source.strip()}`), and what that one's backward returns is the second derivative."
            else:
                why += "Something it uses is a constant to autograd although it depends on the inputs."
            out.append(Diagnosis(self.name, title, Confidence.CERTAIN, culprits(finding.culprit), facts, why, _fixes(finding.detail)))
        for finding in trial.of_kind("double-backward-raises"):
            facts = (Fact(finding.exception, Known.OBSERVED),)
            why = "The first derivative is right, but backward cannot be differentiated again, and nothing says so. @once_differentiable says it."
            out.append(Diagnosis(self.name, "double backward fails, and backward is not marked @once_differentiable", Confidence.CERTAIN,
                                 culprits(finding.culprit), facts, why, _FIXES[1:]))  # fmt: skip
        return tuple(out)


def _fixes(detail: str) -> tuple[Fix, ...]:
    return _UNCUT if detail.endswith("cut") else _INNER if detail.endswith("other") else _FIXES


_FIXES = (
    Fix("save inputs or outputs, and recompute the intermediate result in backward", Applicability.DISPLAY_ONLY),
    Fix("decorate backward with torch.autograd.function.once_differentiable, so that double backward raises", Applicability.DISPLAY_ONLY),
)
_INNER = (Fix("correct what the backward of the Function that is called here returns", Applicability.DISPLAY_ONLY),)
_UNCUT = (
    Fix("use the tensors themselves, grad_output and the saved ones, not detached ones or numbers read from them; for an inner torch.autograd.grad pass create_graph=torch.is_grad_enabled()",
        Applicability.DISPLAY_ONLY),
    _FIXES[1],
)  # fmt: skip

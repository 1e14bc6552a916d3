"""A backward that raises on inputs forward accepts."""

from __future__ import annotations

from torchsleuth.checker.trial import FunctionRule, Trial
from torchsleuth.model import Confidence, Diagnosis, Fact, Known
from torchsleuth.rules.function.wording import SPECIAL, culprits, where


class BackwardRaises(FunctionRule):
    """A custom backward raises an exception, or autograd refuses what it returns.

    What happened
    -------------
    forward accepted the inputs, and backward failed on them: in its own code, or when the engine looked
    at what it returned.

    Why
    ---
    backward is not run until someone differentiates, so an index, a shape or a name that is wrong in it
    stays unseen; and the traceback of a failing training step ends at `loss.backward()` unless the
    exception is raised in Python code of backward itself.

    Example
    -------
    x was kept under one name and read under another. This raises AttributeError:

        import torch

        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.factor = 2
                return x * 2

            @staticmethod
            def backward(ctx, grad_output):
                return grad_output * ctx.scale

        x = torch.tensor(1.0, requires_grad=True)
        Double.apply(x).backward()

    Fix
    ---
    Correct the line that raises; the report names it.

    Common false explanations
    -------------------------
    "The error comes from the loss": the failing line is in this Function's backward, whatever the loss.
    """

    name = "backward-raises"
    priority = 99

    def judge(self, trial: Trial) -> tuple[Diagnosis, ...]:
        out = []
        for finding in trial.of_kind("raises", "engine-raises", "apply-raises"):
            if finding.case in SPECIAL:
                continue
            who = {"raises": "backward raises", "engine-raises": "autograd refuses backward's result:", "apply-raises": "apply raises"}[finding.kind]
            facts = (Fact(finding.exception, Known.OBSERVED),) + ((Fact(f"inputs: {finding.case_text}", Known.OBSERVED),) if finding.case_text else ())
            title = f"{who} {finding.exception.split(':')[0]}{where(finding)}"
            why = "forward accepts these inputs; the gradient cannot be computed for them."
            if finding.case.startswith("only output") and "NoneType" in finding.exception:
                why = "forward calls ctx.set_materialize_grads(False), so the gradients of outputs that nothing uses arrive as None."
            out.append(Diagnosis(self.name, title, Confidence.CERTAIN, culprits(finding.culprit), facts, why, ()))
        return tuple(out)

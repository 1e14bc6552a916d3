"""A gradient assigned by hand that does not fit its tensor."""

from __future__ import annotations

import math

from torchsleuth.evidence import AssignedGradient, Evidence
from torchsleuth.model import Applicability, Confidence, Culprit, Diagnosis, Fact, Fix, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.wording import short


class AssignedGradientRule(CrashRule):
    """`p.grad = value` with a value that does not fit `p`.

    What happened
    -------------
    A gradient was assigned by hand: of another shape, dtype or device than the tensor that it is for, or something that is no tensor.

    Why
    ---
    A gradient has one number for each element of its tensor, so it has the tensor's shape. Gradients that were flattened into one
    vector, averaged or projected there, have to be cut and reshaped on the way back.

    Example
    -------
    This raises "attempting to assign a gradient of size '[6]' to a tensor of size '[2, 3]'":

        import torch

        weight = torch.ones(2, 3, requires_grad=True)
        (weight * 2).sum().backward()
        flat = weight.grad.flatten()
        weight.grad = flat / flat.norm()

    Fix
    ---
    `p.grad = part.view_as(p)`; for another dtype or device `part.to(p)`.

    Common false explanations
    -------------------------
    "Assign to `p.grad.data` instead." That takes any shape without a word, and the step fails later, or broadcasts. This prints
    the wrong shape:

        import torch

        weight = torch.ones(2, 3, requires_grad=True)
        (weight * 2).sum().backward()
        weight.grad.data = torch.ones(6)
        print(weight.grad.shape)
    """

    name = "assigned-gradient"
    messages = (r"attempting to assign a gradient (of|with)", r"assigned grad (has|expected)")
    needs = ("assigned_gradient",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        found = evidence.assigned_gradient
        if found is None:
            return None
        tensor, value = found.tensor, found.value
        facts = [Fact(f"`{found.owner}` is {tensor.called}: shape {tensor.size}, dtype {tensor.dtype}.", Known.OBSERVED)] if tensor.name and tensor.name != found.owner else []
        facts = facts or [Fact(f"`{found.owner}` has shape {tensor.size}, dtype {tensor.dtype}.", Known.OBSERVED)]
        if value is not None:
            facts.append(Fact(f"`{short(found.source)}` has shape {value.size}, dtype {value.dtype}.", Known.OBSERVED))
        same = value is not None and math.prod(value.shape) == math.prod(tensor.shape)
        if same and value.shape != tensor.shape:
            facts.append(Fact(f"Both have {math.prod(value.shape)} elements: a reshape is missing.", Known.INFERRED))
        what, fix = _difference(found)
        return Diagnosis(
            self.name,
            f"`{short(found.source)}` {what} and cannot be the gradient of `{found.owner}`",
            Confidence.CERTAIN,
            tuple(_culprits(found, what)),
            tuple(facts),
            "A gradient has one number for each element of its tensor: the same shape, dtype and device.",
            (Fix(fix, Applicability.DISPLAY_ONLY),),
        )


def _difference(found: AssignedGradient) -> tuple[str, str]:
    tensor, value = found.tensor, found.value
    if value is None:
        return "is no tensor", f"Assign a tensor of shape {tensor.size}."
    if value.shape != tensor.shape:
        return f"has shape {value.size}, not {tensor.size},", f"`.view_as({found.owner})`, if it has the elements in that order."
    if value.dtype != tensor.dtype:
        return f"has dtype {value.dtype}, not {tensor.dtype},", f"`.to({found.owner})`."
    return "does not fit", f"Assign a gradient in the shape, dtype and device of `{found.owner}`."


def _culprits(found: AssignedGradient, what: str) -> list[Culprit]:
    culprits = [found.use.culprit(Role.OPERAND, what.rstrip(","))]
    made = found.made.via or found.made if found.made is not None else None
    if made is not None and (made.span.file, made.span.line) != (found.use.span.file, found.use.span.line):
        culprits.append(made.culprit(Role.CREATE, f"made `{short(found.source, 40)}`"))
    return culprits

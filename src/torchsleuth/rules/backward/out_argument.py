"""`out=` in a call that autograd would have to record."""

from __future__ import annotations

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import Operand
from torchsleuth.model import Applicability, Confidence, Diagnosis, Fact, Fix, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.wording import short

_MOST = 3


class OutArgument(CrashRule):
    """A call with `out=` was given a tensor that requires grad.

    What happened
    -------------
    `torch.matmul(x, weight, out=buffer)` writes its result into a tensor that is already there. While gradients are
    recorded and one of the tensors requires grad, torch refuses such a call.

    Why
    ---
    A recorded operation makes a new tensor that knows where it came from. With `out=` there is no new tensor, so there is
    nothing to hang the history on; torch does not guess that it is not wanted.

    Example
    -------
    This raises "arguments don't support automatic differentiation":

        import torch

        weight = torch.ones(3, requires_grad=True)
        buffer = torch.empty(3)
        torch.mul(torch.ones(3), weight, out=buffer)

    Fix
    ---
    Leave out `out=` and bind the result: `buffer = torch.mul(...)`. Where no gradient is wanted, make the call under
    `torch.no_grad()`.

    Common false explanations
    -------------------------
    "The buffer must require grad too." It must not: that is refused as well. This raises "automatic differentiation":

        import torch

        weight = torch.ones(3, requires_grad=True)
        buffer = torch.empty(3, requires_grad=True)
        torch.mul(torch.ones(3), weight, out=buffer)
    """

    name = "out-argument"
    messages = (r"functions with out=\.\.\. arguments don't support automatic differentiation",)
    needs = ("operation",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = evidence.operation
        if operation is None:
            return None
        out = operation.operand("out")
        recorded = [operand for operand in operation.operands if operand.tensor.requires_grad]
        if not recorded:
            return None  # whatever torch means, the evidence does not show it
        into = out.called if out is not None else "its `out` argument"
        place = operation.place.via if operation.place.in_library and operation.place.via is not None else operation.place
        culprits = [place.culprit(Role.MUTATE, f"writes its result into {into}")]
        for operand in recorded[:_MOST]:
            made = operand.made.place if operand.made is not None else None
            if made is not None and not made.in_library and (made.span.file, made.span.line) != (place.span.file, place.span.line):
                culprits.append(made.culprit(Role.CREATE, f"made {operand.called}, which requires grad"))
        names = " and ".join(dict.fromkeys(operand.called for operand in recorded[:_MOST]))
        verb = "requires" if len(recorded) == 1 else "require"
        return Diagnosis(
            self.name,
            f"`{short(place.source)}` cannot be differentiated: it writes into {into}, and {names} {verb} grad",
            Confidence.CERTAIN,
            tuple(culprits),
            tuple(_fact(operand) for operand in operation.operands),
            "Autograd records an operation by the new tensor that it makes. With `out=` the result goes into a tensor that is there already, so torch "
            "refuses the call while gradients are recorded.",
            (Fix("Leave out `out=` and bind the result; where no gradient is wanted, make the call under `torch.no_grad()`.", Applicability.DISPLAY_ONLY),),
        )


def _fact(operand: Operand) -> Fact:
    kind = f" ({operand.tensor.kind})" if operand.tensor.kind in ("parameter", "buffer") else ""
    return Fact(f"{operand.argument}: {operand.called}{kind} has shape {operand.tensor.size}, dtype {operand.tensor.dtype}, requires_grad={operand.tensor.requires_grad}.", Known.OBSERVED)

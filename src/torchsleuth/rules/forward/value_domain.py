"""An operation that refuses the values it was given: weights to draw with that are NaN or negative, matrices that are not finite."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import FailedOperation, Operand
from torchsleuth.model import Diagnosis
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import of_tensor
from torchsleuth.rules.forward._not_finite import cause_facts, cause_fixes, cause_why, causes
from torchsleuth.rules.forward._report import report
from torchsleuth.rules.forward._words import bad_values, failed, seen

_WANTED = {
    "multinomial": ("finite weights of 0 and more: it draws with them", "Give it `softmax(logits, dim=-1)` of finite scores."),
    "bernoulli": ("probabilities: 0 … 1", "Apply `sigmoid` to raw scores."),
}


class ValueDomain(CrashRule):
    """An operation refused the *values* of a tensor: NaN, infinity, or numbers outside of what it is defined for.

    What happened
    -------------
    `multinomial` draws with the weights it is given, `bernoulli` with probabilities, and the functions of `torch.linalg` need
    finite matrices. They look at the numbers, and refuse some of them. The shapes are right.

    Why
    ---
    Nearly always the numbers went wrong before: a softmax over a row in which everything is masked is NaN, scores that are
    divided by a temperature of 0 are infinite, and a network whose weights were spoilt by one bad step gives nothing but NaN.
    torchsleuth looks at the weights and the inputs, and computes the operand again to find the first call that makes NaN.

    Example
    -------
    This raises "probability tensor contains either `inf`, `nan` or element < 0":

        import torch

        scores = torch.tensor([[1.0, 2.0]]).masked_fill(torch.tensor([[True, True]]), float("-inf"))
        torch.multinomial(scores.softmax(-1), 1)

    Fix
    ---
    Mend the place where the first NaN is made; see the report.

    Common false explanations
    -------------------------
    "`torch.nan_to_num` repairs it." The call goes through, and what it computes means nothing. This draws from
    equal weights, whatever the network meant, and prints tensor([[0.5000, 0.5000]]):

        import torch

        weights = torch.nan_to_num(torch.full((1, 2), float("nan"))) + 1e-9
        torch.multinomial(weights, 1)
        print(weights / weights.sum())
    """

    name = "value-domain"
    messages = (
        r"probability tensor contains either", r"invalid multinomial distribution", r"Expected p_in >= 0",
        r"contained non-finite values", r"input matrix contained|contains non-finite",
    )  # fmt: skip
    needs = ("operation",)
    priority = 5

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None or not operation.operands:
            return None
        operand = next((one for one in operation.operands if one.not_finite is not None or one.values is not None and one.values.bad), operation.operands[0])
        found, values = operand.not_finite, operand.values
        wanted, otherwise = _WANTED.get(operation.name, ("finite numbers", "Look for NaN and infinity in what it was computed from."))
        holds = _holds(operand, operation)
        facts = [seen(bad_values(operand, values))] if values is not None and values.bad else []
        creates = causes(operand) or [(of_tensor(operand)[0], f"{operand.called} was made here")]
        return report(
            self.name, operation, title=f"{operand.called} holds {holds}, and `{operation.name}` takes {wanted.partition(':')[0]}" if holds else
            f"`{operation.name}` refuses the values of {operand.called}",
            label=f"holds {holds}" if holds else "these values are refused", lead=operand, creates=creates, facts=[*facts, *cause_facts(operand)],
            why=" ".join(filter(None, (f"`{operation.name}` takes {wanted}.", cause_why(operand)))), fixes=cause_fixes(operand, [otherwise] if found is None else []),
        )  # fmt: skip


def _holds(operand: Operand, operation: FailedOperation) -> str:
    if operand.values is not None and operand.values.bad:
        first = operand.values.first[0].value
        return "NaN" if first != first else f"{first:.4g}"
    if operand.not_finite is not None:
        return operand.not_finite.what
    return "NaN or infinity" if re.search("non-finite", operation.message) else ""

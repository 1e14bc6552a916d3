"""A forward pass that makes NaN or infinity."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.observation_training import NotFinite
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, expression_of, observed
from torchsleuth.model import Confidence, Diagnosis, Role
from torchsleuth.rules.undefined import remedy


class NotFiniteResult(AuditRule):
    """The forward pass makes NaN or infinity out of finite numbers, and the loss is lost.

    What happened
    -------------
    The loss of the step is NaN or infinite. torchsleuth looked at every result on the way to it and names the
    first one that holds NaN although none of its inputs does (or infinity, made by a logarithm, a quotient or
    the like); or the first operation that was given NaN with the data, the targets for instance. Or the first
    step was sound, a later one's gradients are NaN, and some parameters are so at the end of the program: then
    the step is named, and the variable around it that holds NaN.

    Why
    ---
    A softmax over a row that is masked altogether divides zero by zero. The logarithm of zero is infinite,
    the spread of one element is 0/0, and the mean of no elements too. Once there, NaN spreads to everything that
    is computed from it, and after one optimizer step to every parameter.

    Example
    -------
    A row of which nothing is left. This prints True:

        import torch

        scores = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        nothing = torch.tensor([[False, False], [True, True]])
        print(scores.masked_fill(nothing, float("-inf")).softmax(-1).isnan().any().item())

    Fix
    ---
    Mend the place where it begins: leave one position in every row, keep arguments inside the range of the
    function, divide by at least one.

    Common false explanations
    -------------------------
    "The learning rate is too high": in the first step no learning rate has been used. "Gradient clipping
    repairs it": a clipped NaN is NaN.
    """

    name = "not-finite"
    order = 3

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        fact = observation.not_finite
        if fact is None:
            return
        if fact.kind in ("given", "later"):
            yield _given(fact) if fact.kind == "given" else _later(fact)
            return
        made = "NaN" if fact.kind == "nan" else "infinity"
        fix = remedy(fact.operation.strip("_"))
        yield Diagnosis(
            self.name, f"`{fact.operation}` makes {made}, and the loss is {fact.loss}", Confidence.CERTAIN,
            (culprit(fact.site, Role.CREATE, f"the first {made} is made here"),),
            observed(
                f"the result of `{expression_of(fact.site)}` holds {made}; none of its inputs does",
                fact.why,
                f"the loss of this step is {fact.loss}",
            ),
            "Everything computed from it is spoilt, and with the first optimizer step all parameters.",
            (advice(fix),),
        )  # fmt: skip


def _given(fact: NotFinite) -> Diagnosis:
    return Diagnosis(
        NotFiniteResult.name, f"`{fact.operation}` is given NaN, and the loss is {fact.loss}", Confidence.CERTAIN,
        (culprit(fact.site, Role.OPERAND, "one of its operands holds NaN"),), observed(fact.why, f"the loss of this step is {fact.loss}"),
        "NaN spreads to everything that is computed from it. Nothing in this step made it: it came with the data (or is in the weights already).",
        (advice("Drop or fill these values where the data is made, or pick the others before anything is computed: `prediction[known]` and `target[known]` (NaN times 0 is NaN, in gradients too)."),),
    )  # fmt: skip


def _later(fact: NotFinite) -> Diagnosis:
    culprits = [culprit(fact.site, Role.CALL, f"step {fact.step} puts {fact.operation} gradients into the parameters")]
    if fact.made is not None and fact.made.span != fact.site.span:
        culprits.insert(0, culprit(fact.made, Role.CREATE, "the data with these values comes from here"))
    return Diagnosis(
        NotFiniteResult.name, f"the gradients are {fact.operation} from step {fact.step} on, and so are parameters in the end", Confidence.CERTAIN, tuple(culprits),
        observed(f"the gradients that were looked at before each step (of the first, the last and the smallest parameter) were finite up to step {fact.step - 1}, and never again", f"when step {fact.step} was taken, {fact.why}" if fact.why else ""),
        "One optimizer step with such gradients spoils all parameters, and everything after." + (
            "" if fact.why else " What made it was not watched: numbers that grow from step to step (a learning rate that is too high, data that is not scaled), or an operation outside its range in this batch."),
        (advice("Drop or fill these values where the data is made, or leave them out of the loss by picking the others (`prediction[known]`, `target[known]`)." if fact.why else
                "Look at the loss of the steps before: if it grows, lower the learning rate or clip the gradients; if not, look for a logarithm, a root or a quotient at the edge of its range."),),
    )  # fmt: skip

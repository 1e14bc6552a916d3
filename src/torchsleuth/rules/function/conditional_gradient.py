"""Right here, wrong there: for some signs or masks, for square inputs, batches of one, empty or strided tensors."""

from __future__ import annotations

from torchsleuth.checker.trial import Finding, FunctionRule, Trial
from torchsleuth.model import Diagnosis, Fact, Known
from torchsleuth.rules.function.wording import SPECIAL, diagnosis, measured, name_of, relation_text, shape, values_with, where


class ConditionalGradient(FunctionRule):
    """A custom backward is right only under a condition on its inputs.

    What happened
    -------------
    The gradient is right for some inputs or some elements and wrong for others: only where a value is
    positive or a mask is on (or off: an inverted mask), only in one half of a tensor that is put together, only
    in rows that an index picks once, only for square matrices, only for batches larger than one, only for
    contiguous tensors, only for tensors that are not empty.

    Why
    ---
    A test with one convenient input does not show it. Frequent causes: a branch of forward that backward
    forgot, a transposition that fits only square shapes, `squeeze()` without a dimension (which also drops
    a batch of 1), `view` on a tensor whose memory is not in order, `index_copy` or `index_put` without
    `accumulate=True` where several elements go to one place.

    Example
    -------
    The derivative of |x| is -1 for negative x. This prints 1.0:

        import torch

        class Abs(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.abs()

            @staticmethod
            def backward(ctx, grad_output):
                return grad_output

        x = torch.tensor(-2.0, requires_grad=True)
        Abs.apply(x).backward()
        print(x.grad.item())

    Fix
    ---
    Treat both sides: save x and return `grad_output * x.sign()`.

    Common false explanations
    -------------------------
    "grad_output always has the layout of the output": it is often expanded (after `.sum()`) or transposed.
    "Batches of one never happen": the last batch of an epoch is often smaller.
    """

    name = "backward-conditional-gradient"
    priority = 75

    def judge(self, trial: Trial) -> tuple[Diagnosis, ...]:
        out = [self._by_elements(trial, finding) for finding in values_with(trial, "condition")]
        for finding in values_with(trial, "inverted"):
            title = f"the gradient for `{name_of(trial, finding)}` is zero where it should not be, and the other way round: a mask is inverted"
            why = (f"The true gradient is not zero in {finding.relation.share:.0%} of the elements, and what backward returns is not zero in exactly "
                   "the others.")  # fmt: skip
            out.append(diagnosis(self.name, title + where(finding), trial, finding, why, "invert the mask or the condition"))
        out += [self._by_case(trial, finding) for finding in trial.findings if finding.case in SPECIAL and finding.kind in KINDS]
        return tuple(out)

    def _by_elements(self, trial: Trial, finding: Finding) -> Diagnosis:
        name, relation = name_of(trial, finding), finding.relation
        held = f"`{relation.tensor}` is True" if relation.tensor.isidentifier() else relation.tensor  # a mask
        some = relation.detail == "some"  # elsewhere, elements whose gradient is zero anyway are right too
        title = f"the gradient for `{name}` is right only where {held}"
        if some:
            title = f"the gradient for `{name}` is wrong for some elements where {relation.tensor} does not hold"
        title += where(finding)
        why = f"Where {held}, it is right; elsewhere it is wrong ({relation.share:.0%} of all elements tried)"
        if relation.factor:
            why += f": {relation.factor:.4g} times the true gradient"
        if not finding.given:
            why += ". The inputs as given do not reach those values"
        advice = f"treat the elements where `{relation.tensor}` does not hold"
        if relation.tensor.startswith("the index along"):
            advice = "look at what backward computes for the other elements"
        return diagnosis(self.name, title, trial, finding, why + ".", advice)

    def _by_case(self, trial: Trial, finding: Finding) -> Diagnosis:
        name = name_of(trial, finding)
        subject = f"the gradient for `{name}`" if name else "backward"
        square = finding.case == "unequal dimensions"
        case = f"dimensions of unequal size ({finding.case_text})" if square else finding.case
        facts: tuple[Fact, ...] = ()
        if finding.kind == "raises":
            title = f"backward raises for {case}"
            facts = (Fact(f"{finding.exception} ({finding.case_text})", Known.OBSERVED),)
        elif finding.kind == "shape":
            title = f"{subject} has the wrong shape for {case}: {shape(finding.returned_shape)} instead of {shape(finding.expected_shape)}"
        elif finding.kind == "forward-differs":
            title = f"forward gives other values for {case}"
            facts = (Fact("the same values in contiguous memory gave another output", Known.RECOMPUTED),)
        elif finding.kind == "none":
            title = f"backward returns None for `{name}` for {case}"
        else:
            title = f"{subject} is wrong for {case}"
            facts = measured(trial, finding)
        relation = relation_text(trial, finding.relation)
        right = "for dimensions of equal size only" if square else "for the inputs as given"
        why = f"It is right {right}." + (f" Here, {relation}." if relation else "") + _reason(finding)
        return diagnosis(self.name, title, trial, finding, why, _advice(finding), facts)


KINDS = ("values", "shape", "raises", "layout", "forward-differs", "none", "dtype")


def _reason(finding: Finding) -> str:
    if "grad_output" in finding.case:
        return " autograd hands over grad_output in whatever layout the later operations produced: expanded after a sum, strided after a transposition."
    if finding.case == "a batch of 1":
        return " A frequent cause: squeeze() without a dimension also drops a batch of 1."
    if finding.case == "unequal dimensions":
        return (" Dimensions of the same size hide a transposition, or a size taken from the wrong dimension. If only such inputs make sense, "
                "let forward refuse others.")
    return ""


def _advice(finding: Finding) -> str:
    if finding.kind == "raises" and "view" in finding.exception:
        return "use reshape instead of view"
    if "non-contiguous" in finding.case or "expanded" in finding.case:
        return "do not rely on strides: use reshape, or call .contiguous() first"
    return ""

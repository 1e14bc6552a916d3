"""Product rule and chain rule: a factor or a term left out, added, taken from the wrong tensor or the wrong axis."""

from __future__ import annotations

from torchsleuth.checker.trial import FunctionRule, Relation, Trial
from torchsleuth.model import Diagnosis, Fact, Known
from torchsleuth.rules.function.wording import diagnosis, measured, name_of, number, size_text, values_with, where, whose


class MissingTerm(FunctionRule):
    """A custom backward leaves out a factor or a term of the derivative.

    What happened
    -------------
    The returned gradient differs from the true one by exactly one factor (a tensor that forward or
    backward knows by name) or by exactly one term (the part of the gradient that comes through one
    operation of forward), or one term of backward's own formula is too large, too small or of the
    wrong sign.

    Why
    ---
    An input that is used twice has a gradient with two terms; a function of a function has one factor per
    step; a normalisation (softmax, layer norm) adds a term with a sum. Each is easily forgotten, or the
    wrong tensor is saved for it.

    Example
    -------
    The derivative of x * sigmoid(x) at 0 is 0.5, by its first term alone; at 1 it is 0.9277. With the first
    term only, this prints 0.7311:

        import torch

        class Swish(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * torch.sigmoid(x)

            @staticmethod
            def backward(ctx, grad_output):
                (x,) = ctx.saved_tensors
                return grad_output * torch.sigmoid(x)

        x = torch.tensor(1.0, requires_grad=True)
        Swish.apply(x).backward()
        print(round(x.grad.item(), 4))

    Fix
    ---
    Add the term: `grad_output * (s + x * s * (1 - s))` with `s = torch.sigmoid(x)`.

    Common false explanations
    -------------------------
    "It matches at the point I tried": a term that is zero there (here, at x = 0) cannot be missed.
    """

    name = "backward-missing-term"
    priority = 70

    def judge(self, trial: Trial) -> tuple[Diagnosis, ...]:
        out = []
        for finding in values_with(trial, "tensor-factor", "missing-term", "lost-output", "missing-sum", "wrong-axis", "other-tensor", "scaled-part", "passed-on"):
            relation, name = finding.relation, name_of(trial, finding)
            title, why, advice = _worded(name, relation, trial, whose(trial, finding), len(finding.names) > 1)
            facts = measured(trial, finding)
            if relation.kind == "missing-term" and relation.line:
                facts = (Fact(f"{_by_cutting(relation)} ({trial.file}:{relation.line})", Known.RECOMPUTED), *facts)
            if relation.detail == "scaled" and finding.mend is not None:
                title = f"a term of the gradient for `{name}` {_times(relation.factor)}{_argument(relation)}: `{finding.mend.before}` should be `{finding.mend.after}`"
            out.append(diagnosis(self.name, title + where(finding), trial, finding, why, advice, facts))
        return tuple(out)


def _worded(name: str, relation: Relation, trial: Trial, owner: str, several: bool) -> tuple[str, str, str]:
    if relation.kind == "tensor-factor":
        times = "" if abs(relation.factor - 1) < 1e-6 else f"{number(relation.factor)} * "
        if relation.detail == "missing":
            return (
                f"{owner} {'lack' if several else 'lacks'} a factor `{times}{relation.tensor}`",
                f"Multiplied elementwise by `{times}{relation.tensor}`, what backward returns is the true gradient.",
                f"multiply this gradient by `{times}{relation.tensor}`",
            )
        return (
            f"{owner} {'have' if several else 'has'} a factor `{times}{relation.tensor}` too many",
            f"What backward returns is the true gradient multiplied elementwise by `{times}{relation.tensor}`.",
            f"take the factor `{times}{relation.tensor}` out of this gradient",
        )
    if relation.kind == "other-tensor":
        return (
            f"the gradient for `{name}` is grad_output * `{relation.tensor}` where it should be grad_output * `{relation.instead}`",
            f"The local derivative is `{relation.instead}`; backward uses `{relation.tensor}`. Often the wrong tensor was saved, or the saved tensors were unpacked in another order.",
            f"use `{relation.instead}` (save it in forward if it is not saved)",
        )
    if relation.kind == "missing-sum":
        return (
            f"the gradient for `{name}` lacks the term `{relation.tensor}`",
            f"true - returned = `{relation.tensor}`, for every grad_output tried. Every element of the input along dimension {relation.dims[0]} takes part in "
            "every output along it, which adds this sum.",
            f"add `{relation.tensor}`",
        )
    if relation.kind == "lost-output":
        grad = f"`{relation.tensor}`" if relation.tensor else "its gradient"
        return (
            f"{owner} {'leave' if several else 'leaves'} out what comes back through output {relation.other}",
            f"What backward returns is right as long as output {relation.other} (counted from 0) is not used: {grad} does not enter it. "
            "A loss that uses that output trains nothing through it, silently.",
            f"add the term of {grad}, or call ctx.mark_non_differentiable on output {relation.other} in forward if nothing is to be trained through it",
        )
    if relation.kind == "passed-on":
        grad = "grad_output" if len(trial.outputs) == 1 else f"the gradient of output {relation.other}"
        return (
            f"the gradient for `{name}` is {grad} as it came: the derivative of forward is left out",
            f"That is right only where forward's derivative is 1. Backward has to multiply {grad} by the derivative of forward with respect to `{name}`.",
            f"multiply {grad} by the derivative of forward",
        )
    if relation.kind == "scaled-part":
        return _term_worded(name, relation)
    if relation.kind == "wrong-axis":
        return (
            f"the gradient for `{name}` sums over dimension {relation.dims[0]} instead of {relation.dims[1]}",
            f"The term is `{relation.tensor}`; backward takes that sum over dimension {relation.dims[0]}.",
            f"sum over dimension {relation.dims[1]}",
        )
    place = f"`{relation.tensor}`" + (f" (line {relation.line})" if relation.line else "")
    if relation.detail == "scaled":
        return (
            f"the term through {place} of the gradient for `{name}` {_times(relation.factor)}{_argument(relation)}",
            f"The part of the gradient that comes through the {relation.instead} operation at {place} is taken {number(relation.factor)} times, "
            "and the rest is right: for every grad_output and at every value tried.",
            f"correct the term that comes through {place}",
        )
    if relation.detail == "only":
        times = "" if abs(relation.factor - 1) < 1e-6 else f", and that {_times(relation.factor)}"
        return (
            f"{owner} {'have' if several else 'has'} only the term through {place}{times}",
            f"The gradient has further terms, through the other uses of the same values in forward; backward returns only the part that comes through the {relation.instead} operation at {place}.",
            "add the terms of the other paths from this input to the output",
        )
    return (
        f"{owner} {'lack' if several else 'lacks'} the term through {place}",
        f"The part of the gradient that comes through the {relation.instead} operation at {place} is left out, as if that operand were a constant.",
        f"add the term that comes through {place}",
    )


def _by_cutting(relation: Relation) -> str:
    if relation.detail == "missing":
        return "cutting that path out of forward's own graph gives exactly what backward returns"
    times = "" if abs(relation.factor - 1) < 1e-6 else f", {number(relation.factor)} times,"
    if relation.detail == "only":
        return f"that path of forward's own graph alone{times} gives exactly what backward returns"
    return f"forward's own graph with that path taken{times} gives exactly what backward returns".replace(",", "")


def _argument(relation: Relation) -> str:
    """' (beta is 1.5)', where the number is that of an argument."""
    return f" ({size_text(relation.sizes[0])})" if relation.sizes else ""


def _times(factor: float) -> str:
    if abs(factor + 1) < 1e-6:
        return "has the wrong sign"
    sign = "has the wrong sign and " if factor < 0 else ""
    return sign + (f"is {number(abs(factor))} times too large" if abs(factor) > 1 else f"is {number(1 / abs(factor))} times too small")


def _term_worded(name: str, relation: Relation) -> tuple[str, str, str]:
    """A summand that is there, and wrong by a number."""
    times, term = relation.factor, f"`{relation.tensor}` (line {relation.line})"
    if abs(times) < 1e-6:
        return (
            f"the gradient for `{name}` has the term {term} too many",
            "Without that term, and with everything else as it is, what backward returns is the true gradient.",
            f"take {term} out",
        )
    if abs(times + 1) < 1e-6:
        return (
            f"the term {term} of the gradient for `{name}` has the wrong sign",
            "With the opposite sign for that term, and everything else as it is, what backward returns is the true gradient.",
            f"negate {term}",
        )
    sign = "has the wrong sign and " if times < 0 else ""
    size = f"{number(abs(times))} times too small" if abs(times) > 1 else f"{number(1 / abs(times))} times too large"
    return (
        f"the term {term} of the gradient for `{name}` {sign}is {size}",
        f"With that term multiplied by {number(times)}, and everything else as it is, what backward returns is the true gradient, for every input and size tried.",
        f"multiply {term} by {number(times)}",
    )

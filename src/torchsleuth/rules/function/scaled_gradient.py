"""A gradient that is a constant multiple of the true one: a sign, a mean taken for a sum, a lost constant."""

from __future__ import annotations

from torchsleuth.checker.trial import FunctionRule, Relation, Trial
from torchsleuth.model import Diagnosis, Fact, Known
from torchsleuth.rules.function.wording import diagnosis, measured, number, of_argument, power_text, size_text, values_with, where, whose


class ScaledGradient(FunctionRule):
    """A custom backward returns a constant multiple of the true gradient.

    What happened
    -------------
    For one input, every element of the returned gradient is the same number times the true one. The
    direction is right (or exactly opposite), the size is not, so training often still goes somewhere.

    Why
    ---
    The usual sources: a mean in forward whose backward does not divide by the number of elements (or
    divides by the wrong one), a sum that does; a lost minus; a constant argument such as `scale` that
    backward forgot, or applied twice; the 2 of a square.

    Example
    -------
    The gradient of a mean over 32 elements is 1/32 each; this prints 1.0:

        import torch

        class Mean(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.shape = x.shape
                return x.mean(1)

            @staticmethod
            def backward(ctx, grad_output):
                return grad_output.unsqueeze(1).expand(ctx.shape)

        x = torch.randn(1, 32, 100, requires_grad=True)
        Mean.apply(x).sum().backward()
        print(x.grad[0, 0, 0].item())

    Fix
    ---
    Put the constant back: here, `grad_output.unsqueeze(1).expand(ctx.shape) / ctx.shape[1]`.

    Common false explanations
    -------------------------
    "The learning rate makes up for it": only if every parameter behind the Function shares the factor;
    with weight decay, clipping or Adam's state the runs differ. "gradcheck passed, so it is right":
    not if it was run on a dimension of size 1.
    """

    name = "backward-scaled-gradient"
    priority = 80

    def judge(self, trial: Trial) -> tuple[Diagnosis, ...]:
        out = []
        for finding in values_with(trial, "factor"):
            relation = finding.relation
            facts = (Fact(f"returned = {number(relation.factor)} x true, for every element and every grad_output tried", Known.RECOMPUTED),
                     *measured(trial, finding))  # fmt: skip
            out.append(
                diagnosis(self.name, f"{whose(trial, finding)} {_amount(relation, len(finding.names) > 1)}{where(finding)}", trial, finding,
                          _why(trial, relation), _advice(relation), facts)
            )  # fmt: skip
        return tuple(out)


def _amount(relation: Relation, several: bool) -> str:
    factor = relation.factor
    has, are = ("have", "are") if several else ("has", "is")
    if abs(factor + 1) < 1e-9:
        return f"{has} the wrong sign"
    sign = f"{has} the wrong sign and {are} " if factor < 0 else f"{are} "
    size = abs(factor)
    if abs(size - 1) < 1e-9:
        return f"{are} right"
    if size > 1:
        return f"{sign}{number(size)} times too large"
    return f"{sign}{number(1 / size)} times too small"


def _why(trial: Trial, relation: Relation) -> str:
    if not relation.sizes:
        sign = "The minus is lost or one too many. " if relation.factor < 0 else ""
        if abs(abs(relation.factor) - 1) < 1e-9:
            return sign.strip()
        return sign + "With other sizes or arguments the factor is another one, and no single one of them."
    size = relation.sizes[0]
    sign = "A minus is lost or one too many. " if relation.factor < 0 else ""
    if abs(abs(relation.factor) - 1) < 1e-9:
        return sign.strip()
    if len(relation.sizes) == 2 and relation.sizes[1].kind == "dimension":
        other = relation.sizes[1]
        ratio = f"{number(size.value)}/{number(other.value)}"
        return (f"{sign}The factor is {ratio if size.power == 1 else f'the square root of {ratio}'}: {size_text(size)}, {size_text(other)}, "
                "and one is used in place of the other. It stayed so when those sizes were changed.")  # fmt: skip
    if size.kind in ("dimension", "elements"):
        changed = " It stayed so when that size was changed." if relation.holds else " (That size could not be changed alone, so this is the likeliest reading.)"
        treated = {1.0: "a mean treated as a sum", -1.0: "a sum treated as a mean"}.get(size.power, "a wrong normalisation")
        return f"{sign}The factor is {power_text(size)}, and {size_text(size)}: {treated}.{changed}"
    if size.kind != "number":
        other = " times 2" if len(relation.sizes) > 1 else ""
        kind = {1.0: "backward multiplies by it once too often, or leaves out a division by it", -1.0: "backward leaves it out",
                -2.0: "backward leaves out its square"}.get(
            size.power, "backward uses another power of it"
        )
        perhaps = "" if relation.holds else "perhaps "  # with another value of the argument it was not tried
        return f"{sign}The factor is {power_text(size)}{other}, and {size_text(size)}: {perhaps}{kind}."
    common = {2.0: "a 2 that is one too many", 0.5: "a 2 is left out, such as that of a square"}.get(round(size.value, 9), "")
    tried = " for every size tried" if relation.holds else ""
    return f"{sign}The factor is {number(size.value)}{tried}{': ' + common if common else ', so it is a constant of the formula'}."


def _advice(relation: Relation) -> str:
    if abs(relation.factor + 1) < 1e-9:
        return "negate this gradient"
    size = relation.sizes[0] if relation.sizes else None
    if len(relation.sizes) == 2 and relation.sizes[1].kind == "dimension":
        return "use the other size"
    if size is None:
        return "correct the normalisation of this gradient"
    if size.kind == "number":
        return f"{'divide' if abs(relation.factor) > 1 else 'multiply'} this gradient by {number(max(abs(relation.factor), 1 / abs(relation.factor)))}"
    if size.power in (1.0, -1.0):
        verb = "divide" if size.power > 0 else "multiply"
        what = f"`{of_argument(size)}`" if size.kind in ("argument", "one-minus", "one-plus") else f"the size of dimension {' and '.join(map(str, size.dims))} of {size.name}" if size.dims else f"the number of elements of {size.name}"
        return f"{verb} this gradient by {what}"
    return "correct the normalisation of this gradient"

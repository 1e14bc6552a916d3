"""A gradient that is wrong in a way no other rule recognises; the numbers are shown and nothing is guessed."""

from __future__ import annotations

from torchsleuth.checker.trial import FunctionRule, Relation, Trial
from torchsleuth.model import Diagnosis, Fact, Known
from torchsleuth.rules.function.wording import SPECIAL, diagnosis, listed, measured, name_of, where, whose

NAMED = frozenset(
    "factor transposed rearranged permuted adjoint other-input no-grad-output reduction tensor-factor other-tensor missing-term lost-output missing-sum "
    "wrong-axis condition inverted not-linear scaled-part passed-on".split()
)


class WrongGradient(FunctionRule):
    """A custom backward returns values that are not the gradient of forward.

    What happened
    -------------
    The returned gradient differs from the true one, and the difference is none of the relations that have
    rules of their own (a factor, a transposition, a missing term, another input's gradient and so on); or
    it is all zeros, or not finite where the true gradient is.

    Why
    ---
    More than one thing may be wrong at once, or the formula is one for a different function. The report
    shows where the largest difference is, and what both values are there.

    Example
    -------
    forward is the exact GELU, whose derivative at 1 is 1.0833; backward takes one term of the derivative of
    another function, the approximation x * sigmoid(1.702 * x). This prints 0.8458:

        import torch

        class Gelu(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return torch.nn.functional.gelu(x)

            @staticmethod
            def backward(ctx, grad_output):
                (x,) = ctx.saved_tensors
                return grad_output * torch.sigmoid(1.702 * x)

        x = torch.tensor(1.0, requires_grad=True)
        Gelu.apply(x).backward()
        print(round(x.grad.item(), 4))

    Fix
    ---
    Write down the derivative again; for comparison, run forward's own expression on a tensor that requires
    grad and let autograd differentiate it.

    Common false explanations
    -------------------------
    "Finite differences are inaccurate": in float64, and with autograd's own derivative of forward beside
    them, they are not, and points next to a kink are left out.
    """

    name = "backward-wrong-gradient"
    priority = 60

    def judge(self, trial: Trial) -> tuple[Diagnosis, ...]:
        out = []
        for finding in trial.of_kind("values"):
            kind = finding.relation.kind if finding.relation is not None else "unknown"
            if kind in NAMED or finding.case in SPECIAL:
                continue
            name = name_of(trial, finding)
            facts = (Fact(f"relative difference {finding.error:.3g}", Known.RECOMPUTED), *measured(trial, finding))
            if kind == "zero":
                title, why = f"the gradient for `{name}` is all zeros", f"forward's values change with `{name}`, so its gradient is not zero."
                if finding.relation.detail == "cancelled":
                    title = f"the gradient for `{name}` is zero: its terms cancel"
                    why += " What backward returns is zero up to rounding, for every grad_output tried."
            elif kind == "not-finite":
                title = f"the gradient for `{name}` is NaN or infinite where the true one is finite"
                why = f"{finding.relation.share:.0%} of its elements are not finite. {_first_odd(finding.relation)}"
            elif kind == "redrawn":
                title = f"{whose(trial, finding)} {'are' if len(finding.names) > 1 else 'is'} wrong: backward draws random numbers of its own"
                why = "They are not the ones that forward drew. Save what forward drew (a mask, say), or its random state."
            elif kind == "precision":
                title = f"the gradient for `{name}` is right to {finding.relation.factor:.1g} only"
                why = "The formula is close but not the derivative: an approximation, a rounded constant, or a detour through a shorter type."
                if finding.relation.detail:
                    why = f"backward returns it as {finding.relation.detail}, which has no more digits; autograd converts it back silently."
            elif finding.mend is not None:
                are = "are" if len(finding.names) > 1 else "is"
                title = f"{whose(trial, finding)} {are} wrong: `{finding.mend.before}` should be `{finding.mend.after}`"
                why = "With that one change every experiment agrees with forward."
            elif finding.names:
                title = f"the gradients for {listed(finding.names)} are not the derivatives of forward: what they have in common is `{finding.detail}`"
                why = (f"All of them come through `{finding.detail}`, and no gradient that is right does: one slip there, or in what it is made of, "
                       "explains them all. No single factor, term or exchange was found that makes them right.")  # fmt: skip
            else:
                title = f"the gradient for `{name}` is not the derivative of forward"
                why = ("Looked for and not found: a constant factor, a sign, a transposition, a wrong reduction, another input's gradient, a factor or "
                       "term too many or too few, and a single change of backward that makes it right.")  # fmt: skip
                if not finding.given and not finding.case:
                    why += (" The inputs were drawn at random: if forward expects something of them (that they are sorted, normalised, symmetric, or fit one "
                            "another), check it on such inputs.")  # fmt: skip
            out.append(diagnosis(self.name, title + where(finding), trial, finding, why, "", facts))
        for finding in trial.of_kind("not-linear"):
            name = name_of(trial, finding)
            what = "backward returns None there" if finding.detail else "other values come back there"
            out.append(diagnosis(self.name, f"the gradient for `{name}` is wrong with {finding.case}", trial, finding,
                                 f"With the gradients of all outputs it is right; {what}, so that the part of this output is lost or changed when a "
                                 "loss uses no other. A gradient has to be the sum of what comes back through each output.", "", ()))  # fmt: skip
        return tuple(out)


def _first_odd(relation: Relation) -> str:
    if not relation.tensor:
        return "A division by zero, an overflow, or a root or logarithm of what has none, in backward."
    return f"The first operation of backward that gives {relation.detail} for finite operands is `{relation.tensor}`" + (
        f" in line {relation.line}." if relation.line else "."
    )

"""A backward that is not the derivative of forward, apparently on purpose: straight-through, reversal, surrogates."""

from __future__ import annotations

from torchsleuth.checker.trial import FunctionRule, Trial
from torchsleuth.model import Confidence, Diagnosis, Fact, Known
from torchsleuth.rules.function.wording import diagnosis, measured, name_of, number


class NotDerivative(FunctionRule):
    """A custom backward is, apparently on purpose, not the derivative of forward.

    What happened
    -------------
    forward is flat (it rounds, thresholds or picks), so its true gradient is zero, and backward returns
    something else; or forward passes its input on unchanged, and backward scales, reverses or clips the
    gradient. That is what straight-through estimators, surrogate gradients and gradient reversal layers do.

    Why
    ---
    Such a Function cannot be checked against forward: there is nothing to compare with. torchsleuth names
    it, so that it does not pass for a derivative, and accepts it unless told otherwise.

    Example
    -------
    round() has derivative 0 almost everywhere; the straight-through estimator passes the gradient on. This
    prints 1.0:

        import torch

        class Round(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.round()

            @staticmethod
            def backward(ctx, grad_output):
                return grad_output

        x = torch.tensor(0.3, requires_grad=True)
        Round.apply(x).backward()
        print(x.grad.item())

    Fix
    ---
    `torchsleuth check` notes it and accepts it. If it is not meant, correct backward;
    `torchsleuth check ops.py --strict` and `torchsleuth.check(Round, x, strict=True)` report it.

    Common false explanations
    -------------------------
    "gradcheck is broken for this Function": gradcheck compares with forward, and this is not its
    derivative. "Autograd handles round() the same way": torch.round has gradient zero.
    """

    name = "backward-not-derivative"
    priority = 50

    def judge(self, trial: Trial) -> tuple[Diagnosis, ...]:
        out = []
        for finding in trial.of_kind("not-derivative"):
            name = name_of(trial, finding)
            factor = finding.relation.factor if finding.relation is not None and finding.relation.kind == "factor" else None
            facts = measured(trial, finding)
            if finding.detail == "zero":
                title = f"the gradient for `{name}` is not the derivative of forward: forward is flat there (straight-through or surrogate gradient)"
                why = f"forward's values do not change when `{name}` changes a little, so the true gradient is zero; backward returns something else."
            elif finding.detail == "rounds":
                title = f"the gradient for `{name}` is not the derivative of forward, which rounds (straight-through or surrogate gradient)"
                why = "forward rounds, and the derivative of a step is zero or meaningless; backward returns something else."
            elif finding.detail == "steps":
                title = f"the gradient for `{name}` is not the derivative of forward: one of its outputs is flat there (surrogate gradient)"
                why = f"one of forward's outputs does not change when `{name}` changes a little, so nothing comes back through it; backward returns something for it."
            elif finding.detail == "beside":
                title = f"the gradient for `{name}` is not the derivative of forward, which is flat in another input"
                why = f"forward rounds, or is flat in, another input, for which backward returns a surrogate; the gradient for `{name}` seems to belong to it."
            else:
                reverse = factor is not None and factor < 0
                kind = "gradient reversal" if reverse else "a scaled gradient" if factor is not None else "a changed gradient"
                title = f"the gradient for `{name}` is not the derivative of forward: forward passes `{name}` on unchanged ({kind})"
                why = f"forward returns `{name}` as it is, whose derivative is grad_output itself."
                if factor is not None:
                    facts = (Fact(f"backward returns {number(factor)} times the true gradient", Known.RECOMPUTED), *facts)
            why += " This looks deliberate; without --strict (strict=True) it is only noted."
            out.append(diagnosis(self.name, title, trial, finding, why, "", facts, Confidence.LIKELY))
        return tuple(out)

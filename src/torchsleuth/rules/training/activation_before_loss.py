"""A loss that is given probabilities where it wants scores, or the reverse."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import LossCall, Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, number, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class ActivationBeforeLoss(AuditRule):
    """The loss applies softmax or sigmoid itself, and its input has been through one already (or lacks the log it needs).

    What happened
    -------------
    `cross_entropy` was given the result of a softmax, `binary_cross_entropy_with_logits` the result of
    a sigmoid, or `nll_loss` something that is not a log-probability.

    Why
    ---
    `cross_entropy` takes scores and applies `log_softmax` itself. Probabilities lie between 0 and 1, so
    a second softmax makes them nearly equal: with C classes the loss cannot fall below
    log(1 + (C - 1)/e), the gradient is small, and accuracy still rises a little, which hides it.

    Example
    -------
    A perfect prediction should cost nothing. This prints 0.0 for scores and 0.5514 for probabilities:

        import torch
        import torch.nn.functional as F

        scores, target = torch.tensor([[100.0, 0.0, 0.0]]), torch.tensor([0])
        print(round(F.cross_entropy(scores, target).item(), 4))
        print(round(F.cross_entropy(scores.softmax(-1), target).item(), 4))

    Fix
    ---
    Give the loss the scores: leave out the softmax or sigmoid in training, or use the loss that fits
    (`nll_loss` after `log_softmax`, `binary_cross_entropy` after `sigmoid`).

    Common false explanations
    -------------------------
    "Softmax turns outputs into probabilities, so the loss needs it": the loss does that itself.
    """

    name = "activation-before-loss"
    order = 9

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        seen = set()
        for loss in observation.losses:
            found = _diagnosis(loss)
            if found is not None and loss.site.span not in seen:
                seen.add(loss.site.span)
                yield found


def _diagnosis(loss: LossCall) -> Diagnosis | None:
    certain = Confidence.CERTAIN
    low, high = number(loss.lowest), number(loss.highest)
    if loss.function == "cross_entropy" and loss.activation in ("softmax", "sigmoid"):
        title = f"`cross_entropy` is given the result of `{loss.activation}`, and applies softmax again"
        why = "`cross_entropy` applies `log_softmax` itself. Values between 0 and 1 differ too little for it: its loss has a floor, and gradients are small."
        fix = f"Give `cross_entropy` the scores before `{loss.activation}`."
    elif loss.function == "binary_cross_entropy_with_logits" and loss.activation in ("sigmoid", "softmax"):
        title = f"`binary_cross_entropy_with_logits` is given the result of `{loss.activation}`, and applies sigmoid again"
        why = "Values between 0 and 1 through another sigmoid lie between 0.5 and 0.73: the model can never say no."
        fix = "Give it the scores, or use `binary_cross_entropy`."
    elif loss.function == "nll_loss" and loss.activation in ("softmax", "sigmoid"):
        title = f"`nll_loss` is given the result of `{loss.activation}`; it wants log-probabilities"
        why = "`nll_loss` only picks an element and changes its sign. On probabilities there is no logarithm in the loss."
        fix = "Use `log_softmax` before `nll_loss`, or `cross_entropy` on the scores."
    elif loss.function == "nll_loss" and not loss.activation and not loss.normalised:
        title = "`nll_loss` is given scores; it wants log-probabilities"
        why = "The exponentials of log-probabilities sum to 1 in each row; these do not. On raw scores the loss has no lower bound: it falls for ever."
        fix = "Use `cross_entropy`, or apply `log_softmax` first."
        certain = Confidence.LIKELY
    elif loss.function == "kl_div" and loss.activation in ("softmax", "sigmoid"):
        title = f"`kl_div` is given the result of `{loss.activation}` as its first argument; it wants log-probabilities"
        why = "The first argument of `kl_div` is a logarithm by contract."
        fix = "Use `log_softmax` for the first argument."
    else:
        return None
    culprits = []
    if loss.activation_site is not None:
        culprits.append(culprit(loss.activation_site, Role.OPERAND, f"`{loss.activation}` is applied here"))
    if loss.activation_site is None or loss.site.span != loss.activation_site.span:
        culprits.append(culprit(loss.site, Role.CALL, "and the loss expects its input without it" if culprits else ""))
    facts = [f"the input of `{loss.function}`, shape {list(loss.input.size)}, lies between {low} and {high}"]
    if loss.rows_sum_to_one:
        facts.append("its rows sum to 1")
    return Diagnosis(ActivationBeforeLoss.name, title, certain, tuple(culprits), observed(*facts), why, (advice(fix),))

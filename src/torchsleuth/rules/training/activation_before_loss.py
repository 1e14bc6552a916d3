"""A loss that is given probabilities where it wants scores, or the reverse."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torchsleuth.auditor.observation import LossCall, Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, number, observed, recomputed
from torchsleuth.model import Confidence, Diagnosis, Known, Role


class ActivationBeforeLoss(AuditRule):
    """The loss applies softmax or sigmoid itself, and its input has been through one already (or lacks the log it needs).

    What happened
    -------------
    `cross_entropy` was given the result of a softmax (or of a formula whose rows sum to 1),
    `binary_cross_entropy_with_logits` the result of a sigmoid, `nll_loss` or `ctc_loss` something that is not
    a log-probability; or `kl_div` its arguments in the wrong order or form. Or an activation stands before the loss that does not
    belong there: a sigmoid or softmax twice, a softmax for labels of which several are right, a ReLU after the last layer, a
    sigmoid for targets that lie beyond 1.

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
            if loss.logarithm is not None and observation.duplicates:
                continue  # writes that are lost: that is where the probability has gone
            found = _diagnosis(loss)
            if found is not None and loss.site.span not in seen:
                seen.add(loss.site.span)
                yield found


def _bounded(loss: LossCall) -> str:
    floor = f"the loss cannot fall below {number(math.log(1 + (loss.classes - 1) / math.e))}, that is log(1 + {loss.classes - 1}/e) for {loss.classes} classes" if loss.classes else "the loss has a floor"
    return f"`cross_entropy` applies `log_softmax` itself. Values between 0 and 1 differ too little for it: {floor}, and gradients are small."


def _diagnosis(loss: LossCall) -> Diagnosis | None:
    found = _divergence(loss) if loss.function == "kl_div" else _scores(loss)
    if found is None:
        return None
    title, why, fix, confidence = found
    blamed = "input" if loss.function != "kl_div" else "both" if "exchanged" in title else "target" if "target" in title else "input"
    culprits = []
    if blamed == "input" and loss.activation_built is not None:
        culprits.append(culprit(loss.activation_built, Role.CREATE, f"the layer that applies `{loss.activation}` is built here", Known.INFERRED))
    if blamed in ("input", "both") and loss.activation_site is not None and (not culprits or not loss.built_inside or (loss.activation_site.span.file, loss.activation_site.span.line) != (loss.site.span.file, loss.site.span.line)):
        culprits.append(culprit(loss.activation_site, Role.OPERAND, f"`{loss.activation}` is applied here" if loss.activation else "its rows sum to 1"))
    if blamed in ("target", "both") and loss.target_site is not None:
        culprits.append(culprit(loss.target_site, Role.OPERAND, f"`{loss.target_activation}` is applied here"))
    if len(culprits) == 2 and not loss.built_inside:
        culprits.reverse()  # the call is to be left out; a layer among others goes where they are listed
    if not any(c.span == loss.site.span for c in culprits):
        culprits.append(culprit(loss.site, Role.CALL, _EXPECTS.get(loss.function, "and the loss expects its input without it") if culprits else ""))
    if "logarithms of numbers" in title and loss.logarithm is not None and loss.logarithm.span != loss.site.span:
        culprits.append(culprit(loss.logarithm, Role.CREATE, "the logarithm is taken here"))
    if "is given scores" in title and loss.scores is not None and loss.scores.span != loss.site.span:
        culprits.append(culprit(loss.scores, Role.CREATE, "makes the scores, and no `log_softmax` follows"))
    range_known = loss.lowest or loss.highest
    facts = [f"the input of `{loss.function}`, shape {list(loss.input.size)}" + (f", lies between {number(loss.lowest)} and {number(loss.highest)}" if range_known else "")]
    if loss.rows_sum_to_one:
        facts.append("its rows sum to 1")
    if loss.function in ("nll_loss", "ctc_loss") and not loss.rows_sum_to_one and not loss.normalised:
        facts.append("the exponentials of its rows do not sum to 1")
    if loss.function == "kl_div" and loss.target_lowest < 0 and not loss.log_target:
        facts.append(f"its target goes down to {number(loss.target_lowest)}; probabilities are not negative")
    if loss.value is not None:
        facts.append(f"the loss is {number(loss.value)}")
    return Diagnosis(ActivationBeforeLoss.name, title, confidence, tuple(culprits), (*observed(*facts, *_numbers(loss)), *recomputed(_gradient(loss))), why, (advice(fix),))


def _numbers(loss: LossCall) -> Iterator[str]:
    if loss.asked is not None:
        yield (f"for one label the targets want the outputs of {number(loss.asked)} of the {loss.input.size[0]} samples to be 1, and the outputs for it sum to 1" if _over_samples(loss) else
               f"in one row the targets want {number(loss.asked)} of the outputs to be 1")  # fmt: skip
    if loss.cut_off is not None:
        zeros, of, own, labels = loss.cut_off
        yield f"{zeros} of {of} scores are 0, and so is the label's own score of {own} of {labels} predictions"
    if loss.out_of_reach is not None:
        outside, of, low, high = loss.out_of_reach
        yield f"{outside} of {of} targets lie outside of what `{loss.activation}` gives; they go from {number(low)} to {number(high)}"


def _over_samples(loss: LossCall) -> bool:
    """Did the softmax run over the first axis of a table of samples and labels?"""
    return loss.asked_over == 0 and len(loss.input.size) == 2


def _gradient(loss: LossCall) -> str:
    """Only where it says something: on a few samples that are all predicted wrongly the two may be about as large."""
    if loss.gradient_left is None or loss.gradient_left > 0.8:
        return ""
    return f"through `{loss.activation}` the gradient of the scores is {number(loss.gradient_left)} times what it is without"


_Verdict = tuple[str, str, str, Confidence]
_EXPECTS = {"kl_div": "", "binary_cross_entropy": "", "mse_loss": "", "l1_loss": "", "smooth_l1_loss": "", "huber_loss": "", "sigmoid": "and here once more", "softmax": "and here once more", "log_softmax": "and applied again", "gumbel_softmax": "and applied again", "logsumexp": "and what takes scores is given probabilities"}


def _scores(loss: LossCall) -> _Verdict | None:
    name, activation = loss.function, loss.activation
    if loss.sums_along is not None:
        return None  # a softmax along another axis is a finding of its own
    if name == "cross_entropy" and activation in ("softmax", "sigmoid"):
        title = f"`cross_entropy` is given the result of `{activation}`, and applies softmax again"
        return title, _bounded(loss), f"Give `cross_entropy` the scores before `{activation}`.", Confidence.CERTAIN
    if name == "cross_entropy" and loss.rows_sum_to_one and not loss.normalised:
        return "`cross_entropy` is given probabilities, and applies softmax again", _bounded(loss), "Give `cross_entropy` the scores.", Confidence.LIKELY
    if name == "cross_entropy" and activation == "relu" and loss.cut_off is not None and loss.cut_off[0]:
        title = "`cross_entropy` is given the result of `relu`: no score is below zero"
        why = "A class can be likely, but none can be ruled out: its score stops at 0. And where a score is cut off, no gradient goes back."
        return title, why, "Leave `relu` out after the last layer.", Confidence.LIKELY
    if name == "binary_cross_entropy" and activation == "softmax" and loss.asked is not None:
        over = _over_samples(loss)
        title = "`binary_cross_entropy` is given the result of `softmax`, " + ("which sums to 1 over the samples" if over else "whose rows sum to 1, for targets with several ones in a row")
        each = f"of {'a label that' if over else 'a row with'} {number(loss.asked)} {'samples have' if over else 'ones'} each can get {number(1 / loss.asked)} at best"
        why = f"Probabilities that sum to 1 cannot all be 1: {each}, and the {'samples' if over else 'labels'} compete with each other."
        return title, why, "Use `sigmoid` for labels that do not exclude each other (`binary_cross_entropy_with_logits` on the scores).", Confidence.CERTAIN
    if loss.out_of_reach is not None:
        title = f"`{name}` compares the result of `{activation}` with targets that it cannot reach"
        reach = {"relu": "never below 0", "tanh": "from -1 to 1"}.get(activation, "from 0 to 1")
        why = f"What `{activation}` gives is {reach}. For targets beyond that the loss has a floor, and the activation is driven to its end, where no gradient comes through."
        return title, why, f"Leave `{activation}` out after the last layer, or scale the targets.", Confidence.LIKELY
    if name in ("sigmoid", "softmax"):
        title = f"`{name}` is given the result of `{activation}`: probabilities are taken for scores"
        why = ("A sigmoid of values between 0 and 1 lies between 0.5 and 0.73: the model can never say no." if name == "sigmoid" else
               "Values between 0 and 1 differ too little for a second softmax: no class can get more than a small multiple of another's probability.")  # fmt: skip
        return title, why, f"Apply it once: leave the second `{name}` out.", Confidence.CERTAIN
    if name in ("log_softmax", "logsumexp", "gumbel_softmax"):
        taker = "what takes scores" if name == "logsumexp" else f"`{name}`"
        title = f"{taker} is given the result of `{activation}`: probabilities are normalised once more, as if they were scores"
        why = "Values between 0 and 1 differ too little for a second softmax: no class can get more than a small multiple of another's probability."
        fix = "Take the scores before `softmax`" + (", or hand the probabilities over as such: `Categorical(probs=p)`." if name == "logsumexp" else ".")
        return title, why, fix, Confidence.CERTAIN
    if name == "binary_cross_entropy_with_logits" and activation in ("sigmoid", "softmax"):
        title = f"`binary_cross_entropy_with_logits` is given the result of `{activation}`, and applies sigmoid again"
        why = "Values between 0 and 1 through another sigmoid lie between 0.5 and 0.73: the model can never say no. A 0 costs at least 0.69, a 1 at least 0.31."
        return title, why, "Give it the scores, or use `binary_cross_entropy`.", Confidence.CERTAIN
    if name in ("nll_loss", "ctc_loss") and activation in ("softmax", "sigmoid"):
        title = f"`{name}` is given the result of `{activation}`; it wants log-probabilities"
        why = f"`{name}` takes its input for logarithms. On probabilities there is no logarithm in the loss."
        return title, why, f"Use `log_softmax` before `{name}`" + (", or `cross_entropy` on the scores." if name == "nll_loss" else "."), Confidence.CERTAIN
    if name == "binary_cross_entropy_with_logits" and activation == "relu":
        title = "`binary_cross_entropy_with_logits` is given the result of `relu`: no score is below zero"
        why = "It applies sigmoid itself, and the sigmoid of 0 is 0.5: the model can never say that something is unlikely, and where the score is cut off no gradient goes back."
        return title, why, "Leave `relu` out after the last layer.", Confidence.CERTAIN
    if name in ("nll_loss", "ctc_loss") and loss.logarithm is not None:
        why = "A row over the classes is to be a distribution. These exponentials are not one: probability has got lost on the way, or nothing keeps all of them from growing."
        return f"`{name}` is given logarithms of numbers that do not sum to 1", why, "Look at where the probabilities are put together; each row has to sum to 1 before `log`.", Confidence.LIKELY
    if name in ("nll_loss", "ctc_loss") and not activation and not loss.normalised:
        why = "The exponentials of log-probabilities sum to 1 in each row; these do not. On raw scores the loss has no lower bound: it falls for ever."
        fix = "Use `cross_entropy`, or apply `log_softmax` first." if name == "nll_loss" else "Apply `log_softmax` over the classes (the last axis) first."
        return f"`{name}` is given scores; it wants log-probabilities", why, fix, Confidence.LIKELY
    return None


def _divergence(loss: LossCall) -> _Verdict | None:
    """`kl_div(log q, p)`, or `kl_div(log q, log p, log_target=True)`."""
    contract = "The first argument of `kl_div` is a logarithm by contract."
    both = "`kl_div` takes logarithms first and probabilities second; with `log_target=True` it takes logarithms twice."
    if loss.activation in ("softmax", "sigmoid") and loss.target_activation in ("log_softmax", "logsigmoid") and not loss.log_target:
        title = f"the arguments of `kl_div` are exchanged: `{loss.activation}` comes first and `{loss.target_activation}` second"
        return title, both, "Give it the logarithms first: `kl_div(log_q, p)`.", Confidence.CERTAIN
    if loss.activation in ("softmax", "sigmoid"):
        title = f"`kl_div` is given the result of `{loss.activation}` as its first argument; it wants log-probabilities"
        return title, contract, "Use `log_softmax` for the first argument.", Confidence.CERTAIN
    if not loss.log_target and loss.target_lowest < 0:
        what = f"the result of `{loss.target_activation}`" if loss.target_activation in ("log_softmax", "logsigmoid") else "negative numbers"
        fix = "Pass `log_target=True`." if what != "negative numbers" else "Apply softmax to the target's scores (or `log_softmax`, with `log_target=True`)."
        return f"`kl_div` is given {what} as its target; it wants probabilities", both, fix, Confidence.CERTAIN
    if loss.log_target and loss.target_activation in ("softmax", "sigmoid"):
        title = f"`kl_div` with `log_target=True` is given the result of `{loss.target_activation}` as its target; it wants log-probabilities"
        return title, both, "Leave `log_target=True` out, or use `log_softmax` for the target.", Confidence.CERTAIN
    if not loss.normalised and not loss.activation:
        why = contract + " Its target sums to 1 along an axis; the exponentials of the input do not."
        return "`kl_div` is given scores as its first argument; it wants log-probabilities", why, "Use `log_softmax` for the first argument.", Confidence.LIKELY
    return None

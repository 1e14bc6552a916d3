"""Gradients that arrive as exactly zero, or as NaN."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import Vanish
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, listed, observed, recomputed
from torchsleuth.model import Confidence, Diagnosis, Role

_FLAT = {"round", "floor", "ceil", "sign", "trunc", "heaviside", "round_", "sgn", "frac"}


class ZeroGradient(AuditRule):
    """The gradient of some parameters is exactly zero: an operation on the way has a slope of zero everywhere.

    What happened
    -------------
    After `backward()` the gradient of these parameters is there and all zeros. torchsleuth asked for
    the gradient at every intermediate result: it arrives at the result of the expression named, and
    what leaves through its inputs is zero. Layers that start at zero on purpose (their partners have a
    zero gradient in the first step) were ruled out by trying again with small values in their place.

    Why
    ---
    `round`, `sign`, `floor` and `ceil` are flat; `clamp` and `relu` are flat outside their range; a
    softmax over one element is always 1; `x / x` and `x - x` do not depend on `x`. Autograd is right:
    the slope is zero. It is the formula that does not let a gradient through. The `backward` of a custom
    `torch.autograd.Function` may return zeros as well: then what it returns is named. `F.dropout(x, self.training)`
    gives the flag as `p`: True is 1, and everything is dropped.

    Example
    -------
    Rounding is flat. This prints tensor([0., 0.]):

        import torch

        w = torch.tensor([0.3, 0.7], requires_grad=True)
        torch.round(w).sum().backward()
        print(w.grad)

    Fix
    ---
    A straight-through estimator, `x + (x.round() - x).detach()`, lets the gradient pass a rounding; scale
    inputs into the range of a `clamp` or use a smooth function; normalise over an axis longer than one.

    Common false explanations
    -------------------------
    "The gradients vanish because the network is deep": depth makes them small, not exactly zero.
    """

    name = "zero-gradient"
    order = 20

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for vanish in observation.vanished:
            if vanish.kind != "zero" or vanish.site is None:
                continue
            if vanish.operation == "hook":
                yield _by_hook(vanish)
                continue
            if vanish.by_function:
                yield _by_function(vanish, vanish.site)
                continue
            if vanish.setting and not (observation.no_update is not None and observation.no_update.reason == "zero-gradient"):
                continue  # a term of the loss whose weight is set to zero, beside others that train
            if vanish.zeros:
                yield _behind_zeros(vanish, vanish.site)
                continue
            if vanish.zero and vanish.site.library and vanish.factor is None:
                continue  # a library's own product with zeros of its own making: which positions have a part in it is its design
            if vanish.zero:
                yield _times_zero(vanish, vanish.site)
                continue
            if vanish.dropped:
                yield _all_dropped(vanish, vanish.site)
                continue
            if vanish.of_nothing:
                yield _of_nothing(vanish, vanish.site)
                continue
            flat = vanish.operation in _FLAT
            label, remedy = _words(vanish)
            below = tuple(culprit(made, Role.CREATE, "is built for one element" if vanish.of_one else "fills a bias with one number below zero") for made in vanish.filled)
            yield Diagnosis(
                self.name, f"the gradient of {listed(vanish.weights, 2)} is exactly zero", Confidence.CERTAIN if flat else Confidence.LIKELY,
                (*below, culprit(vanish.site, Role.LOST_GRAD, label)),
                recomputed(
                    f"the gradient of {listed(vanish.weights)} is zero in every element",
                    f"it is not zero at the result of `{vanish.operation}` ({vanish.detail}) and zero at its input",
                ),
                "Autograd follows the formula: where a function is flat, nothing before it learns.",
                (advice(remedy),),
            )  # fmt: skip


def _words(vanish: Vanish) -> tuple[str, str]:
    """What stops the gradient there, and what to do about it."""
    name = vanish.operation.rstrip("_")
    if vanish.operation in _FLAT:
        return f"`{vanish.operation}` is flat: its slope is zero everywhere", "Let a gradient pass: a straight-through estimator, `x + (x.round() - x).detach()` for a rounding; or a smooth function."
    if vanish.of_one:
        return f"`{name}` over one element gives the same for every input (its bias)", "Normalise over an axis that is longer than one, or leave it out."
    if name in ("relu", "relu6", "threshold"):
        return (f"`{name}` is flat here: no gradient arrives where its input is above zero",
                "Look at why all of these inputs are below zero (a bias, an initialisation, data that is not centred); `leaky_relu` or `gelu` lets a gradient through there.")  # fmt: skip
    if name.startswith(("clamp", "clip", "hardtanh", "hardsigmoid")):
        return f"`{name}` is flat here: no gradient arrives where its input is between the limits", "Bring the inputs between the limits, or use a smooth function (`sigmoid`, `tanh`, `softplus`)."
    if name == "bernoulli":
        return "`bernoulli` draws zeros and ones; what it gives back to the probabilities is a gradient of zero", "Let a gradient pass: `p + (torch.bernoulli(p) - p).detach()`, or a relaxed draw (`torch.distributions.RelaxedBernoulli`)."
    return "the gradient arrives here and none leaves", "Let a gradient pass: a straight-through estimator for rounding, inputs inside the range of a clamp, an axis longer than one."


def _behind_zeros(vanish: Vanish, site: Site) -> Diagnosis:
    zeros = listed(vanish.zeros, 2)
    one = len(vanish.zeros) == 1
    facts = observed(f"the gradient of {listed((*vanish.weights, *vanish.zeros))} is zero in every element",
                     f"{zeros} {'is' if one else 'are'} zero in every element, and so is what {'it is' if one else 'they are'} multiplied with: neither gives the other a gradient")  # fmt: skip
    facts += observed(f"after {vanish.steps} steps all of these are bit for bit what they were") if vanish.steps else \
        recomputed("moving all parameters that do get a gradient changes nothing about that")  # fmt: skip
    return Diagnosis(
        ZeroGradient.name, f"{listed(vanish.weights, 2)} will never get a gradient: {zeros} {'is' if one else 'are'} zero, and {'stays' if one else 'stay'} so", Confidence.CERTAIN if vanish.steps else Confidence.LIKELY,
        (*(culprit(made, Role.CREATE, "fills weights with zeros") for made in vanish.filled), culprit(site, Role.LOST_GRAD, "the gradient arrives here, and none leaves: the weights are zero")),
        facts,
        "The gradient of a product for one factor is the other factor. One layer that begins at zero is moved by the first step; of two of them in a row, neither is.",
        (advice("Begin with random weights (`nn.init.xavier_uniform_`, `kaiming_normal_`, or what the layer does by itself); zeros are for biases, and for the last layer of a branch."),),
    )  # fmt: skip


def _times_zero(vanish: Vanish, site: Site) -> Diagnosis:
    culprits = [culprit(vanish.factor, Role.CREATE, "is zero")] if vanish.factor is not None else []
    return Diagnosis(
        ZeroGradient.name, f"the gradient of {listed(vanish.weights, 2)} is exactly zero: what they lead to is multiplied by zero", Confidence.LIKELY,
        (*culprits, culprit(site, Role.LOST_GRAD, "the gradient arrives here, and none leaves: the other factor is zero")),
        recomputed(
            f"the gradient of {listed(vanish.weights)} is zero in every element",
            f"it is not zero at the result of `{vanish.operation}` ({vanish.detail}) and zero at its input: the other factor is zero wherever a gradient arrives",
        ),
        "The gradient of a product for one factor is the other factor: where that is zero (a mask that selects nothing, a weight that `//` rounded down), nothing is learned.",
        (advice("Look at why the factor is zero; a term that is switched off needs no factor: leave it out."),),
    )  # fmt: skip


def _all_dropped(vanish: Vanish, site: Site) -> Diagnosis:
    flag = vanish.dropped == "True"
    return Diagnosis(
        ZeroGradient.name, f"the gradient of {listed(vanish.weights, 2)} is exactly zero: `{vanish.operation}` drops everything", Confidence.CERTAIN,
        (culprit(site, Role.LOST_GRAD, f"drops every element: its `p` is {vanish.dropped}"),),
        observed(
            f"the gradient of {listed(vanish.weights)} is zero in every element",
            f"`{vanish.operation}` ({vanish.detail}) was given `p={vanish.dropped}`" + (", which counts as 1" if flag else "") + ": its result is zero in every element",
        ),
        "`p` is the share of the elements that is set to zero. What comes after sees nothing of what came before, and no gradient goes back."
        + (" A flag that is given by position stands in the place of `p`." if flag else ""),
        (advice(f"Name the argument: `{vanish.operation}(x, p, training=self.training)`." if flag else "Give `p` as the share that is dropped, below 1."),),
    )  # fmt: skip


def _of_nothing(vanish: Vanish, site: Site) -> Diagnosis:
    return Diagnosis(
        ZeroGradient.name, f"the gradient of {listed(vanish.weights, 2)} is exactly zero: nothing was selected of what they lead to", Confidence.LIKELY,
        (culprit(site, Role.LOST_GRAD, "is given no elements at all"),),
        recomputed(
            f"the gradient of {listed(vanish.weights)} is zero in every element",
            f"`{vanish.operation}` ({vanish.detail}) was given a selection with no elements",
        ),
        "A sum over nothing is 0 and depends on nothing. If every batch is like this one, what leads there is never trained.",
        (advice("Look at why the mask or index selects nothing: another value stands for what is left out, or the comparison is the wrong way round."),),
    )  # fmt: skip


def _by_hook(vanish: Vanish) -> Diagnosis:
    name = vanish.weights[0]
    return Diagnosis(
        ZeroGradient.name, f"the gradient of `{name}` is exactly zero, behind a hook on it", Confidence.LIKELY,
        (culprit(vanish.site, Role.LOST_GRAD, "the hook is given a gradient that is not zero"),) if vanish.site is not None else (),
        observed(f"after the backward pass the gradient of `{name}` is zero in every element",
                 "what the last operation gave back for it was not zero; this hook comes after it"),
        "What a hook on a parameter returns is taken in the place of its gradient.",
        (advice("Look at what the hook multiplies the gradient with; a parameter that is to stay as it is needs no hook: `requires_grad_(False)`."),),
    )  # fmt: skip


def _by_function(vanish: Vanish, site: Site) -> Diagnosis:
    who = listed(vanish.weights, 2)
    return Diagnosis(
        ZeroGradient.name, f"the gradient of {who} is exactly zero: `{vanish.operation}.backward` returns zeros", Confidence.LIKELY,
        (culprit(site, Role.LOST_GRAD, "gives back zero in every element"),),
        observed(f"after the backward pass the gradient of {listed(vanish.weights)} is zero in every element",
                 f"`{vanish.operation}.backward` was given a gradient that is not zero, and what it returned here was zero"),
        "What `backward` returns is all that the parameters before the Function learn from. If forward is flat (a sign, a rounding, a threshold), zeros are its "
        "derivative, and a gradient that trains something has to be put in their place.",
        (advice("Return a gradient that lets something through: that of a straight-through estimator or a surrogate, `grad * (x.abs() <= 1)` for a sign."),),
    )  # fmt: skip


class NanGradient(AuditRule):
    """The gradient of some parameters is NaN: one step with it destroys the model.

    What happened
    -------------
    After `backward()` these gradients hold NaN. torchsleuth asked for the gradient at every
    intermediate result: it is finite at the result of the expression named, and infinite or NaN at its input.

    Why
    ---
    The derivative of `sqrt` and of `norm` at zero, of `log` at zero, of a division by zero, is infinite,
    and infinity times zero is NaN. `torch.where` does not protect: both branches are differentiated,
    and the NaN of the branch that was not taken is multiplied by zero, which is still NaN.

    Example
    -------
    The forward value is finite, the gradient is not. This prints True:

        import torch

        x = torch.tensor([0.0, 1.0], requires_grad=True)
        torch.where(x > 0, torch.sqrt(x), torch.zeros(2)).sum().backward()
        print(x.grad[0].isnan().item())

    Fix
    ---
    Keep the argument away from the singular point before the function: `torch.sqrt(x.clamp_min(1e-12))`,
    `torch.where(x > 0, x, 1.0)` *inside* the square root, an `eps` in the denominator or the norm.

    Common false explanations
    -------------------------
    "Gradient clipping repairs it": a clipped NaN is NaN. "`where` selects, so the other branch cannot
    matter": in the backward pass it does.
    """

    name = "nan-gradient"
    order = 4

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for vanish in observation.vanished:
            if vanish.kind != "nan":
                continue
            culprits = ()
            if vanish.site is not None:
                culprits = (culprit(vanish.site, Role.CREATE, "the gradient is finite at its result and infinite or NaN at its input"),)
            elif observation.call is not None:
                culprits = (culprit(observation.call, Role.CALL),)
            yield Diagnosis(
                self.name, f"the gradient of {listed(vanish.weights, 2)} is NaN", Confidence.CERTAIN, culprits,
                observed(f"after the backward pass the gradient of {listed(vanish.weights)} holds NaN",
                         f"on its way back the gradient is finite up to `{vanish.operation}` ({vanish.detail}) and infinite or NaN beyond it" if vanish.operation else ""),
                "An infinite slope times zero is NaN. One optimizer step with it makes the parameters NaN, and everything after.",
                (advice("Keep the argument away from the point where the slope is infinite, before the function is applied (`clamp_min`, an `eps`)."),),
            )  # fmt: skip

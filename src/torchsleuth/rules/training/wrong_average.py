"""A moving average of weights that averages the wrong things."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.observation_training import WrongAverage as Fact
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, number, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class WrongAverage(AuditRule):
    """An average of the weights over time is one of the weights with themselves, goes the wrong way, or is trained, too.

    What happened
    -------------
    After the first step the program computed a mean of weights with two factors that add up to 1, as for a target network, a teacher or
    an average of the weights. Both terms lie in the same memory; or the mean was written into the model that is trained, and the copy
    never changes; or the copy that the mean was written into is held by an optimizer and gets gradients.

    Why
    ---
    `p.data`, `p.detach()` and `state_dict()` copy nothing: they are other names for the parameter's own memory. An average that is
    kept there is the weights themselves, and `mul_(d).add_(p, alpha=1 - d)` makes them smaller with every call, because `p` has been
    multiplied, too. Written the wrong way round, the mean pulls the model back to where it began with every step.

    Example
    -------
    The average is another name for the weights, and shrinks them. This prints True:

        import torch

        w = torch.nn.Parameter(torch.ones(3))
        average = w.data
        average.mul_(0.9).add_(w.data, alpha=0.1)
        print(bool((w < 1).all()))

    Fix
    ---
    `p.detach().clone()` for each tensor of the average, `copy.deepcopy(model)` for a second model; write into the copy
    (`slow.lerp_(fast, 1 - d)`), and leave it out of the optimizer: `copy.requires_grad_(False)`.

    Common false explanations
    -------------------------
    "The average is close to the weights because the decay is low": it is the weights.
    """

    name = "wrong-average"
    order = 9

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for fact in observation.averages:
            yield {"itself": _itself, "reversed": _reversed, "trained": _trained}[fact.kind](fact)


def _factors(fact: Fact) -> str:
    return f"the factors are {number(fact.share)} and {number(1 - fact.share)}, for {fact.count} parameter{'s' * (fact.count != 1)}"


def _itself(fact: Fact) -> Diagnosis:
    apart = fact.made is not None and fact.made.span.line != fact.site.span.line
    made = (culprit(fact.made, Role.CREATE, "gives the parameter's own memory another name, and copies nothing"),) if fact.made is not None and apart else ()
    return Diagnosis(
        WrongAverage.name, "the average of the weights is the weights themselves: both lie in the same memory", Confidence.CERTAIN,
        (*made, culprit(fact.site, Role.MUTATE, "averages the weights with themselves, and writes into the model that is trained")),
        observed(f"both terms of this mean lie in the memory of one parameter of the model that is trained; {_factors(fact)}"),
        "What is kept as an average moves with every step, and what is written into it is written into the model.",
        (advice("Keep copies: `p.detach().clone()` for each tensor, or `copy.deepcopy(model)` for a second model."),),
    )  # fmt: skip


def _reversed(fact: Fact) -> Diagnosis:
    return Diagnosis(
        WrongAverage.name, "the average goes the wrong way: it is written into the model that is trained, and the copy never changes", Confidence.LIKELY,
        (culprit(fact.site, Role.MUTATE, "writes a mean with the copy into the model that is trained"),),
        observed(f"a mean of the trained parameter and its copy was written into the trained one; {_factors(fact)}",
                 "the copy takes part in the step, and is at the end of the program bit for bit what it was then"),
        "The copy is to follow the model. This way the model is pulled back to where the copy was made, after every step.",
        (advice("Write into the copy: `target.lerp_(source, tau)` under `torch.no_grad()`, with the two the other way round."),),
    )  # fmt: skip


def _trained(fact: Fact) -> Diagnosis:
    used = (culprit(fact.made, Role.CREATE, "uses the copy with gradients"),) if fact.made is not None and fact.made.span.line != fact.site.span.line else ()
    return Diagnosis(
        WrongAverage.name, "a copy that is an average of the model is trained by the optimizer, too", Confidence.LIKELY,
        (*used, culprit(fact.site, Role.MUTATE, "writes the mean into a copy that also gets gradients")),
        observed(f"a mean of the copy and the trained parameter was written into the copy; {_factors(fact)}",
                 "the copy's parameter has a gradient, and an optimizer that takes steps holds it"),
        "A target or a teacher is to change by the average alone. With a gradient of its own it gives way to the model, and is no target any more.",
        (advice("Compute what the copy gives under `torch.no_grad()`, and switch it off: `copy.requires_grad_(False)`, before the optimizer is built."),),
    )  # fmt: skip

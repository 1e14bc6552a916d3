"""A softmax over an axis that makes no sense."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import AxisFact, LossCall, Observation
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, expression_of, observed
from torchsleuth.model import Confidence, Culprit, Diagnosis, Known, Role


class SoftmaxAxis(AuditRule):
    """A softmax or a normalisation runs over a single element, over the queries of an attention instead of its keys, past the classes, or over the samples.

    What happened
    -------------
    The axis of a softmax has size 1, so that every result is exactly 1; or attention weights sum to
    one over the queries (axis -2) and are then multiplied with the values as if they summed over the keys; or
    a loss is given log-probabilities that sum to one over another axis than that of the classes. Or `F.normalize` (or a
    division by a norm) gives vectors length 1 along another axis than the one along which a product compares them. Or the
    sums of an overlap (Dice, IoU) or of the distances of a margin loss run over the samples.

    Why
    ---
    Softmax divides by a sum over one axis. Over one element that gives 1 whatever the input: the model
    before it gets a gradient of exactly zero. In attention each query takes a weighted mean of the
    values; weights that do not sum to one over the keys make it no mean at all.

    Example
    -------
    One output unit and a softmax. This prints tensor([[1.], [1.]]):

        import torch

        print(torch.softmax(torch.tensor([[-3.0], [8.0]]), dim=1))

    Fix
    ---
    A sigmoid for one output unit; `dim=-1` for attention scores of shape (…, queries, keys).

    Common false explanations
    -------------------------
    "Softmax is needed for probabilities": for one unit the sigmoid is that function.
    """

    name = "softmax-axis"
    order = 13

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for loss in observation.losses:
            if loss.sums_along is not None and loss.activation_site is not None:
                yield _before_loss(loss) if loss.asked_along is None else _divergence(loss)
        for fact in observation.axes:
            size = list(fact.size)
            if fact.kind == "one-element":
                yield Diagnosis(
                    self.name, f"`{fact.operation}` runs over one element: the result is always {0 if 'log' in fact.operation else 1}", Confidence.CERTAIN,
                    (*_layer(fact.built), culprit(fact.site, Role.OPERAND, f"axis {fact.dim} of {size} has size 1")),
                    observed(f"the result has shape {size}, and axis {fact.dim} has size 1"),
                    "A softmax over one element does not depend on its input, so nothing before it gets a gradient.",
                    (advice("Use a sigmoid for a single unit, or the axis that holds the alternatives."),),
                )  # fmt: skip
            elif fact.kind == "unit-axis":
                yield _lengths(fact)
            elif fact.kind == "picked-axis":
                yield _picked(fact)
            elif fact.kind in ("samples-overlap", "samples-distance"):
                yield _over_samples(fact)
            else:
                yield _attention(fact)


def _layer(built: Site | None) -> list[Culprit]:
    """What is to be changed comes first."""
    return [culprit(built, Role.CREATE, "the layer gets its axis here", Known.INFERRED)] if built is not None else []


def _lengths(fact: AxisFact) -> Diagnosis:
    size, over = list(fact.size), "the samples" if fact.along == 0 else f"axis {fact.along}"
    culprits = [culprit(fact.site, Role.OPERAND, f"gives lengths 1 along axis {fact.along} of {size}")]
    if fact.use is not None and fact.use.span != fact.site.span:
        culprits.append(culprit(fact.use, Role.CALL, f"compares along axis {fact.keys}, where lengths are not 1"))
    return Diagnosis(
        SoftmaxAxis.name, f"`{fact.operation}` runs over {over}, not over each one's features", Confidence.LIKELY, tuple(culprits),
        observed(f"what is normalised has shape {size}: its lengths are the same along axis {fact.along}, and differ along axis {fact.keys}, over which the product runs"),
        "A product compares by cosine where the vectors on both sides have length 1. Here each feature has length 1 over "
        + ("all samples, so that one sample changes what the others are compared with, and long vectors win." if fact.along == 0 else "another axis, and long vectors win."),
        (advice(f"Normalise along the features: `dim={_axis(fact.keys, len(size))}`."),),
    )  # fmt: skip


def _over_samples(fact: AxisFact) -> Diagnosis:
    size, rest = list(fact.size), list(fact.size[1:])
    overlap = fact.kind == "samples-overlap"
    culprits = [culprit(site, Role.OPERAND, f"sums over the {size[0]} samples") for site in (fact.site, *fact.others)]
    if fact.use is not None and all(fact.use.span.line != one.span.line for one in culprits):
        culprits.append(culprit(fact.use, Role.CALL, f"takes {'a quotient' if overlap else 'a difference'} of such sums, {rest}"))
    own = "-1" if len(size) == 2 else str(tuple(range(1, len(size))))
    return Diagnosis(
        SoftmaxAxis.name, f"`{fact.operation}` runs over the samples: " + ("each pixel gets an overlap over the batch, and no picture one of its own" if overlap else
                                                                         "each feature gets a distance over the batch, and no pair one of its own"), Confidence.LIKELY, tuple(culprits),
        observed(f"what is summed has shape {size}, with the samples along axis 0; the sums have shape {rest}",
                 "a quotient of two such sums goes into the loss" if overlap else "the difference of two such sums goes through a margin, number by number"),
        ("The overlap of two masks compares all pixels of one picture. A pixel at one place of all pictures says nothing about how well the masks of any of them fit, and the loss changes with the size of the batch."
         if overlap else "A margin is to tell for each triple whether it is kept. Here it does so for each feature, of all triples together."),
        (advice(f"Sum over all axes but the first: `dim={own}`."),),
    )  # fmt: skip


def _sums(operation: str, axis: int) -> str:
    return f"{'the exponentials of its' if operation.startswith('log') else 'its'} results sum to 1 along axis {axis}"


def _picked(fact: AxisFact) -> Diagnosis:
    size = list(fact.size)
    softmax = fact.operation in ("softmax", "log_softmax")
    said = f"`{fact.operation}` runs over" if softmax else f"`{expression_of(fact.site)}` gives probabilities over"
    label = _sums(fact.operation, fact.along) if softmax else f"gives probabilities, or their logarithms, along axis {fact.along}"
    culprits = [*_layer(fact.built), culprit(fact.site, Role.OPERAND, label)]
    if fact.use is not None and fact.use.span != fact.site.span:
        culprits.append(culprit(fact.use, Role.CALL, f"the labels pick along axis {fact.keys}"))
    return Diagnosis(
        SoftmaxAxis.name, f"{said} axis {fact.along} of {size}, and the labels pick along axis {fact.keys}", Confidence.CERTAIN, tuple(culprits),
        observed(f"the predictions, shape {size}, are probabilities (or their logarithms) along axis {fact.along} and not along axis {fact.keys}",
                 f"the labels pick one of the {size[fact.keys]} alternatives along axis {fact.keys}"),
        "Cross entropy is the logarithm of the probability of the right alternative: the probabilities of the alternatives must sum to 1.",
        (advice(f"Let {f'`{fact.operation}`' if softmax else 'it'} run over axis {fact.keys}: `dim={_axis(fact.keys, len(size))}`."),),
    )  # fmt: skip


def _attention(fact: AxisFact) -> Diagnosis:
    size = list(fact.size)
    keys, along = (axis - len(size) if axis >= 0 else axis for axis in (fact.keys, fact.along))
    culprits = [*_layer(fact.built), culprit(fact.site, Role.OPERAND, f"normalises over axis {fact.dim}")]
    if fact.use is not None:
        culprits.append(culprit(fact.use, Role.CALL, f"sums over axis {keys} of the weights, where they do not sum to 1"))
    over = "the queries" if fact.kind == "query-axis" else f"axis {along}"
    return Diagnosis(
        SoftmaxAxis.name, f"attention weights sum to 1 over {over}, not over the keys", Confidence.LIKELY, tuple(culprits),
        observed(f"the weights, shape {size}, sum to 1 along axis {along} and not along axis {keys}, over which the product with the values runs"),
        "Each query is to take a weighted mean over the keys; these weights do not sum to 1 over them.",
        (advice(f"Use `dim={keys}` in the softmax: the axis of the keys."),),
    )  # fmt: skip


def _before_loss(loss: LossCall) -> Diagnosis:
    size, along = list(loss.sums_in or loss.input.size), loss.sums_along
    axis = len(size) - 1 if loss.function == "ctc_loss" or loss.sums_in else 1
    culprits = [*_layer(loss.activation_built), culprit(loss.activation_site, Role.OPERAND, _sums(loss.activation, along))]
    if loss.site.span != loss.activation_site.span:
        culprits.append(culprit(loss.site, Role.CALL, f"takes axis {axis} for the classes"))
    return Diagnosis(
        SoftmaxAxis.name, f"`{loss.activation}` runs over axis {along}, and `{loss.function}` takes axis {axis} of {size} for the classes", Confidence.CERTAIN,
        tuple(culprits),
        observed(f"the input of `{loss.function}` has shape {list(loss.input.size)}{f', laid out from {size}' * bool(loss.sums_in)}; the exponentials of its values sum to 1 along axis {along} and not along axis {axis}"),
        "The probabilities of the classes are to sum to 1 for each sample and position. Here they do over " + ("the samples" if along == 0 and loss.function != "ctc_loss" else "another axis")
        + ", so that raising one lowers the others' there.",
        (advice(f"Let `{loss.activation}` run over the classes, or give `cross_entropy` the scores."
                if loss.function != "ctc_loss" else f"Let `{loss.activation}` run over the classes (`dim=-1`)."),),
    )  # fmt: skip


def _divergence(loss: LossCall) -> Diagnosis:
    size, along, asked = list(loss.input.size), loss.sums_along, loss.asked_along
    culprits = [*_layer(loss.activation_built), culprit(loss.activation_site, Role.OPERAND, _sums(loss.activation, along))]
    if loss.site.span != loss.activation_site.span:
        culprits.append(culprit(loss.site, Role.CALL, f"compares with probabilities that sum to 1 along axis {asked}"))
    return Diagnosis(
        SoftmaxAxis.name, f"`{loss.function}` compares distributions along different axes of {size}: `{loss.activation}` runs over axis {along}, the other one over axis {asked}",
        Confidence.CERTAIN, tuple(culprits),
        observed(f"both operands of `{loss.function}` have shape {size}; one is a distribution along axis {along}" + (", that of the samples" if along == 0 else "") + f", the other along axis {asked}"),
        "A divergence compares the probabilities of the same alternatives: both sides must be distributions over the same axis.",
        (advice(f"Let `{loss.activation}` run over axis {asked}: `dim={_axis(asked, len(size))}`."),),
    )  # fmt: skip


def _axis(axis: int, rank: int) -> int:
    """As people write it: the last one from the end, others from the front."""
    return -1 if axis == rank - 1 else axis

"""Units of a layer that can never become different."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.observation_training import EqualUnits
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, number, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class EqualUnitsRule(AuditRule):
    """All units of a layer have the same weights and get the same gradient: they stay equal, and the layer is as good as one unit.

    What happened
    -------------
    The rows of a weight were given one value. After the backward pass the rows of its gradient are
    equal as well, and when the program ended the rows were still the same.

    Why
    ---
    Units that compute the same and are used in the same way by the next layer get the same gradient, so
    a step changes them in the same way. Nothing tells them apart, however long the training. Biases,
    scales of normalisations and last layers may begin at one value: their gradients differ from the start.

    Example
    -------
    Two hidden units that begin equal. This prints True, after ten steps too:

        import torch

        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1))
        torch.nn.init.constant_(model[0].weight, 0.1)
        torch.nn.init.zeros_(model[0].bias)
        torch.nn.init.constant_(model[2].weight, 0.1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(10):
            optimizer.zero_grad()
            model(torch.randn(8, 3)).square().mean().backward()
            optimizer.step()
        print(torch.equal(model[0].weight[0], model[0].weight[1]))

    Fix
    ---
    Random values for weights: `nn.init.kaiming_uniform_`, `nn.init.xavier_uniform_`, or those that the
    layer has when it is made.

    Common false explanations
    -------------------------
    "The loss falls, so the layer learns": it learns what one unit can learn. "A larger value would do":
    any one value for all units does the same.
    """

    name = "equal-units"
    order = 22

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        places: dict[tuple, list[EqualUnits]] = {}
        for one in observation.equal_units:
            if one.site is not None:
                places.setdefault((one.site.span.file, one.site.span.line, one.site.span.column), []).append(one)
        for group in places.values():
            yield _diagnosis(group)


def _diagnosis(group: list[EqualUnits]) -> Diagnosis:
    one = group[0]
    more = f" (and those of {len(group) - 1} more)" if len(group) > 1 else ""
    return Diagnosis(
        EqualUnitsRule.name, f"all {one.units} units of `{one.weight}`{more} are equal and stay equal", Confidence.LIKELY,
        tuple(culprit(one.site, Role.CREATE, f"gives all {one.units} rows the same values") for one in group[:1] if one.site is not None),
        observed(
            *(f"the {each.units} rows of `{each.weight}` ({each.layer}) are the same, and so are those of its gradient, whose norm is {number(each.norm)}" for each in group[:4]),
            "when the program ended the rows were still the same",
        ),
        "Units that begin equal and get equal gradients learn the same: the layer is as good as one unit.",
        (advice("Give the weights random values (`nn.init.kaiming_uniform_`, `nn.init.xavier_uniform_`), or leave those that the layer is made with."),),
    )  # fmt: skip

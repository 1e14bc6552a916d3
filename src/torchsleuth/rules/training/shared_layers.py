"""One layer object at several places of a list of layers."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation, SharedLayer
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, observed
from torchsleuth.model import Confidence, Diagnosis, Known, Role


class SharedLayers(AuditRule):
    """A list of layers holds one layer several times: they share all their parameters.

    What happened
    -------------
    Several entries of a `ModuleList` or `Sequential` are the same object, or shallow copies of one.

    Why
    ---
    `[layer] * n` makes a list of n references to one layer, not n layers; `copy.copy(layer)` makes another
    object with the same weights. A layer that is the default value of an argument is made once, when the class is. The model has fewer parameters than meant, and each application changes the same weights. Weights that are tied on
    purpose (an embedding and the output layer, a layer applied in a loop) are not accused.

    Example
    -------
    Three entries, one layer. This prints 6, the number of parameters of a single layer:

        import torch

        layers = torch.nn.ModuleList([torch.nn.Linear(2, 2)] * 3)
        print(sum(p.numel() for p in layers.parameters()))

    Fix
    ---
    `nn.ModuleList([nn.Linear(2, 2) for _ in range(n)])`, or `copy.deepcopy(layer)` for each entry.

    Common false explanations
    -------------------------
    "ModuleList copies its entries": it registers the objects it is given.
    """

    name = "shared-layers"
    order = 35

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for shared in observation.shared:
            if shared.default:
                yield _by_default(shared)
                continue
            site = shared.site or observation.call
            what = "copies that share one set of weights" if shared.copied else "one object, listed several times"
            culprits = (culprit(site, Role.CREATE, what, Known.INFERRED if shared.site else Known.OBSERVED),) if site else ()
            where = f"`{shared.container}`" if shared.container else f"the {shared.container_type}"
            named = shared.container_type == "ModuleDict"
            are = "are copies that share the weights of one" if shared.copied else "are one and the same"
            fact = "share the tables that hold their weights" if shared.copied else "are the same object"
            why = ("`copy.copy` copies the layer and not what it holds" if shared.copied else "`dict.fromkeys` gives every name the same object" if named
                   else "A list that repeats a layer repeats a reference to it")  # fmt: skip
            fix = "`{name: make() for name in names}`" if named else "`[make() for _ in range(n)]`"
            yield Diagnosis(
                self.name, f"{len(shared.positions)} entries of {where} {are} {shared.layer_type}", Confidence.LIKELY, culprits,
                observed(f"entries {', '.join(map(str, shared.positions))} of {where} {fact}; {'the' if shared.copied else 'its'} {shared.weights} weights exist once"),
                f"{why}. If the layers are meant to learn different things, they need weights of their own.",
                (advice(f"Build a new layer for each entry: {fix}" + ("; or `copy.deepcopy`." if shared.copied else ".")),),
            )  # fmt: skip


def _by_default(shared: SharedLayer) -> Diagnosis:
    argument, layer = shared.default, shared.layer_type
    return Diagnosis(
        SharedLayers.name, f"{len(shared.positions)} modules of class {shared.container_type} share one {layer}: the default value of `{argument}`", Confidence.LIKELY,
        (culprit(shared.site, Role.CREATE, "is made once, when the class is defined"),) if shared.site is not None else (),
        observed(f"{', '.join(f'`{path}`' for path in shared.positions[:4])}{' and more' if len(shared.positions) > 4 else ''} hold the same {layer} object; its {shared.weights} weights exist once"),
        "Default values are made when the `def` is run, not for each call: every object that takes the default gets the same layer, and all of them change the same weights.",
        (advice(f"Make the layer in `__init__`: `{argument}=None`, then `self.… = {argument} if {argument} is not None else nn.{layer}(…)`."),),
    )  # fmt: skip

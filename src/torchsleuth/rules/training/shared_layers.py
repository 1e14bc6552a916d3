"""One layer object at several places of a list of layers."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, observed
from torchsleuth.model import Confidence, Diagnosis, Known, Role


class SharedLayers(AuditRule):
    """A list of layers holds one layer several times: they share all their parameters.

    What happened
    -------------
    Several entries of a `ModuleList` or `Sequential` are the same object.

    Why
    ---
    `[layer] * n` makes a list of n references to one layer, not n layers. The model has fewer
    parameters than meant, and each application changes the same weights. Weights that are tied on
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
            site = shared.site or observation.call
            culprits = (culprit(site, Role.CREATE, "one object, listed several times", Known.INFERRED if shared.site else Known.OBSERVED),) if site else ()
            where = f"`{shared.container}`" if shared.container else f"the {shared.container_type}"
            yield Diagnosis(
                self.name, f"{len(shared.positions)} entries of {where} are one and the same {shared.layer_type}", Confidence.LIKELY, culprits,
                observed(f"entries {', '.join(map(str, shared.positions))} of {where} are the same object; its {shared.weights} weights exist once"),
                f"{'`dict.fromkeys` gives every name the same object' if shared.container_type == 'ModuleDict' else 'Multiplying a list repeats references'}. If the layers are meant to learn different things, they need to be different objects.",
                (advice("Build a new layer for each entry: " + ("`{name: make() for name in names}`." if shared.container_type == "ModuleDict" else "`[make() for _ in range(n)]`.")),),
            )  # fmt: skip

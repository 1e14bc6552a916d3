"""Parameters that were to be frozen and are trained all the same."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.observation_training import NotFrozen
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, listed, observed
from torchsleuth.model import Confidence, Diagnosis, Known, Role


class NothingFrozen(AuditRule):
    """An attribute was set that freezes nothing; the parameters are trained.

    What happened
    -------------
    The program sets `requires_grad` of a module to False, or an attribute of a parameter whose name is misspelt; or a
    statement compares it (`p.requires_grad == False`) and sets nothing. The
    parameters in question still require a gradient, got one, and the optimizer has changed them.

    Why
    ---
    `requires_grad` is a property of tensors. A module has none: `module.requires_grad = False` makes a new attribute
    that nothing reads. The same goes for a name that torch does not know (`p.require_grad = False`): Python makes a new
    attribute without a word. A loop over a module (`for layer in model.features`) runs over modules, not over parameters.

    Example
    -------
    This prints True, because the module has got an attribute and its parameters are as before:

        import torch

        layer = torch.nn.Linear(2, 2)
        layer.requires_grad = False
        print(layer.weight.requires_grad)

    Fix
    ---
    `module.requires_grad_(False)` (with the underscore: a method), or `p.requires_grad = False` for each `p` of `module.parameters()`.

    Common false explanations
    -------------------------
    "`eval()` freezes it": that changes what dropout and BatchNorm do, and no parameter.
    """

    name = "nothing-frozen"
    order = 9

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        fact = observation.not_frozen
        if fact is None:
            return
        if fact.kind == "compared":
            yield _compared(fact)
            return
        module = fact.kind == "module"
        what = "a module" if module else "a parameter"
        yield Diagnosis(
            self.name, f"`{fact.attribute} = False` on {what} freezes nothing: {listed(fact.weights, 2)} are trained", Confidence.CERTAIN,
            (culprit(fact.site, Role.MUTATE, f"makes a new attribute of {what}, which torch does not read", Known.INFERRED),),
            observed(
                f"{listed(fact.weights)} require a gradient, and training has changed them",
                "the attribute is there, and set to False" + (", on the module that they belong to" if module else ""),
            ),
            "`requires_grad` is a property of tensors; a module has none." if module else f"The property of a parameter is called `requires_grad`; `{fact.attribute}` is a new attribute.",
            (advice("`module.requires_grad_(False)` freezes all parameters of a module; `p.requires_grad = False` one of them."),),
        )  # fmt: skip


def _compared(fact: NotFrozen) -> Diagnosis:
    return Diagnosis(
        NothingFrozen.name, "`==` compares and sets nothing: the parameters are trained", Confidence.CERTAIN,
        (culprit(fact.site, Role.MUTATE, "gives True or False, which nobody looks at", Known.INFERRED),),
        observed(f"{listed(fact.weights)} require a gradient, and training has changed them"),
        "A comparison that stands alone has no effect; `=` is what sets an attribute.",
        (advice("`p.requires_grad = False`, with one `=`; or `module.requires_grad_(False)` for all parameters of a module."),),
    )  # fmt: skip

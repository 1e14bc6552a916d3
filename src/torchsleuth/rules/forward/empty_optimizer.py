"""An optimizer that got no parameters."""

from __future__ import annotations

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import NoParameters
from torchsleuth.model import Confidence, Diagnosis, Fact, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import Culprits
from torchsleuth.rules.forward._report import advice
from torchsleuth.rules.forward._words import code, plural


class EmptyOptimizer(CrashRule):
    """An optimizer was made of an empty list of parameters.

    What happened
    -------------
    `model.parameters()` gave nothing: the model owns no parameter. Or it was gone through before, and gave nothing any more.

    Why
    ---
    A module owns the layers that are assigned to its attributes, and those in a `ModuleList`, `ModuleDict` or `Sequential`. Layers
    in a plain list or dictionary it does not see: they are not trained, not moved by `.to()`, not saved. And `parameters()` is
    an iterator: it can be gone through once.

    Example
    -------
    This raises "optimizer got an empty parameter list":

        import torch

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = [torch.nn.Linear(4, 4) for _ in range(2)]

        torch.optim.Adam(Net().parameters())

    Fix
    ---
    Keep the layers in a `ModuleList`; keep the parameters in a list where they are needed twice. This runs:

        import torch

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))

        torch.optim.Adam(Net().parameters())

    Common false explanations
    -------------------------
    "The parameters are frozen." Frozen ones are in the list, too. This runs:

        import torch

        net = torch.nn.Linear(4, 4).requires_grad_(False)
        torch.optim.Adam(net.parameters())
    """

    name = "empty-optimizer"
    messages = (r"optimizer got an empty parameter list",)
    needs = ("operation",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = evidence.operation
        found = operation.no_parameters if operation is not None else None
        if operation is None or found is None:
            return None
        culprits = Culprits()
        culprits.add(operation.place, Role.OPERAND, "gets no parameters")
        model = f"`{found.model}`"
        if found.iterator is not None:
            culprits.add(found.iterator, Role.CREATE, "an iterator, which can be gone through once")
            facts = [Fact(f"{model} ({found.kind}) has {plural(found.count, 'parameter')}; the iterator over them was used up before.", Known.INFERRED)]
            return Diagnosis(self.name, f"The parameters of {model} had been gone through before the optimizer got them", Confidence.CERTAIN, culprits.done(), tuple(facts),
                             f"{code(found.iterator.source)} gives each parameter once. What went through it first has left nothing.", advice(f"Keep them in a list: `list({found.iterator.source})`."))  # fmt: skip
        facts = [Fact(f"{model} ({found.kind}) owns no parameter.", Known.OBSERVED)]
        if found.layers is not None:
            kinds = ", ".join(found.kinds)
            facts.append(Fact(f"`{found.attribute}` of it is a {found.holder} of {plural(found.held, 'module')} ({kinds}).", Known.OBSERVED))
            culprits.add(found.layers, Role.CREATE, f"a plain {found.holder}: the model does not own what is in it")
        return Diagnosis(self.name, f"The optimizer got no parameters: {model} owns none", Confidence.CERTAIN, culprits.done(), tuple(facts), _why(found), advice(*_fixes(found)))


def _why(found: NoParameters) -> str:
    if found.layers is None:
        return "A module owns the parameters and layers that are assigned to its attributes, as `nn.Parameter` or as modules. This one has none when the optimizer is made."
    return f"A module owns the layers that are assigned to its attributes, and those in a `ModuleList` or `ModuleDict`; in a plain {found.holder} it does not see them."


def _fixes(found: NoParameters) -> list[str]:
    if found.layers is None:
        return ["Make the layers in `__init__`, and the optimizer after the model is complete."]
    return ["Keep them in an `nn.ModuleDict`." if found.holder == "dict" else "Keep them in an `nn.ModuleList`."]

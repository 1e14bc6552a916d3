"""The result of recorded operations where torch takes leaves only."""

from __future__ import annotations

from torchsleuth.evidence import Evidence, Place, RefusedResult
from torchsleuth.model import Applicability, Confidence, Culprit, Diagnosis, Fact, Fix, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.wording import short, upper_first


class NotALeaf(CrashRule):
    """A tensor that was computed from others was used where torch takes leaves only.

    What happened
    -------------
    An optimizer was given a tensor to train, `copy.deepcopy` came across one, or its `requires_grad` was to be changed. The tensor is
    the result of recorded operations: it has a `grad_fn`.

    Why
    ---
    A leaf is where a history begins: made directly, with no `grad_fn`. Any operation makes a result of it, also `.to(device)`,
    `.double()`, `* 0.1` and indexing. An optimizer has nothing to update in a result, whose gradient is passed on and not kept; a
    copy of it would need a copy of its history; and whether it requires grad follows from what it was computed from.

    Example
    -------
    `requires_grad=True` comes before `.double()`. This raises "can't optimize a non-leaf Tensor":

        import torch

        cameras = torch.randn(2, 4, requires_grad=True).double()
        torch.optim.Adam([cameras])

    Fix
    ---
    Ask for the gradient last: `torch.randn(2, 4).double().requires_grad_()`. Keep results for later, or copy them, without their
    history: `self.last = y.detach()`; or copy the weights alone: `copy.deepcopy(model.state_dict())`.

    Common false explanations
    -------------------------
    "Call `.retain_grad()` on it." An optimizer takes it then, and its steps are lost where it is computed again. The history that
    cannot be copied stays. This raises "Only Tensors created explicitly by the user" all the same:

        import copy
        import torch

        y = torch.ones(3, requires_grad=True) * 2
        y.retain_grad()
        copy.deepcopy(y)
    """

    name = "not-a-leaf"
    messages = (
        r"can't optimize a non-leaf Tensor",
        r"Only Tensors created explicitly by the user \(graph leaves\) support the deepcopy protocol",
        r"you can only change requires_grad flags of leaf variables",
    )
    needs = ("refused_result",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        found = evidence.refused_result
        if found is None:
            return None
        tensor = found.tensor
        facts = [Fact(f"{upper_first(tensor.called)} has shape {tensor.size}, dtype {tensor.dtype}, and a grad_fn.", Known.OBSERVED)]
        if found.leaves:
            facts.append(Fact(f"It was computed from {', '.join(f'`{name}`' for name in found.leaves)}.", Known.OBSERVED))
        made = f", but the result of `{short(_users(found.made).source, 50)}`" if found.made is not None else ""
        return Diagnosis(
            self.name,
            f"{upper_first(tensor.called)} is no leaf{made}, and `{short(found.use.source, 50)}` takes leaves only",
            Confidence.CERTAIN,
            tuple(_culprits(found)),
            tuple(facts),
            _WHY[found.wanted],
            (Fix(_FIX[found.wanted](found), Applicability.DISPLAY_ONLY),),
        )


_WHY = {
    "optimize": "A leaf is where a history begins. What was computed from one has no gradient of its own to keep, and is computed anew from the leaf: there is "
    "nothing in it that an optimizer could train.",
    "copy": "A result knows the operations that it was computed by. A copy of it would belong to no graph, so torch copies leaves only.",
    "flag": "Whether a result requires grad follows from what it was computed from. Only of leaves it can be chosen.",
}
_FIX = {
    "optimize": lambda f: "Make it a leaf: `.detach().requires_grad_()` after the last operation; or ask for the gradient last.",
    "copy": lambda f: f"Keep {f.tensor.called} without its history (`.detach()`), or copy the weights alone: `copy.deepcopy(model.state_dict())`.",
    "flag": lambda f: f"Use `{f.tensor.name or 'x'}.detach(){'.requires_grad_()' if f.asked else ''}` instead.",
}


def _users(place: Place) -> Place:
    return place.via or place


def _culprits(found: RefusedResult) -> list[Culprit]:
    culprits = []
    if found.made is not None:
        culprits.append(_users(found.made).culprit(Role.CREATE, f"made {found.tensor.called}: a result, no leaf"))
    culprits.append(found.use.culprit(Role.OPERAND, "takes leaves only"))
    return culprits

"""Backward on a plain Python number."""

from __future__ import annotations

from torchsleuth.evidence import Evidence
from torchsleuth.model import Applicability, Confidence, Diagnosis, Fact, Fix, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.wording import short

_MOST_CUTS = 4


class NumberBackward(CrashRule):
    """`backward()` was called on a plain number, which has no history.

    What happened
    -------------
    What should be the loss is a `float` (or an `int`, or a numpy array). Somewhere on the way `.item()`, `float(...)` or
    `.numpy()` took the number out of its tensor, and the tensor, with all that is known about how it was computed, was
    left behind.

    Why
    ---
    Only tensors record how they were computed. `.item()` gives Python a bare number, and what is computed from that is a
    bare number again: it has no `grad_fn`, no graph, and no `backward`.

    Example
    -------
    This raises "'float' object has no attribute 'backward'":

        import torch

        weight = torch.ones(3, requires_grad=True)
        loss = 0.0
        for x in torch.ones(2, 3):
            loss += (weight * x).sum().item()
        loss.backward()

    Fix
    ---
    Add up the tensors, and take `.item()` only where a number is wanted, for printing and logging.

    Common false explanations
    -------------------------
    "Make a tensor of it: `torch.tensor(loss, requires_grad=True)`." Then backward runs, and no parameter gets a gradient.
    This prints None:

        import torch

        weight = torch.ones(3, requires_grad=True)
        loss = torch.tensor(weight.sum().item(), requires_grad=True)
        loss.backward()
        print(weight.grad)
    """

    name = "number-backward"
    messages = (r"AttributeError: '(float|int|bool|ndarray|numpy\.\w+)' object has no attribute 'backward'",)
    needs = ("number_root",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        root = evidence.number_root
        if root is None:
            return None
        cuts = root.cuts[:_MOST_CUTS]
        culprits = [(cut.place.via or cut.place).culprit(Role.LOST_GRAD, "leaves the history behind") for cut in cuts]
        culprits.append(root.call.culprit(Role.CALL, f"`{short(root.name, 40)}` is {_a(root.type)}"))
        value = f" ({root.value})" if root.value else ""
        facts = [Fact(f"`{short(root.name, 40)}` is {_a(root.type)}{value}, not a tensor.", Known.OBSERVED)]
        for cut in cuts:
            if cut.tensor is not None:
                what = cut.tensor.called if cut.tensor.name else f"A tensor of shape {cut.tensor.size}"
                facts.append(Fact(f"{what} required grad when it went into `{short(cut.place.source, 60)}` (line {cut.place.span.line}); what came out has no history.", Known.OBSERVED))
        lost = f"; its history was lost at `{short(cuts[0].place.source, 60)}`" if cuts else ""
        taken = f"`{short(cuts[0].place.source, 60)}` hands on bare values, and what" if cuts else "What"
        return Diagnosis(
            self.name,
            f"`{short(root.name, 40)}` is {_a(root.type)}, which has no `backward`{lost}",
            Confidence.CERTAIN,
            tuple(culprits),
            tuple(facts),
            f"Only a tensor knows how it was computed. {taken} is computed from numbers is a number again: nothing leads from it to the parameters.",
            (
                Fix(
                    f"Compute `{short(root.name, 40)}` from the tensors themselves, and take `.item()` only for printing and logging.",
                    Applicability.DISPLAY_ONLY,
                ),
            ),
        )


def _a(word: str) -> str:
    return f"an {word}" if word[0] in "aeio" else f"a {word}"

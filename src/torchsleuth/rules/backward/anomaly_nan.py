"""Anomaly mode stopped backward at a NaN."""

from __future__ import annotations

from torchsleuth.evidence import Evidence, NanNode
from torchsleuth.model import Applicability, Confidence, Culprit, Diagnosis, Fact, Fix, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.wording import short

_SLOPES = {
    "sqrt": "The slope of sqrt(x) is 1 / (2 sqrt(x)): infinite at 0",
    "rsqrt": "The slope of 1 / sqrt(x) is infinite at 0",
    "log": "The slope of log(x) is 1 / x: infinite at 0",
    "log2": "The slope of log2(x) is infinite at 0",
    "log10": "The slope of log10(x) is infinite at 0",
    "div": "The slope of a / b is infinite where b is 0",
    "reciprocal": "The slope of 1 / x is infinite at 0",
    "acos": "The slope of acos(x) is infinite at 1 and -1",
    "asin": "The slope of asin(x) is infinite at 1 and -1",
    "acosh": "The slope of acosh(x) is infinite at 1",
    "atanh": "The slope of atanh(x) is infinite at 1 and -1",
    "atan2": "The slope of atan2(y, x) is undefined where both are 0",
    "pow": "The slope of a power below 1 is infinite at 0",
}


class AnomalyNan(CrashRule):
    """Anomaly mode stopped `backward()` at the first gradient that is NaN.

    What happened
    -------------
    With `torch.autograd.set_detect_anomaly(True)` every gradient is checked as it is computed. The node that the message
    names was given a gradient and returned NaN.

    Why
    ---
    NaN in a gradient is usually *infinity times zero*. An operation has an infinite slope at the value it was given (`sqrt`
    and `log` at 0, a division by 0, `acos` at 1), so an infinite gradient comes out of it; the next operation on the way
    back multiplies that by 0. The node that is named is where the product was computed, often one or two operations
    *before* the one with the infinite slope.

    Example
    -------
    This raises "Function 'PowBackward0' returned nan values":

        import torch

        x = torch.zeros(3, requires_grad=True)
        with torch.autograd.set_detect_anomaly(True):
            distance = torch.sqrt(x.pow(2).sum())
            distance.backward()

    Fix
    ---
    Keep the argument away from the edge *before* the operation: `torch.sqrt(d + 1e-12)`, `torch.log(p.clamp(min=1e-12))`,
    or use a function that knows the limit: `torch.linalg.vector_norm`, `F.log_softmax`, `F.normalize`.

    Common false explanations
    -------------------------
    "`torch.where` protects from the bad branch." It does in the forward pass only; the branch not taken is
    differentiated as well. This runs and prints nan:

        import torch

        x = torch.zeros(1, requires_grad=True)
        torch.where(x > 0, torch.sqrt(x), torch.zeros(1)).sum().backward()
        print(x.grad)
    """

    name = "anomaly-nan"
    messages = (r"Function '\w+' returned nan values in its \d+th output",)
    needs = ("nan_node",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        found = evidence.nan_node
        if found is None:
            return None
        return Diagnosis(
            self.name,
            _title(found),
            Confidence.LIKELY if found.edge else Confidence.POSSIBLE,
            tuple(_culprits(found)),
            tuple(_facts(found)),
            _explanation(found),
            (_advice(found),),
        )


def _own(found: NanNode) -> bool:
    """The node that is named is the one with the infinite slope."""
    return found.place is not None and found.edge_place is not None and found.place.span == found.edge_place.span


def _title(found: NanNode) -> str:
    where = f"`{short(found.place.source)}`" if found.place is not None else f"a `{found.operation}`"
    if found.edge_place is not None and not _own(found):
        return f"The gradient of {where} is NaN; it came through `{short(found.edge_place.source)}`, whose slope can be infinite"
    return f"The gradient of {where} is NaN"


def _culprits(found: NanNode) -> list[Culprit]:
    culprits = []
    if found.edge_place is not None:
        edge = found.edge_place.via or found.edge_place
        culprits.append(edge.culprit(Role.CREATE, f"`{found.edge}` has an infinite slope where its argument reaches the edge"))
    if found.place is not None and not _own(found):
        place = found.place.via or found.place
        culprits.append(place.culprit(Role.OPERAND, f"backward through this `{found.operation}` gave NaN"))
    culprits.append((found.call.via or found.call).culprit(Role.CALL, "anomaly mode stopped here"))
    return culprits


def _facts(found: NanNode) -> list[Fact]:
    facts = [Fact(f"`{found.node}` was the first node in backward to return NaN.", Known.OBSERVED)]
    if found.place is None:
        facts.append(Fact(f"There are {found.candidates} nodes of that kind in this graph; which one it was could not be told.", Known.OBSERVED))
    if found.edge_place is not None:
        facts.append(Fact(f"That `{found.edge}` was at that point is inferred from the NaN; the values are gone.", Known.INFERRED))
    return facts


def _explanation(found: NanNode) -> str:
    if not found.edge:
        return (
            "NaN in a gradient is usually infinity times zero, or comes from a NaN or an infinity that the forward pass has computed already. "
            "No operation with an infinite slope was found between here and the loss."
        )
    if _own(found):
        return f"{_SLOPES[found.edge]}; times a gradient of 0 that is NaN."
    return (
        f"{_SLOPES[found.edge]}. At that point an infinite gradient comes out of it, and the operation before it, `{found.operation}`, "
        "multiplies it by 0: infinity times zero is NaN."
    )


def _advice(found: NanNode) -> Fix:
    if found.edge_place is None:
        return Fix("Look for NaN or infinity in the forward pass first: `torch.isfinite(loss)`.", Applicability.DISPLAY_ONLY)
    return Fix(
        f"Keep the argument of `{short(found.edge_place.source)}` away from the edge: add a small number or `clamp` it before, not after.",
        Applicability.DISPLAY_ONLY,
    )

"""A reduction that needs at least one element, of a tensor that has none."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.model import Diagnosis
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import of_axis, of_tensor
from torchsleuth.rules.forward._report import report
from torchsleuth.rules.forward._words import code, failed, shape


class EmptyTensor(CrashRule):
    """`max`, `min`, `argmax` or `median` of a tensor without elements.

    What happened
    -------------
    An operation that picks one of the elements was given a tensor with a dimension of size 0: there is none to pick.

    Why
    ---
    Typical: a mask or a filter that selected nothing (`scores[scores > threshold]`), an image without boxes, a class
    without samples, an empty slice (`x[start:start]`), an empty last batch.

    Example
    -------
    This raises "Expected reduction dim to be specified for input.numel() == 0":

        import torch

        scores = torch.tensor([0.1, 0.2])
        scores[scores > 0.5].argmax()

    Fix
    ---
    Decide what an empty selection means and handle it before: `if picked.numel() == 0: ...`. A sum or a mean is no way
    out by itself: the sum of nothing is 0, and the mean is NaN.

    Common false explanations
    -------------------------
    "Give it a `dim`." A dimension of size 0 has no largest element either. This raises "Expected reduction dim 0 to have
    non-zero size":

        import torch

        torch.zeros(0).argmax(dim=0)
    """

    name = "empty-tensor"
    messages = (
        r"Expected reduction dim to be specified for input\.numel\(\) == 0",
        r"Expected reduction dim -?\d+ to have non-zero size",
        r"cannot perform reduction function \w+ on a tensor with no elements",
        r"(median|mode|kthvalue|max|min|aminmax)\(\)\S* (cannot|Expected)[^\n]*(no elements|empty|non-zero)",
    )
    needs = ("operation",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        tensor = operation.operand("input", "self") or next((item for item in operation.operands if 0 in item.shape), None)
        said = re.match(r"([a-z]\w*)\(\)", operation.message) or re.search(r"reduction function (\w+)", operation.message)
        what = said[1] if said else operation.name or "this operation"
        if tensor is None or 0 not in tensor.shape:
            title = f"{code(operation.place.source)} works on a tensor without elements"
            return report(self.name, operation, title=title, label="nothing to choose from", lead=tensor, why=_why(what), creates=[], fixes=[_FIX])
        axis = tensor.shape.index(0)
        origin = of_axis(tensor, axis)
        return report(
            self.name, operation, title=f"{tensor.called} is empty, shape {shape(tensor.shape)}: it has no `{what}`", label=f"shape {shape(tensor.shape)}: no elements",
            lead=tensor, why=_why(what), creates=[origin if origin[0] is not None else of_tensor(tensor)], fixes=[_FIX],
        )  # fmt: skip


_FIX = "Say what an empty tensor means here before this line: `if x.numel() == 0: ...` (skip the sample, or use a default)."


def _why(what: str) -> str:
    return f"`{what}` chooses one of the elements; a tensor with a dimension of size 0 has none to choose from."

"""A tensor that cannot be handed to numpy as it is."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import Operand
from torchsleuth.model import Diagnosis
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import is_at_failure, of_tensor
from torchsleuth.rules.forward._report import report
from torchsleuth.rules.forward._words import expr, failed, line_of


class NumpyConversion(CrashRule):
    """A tensor is converted to a numpy array while it is part of a graph, or not on the CPU.

    What happened
    -------------
    A numpy array shares the tensor's memory. That needs a tensor on the CPU and without gradient: numpy could change
    values that backward needs, and could not record what it computes.

    Why
    ---
    The tensor was computed from parameters (or another tensor that requires grad), or lies on a GPU.

    Example
    -------
    This raises "Can't call numpy() on Tensor that requires grad":

        import torch

        w = torch.ones(3, requires_grad=True)
        (w * 2).numpy()

    Fix
    ---
    `x.detach().cpu().numpy()`; for numbers to print or plot, compute them under `torch.no_grad()`.

    Common false explanations
    -------------------------
    "`detach()` copies." It does not: the array shares the tensor's memory. This prints 5.0:

        import torch

        w = torch.ones(3, requires_grad=True)
        w.detach().numpy()[0] = 5.0
        print(w[0].item())
    """

    name = "numpy-conversion"
    messages = (r"Can't call numpy\(\) on Tensor that requires grad", r"can't convert \S+ device type tensor to numpy")
    needs = ("operation",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        tensor = operation.operands[0] if operation.operands else None
        called = tensor.called if tensor is not None else "the tensor"
        grad = "requires grad" in operation.message
        name = (expr(tensor, "x")) if tensor is not None else "x"
        listed = re.fullmatch(r"(.+)\[\d+\]", tensor.source) if tensor is not None and tensor.argument.split("[")[0] in ("self", "object") else None
        made, words = of_tensor(tensor)
        return report(
            self.name, operation, title=f"{called} {'requires grad' if grad else 'is not on the CPU'} and cannot be a numpy array as it is",
            label="requires grad" if grad else f"on {tensor.tensor.device if tensor else 'a device'}", lead=tensor, why=f"torch says: {line_of(operation.message)}",
            creates=[(made, words)] if not is_at_failure(made, operation) else [],
            fixes=[_of_each(listed[1], tensor) if listed else f"`{name}.detach().cpu().numpy()`."],
        )  # fmt: skip


def _of_each(name: str, tensor: Operand) -> str:
    """A list of tensors went to numpy as one."""
    take = ".item()" if tensor.shape == () else ".detach().cpu().numpy()"
    return f"Take the values out of each: `[value{take} for value in {name}]`, or keep them without history where the list is filled."

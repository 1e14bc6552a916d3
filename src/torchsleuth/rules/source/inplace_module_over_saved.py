"""`inplace=True` on a layer whose input is another layer's kept output."""

from __future__ import annotations

import ast

from torchsleuth.linter.events import Call, Hazard
from torchsleuth.linter.lintrule import Found, LintRule, View, advice, safe_fix
from torchsleuth.linter.saved_table import SAVED
from torchsleuth.linter.values import INPLACE_CAPABLE, MODULE_FUNCTION
from torchsleuth.model import Confidence, Role


class InplaceModuleOverSaved(LintRule):
    """`inplace=True` overwrites an output that the layer before kept for backward.

    What happened
    -------------
    A layer or function with `inplace=True` works on a tensor that the operation before it keeps for its own
    gradient. Backward raises "one of the variables needed for gradient computation has been modified by an
    inplace operation".

    Why
    ---
    `sigmoid`, `tanh`, `softmax`, `exp`, `sqrt` and `relu` compute their gradient from their *output* and keep it.
    `inplace=True` on the next layer writes its own output into that memory. After a convolution, a linear
    layer or an addition it is harmless: those do not keep their output.

    Example
    -------
    This raises in backward: sigmoid kept its output, and the ReLU wrote into it.

        import torch
        from torch import nn
        net = nn.Sequential(nn.Linear(3, 3), nn.Sigmoid(), nn.ReLU(inplace=True))
        net(torch.randn(2, 3)).sum().backward()

    Fix
    ---
    Drop `inplace=True` on that layer. The memory it saves is one activation.

    Common false explanations
    -------------------------
    "inplace=True is dangerous everywhere." Only where the input is kept by the operation that made it, or is
    used again afterwards.
    """

    name = "inplace-module-over-saved"
    calls = frozenset({"Sequential"})

    def on_hazard(self, hazard: Hazard, view: View) -> Found:
        write, save = hazard.write, hazard.save
        if write.how not in ("module", "inplace-argument") or not (hazard.certain or save.what == "r") or write.target.assumed:
            return None
        if not hazard.certain and save.value[0].grad is False:
            return None
        if write.node is save.node:
            return None  # both inside one call of an `nn.Sequential`, which is spoken of where it is made
        return self._found(view, write.node, save.node, view.short(save.node, 50), save.what == "r", hazard.certain, write.frame, [])

    def on_call(self, call: Call, view: View) -> Found:
        if call.path != "torch.nn.Sequential":
            return None
        elements = call.node.args
        found = []
        for first, second in zip(elements, elements[1:], strict=False):
            if not (isinstance(first, ast.Call) and isinstance(second, ast.Call)):
                continue
            before, after = (view.dotted(e.func).rpartition(".") for e in (first, second))
            if before[0] != "torch.nn" or after[0] != "torch.nn":
                continue
            function, later = MODULE_FUNCTION.get(before[2]), MODULE_FUNCTION.get(after[2])
            keeps = function in SAVED and "r" in SAVED[function].get(0, ())
            keyword = next((k for k in second.keywords if k.arg == "inplace"), None)
            inplace = keyword is not None and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            positional = after[2] == "ReLU" and len(second.args) == 1 and isinstance(second.args[0], ast.Constant) and second.args[0].value is True
            # A ReLU over a ReLU's output writes the same values back, but the version still counts.
            if keeps and later in INPLACE_CAPABLE and (inplace or positional):
                fixes = [safe_fix("drop `inplace=True`", view.edit(keyword.value, "False"))] if keyword is not None else []
                found.append(self._found(view, second, first, f"nn.{before[2]}", True, True, call.frame, fixes))
        return found

    def _found(self, view: View, writer, keeper, name: str, result: bool, certain: bool, frame, fixes):
        kept = "its output" if result else "this tensor"
        return self.diagnosis(
            f"`{view.short(writer, 50)}` overwrites {kept.replace('its', 'the') if result else kept} that `{name}` kept for backward",
            [
                view.culprit(Role.MUTATE, writer, "works in place", frame),
                view.culprit(Role.SAVE, keeper, f"keeps {kept} for its gradient", frame),
            ],
            f"`{name}` computes its gradient from {kept} and keeps it. Working in place on it makes backward raise "
            '"one of the variables needed for gradient computation has been modified by an inplace operation".',
            Confidence.CERTAIN if certain else Confidence.LIKELY,
            fixes=fixes or [advice("drop `inplace=True` there")],
        )

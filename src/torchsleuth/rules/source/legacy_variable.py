"""`torch.autograd.Variable`, which has done nothing since torch 0.4."""

from __future__ import annotations

from torchsleuth.linter.events import Call
from torchsleuth.linter.lintrule import Found, LintRule, View, advice, safe_fix
from torchsleuth.model import Confidence, Role


class LegacyVariable(LintRule):
    """`Variable(x)` has been a no-op since torch 0.4; with `requires_grad=True` it makes an unconnected leaf.

    What happened
    -------------
    `torch.autograd.Variable` wraps a tensor.

    Why
    ---
    Tensors and Variables were merged in torch 0.4: `Variable(x)` returns a tensor that shares the memory of `x`
    and *drops its history*. With `requires_grad=True`, the usual form around a loss, the result is a new leaf:
    `backward` runs and reaches nothing. `volatile=True` is ignored.

    Example
    -------
    This runs and prints None: the Variable is a new leaf, and `w` gets no gradient.

        import torch
        from torch.autograd import Variable
        w = torch.ones(3, requires_grad=True)
        loss = Variable((w * 2).sum(), requires_grad=True)
        loss.backward()
        print(w.grad)

    Fix
    ---
    Use the tensor itself. For inference use `torch.no_grad()` instead of `volatile`.

    Common false explanations
    -------------------------
    "Inputs must be Variables for autograd to work." Not since 2018.
    """

    name = "legacy-variable"
    calls = frozenset({"Variable"})

    def on_call(self, call: Call, view: View) -> Found:
        if call.path not in ("torch.autograd.Variable", "torch.autograd.variable.Variable") or not call.node.args:
            return None
        flag = next((k for k in call.node.keywords if k.arg == "requires_grad"), None)
        wants = flag is not None and getattr(flag.value, "value", None) is True
        argument = call.args[0]
        fixes = []
        if not call.node.keywords and len(call.node.args) == 1 and argument.is_tensor and argument.grad is False:
            fixes.append(safe_fix("use the tensor itself", view.edit(call.node, view.text(call.node.args[0]))))
        else:
            fixes.append(advice("use the tensor itself; `torch.no_grad()` instead of `volatile`"))
        loses = "; with `requires_grad=True` the result is a new leaf, and what it was computed from gets no gradient" if wants else ""
        return self.diagnosis(
            f"`{view.short(call.node)}`: Variable has done nothing useful since torch 0.4",
            [view.culprit(Role.LOST_GRAD, call.node, "a tensor without its history", call.frame)],
            f"`Variable(x)` returns a tensor on the same memory without the history of `x`{loses}.",
            Confidence.CERTAIN,
            fixes=fixes,
        )

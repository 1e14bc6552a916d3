"""`backward` on a loss that was computed under `no_grad`."""

from __future__ import annotations

import ast

from torchsleuth.linter.events import Call
from torchsleuth.linter.gradients import has_unknown_origin, unrecorded_behind
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.model import Confidence, Role

SILENCING = frozenset({"torch.no_grad", "torch.inference_mode"})


class NoGradAroundTraining(LintRule):
    """The loss is computed under `torch.no_grad()` and then asked for its gradient.

    What happened
    -------------
    `backward()` is called on a loss, and the loss, or the model's output it comes from, was computed under
    `torch.no_grad()` (or `inference_mode`), as a block or as a decorator.

    Why
    ---
    Under `no_grad` operations record no history, so the loss has none, and `backward` raises "element 0 of tensors
    does not require grad and does not have a grad_fn".

    Example
    -------
    This raises at backward.

        import torch
        w = torch.ones(3, requires_grad=True)
        with torch.no_grad():
            loss = (w * 2).sum()
            loss.backward()

    Fix
    ---
    Compute the loss outside `no_grad`. Only the *update* of parameters belongs inside it.

    Common false explanations
    -------------------------
    "The parameters were frozen." They still require gradients; only the recording was off.
    """

    name = "no-grad-around-training"
    calls = frozenset({"backward"})

    def on_call(self, call: Call, view: View) -> Found:
        loss = call.receiver
        if loss is not None and loss.kind == "unknown" and not call.frame.inlined:
            return self._of_unknown_loss(call, view)
        if loss is None or not loss.is_tensor or loss.grad is not False or has_unknown_origin(loss):
            return None
        if call.frame.inlined and call.frame.arms:
            return None  # under a condition that this call of the function may not meet
        made = unrecorded_behind(loss)
        if made is None:
            return None
        return self._found(made.unrecorded, made.node, call, view)

    def _of_unknown_loss(self, call: Call, view: View) -> Found:
        """What `criterion(outputs, labels)` gives under `no_grad` has no history, whatever the two are."""
        name = call.node.func.value
        if not isinstance(name, ast.Name) or call.node.args:
            return None
        made = [n for n in ast.walk(call.frame.node) if isinstance(n, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.NamedExpr))
                and any(isinstance(t, ast.Name) and t.id == name.id for target in _targets(n) for t in ast.walk(target))]  # fmt: skip
        if len(made) != 1 or not isinstance(made[0], ast.Assign) or not isinstance(made[0].value, (ast.Call, ast.BinOp)) or made[0].lineno > call.node.lineno:
            return None
        if any(isinstance(n, ast.Attribute) and n.attr in ("requires_grad", "requires_grad_") and ast.unparse(n.value) == name.id for n in ast.walk(call.frame.node)):
            return None
        around = [w for w in ast.walk(call.frame.node) if isinstance(w, ast.With) and any(n is made[0] for n in ast.walk(w))]
        silencers = [c for w in around for c in (i.context_expr for i in w.items) if isinstance(c, ast.Call) and view.dotted(c.func) in SILENCING
                     and not c.args and not c.keywords]  # `inference_mode(mode=not training)`: sometimes  # fmt: skip
        if not silencers or any("enable_grad" in ast.unparse(i.context_expr) for w in around for i in w.items):
            return None
        return self._found(silencers[-1], made[0].value, call, view)

    def _found(self, silencer: ast.AST, made: ast.AST, call: Call, view: View):
        return self.diagnosis(
            f"`{view.short(call.node)}` needs a history, and `{view.short(silencer)}` records none",
            [
                view.culprit(Role.LOST_GRAD, silencer, "nothing is recorded from here on", call.frame),
                view.culprit(Role.CALL, made, "computed without a history", call.frame),
                view.culprit(Role.CALL, call.node, "backward starts here", call.frame),
            ],
            f"Under `{view.short(silencer)}` operations record nothing, so `{view.short(made, 40)}` has no history, and `backward` raises "
            '"element 0 of tensors does not require grad and does not have a grad_fn".',
            Confidence.CERTAIN,
            fixes=[advice("compute the loss outside; only the parameter update belongs inside")],
        )


def _targets(node: ast.AST) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]

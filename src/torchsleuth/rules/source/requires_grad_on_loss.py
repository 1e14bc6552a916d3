"""`requires_grad_()` on a loss: the error goes away, and so does the training."""

from __future__ import annotations

import ast

from torchsleuth.linter.definitions import last_definition
from torchsleuth.linter.events import Call, Frame
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.linter.results import LOSSES
from torchsleuth.linter.training import own_nodes
from torchsleuth.linter.values import CONSTRUCTORS, Value
from torchsleuth.model import Confidence, Role

FRESH = {"detach", "clone", "data", "to", "Parameter", "buffer", "argument", "annotated", "parameter", "", "unknown"}


class RequiresGradOnLoss(LintRule):
    """`requires_grad` is set on a loss, which hides that it has no graph.

    What happened
    -------------
    `loss.requires_grad_()` or `loss.requires_grad = True` on something that was computed.

    Why
    ---
    A computed tensor requires a gradient exactly when something it was computed from does. If the loss did not,
    the graph was lost earlier (`no_grad`, `.item()`, `argmax`, `detach`). Setting the flag makes the loss a
    leaf of its own: `backward` runs, gives the loss the gradient one, and no parameter gets any.

    Example
    -------
    This runs and prints None: nothing was trained.

        import torch
        w = torch.ones(3, requires_grad=True)
        with torch.no_grad():
            loss = (w * 2).sum()
        loss.requires_grad_()
        loss.backward()
        print(w.grad)

    Fix
    ---
    Remove the line, read the error that `backward` then raises, and find where the graph was lost.

    Common false explanations
    -------------------------
    "The loss needs requires_grad=True for backward." It needs a history, and has it by itself.
    """

    name = "requires-grad-on-loss"
    calls = frozenset({"requires_grad_"})

    def on_call(self, call: Call, view: View) -> Found:
        if call.receiver is None or (call.node.args and getattr(call.node.args[0], "value", True) is False):
            return None
        if isinstance(call.node.func, ast.Attribute):
            return self._judge(call.node.func.value, call.receiver, call.node, call.frame, view)
        return None

    def on_statement(self, node: ast.stmt, frame: Frame, view: View) -> Found:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Attribute) or node.targets[0].attr != "requires_grad":
            return None
        if not isinstance(node.value, ast.Constant) or node.value.value is not True:
            return None
        owner = node.targets[0].value
        value = frame.env.get(owner.id) if isinstance(owner, ast.Name) else None
        return self._judge(owner, value, node, frame, view) if value is not None else None

    def _judge(self, owner: ast.expr, value: Value, node: ast.AST, frame: Frame, view: View):
        if value.kind == "unknown" and _is_computed_loss(owner, node, frame, view):
            return self._found(owner, node, frame, view)
        if not value.is_tensor or value.op in FRESH or value.op in CONSTRUCTORS or not (value.inputs or value.op in LOSSES):
            return None
        is_loss = (isinstance(owner, ast.Name) and "loss" in owner.id.lower()) or bool(value.extra and value.extra.get("loss"))
        if not is_loss:
            return None
        return self._found(owner, node, frame, view)

    def _found(self, owner: ast.expr, node: ast.AST, frame: Frame, view: View):
        text = view.short(owner, 40)
        return self.diagnosis(
            f"`requires_grad` is set on the loss `{text}`, which only hides that it has no graph",
            [view.culprit(Role.LOST_GRAD, node, "makes the loss an unconnected leaf", frame)],
            "A computed loss requires a gradient by itself if anything it is computed from does. If it does not, the graph was lost "
            "before; setting the flag lets `backward` run without reaching any parameter.",
            Confidence.CERTAIN,
            fixes=[advice("remove the line and find where the graph is lost (`no_grad`, `.item()`, `detach`, `argmax`)")],
        )


def _is_computed_loss(owner: ast.expr, node: ast.AST, frame: Frame, view: View) -> bool:
    """`loss = criterion(model(x), y)`, of which nothing else is known, and that is differentiated here or handed on as the result."""
    if not isinstance(owner, ast.Name) or "loss" not in owner.id.lower() or frame.inlined:
        return False
    made = last_definition(frame.node, owner.id, node.lineno)
    if not isinstance(made, ast.Assign) or not isinstance(made.value, (ast.Call, ast.BinOp)):
        return False
    if isinstance(made.value, ast.Call) and view.dotted(made.value.func).rsplit(".", 1)[-1] in CONSTRUCTORS | {"Variable", "detach", "clone", "Parameter"}:
        return False
    if isinstance(made.value, ast.Call) and isinstance(made.value.func, ast.Attribute) and made.value.func.attr in ("detach", "clone", "to", "cuda", "cpu"):
        return False
    return any(_differentiates(n, owner.id) or isinstance(n, ast.Return) and isinstance(n.value, ast.Name) and n.value.id == owner.id for n in own_nodes(frame.node))


def _differentiates(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward" and ast.unparse(node.func.value) == name

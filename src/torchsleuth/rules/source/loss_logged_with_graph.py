"""`losses.append(loss)` in a training loop: the list keeps every graph."""

from __future__ import annotations

import ast

from torchsleuth.linter.events import Frame
from torchsleuth.linter.lintrule import Found, LintRule, View, safe_fix, unsafe_fix
from torchsleuth.linter.training import cut_between, events_in
from torchsleuth.model import Confidence, Role


class LossLoggedWithGraph(LintRule):
    """A list for logging is given the loss tensor itself, and keeps its graph alive.

    What happened
    -------------
    A training loop appends the loss tensor to a list of losses after `backward`.

    Why
    ---
    As long as the tensor is in the list, so is its `grad_fn` and every graph node behind it. Memory grows with
    each turn, and plotting or averaging the list later raises "Can't call numpy() on Tensor that requires grad".

    Example
    -------
    This runs and prints True: what was logged still has a history.

        import torch
        w = torch.ones(3, requires_grad=True)
        losses = []
        for _ in range(2):
            loss = (w ** 2).sum()
            loss.backward()
            losses.append(loss)
        print(losses[0].grad_fn is not None)

    Fix
    ---
    `losses.append(loss.item())`, or `loss.detach()` to avoid waiting for the device in every turn.

    Common false explanations
    -------------------------
    "It is only a number." It is a tensor with its history until `.item()` or `.detach()`.
    """

    name = "loss-logged-with-graph"

    def on_loop(self, node: ast.AST, frame: Frame, body, position, view: View) -> Found:
        if not view.has(".backward(") or not isinstance(node, (ast.For, ast.While)) or frame.inlined:
            return None
        backward = {e.receiver: e for e in events_in(node.body, frame) if e.kind == "backward" and not e.retains}
        found = []
        for statement in node.body:
            if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
                continue
            call = statement.value
            if not (isinstance(call.func, ast.Attribute) and call.func.attr == "append" and len(call.args) == 1):
                continue
            argument = call.args[0]
            if not isinstance(argument, ast.Name) or argument.id not in backward or _used_for_training(frame.node, ast.unparse(call.func.value)):
                continue
            event = backward[argument.id]
            if cut_between(node.body, argument.id, event.node, statement):
                continue
            found.append(
                self.diagnosis(
                    f"`{view.short(call)}` keeps the graph of every turn alive",
                    [
                        view.culprit(Role.CREATE, call, "a tensor with its history", frame),
                        view.culprit(Role.CALL, event.node, "trained here", frame),
                    ],
                    f"`{argument.id}` is a tensor with a history. In the list it keeps its graph nodes alive, and the list cannot be "
                    "converted to NumPy later.",
                    Confidence.CERTAIN,
                    fixes=[
                        safe_fix("log the value only", view.edit(argument, f"{argument.id}.detach()"),
                                 meaning="the same tensor values, without a history"),
                        unsafe_fix("log a Python number", "the list then holds numbers", view.edit(argument, f"{argument.id}.item()")),
                    ],
                )
            )  # fmt: skip
        return found


def _used_for_training(function: ast.AST, name: str) -> bool:
    """The list is summed or stacked into something that is differentiated."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            last = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
            if last in ("sum", "stack", "cat", "backward") and any(ast.unparse(a) == name for a in node.args):
                return True
    return False

"""`total += loss` in a training loop: the total drags every graph along."""

from __future__ import annotations

import ast

from torchsleuth.linter.events import Frame
from torchsleuth.linter.lintrule import Found, LintRule, View, safe_fix, unsafe_fix
from torchsleuth.linter.training import cut_between, events_in
from torchsleuth.model import Confidence, Role


class LossAccumulatedWithGraph(LintRule):
    """`total += loss` keeps the graph of every turn alive in a running total.

    What happened
    -------------
    A training loop adds the loss tensor itself to a running total for reporting.

    Why
    ---
    The total becomes a tensor with a history that reaches every loss so far. Its graph grows with each turn:
    memory rises over an epoch, and `print(total)` shows a `grad_fn`. (What `backward` kept is freed by then,
    the chain of graph nodes is not.)

    Example
    -------
    This runs and prints True: the total has a history.

        import torch
        w = torch.ones(3, requires_grad=True)
        total = 0
        for _ in range(3):
            loss = (w ** 2).sum()
            loss.backward()
            total += loss
        print(total.requires_grad)

    Fix
    ---
    `total += loss.item()` for a number, `total += loss.detach()` to stay on the device without waiting for it.

    Common false explanations
    -------------------------
    "backward() frees the graph, so it costs nothing." It frees the kept tensors, not the nodes that the total
    holds on to.
    """

    name = "loss-accumulated-with-graph"

    def on_loop(self, node: ast.AST, frame: Frame, body, position, view: View) -> Found:
        if not view.has(".backward(") or not isinstance(node, (ast.For, ast.While)) or frame.inlined:
            return None
        backward = {e.receiver: e for e in events_in(node.body, frame) if e.kind == "backward"}
        if not backward:
            return None
        found = []
        for statement in _statements(node.body):
            added = _added(statement)
            if added is None:
                continue
            total, loss = added
            event = backward.get(loss)
            if event is None or event.retains or total == loss or _trained(frame.node, total):
                continue
            if cut_between(node.body, loss, event.node, statement):
                continue
            if event.conditional and len(backward) == 1 and _returned(frame.node, total):
                continue  # where nothing is trained here, the caller may need the graph of the sum
            expression = statement.value if isinstance(statement, ast.AugAssign) else statement.value.right
            found.append(
                self.diagnosis(
                    f"`{view.short(statement)}` keeps the graph of every turn alive",
                    [
                        view.culprit(Role.CREATE, statement, f"`{loss}` comes with its history", frame),
                        view.culprit(Role.CALL, event.node, "trained here", frame),
                    ],
                    f"`{loss}` is a tensor with a history, so `{total}` becomes one too, and its graph grows with each turn. Only the "
                    "number is needed here.",
                    Confidence.CERTAIN,
                    fixes=[
                        safe_fix("add the value only", view.edit(expression, f"{loss}.detach()"),
                                 meaning=f"`{total}` stays a tensor with the same values, without a history"),
                        unsafe_fix("add a Python number", f"`{total}` becomes a number", view.edit(expression, f"{loss}.item()")),
                    ],
                )
            )  # fmt: skip
        return found


def _statements(body: list[ast.stmt]):
    for statement in body:
        yield statement
        if isinstance(statement, ast.With) and any("no_grad" in (text := ast.unparse(i.context_expr)) or "inference_mode" in text for i in statement.items):
            continue  # a sum that is not recorded has no history, whatever is added
        for name in ("body", "orelse"):
            if isinstance(statement, (ast.If, ast.With)):
                yield from _statements(getattr(statement, name, []))


def _added(statement: ast.stmt) -> tuple[str, str] | None:
    """`total += loss` or `total = total + loss` -> (total, loss)."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add) and isinstance(statement.value, ast.Name):
        return ast.unparse(statement.target), statement.value.id
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.value, ast.BinOp):
        value = statement.value
        target = ast.unparse(statement.targets[0])
        if isinstance(value.op, ast.Add) and ast.unparse(value.left) == target and isinstance(value.right, ast.Name):
            return target, value.right.id
    return None


def _trained(function: ast.AST, total: str) -> bool:
    """The total itself is differentiated somewhere: then its graph is wanted."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("backward", "grad"):
            if total in ast.unparse(node):
                return True
    return False


def _returned(function: ast.AST, total: str) -> bool:
    return any(isinstance(n, ast.Return) and isinstance(n.value, ast.Name) and n.value.id == total for n in ast.walk(function))

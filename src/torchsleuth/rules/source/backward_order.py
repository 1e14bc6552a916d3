"""`zero_grad`, `backward` and `step` in an order that throws gradients away."""

from __future__ import annotations

import ast

from torchsleuth.linter.events import Frame
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.linter.training import Event, events_in
from torchsleuth.model import Confidence, Role


class BackwardOrder(LintRule):
    """`zero_grad`, `backward` and `step` come in an order in which the step never sees the gradient.

    What happened
    -------------
    Inside a training loop the gradients are cleared between `backward` and `step`, or the step comes after
    clearing and before `backward`.

    Why
    ---
    `step` uses what is in `.grad` at that moment. Cleared just before, there is nothing (SGD then skips the
    parameter: `zero_grad` sets `.grad` to None), and the gradient that `backward` computes is cleared again
    before the next step. The loop runs, the loss is printed, and nothing is learned.

    Example
    -------
    This runs and prints 1.0: the parameter never moved.

        import torch
        w = torch.ones(1, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.1)
        for _ in range(3):
            loss = (w ** 2).sum()
            loss.backward()
            optimizer.zero_grad()
            optimizer.step()
        print(w.item())

    Fix
    ---
    `optimizer.zero_grad()`, `loss.backward()`, `optimizer.step()`, in that order.

    Common false explanations
    -------------------------
    "The learning rate is too small." The order is the cause whenever the parameters do not change at all.
    """

    name = "backward-order"

    def on_loop(self, node: ast.AST, frame: Frame, body, position, view: View) -> Found:
        if not view.has(".backward(") or not isinstance(node, (ast.For, ast.While)) or frame.inlined:
            return None
        events = [e for e in events_in(node.body, frame)]
        if any(e.conditional for e in events):
            return None
        optimizers = {e.receiver for e in events if e.kind == "step"}
        if len(optimizers) != 1 or sum(e.kind == "backward" for e in events) != 1 or sum(e.kind == "step" for e in events) != 1:
            return None
        zeros = [e for e in events if e.kind == "zero_grad"]
        if len(zeros) != 1:
            return None
        order = [e.kind for e in events]
        by_kind: dict[str, Event] = {e.kind: e for e in events}
        # Round and round: zero, backward, step in cyclic order is right whatever comes first.
        if order in (["zero_grad", "backward", "step"], ["backward", "step", "zero_grad"], ["step", "zero_grad", "backward"]):
            return None
        zero, step, backward = by_kind["zero_grad"], by_kind["step"], by_kind["backward"]
        if not (zero.receiver == step.receiver or "model" in zero.receiver or "net" in zero.receiver):
            return None
        return self.diagnosis(
            f"`{view.short(zero.node)}` comes between `backward` and `step`: the step never sees a gradient",
            [
                view.culprit(Role.LOST_GRAD, zero.node, "clears what backward computed", frame),
                view.culprit(Role.CALL, backward.node, "computes the gradients", frame),
                view.culprit(Role.CALL, step.node, "finds none", frame),
            ],
            f"In this loop the order is {', '.join(order)}. Every gradient is cleared before a step can use it, so the parameters "
            "do not change and nothing raises.",
            Confidence.CERTAIN,
            fixes=[advice("`zero_grad()`, then `backward()`, then `step()`")],
        )

"""A training loop that never clears gradients."""

from __future__ import annotations

import ast
import re

from torchsleuth.linter.events import Frame
from torchsleuth.linter.flow import is_self_attribute
from torchsleuth.linter.lintrule import Found, LintRule, View, unsafe_fix
from torchsleuth.linter.training import events_in, is_optimizer, mentions, own_nodes
from torchsleuth.model import Confidence, Role

CLEARS_GRADIENTS = re.compile(r"(clear|zero|reset|clean)_?grad", re.IGNORECASE)
CLEARS = re.compile(r"step|train|batch|optim|clear|reset|zero", re.IGNORECASE)


class MissingZeroGrad(LintRule):
    """A training loop calls `backward` and `step` but never `zero_grad`, so gradients pile up.

    What happened
    -------------
    A loop calls `loss.backward()` and `optimizer.step()`, and nothing in the function clears the gradients, or only something outside of
    the loop (once per epoch, while every batch is a step).

    Why
    ---
    `backward` *adds* to `.grad`. Without `zero_grad` the second step uses the sum of two gradients, the third of
    three, and so on: the steps grow and point at old losses. Nothing raises.

    Example
    -------
    This runs and prints 3.0 and then 6.0: the same gradient, added twice.

        import torch
        w = torch.ones(1, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.0)
        for _ in range(2):
            (3 * w).sum().backward()
            optimizer.step()
            print(w.grad.item())

    Fix
    ---
    `optimizer.zero_grad()` once per step, before `backward` (or right after `step`). To accumulate on purpose,
    clear after each group of batches.

    Common false explanations
    -------------------------
    "optimizer.step() clears the gradients." It does not.
    """

    name = "missing-zero-grad"

    def on_loop(self, node: ast.AST, frame: Frame, body, position, view: View) -> Found:
        if not view.has(".backward(") or not isinstance(node, (ast.For, ast.While)) or frame.inlined:
            return None
        events = events_in(node.body, frame)
        backward = [e for e in events if e.kind == "backward"]
        steps = [e for e in events if e.kind == "step" and not e.node.args and is_optimizer(e.node.func.value, frame)]
        if not backward or not steps or any(e.kind == "zero_grad" for e in events):
            return None
        outside = _cleared_outside(node, frame, steps[0].receiver) if not (steps[0].conditional or backward[0].conditional) else None
        if mentions(frame.node, "zero_", "set_to_none", "closure", "fill_", part="" if outside else "zero_grad") or _clears_by_hand(frame.node):
            return None
        if any(isinstance(n, ast.Attribute) and CLEARS_GRADIENTS.search(n.attr) for n in ast.walk(node)):
            return None  # `model.clear_grads()`
        if _decayed_before(node, backward[0].node):
            return None
        if _made_for_the_turn(node, steps[0].receiver):
            return None
        if _calls_helper(node, steps[0].receiver) or _clears_in_a_helper(node, frame, view):
            return None
        first, step = backward[0], steps[0]
        receiver = step.receiver
        statement = next((s for s in node.body if any(n is first.node for n in ast.walk(s))), None)
        fixes = []
        if isinstance(statement, ast.Expr) and statement.value is first.node:
            indent = " " * statement.col_offset
            fixes.append(unsafe_fix(f"clear them first: `{receiver}.zero_grad()`", "gradients are no longer summed over steps",
                                    view.edit(statement, f"{receiver}.zero_grad()\n{indent}{view.text(statement)}")))  # fmt: skip
        culprits = [
            view.culprit(Role.CALL, first.node, "adds to `.grad` every turn", frame),
            view.culprit(Role.CALL, step.node, "uses everything added so far", frame),
        ]
        if outside is not None:
            return self.diagnosis(
                "gradients are cleared outside of this loop only: each step in it uses the sum of all gradients so far",
                [*culprits, view.culprit(Role.CREATE, outside, "clears them, but not between the steps", frame)],
                "`backward` adds to `.grad`, and the loop steps in every turn without clearing: every step uses the gradients of all turns before it, since the last "
                "`zero_grad` outside of the loop.",
                Confidence.LIKELY,
                fixes=fixes,
            )
        return self.diagnosis(
            "this training loop never clears gradients: each step uses the sum of all gradients so far",
            culprits,
            "`backward` adds to `.grad`. Nothing in this function calls `zero_grad`, so every step uses the gradients of all turns before it.",
            Confidence.CERTAIN if receiver in frame.env and frame.env[receiver].kind == "optimizer" else Confidence.LIKELY,
            fixes=fixes,
        )


def _cleared_outside(loop: ast.For | ast.While, frame: Frame, optimizer: str) -> ast.Call | None:
    """The call that clears this optimizer's gradients around the loop and not in it; None where anything else may clear them, or the loop has one turn."""
    if any(isinstance(n, (ast.Break, ast.Return)) for n in loop.body):
        return None
    inside = {id(n) for n in ast.walk(loop)}
    around = [n for n in own_nodes(frame.node) if isinstance(n, (ast.For, ast.While)) and any(part is loop for part in ast.walk(n))]
    beside = {id(n) for other in own_nodes(frame.node) if isinstance(other, (ast.For, ast.While)) and not any(other is a for a in around) for n in ast.walk(other)}
    calls = {id(n.func): n for n in own_nodes(frame.node) if isinstance(n, ast.Call)}
    found = None
    for node in own_nodes(frame.node):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if "zero_grad" in name:
            call = calls.get(id(node))
            if call is None or id(node) in inside or id(node) in beside or not isinstance(node, ast.Attribute) or ast.unparse(node.value) != optimizer:
                return None
            found = call
    return found


def _made_for_the_turn(loop: ast.For | ast.While, optimizer: str) -> bool:
    """A new optimizer in every turn, for what that turn makes (and not for a model that outlives it)."""
    nodes = list(ast.walk(loop))
    made = [n for n in nodes if isinstance(n, ast.Assign) and any(isinstance(t, ast.Name) and t.id == optimizer for t in n.targets)]
    if not made:
        return any(isinstance(n, ast.Name) and n.id == optimizer and isinstance(n.ctx, ast.Store) for n in nodes)
    inner = {t.id for m in made for n in ast.walk(m) if isinstance(n, ast.comprehension) for t in ast.walk(n.target) if isinstance(t, ast.Name)}
    turning = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} - {optimizer} - inner
    read = {n.id for m in made for n in ast.walk(m.value) if isinstance(n, ast.Name)}
    has_model = any(isinstance(n, ast.Attribute) and n.attr in ("parameters", "named_parameters") for m in made for n in ast.walk(m.value))
    return bool(read & turning) or not has_model


def _clears_by_hand(function: ast.AST) -> bool:
    return any(isinstance(n, ast.Assign) and any(isinstance(t, ast.Attribute) and t.attr == "grad" for t in n.targets) for n in own_nodes(function))


def _decayed_before(loop: ast.AST, backward: ast.AST) -> bool:
    """`p.grad.mul_(0.9)` or `p.grad *= 0.9` in front of `backward`: what stands there is kept on purpose, as momentum."""
    earlier = [n for n in ast.walk(loop) if getattr(n, "lineno", backward.lineno) < backward.lineno]
    written = [n.target for n in earlier if isinstance(n, ast.AugAssign)]
    written += [n.func.value for n in earlier if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in ("mul_", "lerp_", "copy_")]
    return any(isinstance(part, ast.Attribute) and part.attr == "grad" for one in written for part in ast.walk(one))


def _calls_helper(loop: ast.AST, optimizer: str) -> bool:
    """The optimizer or model is handed to some other function, which may clear the gradients."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Call) and any(isinstance(a, ast.Name) and a.id == optimizer for a in node.args):
            return True
    return False


def _clears_in_a_helper(loop: ast.AST, frame: Frame, view: View) -> bool:
    """A function or method of this file that the loop calls, and that clears gradients."""
    for node in ast.walk(loop):
        if not isinstance(node, ast.Call):
            continue
        helper = None
        if isinstance(node.func, ast.Name):
            helper = view.interpreter.functions.get(node.func.id)
        elif is_self_attribute(node.func) and frame.cls is not None:
            helper = frame.cls.methods.get(node.func.attr)
            if helper is None and CLEARS.search(node.func.attr):
                return True  # inherited, by its name
        if helper is not None and mentions(helper, part="zero_grad"):
            return True
    return False

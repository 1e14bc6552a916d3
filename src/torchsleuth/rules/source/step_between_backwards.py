"""An optimizer step between two backward passes through the same graph."""

from __future__ import annotations

import ast
import re

from torchsleuth.linter.events import Frame, FunctionNode
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.linter.training import Event, events_in
from torchsleuth.model import Confidence, Role

PART = re.compile(r"actor|critic|policy|value|encoder|decoder|alpha|head", re.IGNORECASE)


class StepBetweenBackwards(LintRule):
    """`optimizer.step()` changes parameters between two backward passes through one graph.

    What happened
    -------------
    A first `backward(retain_graph=True)` is followed by `optimizer.step()` and then by a second `backward` on a
    loss computed before the step.

    Why
    ---
    The second pass goes through the same graph, whose operations kept the parameters as they were in the forward
    pass. `step` has written into them in place. Backward raises "one of the variables needed for gradient
    computation has been modified by an inplace operation".

    Example
    -------
    This raises at the second backward.

        import torch
        net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        out = net(torch.randn(4, 3))
        first, second = out.sum(), (out ** 2).sum()
        first.backward(retain_graph=True)
        optimizer.step()
        second.backward()

    Fix
    ---
    Run both backward passes before any step (or add the losses and call `backward` once), or compute the second
    loss again after the step.

    Common false explanations
    -------------------------
    "retain_graph=True solves it." It keeps the graph, not the old parameter values.
    """

    name = "step-between-backwards"

    def on_loop(self, node: ast.AST, frame: Frame, body, position, view: View) -> Found:
        if isinstance(node, (ast.For, ast.While)) and not frame.inlined:
            return self._judge(node.body, frame, view)
        return None

    def on_function(self, node: FunctionNode, frame: Frame, view: View) -> Found:
        return self._judge(node.body, frame, view)

    def on_module(self, tree: ast.Module, view: View) -> Found:
        return self._judge(tree.body, view.interpreter.frame, view)

    def _judge(self, body: list[ast.stmt], frame: Frame, view: View):
        if not view.has("retain_graph"):
            return None
        events = [e for e in events_in(body, frame) if not e.conditional]
        found = []
        for place, first in enumerate(events):
            if first.kind != "backward" or not first.retains:
                continue
            step = next((e for e in events[place + 1 :] if e.kind == "step"), None)
            if step is None:
                continue
            second = next((e for e in events[events.index(step) + 1 :] if e.kind == "backward"), None)
            if second is None or second.receiver == first.receiver:
                continue
            through = _computed_through(body, second, step, frame, view)
            if through is None:
                if not _computed_before(body, second.receiver, step.node):
                    continue
                if _has_its_own_optimizer(events, step, second) or _is_apart(body, events, first, step, second):
                    continue
            found.append(
                self.diagnosis(
                    f"`{view.short(step.node)}` changes parameters that `{view.short(second.node)}` still needs",
                    [
                        view.culprit(Role.MUTATE, step.node, "writes into the parameters", frame),
                        view.culprit(Role.CALL, second.node, "goes through the graph of before the step", frame),
                        view.culprit(Role.SAVE, first.node, "keeps the graph, not the values", frame),
                    ],
                    (f"`{through}`, which the second loss is made of, was computed before the step, and its graph" if through not in (None, second.receiver) else
                     "The second loss was computed before the step, and its graph") + " kept the parameters as they were. The step writes into "
                    'them, and the second backward raises "one of the variables needed for gradient computation has been modified by an '
                    'inplace operation" wherever a parameter\'s value is needed.',
                    Confidence.LIKELY,
                    fixes=[advice("run both backward passes before the step, or compute the second loss again after it")],
                )
            )
        return found


def _computed_through(body: list[ast.stmt], second: Event, step: Event, frame: Frame, view: View) -> str | None:
    """What the second loss reads, or itself, that the network whose optimizer steps gave before that step: `d_fake` of a GAN."""
    networks = _stepped(step.receiver, frame, view)
    before, after = {}, {}
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Assign) and second.node.lineno > node.lineno:
                for name, value in _bound(node):
                    (before if node.lineno < step.node.lineno else after)[name] = value
    if not networks or second.receiver not in before | after:
        return None
    pending, seen, found = [second.receiver], {second.receiver}, None
    while pending:
        name = pending.pop()
        value = after.get(name, before.get(name))
        if name not in after and found is None and not _is_silent(body, value):
            if any(isinstance(part, ast.Call) and ast.unparse(part.func) in networks for part in ast.walk(value)):
                found = name
        for node in ast.walk(value):
            if isinstance(node, ast.Attribute) and node.attr in ("detach", "item", "argmax", "data"):
                return None  # cut off somewhere on the way
            if isinstance(node, ast.Name) and node.id not in seen and node.id in before | after:
                seen.add(node.id)
                pending.append(node.id)
    return found


def _bound(node: ast.Assign) -> list[tuple[str, ast.expr]]:
    """`a = x`, and each of `a, b = x, y`; a result that is taken apart is not followed."""
    target, value = node.targets[0], node.value
    if len(node.targets) != 1:
        return []
    pairs = [(target, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = list(zip(target.elts, value.elts, strict=True))
    return [(ast.unparse(t), v) for t, v in pairs if isinstance(t, (ast.Name, ast.Attribute))]


def _stepped(optimizer: str, frame: Frame, view: View) -> set[str]:
    """The networks whose parameters an optimizer was given: `opt_d = Adam(disc.parameters())`."""
    places = [frame.cls.node] if optimizer.startswith("self.") and frame.cls is not None else [frame.node, view.interpreter.tree]
    for place in places:
        for node in ast.walk(place):
            value = dict(_bound(node)).get(optimizer) if isinstance(node, ast.Assign) else None
            if isinstance(value, ast.Call):
                return {ast.unparse(n.func.value) for n in ast.walk(value) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "parameters"}
    return set()


def _is_silent(body: list[ast.stmt], value: ast.expr) -> bool:
    return any(isinstance(w, ast.With) and any("no_grad" in ast.unparse(i.context_expr) for i in w.items) and any(n is value for n in ast.walk(w))
               for s in body for w in ast.walk(s))  # fmt: skip


def _computed_before(body: list[ast.stmt], loss: str, step: ast.Call) -> bool:
    """The last assignment of `loss` before its backward stands before the step."""
    lines = [n.lineno for s in body for n in ast.walk(s) if isinstance(n, ast.Assign) for t in n.targets
             for name in ast.walk(t) if isinstance(name, ast.Name) and name.id == loss]  # fmt: skip
    return bool(lines) and all(line < step.lineno for line in lines)


def _has_its_own_optimizer(events: list[Event], step: Event, second: Event) -> bool:
    """Actor and critic, each with an optimizer named for it: whether they share parameters is not shown.

    The two networks of a GAN do share some, and theirs are told by the loss of one going through the other.
    """
    after = next((e for e in events[events.index(second) + 1 :] if e.kind == "step"), None)
    return after is not None and after.receiver != step.receiver and all(PART.search(e.receiver) for e in (step, after))


def _is_apart(body: list[ast.stmt], events: list[Event], first: Event, step: Event, second: Event) -> bool:
    """Two optimizers, and two losses that have nothing computed in common: `preds["a"]` and `preds["b"]`."""
    after = next((e for e in events[events.index(second) + 1 :] if e.kind == "step"), None)
    if after is None or after.receiver == step.receiver:
        return False
    made = {t.id: n.value for s in body for n in ast.walk(s) if isinstance(n, ast.Assign) and n.lineno < step.node.lineno
            for t in n.targets if isinstance(t, ast.Name)}  # fmt: skip
    mine, theirs = (_parts(ast.Name(e.receiver, ast.Load()), made, 12) for e in (first, second))
    if not any("[" in part for part in mine | theirs):
        return False
    return not mine & theirs


def _parts(node: ast.expr, made: dict[str, ast.expr], left: int) -> set[str]:
    """What a loss is computed from, as far as the block says: names of results, and entries of them by key."""
    if left <= 0:
        return set()
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return {ast.unparse(node)}
    if isinstance(node, ast.Name):
        value = made.get(node.id)
        if value is None:
            return set()
        inner = _parts(value, made, left - 1)
        return inner or {node.id}
    if isinstance(node, ast.Call):
        given = [*node.args, *(k.value for k in node.keywords)]
        own = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return set().union(*(_parts(part, made, left - 1) for part in [*own, *given]))
    return set().union(*(_parts(child, made, left - 1) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)))

"""The events of a training loop in source order: backward, step, zero_grad, and what they are called on."""

from __future__ import annotations

import ast
import re

from torchsleuth.frozen import frozen
from torchsleuth.linter.events import Frame

OPTIMIZER = re.compile(r"(^|_|\.)(opt|optim|optimizer|optimiser)\w*$|optim", re.IGNORECASE)
SCHEDULER = re.compile(r"sched|warmup|lr_", re.IGNORECASE)


@frozen
class Event:
    kind: str  # "backward" | "step" | "zero_grad"
    node: ast.Call
    receiver: str
    conditional: bool
    retains: bool = False  # backward(retain_graph=True)


def events_in(statements: list[ast.stmt], frame: Frame, conditional: bool = False) -> list[Event]:
    """Calls that train, in the order they are written; nested loops and functions are not looked into."""
    found: list[Event] = []
    for statement in statements:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.While)):
            continue
        if isinstance(statement, ast.If):
            found += events_in(statement.body, frame, True) + events_in(statement.orelse, frame, True)
        elif isinstance(statement, (ast.With, ast.Try)):
            found += events_in(statement.body, frame, conditional)
            for handler in getattr(statement, "handlers", []):
                found += events_in(handler.body, frame, True)
        else:
            for node in ast.walk(statement):
                event = _event(node, frame, conditional)
                if event is not None:
                    found.append(event)
    return found


def _event(node: ast.AST, frame: Frame, conditional: bool) -> Event | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    receiver, name = ast.unparse(node.func.value), node.func.attr
    if name == "backward":
        if receiver.rsplit(".", 1)[-1] in ("accelerator", "engine", "autograd", "fabric", "self"):
            return Event("backward", node, ast.unparse(node.args[0]) if node.args else receiver, conditional)
        retains = any(k.arg == "retain_graph" and getattr(k.value, "value", None) is True for k in node.keywords)
        return Event("backward", node, receiver, conditional, retains)
    if name in ("step", "zero_grad") and is_optimizer(node.func.value, frame):
        return Event(name, node, receiver, conditional)
    if name == "zero_grad":
        return Event("zero_grad", node, receiver, conditional)
    if name == "step" and node.args and is_optimizer(node.args[0], frame):  # scaler.step(optimizer)
        return Event("step", node, ast.unparse(node.args[0]), conditional)
    return None


def is_optimizer(node: ast.expr, frame: Frame) -> bool:
    text = ast.unparse(node)
    value = frame.env.get(text) if isinstance(node, ast.Name) else None
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        value = frame.attributes.get(node.attr)
    if value is not None and value.kind in ("optimizer", "scheduler"):
        return value.kind == "optimizer"
    return bool(OPTIMIZER.search(text)) and not SCHEDULER.search(text)


def cut_between(body: list[ast.stmt], name: str, one: ast.AST, other: ast.AST) -> bool:
    """`loss = loss.item()` or `loss.detach_()` between the two: the name no longer stands for a tensor with a history."""
    first, last = sorted((one.lineno, other.lineno))
    for node in (n for s in body for n in ast.walk(s)):
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            if first <= node.lineno <= last or "item()" in ast.unparse(node.value):
                return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "detach_" and node.lineno <= last:
            if isinstance(node.func.value, ast.Name) and node.func.value.id == name:
                return True
    return False


def mentions(function: ast.AST, *names: str, part: str = "") -> bool:
    """Whether any of these attribute or function names, or one with this part, occurs in the function."""
    wanted = set(names)
    for node in own_nodes(function):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name in wanted or (part and part in name):
            return True
    return False


def own_nodes(function: ast.AST):
    """Every node of a function; of a module only what is not inside its functions and classes."""
    if not isinstance(function, ast.Module):
        yield from ast.walk(function)
        return
    for statement in function.body:
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from ast.walk(statement)

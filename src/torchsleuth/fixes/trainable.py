"""Nothing requires grad: the parameters that were frozen, or the one tensor whose gradient is asked for."""

from __future__ import annotations

import ast

from torchsleuth.evidence import LostGradient
from torchsleuth.fixes.script import Function, Script, Scripts, called, names_in, path_of
from torchsleuth.model import Fix
from torchsleuth.wording import short

_FRESH = {"ones", "zeros", "rand", "randn", "full", "empty", "linspace", "tensor", "normal", "arange", "eye"}


def thawed(scripts: Scripts, lost: LostGradient) -> Fix | None:
    if not lost.frozen or lost.trainable:
        return None
    script = scripts.get(lost.call)
    if script is None:
        return None
    values: list[ast.expr] = []
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is False:
            if any(isinstance(target, ast.Attribute) and target.attr == "requires_grad" for target in node.targets):
                values.append(node.value)
        if isinstance(node, ast.Call) and called(node) == "requires_grad_" and node.args and isinstance(node.args[0], ast.Constant):
            if node.args[0].value is False:
                values.append(node.args[0])
    if len(values) != 1:
        return None
    if isinstance(script.scope_of(values[0]), Function):
        return _not_frozen(scripts, script, lost, script.scope_of(values[0]))
    return scripts.fix(
        "Let these parameters train: `requires_grad` True.", [script.replace(values[0], "True")], "All of them then get gradients.", safe=False
    )


def _not_frozen(scripts: Scripts, script: Script, lost: LostGradient, freezing: ast.AST) -> Fix | None:
    """A function of the program's freezes what it is given: what the optimizer trains is let go again after its call."""
    calls = [
        script.parent(node)
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Call) and called(node) == freezing.name and isinstance(script.parent(node), ast.Expr)
    ]
    trained = {
        path_of(inner.func.value)
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Call) and called(node)[:1].isupper()
        for inner in ast.walk(node)
        if isinstance(inner, ast.Call) and called(inner) == "parameters" and isinstance(inner.func, ast.Attribute)
    } - {""}
    if len(calls) != 1 or len(trained) != 1 or not script.is_alone_on_line(calls[0]):
        return None
    name, text = trained.pop(), script.segment(calls[0])
    if all(item.startswith(f"{name}.") for item in lost.frozen):
        return scripts.fix(f"Leave out `{short(text, 40)}`: it freezes all that the optimizer is to train.", script.removed(calls[0]), "", safe=False)
    if not any(item.startswith(f"{name}.") for item in lost.frozen):
        return None
    line = f"{name}.requires_grad_(True)"
    return scripts.fix(
        f"Let train what the optimizer was given: `{line}` after `{short(text, 40)}`.", script.after(calls[0], line), "The rest stays frozen.", safe=False
    )


def leaf_requires_grad(scripts: Scripts, lost: LostGradient) -> Fix | None:
    """The one tensor of floats that the loss is computed from, made in the same function."""
    script = scripts.get(lost.call)
    statement = script.statement_at(lost.call.span) if script is not None else None
    if script is None or statement is None or lost.frozen or lost.trainable:
        return None
    scope = script.scope_of(statement)
    wanted = names_in(statement, ast.Load)
    makers: list[ast.Call] = []
    bound = [node for node in script.own_nodes(scope) if isinstance(node, ast.Assign)]
    for node in sorted(bound, key=lambda item: -item.lineno):
        if not names_in(node, ast.Store) & wanted:
            continue
        wanted |= names_in(node.value, ast.Load)
        if isinstance(node.value, ast.Call) and called(node.value) in _FRESH and not names_in(node.value.func) - {script.module_name("torch") or ""}:
            makers.append(node.value)
    floats = [call for call in makers if _is_float(call)]
    if len(floats) != 1 or len(makers) != 1:
        return None
    call = floats[0]
    root = scripts.node_at(lost.made) if lost.made is not None else None
    if root is not None and root[1] is call:
        return None  # a loss that is a leaf: backward would run, and train nothing
    line, column = script.end(call)
    return scripts.fix(
        f"Ask for its gradient: `{called(call)}(..., requires_grad=True)`.",
        [script.insert((line, column - 1), ", requires_grad=True" if call.args or call.keywords else "requires_grad=True")],
        f"`{script.segment(script.statement_of(call).targets[0])}` is then what backward computes a gradient for.",
        safe=False,
    )


def _is_float(call: ast.Call) -> bool:
    name = called(call)
    if any(keyword.arg == "requires_grad" for keyword in call.keywords):
        return False
    if name in ("ones", "zeros", "rand", "randn", "linspace", "normal", "eye", "empty"):
        return not any(k.arg == "dtype" and "int" in ast.unparse(k.value) for k in call.keywords)
    return any(isinstance(node, ast.Constant) and isinstance(node.value, float) for node in ast.walk(call))

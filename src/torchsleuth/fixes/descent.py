"""A step of gradient descent that binds its result to the name of the leaf, `w = w - rate * w.grad`: the leaf itself is written instead."""

from __future__ import annotations

import ast

from torchsleuth.fixes.script import Script, Scripts, called
from torchsleuth.model import Fix


def is_step(statement: ast.stmt) -> bool:
    """`w = w - rate * w.grad`: what a step of gradient descent is."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or not isinstance(statement.targets[0], ast.Name):
        return False
    name, value = statement.targets[0].id, statement.value
    plain = isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub)) and isinstance(value.left, ast.Name) and value.left.id == name
    return plain and any(isinstance(n, ast.Attribute) and n.attr == "grad" and ast.unparse(n.value) == name for n in ast.walk(value.right))


def written_in_place(scripts: Scripts, script: Script, first: ast.stmt) -> Fix | None:
    """`with torch.no_grad(): w -= rate * w.grad`, and all such steps beside it: `w` stays the leaf that is trained."""
    torch = script.module_name("torch")
    if torch is None or not is_step(first):
        return None
    block = script.block_of(first)
    begin = end = block.index(first)
    while begin > 0 and is_step(block[begin - 1]):
        begin -= 1
    while end + 1 < len(block) and is_step(block[end + 1]):
        end += 1
    steps = block[begin : end + 1]
    if not all(script.is_alone_on_line(step) and step.lineno == step.end_lineno for step in steps):
        return None
    inner = script.indent_of(first) + script.indent_step()
    lines = [f"{step.targets[0].id} {'-' if isinstance(step.value.op, ast.Sub) else '+'}= {script.segment(step.value.right)}" for step in steps]
    # A new tensor had no gradient yet; the same one adds up those of all rounds, unless something empties it.
    names = [step.targets[0].id for step in steps]
    lines += [f"{name}.grad = None" for name in names if not _is_emptied(script, first, name)]
    text = f"with {torch}.no_grad():" + "".join(f"\n{inner}{line}" for line in lines)
    edits = [script.edit(script.start(steps[0]), script.end(steps[-1]), text)]
    return scripts.fix(f"Write into `{first.targets[0].id}` under `torch.no_grad()`: it stays the tensor whose gradient is asked for.", edits)


def _is_emptied(script: Script, statement: ast.stmt, name: str) -> bool:
    for n in script.own_nodes(script.scope_of(statement)):
        cleared = isinstance(n, ast.Call) and (ast.unparse(n.func) == f"{name}.grad.zero_" or called(n) == "zero_grad")
        if cleared or isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and ast.unparse(n) == f"{name}.grad":
            return True
    return False

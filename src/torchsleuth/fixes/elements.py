"""A loop that writes into the elements of a list or dictionary: new elements, which the container then has to hold.

A new tensor bound to the loop's own variable would be forgotten with the round, and the write with it.
"""

from __future__ import annotations

import ast

from torchsleuth.fixes.outofplace import NO_TWIN, OPERATORS, is_for_the_caller, may_be_bound, write_in
from torchsleuth.fixes.script import Script, Scripts, called, names_in, path_of
from torchsleuth.model import Fix


def is_lost_with_the_round(script: Script, statement: ast.stmt) -> bool:
    """`for p in params: p.sub_(step)`: a new tensor bound to the loop's own variable, which nothing reads before it is set anew."""
    write, loops = write_in(statement), script.loops_around(statement)
    given = {node.id for loop in loops if isinstance(loop, ast.For) for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    return write is not None and write[1] in given and not _is_read_on(loops[0], statement, write[1])


def renewed(scripts: Scripts, script: Script, statement: ast.stmt, meaning: str) -> Fix | None:
    """`for p, g in zip(params, grads): p -= lr * g` → `params = [p - lr * g for p, g in zip(params, grads)]`; for a dictionary's
    items `params = {n: p - lr * g for ...}`, or `params[n] = p - lr * g` in the loop. `meaning` says it of `{name}`, a `{kind}`."""
    loop, write = script.parent(statement), write_in(statement)
    if not isinstance(loop, ast.For) or write is None or "\n" in script.segment(loop.iter) + script.segment(statement):
        return None
    called_zip = isinstance(loop.iter, ast.Call) and called(loop.iter) == "zip" and isinstance(loop.target, ast.Tuple)
    pairs = zip(loop.target.elts, loop.iter.args) if called_zip else [(loop.target, loop.iter)]
    found = next((held for goal, item in pairs if (held := _container(goal, item, write[1])) is not None), None)
    new = _new_value(script, statement, write[1])
    if found is None or new is None:
        return None
    name, kind, key = found
    whole = loop.body == [statement] and not loop.orelse and may_be_bound(script, loop, name) and not is_for_the_caller(script, loop, name)
    if whole and not (kind == "list" and key):
        goals = script.segment(loop.target)
        goals = goals[1:-1] if goals.startswith("(") and goals.endswith(")") and goals.count("(") == 1 else goals
        rounds = f"for {goals} in {script.segment(loop.iter)}"
        line = f"{name} = {{{key}: {new} {rounds}}}" if key else f"{name} = [{new} {rounds}]"
        edit = script.replace(loop, line)
    elif key and not _is_read_on(loop, statement, write[1]):
        line = f"{name}[{key}] = {new}"
        edit = script.replace(statement, line)
    else:
        return None
    said = meaning.format(name=name, kind="dictionary" if kind == "dict" else "list")
    return scripts.fix(f"Make new tensors instead of writing into the old ones: `{line}`.", [edit], said, safe=False)


def _container(goal: ast.expr, item: ast.expr, wanted: str) -> tuple[str, str, str] | None:
    """What the loop takes `wanted` from: its name, "list" or "dict", and the variable for the key or position, "" for none."""
    if path_of(item) and path_of(goal) == wanted != "":
        return path_of(item), "list", ""
    if not (isinstance(item, ast.Call) and isinstance(goal, ast.Tuple) and len(goal.elts) == 2):
        return None
    key, value = goal.elts
    if not isinstance(key, ast.Name) or path_of(value) != wanted or not wanted:
        return None
    if called(item) == "items" and isinstance(item.func, ast.Attribute) and path_of(item.func.value) and not item.args:
        return path_of(item.func.value), "dict", key.id
    if isinstance(item.func, ast.Name) and item.func.id == "enumerate" and len(item.args) == 1 and not item.keywords and path_of(item.args[0]):
        return path_of(item.args[0]), "list", key.id
    return None


def _new_value(script: Script, statement: ast.stmt, name: str) -> str | None:
    """What the write puts there, as an expression: `p - lr * g` of `p -= lr * g`, `p.mul(a).add(b)` of `p.mul_(a).add_(b)`."""
    if isinstance(statement, ast.AugAssign) and path_of(statement.target) == name:
        operator = OPERATORS.get(type(statement.op))
        binds = isinstance(statement.op, (ast.Add, ast.Sub)) and isinstance(statement.value, ast.BinOp) and isinstance(statement.value.op, (ast.Mult, ast.Div, ast.MatMult))
        return f"{name} {operator} {script.segment(statement.value) if binds else script.closed(statement.value)}" if operator else None
    links: list[str] = []
    at = statement.value if isinstance(statement, ast.Expr) else None
    while isinstance(at, ast.Call) and isinstance(at.func, ast.Attribute) and at.func.attr.endswith("_") and at.func.attr not in NO_TWIN:
        links.append(f".{at.func.attr[:-1]}{script.between(script.end(at.func), script.end(at))}")
        at = at.func.value
    reads = bool(links) and _is_read_between(statement.value, name)
    return name + "".join(reversed(links)) if links and path_of(at) == name and not reads else None


def _is_read_on(loop: ast.AST, statement: ast.stmt, name: str) -> bool:
    until = statement.end_lineno or statement.lineno
    return any(isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and node.lineno > until for node in ast.walk(loop))


def _is_read_between(call: ast.expr, name: str) -> bool:
    """`p.mul_(2).add_(p)`: a later link of the chain reads what an earlier one has left there."""
    while isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call):
        if name in names_in([*call.args, *(keyword.value for keyword in call.keywords)]):
            return True
        call = call.func.value
    return False

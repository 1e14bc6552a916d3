"""Changes to when something is computed: recompute after a step, move a statement, detach what is carried over."""

from __future__ import annotations

import ast

from torchsleuth.fixes.script import Script, called, names_in, path_of
from torchsleuth.model import Edit

_DATA = {
    "randn", "rand", "randint", "randn_like", "rand_like", "zeros", "ones", "zeros_like", "ones_like", "tensor", "arange",
    "randperm", "full", "next", "normal", "empty", "from_numpy",
}  # fmt: skip


def recomputed(script: Script, saves: list[ast.stmt], step: ast.stmt, backward: ast.stmt) -> tuple[list[Edit], list[str]] | None:
    """The statements that lead from the saving ones to the loss, repeated after `step`. All must be in one block."""
    block = script.block_of(step)
    if backward not in block or block.index(step) >= block.index(backward):
        return None
    before = block[: block.index(step)]
    needed = _feeding(block[: block.index(backward)], names_in(backward, ast.Load))
    candidates = [statement for statement in before if statement in needed]
    inside = [statement for statement in saves if statement in before]
    if inside:
        chosen, tainted = [], set()
        for statement in candidates:
            if statement in inside or names_in(statement, ast.Load) & tainted:
                chosen.append(statement)
                tainted |= names_in(statement, ast.Store)
    else:
        chosen = [statement for statement in candidates if not _is_data(statement)]
    if not chosen or any(not isinstance(statement, ast.Assign) for statement in chosen):
        return None
    lines = [script.segment(statement) for statement in chosen]
    if any("\n" in line for line in lines):
        indent = script.indent_of(step)
        if any(not part.startswith(indent) for line in lines for part in line.split("\n")[1:] if part.strip()):
            return None
    return script.after(step, *lines), [" ".join(line.split()) for line in lines]


def _feeding(block: list[ast.stmt], wanted: set[str]) -> list[ast.stmt]:
    """Statements of a block that (transitively) bind the wanted names."""
    found: list[ast.stmt] = []
    wanted = set(wanted)
    for statement in reversed(block):
        bound = names_in(statement, ast.Store)
        if bound & wanted and isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            found.append(statement)
            wanted |= names_in(statement, ast.Load)
    return found[::-1]


def _is_data(statement: ast.stmt) -> bool:
    value = getattr(statement, "value", None)
    return isinstance(value, ast.Call) and called(value) in _DATA


def moved_after(script: Script, statement: ast.stmt, goal: ast.stmt) -> list[Edit] | None:
    """`statement` taken out and put behind `goal`, both in one block."""
    block = script.block_of(statement)
    if goal not in block or block.index(goal) <= block.index(statement) or not script.is_alone_on_line(statement):
        return None
    first, last = script.first_line(statement), script.end(statement)[0]
    text = "\n".join(script.source.lines[first - 1 : last])
    end_line = script.end(goal)[0]
    if not (script.is_alone_on_line(goal) or hasattr(goal, "body")):
        return None
    at = (end_line, len(script.source.lines[end_line - 1]) + 1)
    return [*script.removed(statement), script.insert(at, f"\n{text}")]


def carried_names(script: Script, loop: ast.For | ast.While, root: set[str]) -> list[str]:
    """Variables that a loop body reads from the round before, binds anew, and that feed `root`."""
    found: list[str] = []
    bound: set[str] = set()
    reads_first: list[str] = []
    own = names_in(loop.target) if isinstance(loop, ast.For) else set()
    for statement in loop.body:
        for node in ast.walk(statement):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                text = path_of(node)
                if text and text not in bound and text not in own:
                    reads_first.append(text)
            if isinstance(node, ast.AugAssign):
                text = path_of(node.target)
                if text and text not in bound:
                    reads_first.append(text)
        for node in ast.walk(statement):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
                bound.add(path_of(node))
    feeding = _feeding(list(_flat(loop.body)), root)
    relevant = root | {name for statement in feeding for name in _texts(statement)}
    for name in dict.fromkeys(reads_first):
        if name in bound and name in relevant and not _is_counter(loop, name):
            found.append(name)
    return found


def _flat(block: list[ast.stmt]):
    for statement in block:
        yield statement
        for name in ("body", "orelse"):
            inner = getattr(statement, name, None)
            if isinstance(inner, list):
                yield from _flat(inner)


def _texts(statement: ast.stmt) -> set[str]:
    return {path_of(node) for node in ast.walk(statement) if isinstance(node, (ast.Name, ast.Attribute))}


def _is_counter(loop: ast.For | ast.While, name: str) -> bool:
    """Only ever bound to numbers: `total += loss.item()`, `step += 1`."""
    values = []
    for node in ast.walk(loop):
        if isinstance(node, ast.AugAssign) and path_of(node.target) == name:
            values.append(node.value)
        elif isinstance(node, ast.Assign) and any(path_of(target) == name for target in node.targets):
            values.append(node.value)
        elif isinstance(node, ast.Assign) and any(name in {path_of(n) for n in ast.walk(target)} for target in node.targets):
            return False
    return bool(values) and all(
        isinstance(value, ast.Constant) or (isinstance(value, ast.Call) and called(value) in ("item", "float", "int", "len")) for value in values
    )


def detached(script: Script, name: str, after: ast.stmt) -> list[Edit]:
    """`name = name.detach()` behind a statement; for the state of an LSTM, each of its two tensors."""
    text = f"{name} = {name}.detach()"
    if is_pair(script, name):
        text = f"{name} = tuple(part.detach() for part in {name})"
    return script.after(after, text)


def is_pair(script: Script, name: str) -> bool:
    """`out, state = lstm(x, state)`, where `lstm` is an LSTM: the state is a pair of tensors, or None before the first."""
    lstms = {
        path_of(target)
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and called(node.value) in ("LSTM", "LSTMCell")
        for target in node.targets
    }
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign) and any(path_of(target) == name for target in node.targets) and isinstance(node.value, ast.Tuple):
            return True
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            function = path_of(node.value.func)
            for target in node.targets:
                single = isinstance(target, ast.Tuple) and target.elts and path_of(target.elts[-1]) == name
                if single and (function in lstms or f"self.{function.split('.')[-1]}" in lstms):
                    return True
    return False

"""Changes to when something is computed: recompute after a step, move a statement."""

from __future__ import annotations

import ast

from torchsleuth.fixes.script import Script, called, names_in
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
    needed = feeding(block[: block.index(backward)], names_in(backward, ast.Load))
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


def feeding(block: list[ast.stmt], wanted: set[str]) -> list[ast.stmt]:
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

"""Changes to when something is computed: recompute after a step, move a statement."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from torchsleuth.evidence import Frame
from torchsleuth.fixes.script import Function, Script, Scripts, called, names_in
from torchsleuth.model import Edit

_DATA = {
    "randn", "rand", "randint", "randn_like", "rand_like", "zeros", "ones", "zeros_like", "ones_like", "tensor", "arange",
    "randperm", "full", "next", "normal", "empty", "from_numpy",
}  # fmt: skip


def recomputed(
    script: Script, saves: list[ast.stmt], step: ast.stmt, backward: ast.stmt, stale: frozenset[str] = frozenset()
) -> tuple[list[Edit], list[str]] | None:
    """The statements that lead from the saving ones to the loss, repeated after `step`. All must be in one block.

    `stale`: what brought the old graph along, where the saving lines themselves stand in a function that the block calls.
    """
    block = script.block_of(step)
    if backward not in block or block.index(step) >= block.index(backward):
        return None
    before = block[: block.index(step)]
    needed = feeding(block[: block.index(backward)], names_in(backward, ast.Load))
    candidates = [statement for statement in before if statement in needed]
    inside = [statement for statement in saves if statement in before]
    inside = inside or [statement for statement in candidates if names_in(statement, ast.Store) & stale]
    if inside:
        chosen, tainted = [], set()
        for statement in candidates:
            if statement in inside or names_in(statement, ast.Load) & tainted:
                chosen.append(statement)
                tainted |= names_in(statement, ast.Store)
    else:
        chosen, tainted = [], set()
        for statement in candidates:
            if not _is_data(statement) and (_computes(statement) or names_in(statement, ast.Load) & tainted):
                chosen.append(statement)
                tainted |= names_in(statement, ast.Store)
    if not chosen or any(not isinstance(statement, ast.Assign) for statement in chosen):
        return None
    if not names_in(chosen, ast.Store) & names_in(block[block.index(step) + 1 : block.index(backward) + 1], ast.Load):
        return None  # nothing after the step reads what would be computed anew
    used = names_in(backward, ast.Load) | {name for statement in chosen for name in names_in(statement, ast.Load)}
    lines = [_narrowed(script, statement, used) for statement in chosen]
    if any("\n" in line for line in lines):
        indent = script.indent_of(step)
        if any(not part.startswith(indent) for line in lines for part in line.split("\n")[1:] if part.strip()):
            return None
    return script.after(step, *lines), [" ".join(line.split()) for line in lines]


def _narrowed(script: Script, statement: ast.stmt, used: set[str]) -> str:
    """Of `a, b = f(x), g(y)` only what is used further on."""
    target, value = statement.targets[0], statement.value
    if len(statement.targets) == 1 and isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        kept = [(goal, part) for goal, part in zip(target.elts, value.elts, strict=True) if names_in(goal) & used or not isinstance(goal, ast.Name)]
        if 0 < len(kept) < len(target.elts) and not any(isinstance(goal, ast.Starred) for goal in target.elts):
            return f"{', '.join(script.segment(goal) for goal, _ in kept)} = {', '.join(script.segment(part) for _, part in kept)}"
    return script.segment(statement)


def split_over_functions(scripts: Scripts, frames: Sequence[Frame], inner: Script, early: ast.stmt) -> tuple[Script, ast.stmt, ast.stmt] | None:
    """The function that calls first the one with `early` in it and then, later in a block, the one that failed.

    Its file, the statement that led to `early`, and the one that was running at the failure.
    """
    leading = _callers(inner, early)
    if not leading:
        return None
    for frame in frames:
        if frame.origin != "user" or frame.place.in_library:
            continue
        script = scripts.get(frame.place)
        running = script.statement_at(frame.place.span) if script is not None else None
        if script is None or running is None:
            continue
        block = script.block_of(running)
        before = [item for item in block[: block.index(running)] if any(called(node) in leading for node in ast.walk(item))]
        if before and not hasattr(before[-1], "body") and script.scope_of(running) is not inner.scope_of(early):
            return script, before[-1], running
    return None


def _callers(script: Script, statement: ast.stmt) -> set[str]:
    """The function around a statement, and those of the file that call it, by name."""
    scope = script.scope_of(statement)
    if not isinstance(scope, Function):
        return set()
    names = {scope.name}
    functions = [node for node in ast.walk(script.tree) if isinstance(node, Function)]
    for _ in range(3):
        names |= {node.name for node in functions if any(called(inner) in names for inner in ast.walk(node))}
    return names


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


def _computes(statement: ast.stmt) -> bool:
    """`x, y = batch["x"], batch["y"]` computes nothing: run again it gives the same tensors."""
    return any(isinstance(node, (ast.Call, ast.BinOp, ast.UnaryOp)) for node in ast.walk(statement.value)) if getattr(statement, "value", None) is not None else True


def _is_data(statement: ast.stmt) -> bool:
    return _is_made_of_nothing(getattr(statement, "value", None))


def _is_made_of_nothing(value: ast.expr | None) -> bool:
    """`torch.randn(8, 4).to(device)`, `next(batches)`, `torch.rand(8), torch.ones(8)`: run again it is other data, or the same."""
    if isinstance(value, ast.Tuple):
        return bool(value.elts) and all(_is_made_of_nothing(item) for item in value.elts)
    if isinstance(value, ast.Call) and called(value) in _DATA:
        return True
    inner = value.func.value if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else None
    return isinstance(inner, (ast.Call, ast.Tuple)) and _is_made_of_nothing(inner)


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


def put_after(script: Script, goal: ast.stmt, inner: Script, write: ast.stmt) -> tuple[list[Edit], bool] | None:
    """The statement before `goal`, in its block, that writes or calls the function that does, put behind `goal`; and whether
    something that may read what it writes lies between them."""
    block = script.block_of(goal)
    before = block[: block.index(goal)]
    if inner is script and script.scope_of(write) is script.scope_of(goal):
        outer = next((s for s in before if s is write or write in ast.walk(s)), None)
    else:
        leading = _callers(inner, write)
        calling = [s for s in before if any(called(node) in leading for node in ast.walk(s))]
        outer = calling[0] if len(calling) == 1 else None
    if outer is None or names_in(outer, ast.Store) & names_in(block[block.index(outer) + 1 : block.index(goal) + 1], ast.Load):
        return None  # it computes the loss as well
    edits = moved_after(script, outer, goal)
    return (edits, block.index(goal) - block.index(outer) > 1) if edits else None

"""Steps as the program has written them down: `optimizer.step()` under a condition that was not met, and the `step()` of a schedule."""

from __future__ import annotations

import ast
import os

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.programfiles import program_syntax
from torchsleuth.auditor.tracing.sites import site_of_node, syntax_of


def unreached_step(built: Site | None) -> tuple[Site, Site] | None:
    """The one `step()` in the program's files of the optimizer that was `built` there, and the condition above it."""
    name = _given_name(built)
    if built is None or not name:
        return None
    every = [(file, node, conditions, holder) for file, tree in program_syntax([built]) for node, conditions, holder in _steps(tree, ())]
    mine = [one for one in every if one[3] == name] or [one for one in every if "opt" in one[3].lower()]
    if len(mine) != 1 or not mine[0][2]:
        return None
    file, node, conditions, _ = mine[0]
    return site_of_node(file, node), site_of_node(file, conditions[-1])


def advances(schedule: Site | None) -> tuple[Site, ...]:
    """The one `step()` in the program's files of the schedule that is made there."""
    name = _given_name(schedule)
    every = [(file, node) for file, tree in program_syntax([schedule]) for node, _, holder in _steps(tree, ()) if holder == name]
    return (site_of_node(*every[0]),) if name and len(every) == 1 else ()


def _given_name(site: Site | None) -> str:
    """`optimizer` in `self.optimizer = Adam(...)`."""
    tree = syntax_of(os.path.abspath(site.span.file)) if site is not None else None
    for node in ast.walk(tree) if tree is not None and site is not None else ():
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and (node.value.lineno, node.value.col_offset + 1) == (site.span.line, site.span.column):
            return _last(node.targets[0])
    return ""


def _last(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _steps(node: ast.AST, conditions: tuple[ast.expr, ...]) -> list[tuple[ast.Call, tuple[ast.expr, ...], str]]:
    """The calls of `step`, each with the conditions above it in its function and the name of the optimizer; `scaler.step(optimizer)` too."""
    found: list[tuple[ast.Call, tuple[ast.expr, ...], str]] = []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step":
        found.append((node, conditions, _last(node.args[0]) if node.args and _last(node.args[0]) else _last(node.func.value)))
    if isinstance(node, ast.If):  # under its `else`, too, the condition is what decides
        parts = [(child, (*conditions, node.test)) for child in node.body] + [(child, (*conditions, node.test)) for child in node.orelse]
    else:
        inner = () if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) else conditions
        parts = [(child, inner) for child in ast.iter_child_nodes(node)]
    for child, above in parts:
        if not _main_guard(child):
            found += _steps(child, above)
        else:
            found += [one for part in child.body for one in _steps(part, above)]  # type: ignore[attr-defined]
    return found


def _main_guard(node: ast.AST) -> bool:
    """`if __name__ == "__main__":`"""
    return isinstance(node, ast.If) and any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test))

"""Losses that nothing takes up: their name is given to something else first, as the source has it."""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import Unused
from torchsleuth.auditor.tracing.bydesign import origin_of_place
from torchsleuth.auditor.tracing.sites import site_of_node, syntax_of
from torchsleuth.auditor.tracing.trace import Trace
from torchsleuth.model import Span
from torchsleuth.origin import Origin

UNCHANGED = {"positive"}  # `+loss`, as in `loss =+ ...`, is the very tensor it is given

def overwritten_losses(trace: Trace, step: slice) -> list[Unused]:
    """Single numbers with a history that no call took, each assigned to a name that is assigned anew before it is read."""
    taken = {seen.key for op in trace.ops if op.name not in UNCHANGED for seen in op.ins}
    found: dict[Span, Unused] = {}
    for op in trace.ops[step]:
        lone = len(op.outs) == 1 and op.outs[0].size == () and op.outs[0].requires_grad and op.outs[0].key not in taken
        if not lone or op.writes or op.name in UNCHANGED or not op.ins or origin_of_place(op) is not Origin.USER:
            continue
        site = trace.site(op)
        later = _assigned_anew(site) if site is not None and not site.library else None
        if site is not None and later is not None:
            found.setdefault(site.span, Unused((), "overwritten", "", "", site, end=later))
    return list(found.values())


def _assigned_anew(site: Site) -> Site | None:
    filename = os.path.abspath(site.span.file)
    tree = syntax_of(filename)
    if tree is None:
        return None
    for holder in ast.walk(tree):
        for block in (getattr(holder, "body", None), getattr(holder, "orelse", None), getattr(holder, "finalbody", None)):
            for position, statement in enumerate(block if isinstance(block, list) else ()):
                name = _name(statement)
                if name and isinstance(statement, ast.Assign) and _within(site.span, statement.value):
                    assert isinstance(block, list)
                    again = block[:position] if isinstance(holder, ast.For) and block is holder.body and _another(holder, statement) else None
                    found = _next(name, block[position + 1 :], again, statement)
                    return site_of_node(filename, found, site.function) if found is not None else None
    return None


def _next(name: str, after: Sequence[ast.stmt], again: Sequence[ast.stmt] | None, first: ast.Assign) -> ast.stmt | None:
    """The next assignment of this name; `again`: what runs before it in the next round, where there is one. None if it may be read before."""
    rounds = (*after, *again, first) if again is not None else after
    for statement in rounds:
        if _name(statement) == name and isinstance(statement, ast.Assign):
            return statement if not _mentions(statement.value, name) else None
        if _mentions(statement, name):
            return None
    return None


def _another(loop: ast.For, statement: ast.Assign) -> bool:
    """Each round computes another loss: from what the loop runs over. And nothing is trained in it."""
    variables = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    trains = any(isinstance(node, ast.Attribute) and node.attr in ("backward", "step") for node in ast.walk(loop))
    return not trains and any(isinstance(node, ast.Name) and node.id in variables for node in ast.walk(statement.value))


def _name(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    return ""


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


def _within(span: Span, node: ast.expr) -> bool:
    start, end = (node.lineno, node.col_offset + 1), (node.end_lineno or node.lineno, (node.end_col_offset or 0) + 1)
    return start <= (span.line, span.column) and (span.end_line, span.end_column) <= end

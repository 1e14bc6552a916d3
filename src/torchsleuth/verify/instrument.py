"""Finds the failing statement in a patched text, and marks in its tree that it has been passed. No torch, no I/O.

The mark is put into the syntax tree, not into the text: line numbers stay what the user knows.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from torchsleuth.model import Edit

MARK = "__torchsleuth_passed__"


def mapped_line(line: int, column: int, edits: Iterable[Edit]) -> int:
    """Where the text at a position stands after the edits: its new line."""
    shift = 0
    for edit in edits:
        span = edit.span
        inserted = edit.replacement.count("\n")
        if (span.end_line, span.end_column) <= (line, column):
            shift += inserted - (span.end_line - span.line)
        elif (span.line, span.column) < (line, column):
            # Inside the replaced text: the first line of what replaces it.
            shift -= line - span.line
    return line + shift


def marked(tree: ast.Module, line: int) -> bool:
    """Put a call of `MARK` behind the statement at `line`; False where there is none."""
    found: tuple[list[ast.stmt], int] | None = None
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop(0)
        for name in ("body", "orelse", "finalbody", "handlers"):
            block = getattr(node, name, None)
            if not isinstance(block, list):
                continue
            for position, statement in enumerate(block):
                first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
                if first <= line <= (statement.end_lineno or statement.lineno):
                    if isinstance(statement, ast.stmt):
                        found = (block, position)
                    pending.append(statement)
    if found is None:
        return False
    block, position = found
    statement = block[position]
    if isinstance(statement, ast.Return) and statement.value is not None:
        call = ast.Call(ast.Name(MARK, ast.Load()), [statement.value], [])
        statement.value = ast.copy_location(call, statement.value)
    elif isinstance(getattr(statement, "body", None), list) and not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        # The head of a compound statement is passed when its body is entered, or left when there is nothing to enter.
        statement.body.insert(0, _call_at(statement))
    else:
        block.insert(position + 1, _call_at(statement))
    ast.fix_missing_locations(tree)
    return True


def _call_at(statement: ast.stmt) -> ast.Expr:
    call = ast.Expr(ast.Call(ast.Name(MARK, ast.Load()), [], []))
    end = statement.end_lineno or statement.lineno
    for node in ast.walk(call):
        if isinstance(node, (ast.expr, ast.stmt)):
            node.lineno = node.end_lineno = end
            node.col_offset = node.end_col_offset = 0
    return call

"""Finds the failing statement in a patched text, and marks in its tree that it is begun and has been passed. No torch, no I/O.

The marks are put into the syntax tree, not into the text: line numbers stay what the user knows.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from torchsleuth.model import Edit

MARK = "__torchsleuth_passed__"
BEGIN = "__torchsleuth_begins__"
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


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


def found_statement(tree: ast.Module, line: int) -> tuple[list[ast.stmt], int] | None:
    """The innermost statement at a line: its block, and its position there."""
    found: tuple[list[ast.stmt], int] | None = None
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop(0)
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            block = getattr(node, name, None)
            if not isinstance(block, list):
                continue
            for position, statement in enumerate(block):
                first, last = _lines(statement)
                if first <= line <= last:
                    if isinstance(statement, ast.stmt):
                        found = (block, position)
                    pending.append(statement)
    return found


def _lines(node: ast.AST) -> tuple[int, int]:
    if isinstance(node, ast.match_case):
        return node.pattern.lineno, node.body[-1].end_lineno or node.body[-1].lineno
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    return first, node.end_lineno or node.lineno


def head_lines(statement: ast.stmt) -> tuple[int, int]:
    """The lines of a statement; of a compound one, those before its body."""
    first, last = _lines(statement)
    body = getattr(statement, "body", None)
    return (first, max(first, body[0].lineno - 1)) if isinstance(body, list) else (first, last)


def marked(tree: ast.Module, line: int) -> bool:
    """Put calls of `BEGIN` and `MARK` around the statement at `line`; False where there is none."""
    found = found_statement(tree, line)
    if found is None:
        return False
    block, position = found
    statement = block[position]
    if isinstance(statement, ast.Return) and statement.value is not None:
        call = ast.Call(ast.Name(MARK, ast.Load()), [statement.value], [])
        statement.value = ast.copy_location(call, statement.value)
    elif isinstance(getattr(statement, "body", None), list) and not isinstance(statement, _DEFINITIONS):
        # The head of a compound statement is passed when its body is entered, or its other branch.
        statement.body.insert(0, _call_at(statement, MARK))
        if isinstance(statement, ast.If):
            statement.orelse.insert(0, _call_at(statement, MARK))
    else:
        block.insert(position + 1, _call_at(statement, MARK))
    if not isinstance(statement, _LOOPS):  # the head of a loop begins with every round
        block.insert(position, _call_at(statement, BEGIN))
    ast.fix_missing_locations(tree)
    return True


def _call_at(statement: ast.stmt, name: str) -> ast.Expr:
    call = ast.Expr(ast.Call(ast.Name(name, ast.Load()), [], []))
    line = statement.lineno if name == BEGIN else statement.end_lineno or statement.lineno
    for node in ast.walk(call):
        if isinstance(node, (ast.expr, ast.stmt)):
            node.lineno = node.end_lineno = line
            node.col_offset = node.end_col_offset = 0
    return call

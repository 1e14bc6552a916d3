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


def mapped(line: int, column: int, edits: Iterable[Edit]) -> tuple[int, int]:
    """Where the text at a position stands after the edits: its new line and column."""
    lines, columns = line, column
    for edit in sorted(edits, key=lambda item: (item.span.line, item.span.column)):
        span, text = edit.span, edit.replacement
        if (span.end_line, span.end_column) <= (line, column):
            lines += text.count("\n") - (span.end_line - span.line)
            if span.end_line == line:
                # Behind it on its last line: what stands before that on the new line is new.
                start = 1 if "\n" in text else (span.column + columns - column if span.line == line else span.column)
                columns = start + len(text.rpartition("\n")[2]) + column - span.end_column
        elif (span.line, span.column) < (line, column):
            # Inside the replaced text: the beginning of what replaces it.
            return lines - (line - span.line), span.column + (columns - column if span.line == line else 0)
    return lines, columns


def found_statement(tree: ast.Module, line: int, column: int = 0) -> tuple[list[ast.stmt], int] | None:
    """The innermost statement at a line: its block, and its position there. Of several on one line that at the column."""
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
                if first <= line <= last and not _is_beside(statement, line, column):
                    if isinstance(statement, ast.stmt):
                        found = (block, position)
                    pending.append(statement)
    return found


def _is_beside(node: ast.AST, line: int, column: int) -> bool:
    """On the line, but before or behind the column: `a = 1; b = 2`."""
    if not column or not isinstance(node, ast.stmt):
        return False
    before = node.end_lineno == line and node.end_col_offset is not None and node.end_col_offset < column
    return before or (node.lineno == line and node.col_offset > column - 1)


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


def marked(tree: ast.Module, line: int, column: int = 0) -> bool:
    """Put calls of `BEGIN` and `MARK` around the statement at a place; False where there is none."""
    found = found_statement(tree, line, column) or found_statement(tree, line)
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

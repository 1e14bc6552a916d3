"""A plan as text edits: the loop's lines out, the new ones in, comments and everything around them kept."""

from __future__ import annotations

import ast
import io
import tokenize

from torchsleuth.linter.source import Source
from torchsleuth.linter.vectorise.lifted import GiveUp
from torchsleuth.linter.vectorise.plan import Plan
from torchsleuth.model import Edit, Span

OPERATIONS = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Lambda)


def code_of(node: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(node))


def edits_for(plan: Plan, source: Source) -> tuple[Edit, ...]:
    """The edits; raises `GiveUp` where a statement shares its line with others."""
    edits: list[Edit] = []
    inside = {id(n) for n in ast.walk(plan.loop)}
    for statement in plan.removed:
        edits.append(_removal(statement, source, []))
    if isinstance(plan.loop, ast.stmt):
        comments = _comments(plan.loop, source)
        new = [line for statement in plan.statements for line in code_of(statement).splitlines()]
        if not new:
            block = _block_of(plan.loop, source.tree)
            if len(block) == 1 + sum(s.lineno in {b.lineno for b in block} for s in plan.removed):
                raise GiveUp("nothing would be left in the block")
            edits.append(_removal(plan.loop, source, comments))
        else:
            edits.append(_replacement(plan.loop, source, [*comments, *new]))
    for node, code in plan.replaced:
        if id(node) in inside and isinstance(plan.loop, ast.stmt):
            raise GiveUp("an edit inside another")
        text = code_of(code)
        if isinstance(code, OPERATIONS) and _binds_tighter(node, source.tree):
            text = f"({text})"
        span = source.span(node)
        edits.append(Edit(span, text, source.digest))
    return tuple(edits)


def _binds_tighter(node: ast.AST, tree: ast.AST) -> bool:
    """`torch.stack(rows).mean()`: what stands around an expression would take only a part of what takes its place."""
    for parent in ast.walk(tree):
        if isinstance(parent, (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Attribute, ast.Subscript, ast.Call, ast.IfExp, ast.Starred, ast.Await)):
            if any(child is node for child in ast.iter_child_nodes(parent)):
                return not (isinstance(parent, ast.Call) and parent.func is not node or isinstance(parent, ast.Subscript) and parent.value is not node)
    return False


def _block_of(statement: ast.stmt, tree: ast.AST) -> list[ast.stmt]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and statement in block:
                return block
    return [statement]


def _replacement(statement: ast.stmt, source: Source, lines: list[str]) -> Edit:
    indent = _own_line(statement, source)
    span = source.span(statement)
    text = ("\n" + indent).join(lines)
    return Edit(span, text, source.digest)


def _removal(statement: ast.stmt, source: Source, comments: list[str]) -> Edit:
    indent = _own_line(statement, source)
    label, line = source.place(statement.lineno)
    end = source.place(statement.end_lineno)[1]
    tail = source.lines[statement.end_lineno - 1][source.column(statement.end_lineno, statement.end_col_offset) - 1 :].strip()
    kept = [*comments, *([tail] if tail.startswith("#") and not _is_about_code(tail) else [])]
    text = "".join(f"{indent}{comment}\n" for comment in kept)
    last = len(source.lines)
    if statement.end_lineno >= last:
        return Edit(Span(label, line, 1, end, len(source.lines[statement.end_lineno - 1]) + 1), text.rstrip("\n"), source.digest)
    return Edit(Span(label, line, 1, end + 1, 1), text, source.digest)


def _is_about_code(comment: str) -> bool:
    """Comments for tools go with the line they were about."""
    return any(word in comment.lower() for word in ("noqa", "type:", "pragma", "fmt:", "pylint"))


def _own_line(statement: ast.stmt, source: Source) -> str:
    line = source.lines[statement.lineno - 1]
    indent = line[: len(line) - len(line.lstrip())]
    if statement.col_offset != len(indent.encode()):
        raise GiveUp("it shares its line with other code")
    tail = source.lines[statement.end_lineno - 1][source.column(statement.end_lineno, statement.end_col_offset) - 1 :].strip()
    if tail and not tail.startswith("#"):
        raise GiveUp("it shares its line with other code")
    return indent


def _comments(statement: ast.stmt, source: Source) -> list[str]:
    """Comments inside the loop, which are kept above what replaces it."""
    lines = source.lines[statement.lineno - 1 : statement.end_lineno]
    if not any("#" in line for line in lines):
        return []
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO("\n".join(lines) + "\n").readline):
            if token.type == tokenize.COMMENT and token.start[0] < len(lines) + 1:
                if not (token.start[0] == len(lines) and token.start[1] >= _end_column(statement, source)):
                    found.append(token.string)
    except (tokenize.TokenError, IndentationError, SyntaxError):
        pass
    return [c for c in found if not _is_about_code(c)]


def _end_column(statement: ast.stmt, source: Source) -> int:
    return source.column(statement.end_lineno, statement.end_col_offset) - 1

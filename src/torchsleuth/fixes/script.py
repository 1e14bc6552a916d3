"""One file of the user's as something that can be edited: positions, statements, blocks, and edits that keep the rest.

Edits are `model.Edit`s on the hashed text. Whatever is not replaced keeps its formatting: comments, quotes, line
breaks inside a statement, line endings.
"""

from __future__ import annotations

import ast
import io
import tokenize
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence

from torchsleuth.evidence import Place
from torchsleuth.linter.edits import diff_of, edited_text, without_overlaps
from torchsleuth.linter.source import Source, Unreadable, parsed, source_from
from torchsleuth.model import Applicability, Edit, Fix, Span

Function = (ast.FunctionDef, ast.AsyncFunctionDef)
_CLOSED = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.List, ast.ListComp, ast.Dict, ast.Set, ast.Tuple, ast.JoinedStr)


class Script:
    """A user's file: its text and tree, and the edits that can be made to it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.label = source.label
        self.tree = source.tree
        self._parents: dict[ast.AST, ast.AST] = {
            child: node for node in ast.walk(source.tree) for child in ast.iter_child_nodes(node)
        }
        self._in_string: set[int] | None = None
        self.allocating: set[ast.AST] = set()  # statements that were seen to give what they bind memory of its own

    # -- finding --------------------------------------------------------------------------------

    def node_at(self, span: Span) -> ast.AST | None:
        """The outermost node that covers exactly this range; of an expression statement its expression."""
        for node in ast.walk(self.tree):
            if getattr(node, "lineno", None) == span.line and self.span(node) == span:
                return node.value if isinstance(node, ast.Expr) else node
        return self._call_over_lines(span)

    def _call_over_lines(self, span: Span) -> ast.Call | None:
        """A method call that begins on an earlier line than its name: Python says it begins at the name."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.end_lineno == span.end_line:
                line, column = self.end(node.func)
                if (line, column - len(node.func.attr)) == (span.line, span.column) and self.end(node) == (span.end_line, span.end_column):
                    return node
        return None

    def is_in_f_string(self, span: Span) -> bool:
        """Quotes and braces mean something else there, and Python 3.11 does not say exactly where its parts stand."""
        at, end = (span.line, span.column), (span.end_line, span.end_column)
        return any(isinstance(n, ast.JoinedStr) and self.start(n) < at and end < self.end(n) for n in ast.walk(self.tree))

    def nodes_at_line(self, line: int) -> list[ast.stmt]:
        return [n for n in ast.walk(self.tree) if isinstance(n, ast.stmt) and n.lineno <= line <= (n.end_lineno or n.lineno)]

    def statement_of(self, node: ast.AST) -> ast.stmt | None:
        at: ast.AST | None = node
        while at is not None and not isinstance(at, ast.stmt):
            at = self._parents.get(at)
        return at

    def statement_at(self, span: Span) -> ast.stmt | None:
        """The innermost statement around a range."""
        node = self.node_at(span)
        if node is not None:
            return self.statement_of(node)
        inner = [n for n in self.nodes_at_line(span.line) if not hasattr(n, "body") or n.body[0].lineno > span.line]
        return max(inner, key=lambda n: n.lineno, default=None)

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self._parents.get(node)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        at = self._parents.get(node)
        while at is not None:
            yield at
            at = self._parents.get(at)

    def block_of(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list of statements this one stands in."""
        parent = self._parents.get(statement)
        for name in ("body", "orelse", "finalbody", "handlers"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and any(item is statement for item in block):
                return block
        return [statement]

    def following(self, statement: ast.stmt) -> list[ast.stmt]:
        block = self.block_of(statement)
        return block[block.index(statement) + 1 :]

    def scope_of(self, node: ast.AST) -> ast.AST:
        """The function around a node, or the module."""
        return next((a for a in self.ancestors(node) if isinstance(a, (*Function, ast.Lambda))), self.tree)

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        return next((a for a in self.ancestors(node) if isinstance(a, ast.ClassDef)), None)

    def loops_around(self, node: ast.AST) -> list[ast.For | ast.While]:
        """Innermost first, within the same function."""
        found = []
        for ancestor in self.ancestors(node):
            if isinstance(ancestor, (*Function, ast.Lambda, ast.ClassDef)):
                break
            if isinstance(ancestor, (ast.For, ast.While, ast.AsyncFor)):
                found.append(ancestor)
        return found

    def own_nodes(self, scope: ast.AST) -> Iterator[ast.AST]:
        """The nodes of a function or module, without those of the functions and classes inside it."""
        body = scope.body if isinstance(scope.body, list) else [scope.body]
        pending: list[ast.AST] = list(body)
        while pending:
            node = pending.pop(0)
            yield node
            if not isinstance(node, (*Function, ast.Lambda, ast.ClassDef)):
                pending.extend(ast.iter_child_nodes(node))

    def module_name(self, name: str) -> str | None:
        """How the file calls a module: `torch`, `th` after `import torch as th`; None where it is not imported."""
        package, _, last = name.rpartition(".")
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and package and node.module == package and not node.level:
                for alias in node.names:
                    if alias.name == last:
                        return alias.asname or last
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name == name:
                        return alias.asname or name
                    if alias.asname is None and alias.name.startswith(f"{name}."):
                        return name
        return None

    # -- text -----------------------------------------------------------------------------------

    def span(self, node: ast.AST) -> Span:
        return self.source.span(node)

    def segment(self, node: ast.AST) -> str:
        return self.source.segment(node)

    def between(self, start: tuple[int, int], end: tuple[int, int]) -> str:
        """Text between two (line, column) positions, 1-based."""
        lines = self.source.lines[start[0] - 1 : end[0]]
        if len(lines) == 1:
            return lines[0][start[1] - 1 : end[1] - 1]
        return "\n".join([lines[0][start[1] - 1 :], *lines[1:-1], lines[-1][: end[1] - 1]])

    def start(self, node: ast.AST) -> tuple[int, int]:
        span = self.span(node)
        return span.line, span.column

    def end(self, node: ast.AST) -> tuple[int, int]:
        span = self.span(node)
        return span.end_line, span.end_column

    def start_of_name(self, node: ast.Attribute) -> tuple[int, int]:
        """Where the last part of `a.b.c` begins."""
        line, column = self.end(node)
        return line, column - len(node.attr)

    def indent_of(self, statement: ast.stmt) -> str:
        line = self.source.lines[self.first_line(statement) - 1]
        return line[: len(line) - len(line.lstrip())]

    def first_line(self, statement: ast.stmt) -> int:
        """Its decorators belong to it."""
        decorators = getattr(statement, "decorator_list", None) or []
        return min([statement.lineno, *(d.lineno for d in decorators)])

    def closed(self, node: ast.AST) -> str:
        """The text of an expression, in brackets where `.method()` could not follow it."""
        text = self.segment(node)
        if isinstance(node, _CLOSED) or (isinstance(node, ast.Constant) and not isinstance(node.value, (int, float))):
            return text
        return f"({text})"

    # -- edits ----------------------------------------------------------------------------------

    def edit(self, start: tuple[int, int], end: tuple[int, int], text: str) -> Edit:
        return Edit(Span(self.label, *start, *end), text, self.source.digest)

    def replace(self, node: ast.AST, text: str) -> Edit:
        return self.edit(self.start(node), self.end(node), text)

    def insert(self, at: tuple[int, int], text: str) -> Edit:
        return self.edit(at, at, text)

    def followed(self, edits: list[Edit], at: tuple[int, int], text: str) -> list[Edit]:
        """These edits and an insertion behind them; where one of them inserts at the same place, in one."""
        here = next((e for e in edits if (e.span.line, e.span.column) == (e.span.end_line, e.span.end_column) == at), None)
        if here is None:
            return [*edits, self.insert(at, text)]
        return [*(e for e in edits if e is not here), self.insert(at, here.replacement + text)]

    def wrapped(self, node: ast.AST, suffix: str) -> list[Edit]:
        """`node` followed by `.clone()` or the like; brackets are added where they are needed and not there."""
        if self.closed(node) == self.segment(node) or self.has_brackets(node):
            after = self._closing(node) if self.has_brackets(node) and self.closed(node) != self.segment(node) else self.end(node)
            return [self.insert(after, suffix)]
        return [self.insert(self.start(node), "("), self.insert(self.end(node), f"){suffix}")]

    def has_brackets(self, node: ast.AST) -> bool:
        """Brackets of the expression's own around it: not those of a call it is the argument of."""
        line, column = self.start(node)
        before = self.source.lines[line - 1][: column - 1].rstrip()
        end_line, end_column = self.end(node)
        after = self.source.lines[end_line - 1][end_column - 1 :].lstrip()
        if not (before.endswith("(") and after.startswith(")")):
            return False
        parent = self.parent(node)
        call = isinstance(parent, ast.Call) and node in parent.args and len(parent.args) + len(parent.keywords) == 1
        return not call and not isinstance(parent, (ast.ClassDef, *Function))

    def _closing(self, node: ast.AST) -> tuple[int, int]:
        line, column = self.end(node)
        text = self.source.lines[line - 1][column - 1 :]
        return line, column + text.index(")") + 1

    def is_alone_on_line(self, statement: ast.stmt) -> bool:
        """Nothing but white space before it and nothing but a comment after it."""
        line, column = self.first_line(statement), self.start(statement)[1]
        end_line, end_column = self.end(statement)
        before = self.source.lines[line - 1][: column - 1]
        after = self.source.lines[end_line - 1][end_column - 1 :].strip()
        return not before.strip() and (not after or after.startswith("#"))

    def before(self, statement: ast.stmt, *lines: str) -> list[Edit]:
        """Statements put in front of this one."""
        if not self.source.lines[self.first_line(statement) - 1][: self.start(statement)[1] - 1].strip():
            indent = self.indent_of(statement)
            return [self.insert((self.first_line(statement), 1), "".join(f"{indent}{line}\n" for line in lines))]
        if hasattr(statement, "body"):
            return []
        return [self.insert(self.start(statement), "".join(f"{line}; " for line in lines))]

    def after(self, statement: ast.stmt, *lines: str) -> list[Edit]:
        """Statements put behind this one, a compound one included."""
        end_line = self.end(statement)[0]
        indent = self.indent_of(statement)
        if hasattr(statement, "body") or self.is_alone_on_line(statement):
            at = (end_line, len(self.source.lines[end_line - 1]) + 1)
            return [self.insert(at, "".join(f"\n{indent}{line}" for line in lines))]
        return [self.insert(self.end(statement), "".join(f"; {line}" for line in lines))]

    def end_of_block(self, statement: ast.stmt) -> tuple[int, int]:
        """The end of a compound statement, with comments that are indented like its body."""
        line = self.end(statement)[0]
        inner = self.indent_of(statement.body[0])
        for number in range(line + 1, len(self.source.lines) + 1):
            following = self.source.lines[number - 1]
            if following.strip().startswith("#") and following.startswith(inner):
                line = number
            elif following.strip():
                break
        return line, len(self.source.lines[line - 1]) + 1

    def removed(self, statement: ast.stmt) -> list[Edit]:
        """The statement without trace where it has lines of its own; `pass` where its block would be empty."""
        if len(self.block_of(statement)) == 1 or not self.is_alone_on_line(statement):
            return [self.replace(statement, "pass")]
        first, last = self.first_line(statement), self.end(statement)[0]
        if last < len(self.source.lines):
            return [self.edit((first, 1), (last + 1, 1), "")]
        return [self.edit((first, 1), (last, len(self.source.lines[last - 1]) + 1), "")]

    def shifted(self, first: int, last: int, deeper: str = "", remove: int = 0) -> list[Edit]:
        """Lines `first` to `last` moved right by `deeper` or left by `remove` characters; inside strings nothing moves."""
        edits = []
        for number in range(first, last + 1):
            line = self.source.lines[number - 1]
            if not line.strip() or number in self._string_lines():
                continue
            if deeper:
                edits.append(self.insert((number, 1), deeper))
            elif not line[:remove].strip():
                edits.append(self.edit((number, 1), (number, remove + 1), ""))
        return edits

    def inside(self, header: str, first: ast.stmt, last: ast.stmt) -> list[Edit]:
        """The statements from `first` to `last` (of one block) put under `header:`; other things on their lines hinder."""
        line, column = self.first_line(first), self.start(first)[1]
        end_line, end_column = self.end(last)
        before, after = self.source.lines[line - 1][: column - 1], self.source.lines[end_line - 1][end_column - 1 :].strip().lstrip(";").strip()
        if (before.strip() and not getattr(first, "decorator_list", None)) or (after and not after.startswith("#")):
            return []
        indent = self.indent_of(first)
        step = self.indent_step()
        top = self.first_line(first)
        edits = self.shifted(top, self.end(last)[0], deeper=step)
        # One insertion per position: the header goes in front of the first line's own shift.
        return [self.insert((top, 1), f"{indent}{header}\n{step}"), *edits[1:]]

    def indent_step(self) -> str:
        """What this file indents by."""
        for node in ast.walk(self.tree):
            body = getattr(node, "body", None)
            if isinstance(node, ast.stmt) and isinstance(body, list) and body and body[0].lineno > node.lineno:
                inner, outer = self.indent_of(body[0]), self.indent_of(node)
                if inner.startswith(outer) and len(inner) > len(outer):
                    return inner[len(outer) :]
        return "    "

    def _string_lines(self) -> set[int]:
        """Lines that begin inside a string: their white space is data."""
        if self._in_string is None:
            self._in_string = set()
            opened: list[int] = []
            try:
                for token in tokenize.generate_tokens(io.StringIO("\n".join(self.source.lines) + "\n").readline):
                    name = tokenize.tok_name[token.type]
                    if name == "STRING":
                        self._in_string.update(range(token.start[0] + 1, token.end[0] + 1))
                    elif name.endswith("STRING_START"):
                        opened.append(token.start[0])
                    elif name.endswith("STRING_END") and opened:
                        self._in_string.update(range(opened.pop() + 1, token.end[0] + 1))
            except (tokenize.TokenError, IndentationError):
                pass
        return self._in_string


class Scripts:
    """The user's own files by label, read when asked for. `read` returns the bytes, or None where a file is not theirs."""

    def __init__(self, read: Callable[[str], bytes | None]) -> None:
        self._read = read
        self._known: dict[str, Script | None] = {}

    def get(self, place: Place | Span | str | None) -> Script | None:
        if place is None or (isinstance(place, Place) and place.in_library):
            return None
        label = place if isinstance(place, str) else place.file if isinstance(place, Span) else place.span.file
        if label not in self._known:
            data = self._read(label)
            try:
                self._known[label] = Script(source_from(data, label)) if data is not None else None
            except Unreadable:
                self._known[label] = None
        return self._known[label]

    def node_at(self, place: Place | None) -> tuple[Script, ast.AST] | None:
        """The user's file and the expression there; None where it is not theirs or nothing stands there."""
        script = self.get(place)
        node = script.node_at(place.span) if script is not None else None
        return (script, node) if node is not None else None

    def fix(self, title: str, edits: Sequence[Edit] | None, meaning: str = "", safe: bool = True) -> Fix | None:
        """A fix of these edits with its diff; None where they clash, change nothing or break the syntax."""
        if not edits:
            return None
        unique = list(dict.fromkeys(edits))
        if len(without_overlaps((edit,) for edit in unique)) != len(unique) or _same_place_twice(unique):
            return None
        diffs = []
        for label in dict.fromkeys(edit.span.file for edit in unique):
            script = self.get(label)
            if script is None:
                return None
            mine = [edit for edit in unique if edit.span.file == label]
            if any(script.is_in_f_string(edit.span) for edit in mine):
                return None
            try:
                parsed(edited_text(script.source.text, mine))
            except Unreadable:
                return None
            diffs.append(diff_of(label, script.source.text, mine))
        applicability = Applicability.SAFE if safe else Applicability.UNSAFE
        return Fix(title, applicability, tuple(unique), "".join(diffs), meaning=meaning)


def users(place: Place) -> Place:
    """The place in the user's own files: the call through which a library came to it."""
    return place.via if place.in_library and place.via is not None else place


def _same_place_twice(edits: Iterable[Edit]) -> bool:
    """Two insertions at one place have no order."""
    starts = [(edit.span.file, edit.span.line, edit.span.column) for edit in edits if edit.span.line == edit.span.end_line and edit.span.column == edit.span.end_column]
    return len(starts) != len(set(starts))


def names_in(node: ast.AST | Iterable[ast.AST], context: type[ast.expr_context] | None = None) -> set[str]:
    nodes = [node] if isinstance(node, ast.AST) else list(node)
    return {
        inner.id
        for outer in nodes
        for inner in ast.walk(outer)
        if isinstance(inner, ast.Name) and (context is None or isinstance(inner.ctx, context))
    }


def called(node: ast.AST | None) -> str:
    """The last part of what a call calls: `step` for `opt.step()`."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def path_of(node: ast.AST | None) -> str:
    """`self.h` for a name or a chain of attributes, "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = path_of(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return ""


__all__: typing.Final = ("Function", "Script", "Scripts", "called", "names_in", "path_of", "users")

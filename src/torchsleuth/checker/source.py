"""The source of a Function's methods: which expression returned which gradient. Standard library only.

Everything here reads text. Where the source cannot be had (a class made by `exec`, a compiled
method), the answer is None and the report goes without a culprit.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import linecache
import os
import typing
from collections.abc import Iterator

from torchsleuth.frozen import frozen
from torchsleuth.model import Culprit, Excerpt, Known, Role, Span

Definition = ast.FunctionDef | ast.AsyncFunctionDef


@frozen
class Method:
    """One function's source: the file's text and the definition's syntax tree, with the file's line numbers."""

    file: str  # as Python knows it
    text: str
    tree: Definition
    name: str  # Class.method

    def segment(self, node: ast.AST) -> str:
        start, end = self.offsets(node)
        return self.text[start:end]

    def offsets(self, node: ast.AST) -> tuple[int, int]:
        """Where a node's text starts and ends in the file's text, in characters."""
        starts, lines = _lines(self.text)
        return (
            starts[node.lineno - 1] + _characters(lines[node.lineno - 1], node.col_offset),
            starts[node.end_lineno - 1] + _characters(lines[node.end_lineno - 1], node.end_col_offset),
        )


@functools.lru_cache(maxsize=32)
def _lines(text: str) -> tuple[list[int], list[str]]:
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    return starts, lines


def _characters(line: str, offset: int) -> int:
    """A column in characters; ast counts bytes."""
    return offset if line.isascii() else len(line.encode()[:offset].decode(errors="replace"))


def method_of(function: typing.Any, name: str) -> Method | None:
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    text = text_of(code.co_filename)
    if not text:
        return None
    for first, node in _definitions(text).get(code.co_name, ()):
        if first <= code.co_firstlineno <= node.lineno:
            return Method(code.co_filename, text, node, name)
    return None


_texts: dict[str, tuple[list[str], str]] = {}


def text_of(file: str) -> str:
    """The text of a file, the same string as long as `linecache` has the same lines: joining and hashing it takes time."""
    lines = linecache.getlines(file)
    known = _texts.get(file)
    if known is None or known[0] is not lines:
        if len(_texts) > 64:
            _texts.clear()
        known = _texts[file] = (lines, "".join(lines))
    return known[1]


@functools.lru_cache(maxsize=32)
def _definitions(text: str) -> dict[str, list[tuple[int, Definition]]]:
    """By name, each with its first line (a decorator's, where there is one)."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}
    found: dict[str, list[tuple[int, Definition]]] = {}
    for node in ast.walk(tree):
        if isinstance(node, Definition):
            found.setdefault(node.name, []).append((min([node.lineno, *(d.lineno for d in node.decorator_list)]), node))
    return found


def shown_file(file: str) -> str:
    """A path relative to the working directory where it lies below it."""
    return file if file.startswith("<") else _relative(file, os.getcwd())


@functools.lru_cache(maxsize=64)
def _relative(file: str, folder: str) -> str:
    relative = os.path.relpath(file, folder)
    return file if relative.startswith("..") else relative


def span_of(method: Method, node: ast.AST) -> Span:
    lines = _lines(method.text)[1]
    return Span(
        shown_file(method.file),
        node.lineno,
        _characters(lines[node.lineno - 1], node.col_offset) + 1,
        node.end_lineno,
        _characters(lines[node.end_lineno - 1], node.end_col_offset) + 1,
    )


def culprit_of(method: Method, node: ast.AST, label: str, role: Role = Role.RETURN_GRAD, known: Known = Known.OBSERVED) -> Culprit:
    span = span_of(method, node)
    lines = method.text.split("\n")
    first = max(span.line - 1, 1)
    last = min(span.end_line + 1, method.tree.end_lineno or span.end_line) if isinstance(method.tree, Definition) else span.end_line + 1
    excerpt = Excerpt(first, tuple(line.rstrip("\r") for line in lines[first - 1 : max(last, span.end_line)]))
    return Culprit(role, span, method.segment(node), known, label, excerpt, method.name)


def culprit_at(file: str, line: int, label: str, name: str, role: Role) -> Culprit | None:
    """The statement at a line (from a traceback)."""
    text = "".join(linecache.getlines(file))
    if not text:
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    inner = None
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            if not isinstance(node, (*_BLOCKS, ast.ClassDef)) or node.lineno == line:
                inner = node
    if inner is None or (target := _evaluated(inner)) is None:
        return None
    return culprit_of(Method(file, text, typing.cast(Definition, inner), name), target, label, role)


def _evaluated(statement: ast.stmt) -> ast.AST | None:
    """What a statement computes on its first line; None of a definition."""
    if isinstance(statement, (ast.If, ast.While)):
        return statement.test
    if isinstance(statement, ast.For):
        return statement.iter
    if isinstance(statement, ast.With):
        return statement.items[0].context_expr
    if isinstance(statement, (*_BLOCKS, ast.ClassDef)):
        return None
    return statement.value if isinstance(statement, (ast.Return, ast.Assign, ast.Expr)) and statement.value is not None else statement


_BLOCKS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.If, ast.For, ast.While, ast.With, ast.Try)


def own_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions defined inside it."""
    pending = list(ast.iter_child_nodes(tree))
    while pending:
        node = pending.pop(0)
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            pending[:0] = list(ast.iter_child_nodes(node))


def returned_expression(
    method: Method, element: int, count: int, lines: frozenset[int] | None = None, follow: bool = True
) -> ast.expr | None:
    """The expression that made element `element` of what the function returned.

    `lines` are those that ran: with several returns, and several assignments to one name, the last one
    that ran is meant. A plain name is followed back to its assignment, or to the last write into it.
    """
    returns = [n for n in own_nodes(method.tree) if isinstance(n, ast.Return) and n.value is not None and _ran(n, lines)]
    if not returns:
        return None
    last = returns[-1]
    value = _followed(method, last.value, last.lineno, lines) if follow else last.value
    if isinstance(value, ast.Tuple):
        if any(isinstance(e, ast.Starred) for e in value.elts) or element >= len(value.elts):
            return value
        value = value.elts[element]
        value = _followed(method, value, last.lineno, lines) if follow else value
    return value


def return_statement(method: Method, lines: frozenset[int] | None = None) -> ast.expr | None:
    returns = [n for n in own_nodes(method.tree) if isinstance(n, ast.Return) and n.value is not None and _ran(n, lines)]
    return returns[-1].value if returns else None


def followed(method: Method, value: ast.expr, lines: frozenset[int] | None = None) -> ast.expr:
    """What a plain name in an expression was last bound to before it."""
    return _followed(method, value, value.lineno, lines)


def _ran(node: ast.AST, lines: frozenset[int] | None) -> bool:
    return lines is None or any(line in lines for line in range(node.lineno, node.end_lineno + 1))


def _followed(method: Method, value: ast.expr, before: int, lines: frozenset[int] | None) -> ast.expr:
    """What a plain name was last bound to before a line, as far as that is one expression."""
    for _ in range(4):
        name = value.id if isinstance(value, ast.Name) else _reshaped(value)
        if name is None:
            return value
        found = None
        for node in own_nodes(method.tree):
            if not isinstance(node, ast.stmt) or node.lineno >= before or not _ran(node, lines):
                continue
            partly = False
            if isinstance(node, ast.Assign):
                bound = next((b for t in node.targets if (b := _bound(t, node.value, name)) is not None), None)
                if bound is None and any(isinstance(t, ast.Subscript) and base_name(t) == name for t in node.targets):
                    bound, partly = node.value, True
            elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
                bound = node.value if base_name(node.target) == name else None
            else:
                bound = node.value if _fills(node, name) else None
                partly = bound is not None
            if bound is not None:
                found = (bound, node.lineno, partly)
        if found is None or not isinstance(value, ast.Name) and isinstance(found[0], (ast.Name, ast.Attribute)):
            return value
        value, before, partly = found
        if partly:
            return value  # where it is written to is as much in question as what is written
    return value


def _fills(node: ast.stmt, name: str) -> bool:
    """`out.index_add_(0, index, g)` as a statement of its own: `out` was made empty, and this is what is in it."""
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or not isinstance(call.func.value, ast.Name):
        return False
    return call.func.value.id == name and call.func.attr.endswith("_") and len(call.args) > 1


def _reshaped(value: ast.expr) -> str | None:
    """`dx` of `dx.reshape(x.shape)`: the same values."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and isinstance(value.func.value, ast.Name) and value.func.attr in SAME_VALUES:
        return value.func.value.id
    return None


SAME_VALUES = frozenset("reshape view view_as reshape_as contiguous to type_as clone float double half".split())


def _bound(target: ast.expr, value: ast.expr, name: str) -> ast.expr | None:
    if isinstance(target, ast.Name) and target.id == name:
        return value
    if isinstance(target, ast.Tuple):
        for position, item in enumerate(target.elts):
            if isinstance(item, ast.Name) and item.id == name:
                if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
                    return value.elts[position]
                return None if _is_saved(value) else value
    return None


def _is_saved(value: ast.expr) -> bool:
    return isinstance(value, ast.Attribute) and value.attr in ("saved_tensors", "saved_variables")


def in_place_write(method: Method, names: typing.Collection[str], lines: frozenset[int] | None = None) -> ast.expr | ast.stmt | None:
    """The first statement that writes into one of `names` (or a plain alias of one)."""
    aliases = set(names)
    for node in own_nodes(method.tree):
        if not _ran(node, lines) if isinstance(node, ast.stmt) else False:
            continue
        if isinstance(node, ast.AugAssign) and base_name(node.target) in aliases:
            return node
        if isinstance(node, ast.Assign):
            if any(isinstance(t, ast.Subscript) and base_name(t) in aliases for t in node.targets):
                return node
            if isinstance(node.value, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)) and _view_base(node.value) in aliases:
                aliases |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            method_name = node.func.attr
            if method_name.endswith("_") and not method_name.startswith("_") and method_name != "requires_grad_":
                if _view_base(node.func.value) in aliases:
                    return node
            if any(k.arg == "out" and _view_base(k.value) in aliases for k in node.keywords):
                return node
    return None


_VIEWS = frozenset("view reshape t transpose permute unsqueeze squeeze flatten expand expand_as view_as T mT data detach "
                   "contiguous select narrow movedim swapaxes".split())  # fmt: skip


def _view_base(node: ast.expr) -> str | None:
    """The name a chain of views starts from: `g.view(-1)[0]` -> g."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Subscript):
        return _view_base(node.value)
    if isinstance(node, ast.Attribute) and node.attr in _VIEWS:
        return _view_base(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS:
        return _view_base(node.func.value)
    return None


def base_name(node: ast.expr) -> str | None:
    return _view_base(node)


def reads_memory(method: Method) -> ast.expr | None:
    """The first call that goes by memory, not by indices."""
    memory = ("as_strided", "storage", "untyped_storage", "data_ptr", "set_")
    return next((n for n in own_nodes(method.tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in memory), None)


def outside_state(method: Method) -> ast.stmt | None:
    """The first statement that writes into something that is neither made in the function nor given to it."""
    own = {a.arg for a in (*method.tree.args.posonlyargs, *method.tree.args.args, *method.tree.args.kwonlyargs)}
    outside: set[str] = set()
    for node in own_nodes(method.tree):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            outside |= set(node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
    for node in own_nodes(method.tree):
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                base = target
                while isinstance(base, (ast.Subscript, ast.Attribute)):
                    base = base.value
                if isinstance(base, ast.Name) and (base.id in outside or base is not target and base.id not in own):
                    return node
    return None


def kept_on_ctx(method: Method, attribute: str) -> ast.stmt | None:
    """The assignment `ctx.attribute = ...`."""
    for node in own_nodes(method.tree):
        if isinstance(node, ast.Assign):
            targets = [t for target in node.targets for t in (target.elts if isinstance(target, ast.Tuple) else [target])]
            if any(isinstance(t, ast.Attribute) and t.attr == attribute for t in targets):
                return node
    return None


def needs_guard(method: Method, element: int, count: int) -> ast.expr | None:
    """The `ctx.needs_input_grad[k]`, k not `element`, that guards the assignment of gradient `element`."""
    returned = [n for n in own_nodes(method.tree) if isinstance(n, ast.Return) and isinstance(n.value, ast.Tuple)]
    names = {
        r.value.elts[element].id for r in returned
        if len(r.value.elts) > element and isinstance(r.value.elts[element], ast.Name)
    }  # fmt: skip
    for node in own_nodes(method.tree):
        inside: list[ast.AST] = []
        if isinstance(node, ast.If):
            inside = [n for s in node.body for n in ast.walk(s)]
            assigned = {t.id for n in inside if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
            hit = bool(assigned & names)
        elif isinstance(node, ast.IfExp):
            hit = any(
                len(r.value.elts) > element and any(n is node for n in ast.walk(r.value.elts[element])) for r in returned
            ) or any(
                isinstance(s, ast.Assign) and s.value is node and any(isinstance(t, ast.Name) and t.id in names for t in s.targets)
                for s in own_nodes(method.tree)
            )
        else:
            continue
        if not hit:
            continue
        for part in ast.walk(node.test):
            if (
                isinstance(part, ast.Subscript)
                and isinstance(part.value, ast.Attribute)
                and part.value.attr == "needs_input_grad"
                and (asked := _whole_number(part.slice)) is not None
                and asked not in (element, element - count)
            ):
                return part
    return None


def _whole_number(node: ast.AST) -> int | None:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError):
        return None
    return value if isinstance(value, int) else None


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

"""One change of a method's source: what is replaced by what, and the text that comes of it. Text in, text out."""

from __future__ import annotations

import ast
from dataclasses import field

from torchsleuth.checker.source import Method, culprit_of, digest, shown_file, span_of
from torchsleuth.checker.trial import Mend
from torchsleuth.frozen import frozen
from torchsleuth.model import Edit, Known, Role, unified_diff


@frozen
class Change:
    """Replace the text of `node` by `after`."""

    node: ast.AST
    after: str
    element: bool = False  # the node stands alone (a returned or assigned value): no parentheses are needed


@frozen
class Scope:
    """What the method's names stood for when it ran: tensors by rank, sizes, numbers."""

    tensors: dict[str, int]  # expression -> number of dimensions
    sizes: dict[str, int]  # expression of a shape -> number of dimensions
    numbers: tuple[str, ...]
    donors: tuple[str, ...] = ()  # constant expressions found elsewhere in the Function
    shapes: dict[str, int] = field(default_factory=dict)  # of `tensors`, one of each shape
    constants: tuple[float, ...] = ()  # of forward
    saved: tuple[str, ...] = ()  # names given to save_for_backward, if all of them are names
    masks: frozenset[str] = frozenset()  # boolean tensors
    formulas: tuple[tuple[str, frozenset[str]], ...] = ()  # expressions of forward in backward's names, and what they consist of
    options: tuple[str, ...] = ()  # keyword arguments of calls, in backward's names: `padding=ctx.padding`


def applied(method: Method, change: Change) -> str:
    """The whole file's text with the change made; brackets where the new text needs them."""
    start, end = method.offsets(change.node)
    return method.text[:start] + replacement(change, method) + method.text[end:]


def replacement(change: Change, method: Method) -> str:
    if change.element or _closed(change.after):
        return change.after
    start, end = method.offsets(change.node)
    bracketed = method.text[start - 1 : start] == "(" and method.text[end : end + 1] == ")" and isinstance(change.node, (ast.BinOp, ast.UnaryOp, ast.Compare))
    return change.after if bracketed else f"({change.after})"


def _closed(text: str) -> bool:
    """Whether a text is one atom or call chain, which can stand anywhere."""
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return True
    return isinstance(tree, (ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.Constant))


def bracketed(method: Method, node: ast.expr) -> str:
    text = method.segment(node)
    return text if isinstance(node, (ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.Constant)) else f"({text})"


def swapped(method: Method, whole: ast.AST, a: ast.AST, b: ast.AST) -> str:
    """The text of `whole` with the texts of two nodes inside it exchanged."""
    text, first, second = method.segment(whole), method.segment(a), method.segment(b)
    start = offset(method, whole)
    i, j = offset(method, a) - start, offset(method, b) - start
    return text[:i] + second + text[i + len(first) : j] + first + text[j + len(second) :]


def offset(method: Method, node: ast.AST) -> int:
    return method.offsets(node)[0]


def elements(node: ast.AST) -> list[ast.expr]:
    """Expressions that stand for a whole gradient or intermediate: returned, or assigned to a name."""
    if isinstance(node, ast.Return) and node.value is not None:
        return list(node.value.elts) if isinstance(node.value, ast.Tuple) else [node.value]
    if isinstance(node, ast.Assign) and all(isinstance(t, ast.Name) for t in node.targets):
        return [node.value]
    return []


def formulas(node: ast.AST) -> list[ast.expr]:
    return [e for e in elements(node) if not isinstance(e, (ast.Constant, ast.Attribute, ast.Subscript))]


def listed(node: ast.AST) -> list[ast.expr]:
    """The elements of a list or tuple that is put together: `torch.cat([a * b, c])`."""
    if not isinstance(node, (ast.List, ast.Tuple)) or not isinstance(node.ctx, ast.Load):
        return []
    return [e for e in node.elts if isinstance(e, (ast.BinOp, ast.Name, ast.Call))]


def mend_of(method: Method, change: Change, text: str, experiments: int) -> Mend:
    culprit = culprit_of(method, change.node, "", Role.RETURN_GRAD, Known.RECOMPUTED)
    before, after, node = method.segment(change.node), replacement(change, method), change.node
    # `2` should be `3` says little: the expression around it is shown, as long as it is short and on one line.
    while len(before) < 6:
        around = next((n for n in ast.walk(method.tree) if isinstance(n, ast.expr) and any(c is node for c in ast.iter_child_nodes(n))), None)
        if not isinstance(around, (ast.BinOp, ast.Call, ast.Subscript, ast.Compare, ast.UnaryOp, ast.Attribute)):
            break
        if around.lineno != around.end_lineno or len(method.segment(around)) > 40:
            break
        start, whole = method.offsets(node)[0] - method.offsets(around)[0], method.segment(around)
        before, after, node = whole, whole[:start] + after + whole[start + len(before) :], around
    edit = Edit(span_of(method, node), after, digest(method.text))
    return Mend(culprit, before, after, edit, unified_diff(shown_file(method.file), method.text, text), experiments)

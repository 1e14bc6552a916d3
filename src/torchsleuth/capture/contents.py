"""What is put into a list that began empty: the expression in the one `append` of its file."""

from __future__ import annotations

import ast

from torchsleuth import source

_PUTS = ("append", "appendleft", "add", "put")
_EMPTY = ("list", "deque", "set", "dict", "defaultdict")


def is_empty(node: ast.AST) -> bool:
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return not node.elts
    if isinstance(node, ast.Dict):
        return not node.keys
    return isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in _EMPTY and not node.args


def put_into(filename: str, text: str, scope: ast.AST | None) -> ast.expr | None:
    """`clip` of `clips.append(clip)`, for a list of this name; in `scope`, or anywhere in the file for an attribute."""
    around = scope if scope is not None else source.tree_of(filename)
    found = [
        node.args[0] for node in (ast.walk(around) if around is not None else ())
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PUTS and len(node.args) == 1 and ast.unparse(node.func.value) == text
    ]  # fmt: skip
    return found[0] if len(found) == 1 else None

"""What is put into a list that began empty, or a queue: the expression in the one `append` of its file, or the one `put` of the program."""

from __future__ import annotations

import ast
import typing

from torchsleuth import source
from torchsleuth.capture.finished import frame_at
from torchsleuth.capture.scopes import bound_to

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


_TAKES = ("get", "get_nowait", "recv", "popleft")


def taken_from(node: ast.AST, files: typing.Iterable[str]) -> tuple[str, ast.Call] | None:
    """For `q.get()`, of a queue: the call in the one `put` of the program that puts no mere constant, and its file."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in _TAKES or any(not isinstance(a, ast.Constant) for a in node.args):
        return None
    puts = []
    for filename in dict.fromkeys(files):
        tree = source.tree_of(filename)
        for call in ast.walk(tree) if tree is not None else ():
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in ("put", "put_nowait", "send") and call.args:
                if not isinstance(call.args[0], ast.Constant):
                    puts.append((filename, call.args[0]))
    if len(puts) != 1:
        return None
    filename, value = puts[0]
    around = frame_at(filename, value)
    if isinstance(value, ast.Name) and around is not None:
        bound = bound_to(around.scope, value.id)
        value = bound[0][0] if len(bound) == 1 and not bound[0][1] else value
    return (filename, value) if isinstance(value, ast.Call) else None

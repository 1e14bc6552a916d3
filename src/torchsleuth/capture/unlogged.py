"""How an expression is named that no log has seen: a word for what it does, and a code object that stands for its file."""

from __future__ import annotations

import ast
import functools
import types


def operation_word(node: ast.AST) -> str:
    """A word for what an expression does."""
    if isinstance(node, ast.Call):
        function = node.func
        return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "call")
    if isinstance(node, ast.Constant) or isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
        return "constant"
    if isinstance(node, ast.BinOp):
        return "expression"
    return {ast.Subscript: "index", ast.Attribute: "attribute", ast.Name: "variable"}.get(type(node), "expression")


@functools.lru_cache(maxsize=256)
def _stand_in(filename: str) -> types.CodeType:
    """A code object to name a place in a file by, where the real one is not at hand."""
    return compile("", filename, "exec")


def stand_in(filename: str, function: str = "") -> types.CodeType:
    code = _stand_in(filename)
    return code.replace(co_name=function, co_qualname=function) if function else code

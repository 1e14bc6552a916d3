"""What a condition keeps from being computed: all at once it is computed everywhere, and its gradient must be finite there, too.

`torch.where(x > 0, x.log(), 0)` has the values of the loop, but at `x == 0` its gradient is 0 * inf, which is nan.
"""

from __future__ import annotations

import ast

from torchsleuth.linter.vectorise.lifted import GiveUp

UNBOUNDED = frozenset("log log2 log10 log1p sqrt rsqrt reciprocal acos asin acosh atanh logit xlogy erfinv std lgamma digamma inverse inv".split())
POSITIVE = frozenset("exp softmax sigmoid softplus cosh".split())


def require_finite(code: ast.expr, numbers: set[str]) -> None:
    """Raises `GiveUp` where something in here has no finite value or gradient for some elements that a condition may leave out."""
    for node in ast.walk(code):
        what = ""
        if isinstance(node, ast.Call):
            last = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            inside = node.args[0] if node.args else node.func.value if isinstance(node.func, ast.Attribute) else None
            if last in UNBOUNDED and inside is not None and not _is_away_from_zero(inside, numbers):
                what = last
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Mod, ast.FloorDiv)) and not _is_away_from_zero(node.right, numbers):
            what = "a division"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and not _is_power(node.right) and not _is_away_from_zero(node.left, numbers):
            what = "a power"
        if what:
            raise GiveUp(f"{what} that a condition keeps from elements it has no finite gradient for")


def _is_power(node: ast.expr) -> bool:
    """A whole number from one up, whose power is smooth everywhere."""
    return isinstance(node, ast.Constant) and node.value == int(node.value) and node.value >= 1


def _is_away_from_zero(node: ast.expr, numbers: set[str]) -> bool:
    """A number, something with a positive one added, something clamped from below, something that is positive by nature."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.UnaryOp):
        return _is_away_from_zero(node.operand, numbers)
    if isinstance(node, (ast.Name, ast.Attribute)):
        return ast.unparse(node) in numbers
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Add):
            return any(isinstance(part, ast.Constant) and part.value > 0 for part in (node.left, node.right))
        return isinstance(node.op, (ast.Mult, ast.Pow, ast.Div)) and _is_away_from_zero(node.left, numbers) and _is_away_from_zero(node.right, numbers)
    if isinstance(node, ast.Call):
        last = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if last in POSITIVE or last in ("len", "size"):
            return True
        bounds = [k.value for k in node.keywords if k.arg == "min"] or (node.args[:1] if last == "clamp_min" else [])
        return last in ("clamp", "clamp_min") and any(isinstance(b, ast.Constant) and b.value > 0 for b in bounds)
    return False

"""What the proving process says: of the parts that a loop works on, by its own source, and of speed."""

from __future__ import annotations

import ast

ORDERING = frozenset("sort argsort topk kthvalue msort softmax log_softmax cumsum cumprod logcumsumexp flip roll diff".split())


def listed(specs: list[dict]) -> str:
    return " and ".join(f"`{spec['name']}`" for spec in specs)


def _called(node: ast.AST) -> str:
    function = node.func if isinstance(node, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else ""


def orders_parts(loop: ast.AST) -> bool:
    """A turn's part has a dimension: nobody sorts a single number."""
    return any(_called(n) in ORDERING for n in ast.walk(loop))


def weighs_parts(loop: ast.AST) -> bool:
    """One thing is multiplied by another and not summed up at once, as a scalar product is: it may be one weight a row."""
    summed = {id(inner) for n in ast.walk(loop) if _called(n) in ("sum", "mean") for inner in ast.walk(n)}
    products = [n for n in ast.walk(loop) if isinstance(n, (ast.BinOp, ast.AugAssign)) and isinstance(n.op, (ast.Mult, ast.Div)) and id(n) not in summed]
    return any(not isinstance(side, ast.Constant) for n in products for side in [n.right if isinstance(n, ast.BinOp) else n.value])


def faster(ratio: float, shape: list[int]) -> str:
    return f"{ratio:.0f}× faster on {shape}" if ratio >= 10 else f"{ratio:.1f}× faster on {shape}"

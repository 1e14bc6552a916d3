"""The factor that takes a gradient away: where a number or a tensor of zeros was made, that something trained is multiplied with."""

from __future__ import annotations

import ast
import os
import typing

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.sites import site_of_node, syntax_of
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Trace

_TIMES = {"mul", "mul_", "multiply", "__rmul__", "__imul__"}


class Factor(typing.NamedTuple):
    made: Site | None
    setting: bool  # a number, and no formula for it was found


def zero_factor(trace: Trace, op: Op) -> Factor | None:
    """Of an operation that was given a gradient and gave back zeros: is it a product with something without history, and where was that made?

    The gradient of `a * b` for `a` is `b` times what arrives: if that is zero everywhere, `b` is zero wherever something arrives.
    """
    if op.name not in _TIMES:
        return None
    others = [seen for seen in op.ins if not seen.requires_grad]
    if len(op.ins) == 1:
        made = _computed(trace.site(op))
        return Factor(made, made is None) if op.argument(1, "other") == 0 else None
    if len(others) != 1 or len(op.ins) != 2:
        return None
    makers = [made for made in trace.made_through(others[0], ARRANGING) if made.place.user_code is not None]
    site, here = trace.site(makers[-1]) if makers else None, trace.site(op)
    return Factor(site if site is not None and here is not None and site.span != here.span else None, False)


def _computed(product: Site | None) -> Site | None:
    """The one assignment in its file to a name or attribute that is a factor of this product, if it computes something, as the source has it."""
    filename = os.path.abspath(product.span.file) if product is not None else ""
    tree = syntax_of(filename) if product is not None else None
    if tree is None or product is None:
        return None
    spans = [n for n in ast.walk(tree) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult) and (n.lineno, n.end_lineno) == (product.span.line, product.span.end_line)]
    factors = {ast.unparse(side) for n in spans for side in (n.left, n.right) if isinstance(side, (ast.Name, ast.Attribute)) and ast.unparse(n) in _normal(product.source)}
    made = [n for n in ast.walk(tree) if isinstance(n, ast.Assign) and len(n.targets) == 1 and ast.unparse(n.targets[0]) in factors]
    return site_of_node(filename, made[0], product.function) if len(made) == 1 and isinstance(made[0].value, ast.BinOp) else None


def _normal(source: str) -> str:
    try:
        return ast.unparse(ast.parse(source.strip(), mode="eval"))
    except SyntaxError:
        return ""

"""Results that a statement computes and nobody keeps: `scores.masked_fill(mask, -1e9)` on a line of its own, `p.grad.clamp(-1, 1)` without its underscore."""

from __future__ import annotations

import ast
import functools
import os

import torch

from torchsleuth.auditor.observation_training import Unkept
from torchsleuth.auditor.tracing.bydesign import origin_of_place
from torchsleuth.auditor.tracing.sites import syntax_of
from torchsleuth.auditor.tracing.trace import Op, Trace
from torchsleuth.model import Span
from torchsleuth.origin import Origin

# Calls that do nothing but return a new tensor (or a view). What is asked for on a line of its own to be timed, warmed up or checked is not among them.
_ONLY_RETURN = {
    "clamp", "clip", "clamp_min", "clamp_max", "mul", "multiply", "add", "sub", "subtract", "div", "divide", "neg", "abs", "exp", "log", "sqrt", "pow", "lerp", "addcmul", "addcdiv",
    "masked_fill", "masked_scatter", "scatter", "scatter_add", "index_add", "index_copy", "index_fill", "index_put", "fill_diagonal", "tril", "triu",
    "squeeze", "unsqueeze", "transpose", "permute", "flatten", "swapaxes", "movedim", "flip", "roll", "detach",
    "relu", "sigmoid", "tanh", "softmax", "log_softmax", "gelu", "leaky_relu", "dropout", "normalize", "round", "floor", "nan_to_num",
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow"}


def unkept(trace: Trace, step: slice) -> list[Unkept]:
    """Each statement of the program that is nothing but such a call, whose result nothing took up."""
    taken: set[int] | None = None
    found: dict[Span, tuple[Op, int]] = {}
    for op in trace.ops[step]:
        name = _name(op)
        if op.writes or name not in _ONLY_RETURN or not op.ins or len(op.outs) != 1:
            continue
        if op.argument(99, "out") is not None or op.argument(99, "inplace") or origin_of_place(op) is not Origin.USER:
            continue
        site = trace.site(op)
        if site is None or site.library or (site.span.line, site.span.column, site.span.end_line, site.span.end_column) not in _alone(os.path.abspath(site.span.file), name):
            continue
        taken = taken if taken is not None else {seen.key for one in trace.ops for seen in one.ins}
        if op.outs[0].key not in taken and op.outs[0].key not in {seen.key for seen in op.ins}:
            first, times = found.get(site.span, (op, 0))
            found[site.span] = (first, times + 1)
    return [Unkept(_name(op), site, times, hasattr(torch.Tensor, _name(op) + "_")) for op, times in found.values() if (site := trace.site(op)) is not None]


def _name(op: Op) -> str:
    """`a / b` is a division under whichever name it comes."""
    bare = op.name.strip("_") if op.name.startswith("__") else op.name
    return {"truediv": "div", "true_divide": "div", "rtruediv": "div"}.get(bare, bare.removeprefix("r") if bare in ("radd", "rsub", "rmul", "rdiv", "rpow") else bare)


@functools.lru_cache(maxsize=256)
def _alone(filename: str, name: str) -> frozenset[tuple[int, int, int, int]]:
    """The ranges of statements that are nothing but a call of this name, or this arithmetic; not in a `try`, which may be there to see whether it can be done."""
    tree = syntax_of(filename)
    if tree is None:
        return frozenset()
    tried = {id(node) for one in ast.walk(tree) if isinstance(one, ast.Try) for statement in one.body for node in ast.walk(statement)}
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Expr) or id(node) in tried:
            continue
        ends = (node.value.lineno, node.value.col_offset + 1, node.value.end_lineno or 0, (node.value.end_col_offset or 0) + 1)
        if isinstance(node.value, ast.BinOp) and _OPERATORS.get(type(node.value.op)) == name:
            found.add(ends)
        if isinstance(node.value, ast.Call):
            function = node.value.func
            if (function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")) == name:
                found.add(ends)
    return frozenset(found)

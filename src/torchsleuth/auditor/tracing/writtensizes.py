"""How the program writes the sizes of what it makes: `B` and `T` of `torch.randn(B, T)`."""

from __future__ import annotations

import ast
import re

from torchsleuth.auditor.tracing.sites import call_at
from torchsleuth.auditor.tracing.trace import Op

_OF_SIZES = {"rand", "randn", "zeros", "ones", "empty"}
_FIRST_AXIS = re.compile(r"[\w.]+\.(shape\[0\]|size\(0\)|size\(dim=0\))")


def sizes_written(op: Op) -> list[str]:
    """The expression for each axis of what this call makes; none where the source does not say."""
    call = call_at(op.place) if not op.ins else None
    if call is None or getattr(call.func, "attr", getattr(call.func, "id", "")) != op.name:
        return []
    if op.name == "linspace":
        return [ast.unparse(call.args[2])] if len(call.args) == 3 else []
    listed = next((arg for arg in (*call.args, *(k.value for k in call.keywords if k.arg == "size")) if isinstance(arg, (ast.Tuple, ast.List))), None)
    sizes = listed.elts if listed is not None and op.name in _OF_SIZES | {"randint", "full"} else call.args if op.name in _OF_SIZES else []
    return [] if any(isinstance(one, ast.Starred) for one in sizes) else [ast.unparse(one) for one in sizes]


def counts_first_axis(size: str) -> bool:
    """`x.shape[0]`, `x.size(0)`."""
    return _FIRST_AXIS.fullmatch(size) is not None

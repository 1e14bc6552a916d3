"""The tensor that a list of all turns becomes: stacked, joined, or made of numbers; in memory of its own."""

from __future__ import annotations

import ast
import typing
from dataclasses import replace

from torchsleuth.linter.vectorise import operators as ops
from torchsleuth.linter.vectorise.axes import Gathered
from torchsleuth.linter.vectorise.context import integer, is_dotted
from torchsleuth.linter.vectorise.lifted import INNER, GiveUp, Lifted, method, name, number, permuted
from torchsleuth.linter.vectorise.totals import reduced

if typing.TYPE_CHECKING:
    from torchsleuth.linter.vectorise.plan import Plan

VIEWING = frozenset("transpose permute unsqueeze squeeze movedim flatten detach view expand reshape unfold diagonal".split())


def collect_dim(call: ast.Call) -> int:
    for keyword in call.keywords:
        if keyword.arg == "dim":
            dim = integer(keyword.value)
            if dim is None:
                raise GiveUp("stacked along an unknown dimension")
            return dim
        if keyword.arg not in ("dtype", "device"):
            raise GiveUp(f"stacked with `{keyword.arg}`")
    if len(call.args) > 1:
        dim = integer(call.args[1])
        if dim is None:
            raise GiveUp("stacked along an unknown dimension")
        return dim
    return 0


def collected_value(plan: Plan, gathered: Gathered, kind: str, dim: int) -> Lifted:
    lifter, value = plan.reader.lifter, gathered.element
    if value is None:
        raise GiveUp("the list stays empty")
    if value.doubt:
        raise GiveUp(value.doubt)
    if kind == "sum":
        for axis in gathered.axes:
            value = reduced(value, axis, "sum")
        return value
    if kind == "tensor" and not (_is_of_numbers(value) and len(gathered.axes) == 1 and not value.more and not value.rank):
        lifter.assume("the tensors are on the CPU (`torch.tensor` of a list makes its result there, the rewrite leaves it where they are)")
    if len(gathered.axes) > 1:
        value = ops.loops_first(lifter, value)
        if dim != 0 or kind == "cat":
            raise GiveUp("a list gathered over several loops is not simply stacked")
        code = method(value.code, "flatten", number(0), number(len(gathered.axes) - 1))
        return Lifted(_maybe_detached(code, kind, value), (INNER, *value.dims[len(gathered.axes) :]), value.more)
    axis = gathered.axes[0]
    if kind in ("cat", "vstack"):
        return concatenated(lifter, value, axis, dim, kind)
    out = ops.unlooped(value, axis, dim)
    if kind == "tensor" and _is_of_numbers(value) and not value.more and not value.rank:
        code = out.code.func.value if ast.unparse(out.code).endswith(".detach()") else out.code
        return replace(out, code=method(name("torch"), "tensor", method(code, "tolist")))  # numbers again: their dtype, and no history
    return replace(out, code=own_memory(_maybe_detached(out.code, kind, value), lifter))


def own_memory(code: ast.expr, lifter) -> ast.expr:
    """A loop fills memory of its own: what would share memory with a tensor is copied."""
    positions = {base for base, facts in lifter.bases.items() if facts["kind"] == "index"}
    inner = code
    while True:
        if isinstance(inner, ast.Attribute) and inner.attr in ("T", "mT"):
            inner = inner.value
            continue
        if is_dotted(inner) and not (isinstance(inner, ast.Attribute) and inner.attr in ("values", "indices")):
            return method(code, "clone")
        if isinstance(inner, ast.Subscript):
            parts = inner.slice.elts if isinstance(inner.slice, ast.Tuple) else [inner.slice]
            if any(isinstance(n, (ast.Call, ast.Compare)) or ast.unparse(n) in positions
                   for p in parts if not isinstance(p, ast.Slice) for n in ast.walk(p)):  # fmt: skip
                return code  # indexing by a tensor copies
            inner = inner.value
        elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in VIEWING:
            inner = inner.func.value
        else:
            return code


def _maybe_detached(code: ast.expr, kind: str, value: Lifted) -> ast.expr:
    if kind != "tensor" or value.kind in ("bool", "index"):
        return code
    text = ast.unparse(value.code)
    return code if ".detach()" in text else method(code, "detach")


def _is_of_numbers(value: Lifted) -> bool:
    """Python numbers by way of `.item()` or `float()`."""
    return value.kind not in ("bool", "index") and ".detach()" in ast.unparse(value.code)


def concatenated(lifter, value: Lifted, axis: str, dim: int, kind: str) -> Lifted:
    if value.doubt:
        raise GiveUp(value.doubt)
    if value.rank == 0 or (kind == "vstack" and (value.more or value.rank != 2)) or (value.more and dim != 0):
        raise GiveUp("the pieces are concatenated, and their shape is unknown")
    value = ops.loops_first(lifter, value)
    if dim < 0:
        dim += value.rank
    if dim == 0:
        code = value.code
        # pieces of one row each: y[:, None].flatten(0, 1) is y
        if isinstance(code, ast.Call) and isinstance(code.func, ast.Attribute) and code.func.attr == "unsqueeze":
            if ast.unparse(code.args[0]) in ("1", "-1") and (value.rank == 1 or ast.unparse(code.args[0]) == "1"):
                return Lifted(code.func.value, (INNER, *value.dims[2:]), value.more)
        if isinstance(code, ast.Call) and isinstance(code.func, ast.Attribute) and code.func.attr == "flatten" and value.rank == 1 and not value.more:
            if [ast.unparse(a) for a in code.args] == ["1"]:  # rows that were flattened: all of it, flattened, whatever its dimensions
                return Lifted(method(code.func.value, "flatten"), (INNER,))
        return Lifted(method(code, "flatten", number(0), number(1)), (INNER, *value.dims[2:]), value.more)
    order = [*range(1, dim + 1), 0, *range(dim + 1, len(value.dims))]
    moved = permuted(value.code, order)
    return Lifted(method(moved, "flatten", number(dim), number(dim + 1)), (INNER,) * value.rank)

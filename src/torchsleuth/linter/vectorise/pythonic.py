"""What Python's own functions mean over all turns: `float`, `int`, `max`, `abs`, `len`."""

from __future__ import annotations

import ast
import copy
import typing
from dataclasses import replace

from torchsleuth.linter.vectorise.context import is_dotted
from torchsleuth.linter.vectorise.lifted import GiveUp, Lifted, method, name
from torchsleuth.linter.vectorise.reductions import reduction
from torchsleuth.linter.vectorise.shapes import ranked, size_of

if typing.TYPE_CHECKING:
    from torchsleuth.linter.vectorise.lift import Lifter


def builtin(lifter: Lifter, node: ast.Call, function: str, keywords: dict[str, ast.expr]) -> Lifted:
    if keywords:
        raise GiveUp(f"`{function}` with keywords")
    if function in ("float", "int", "bool") and len(node.args) == 1:
        if isinstance(node.args[0], ast.Constant):
            return Lifted(copy.deepcopy(node), kind="number", is_constant=True)
        lifter.mark_scalars(node.args[0])
        value = lifter.lift(node.args[0])
        if not value.axes:
            return replace(value, code=copy.deepcopy(node), kind="number")
        value = one_number(lifter, value)
        if function == "int":
            return value if value.kind in ("index", "bool") else replace(value, code=method(value.code, "long"), kept=None, kind="index")
        if function == "bool":
            return replace(value, code=method(value.code, "bool"), kind="bool", kept=None)
        return replace(value, code=method(value.code, "float") if value.kind in ("bool", "index") else detached(value.code), kept=None, kind="tensor")
    if function == "abs" and len(node.args) == 1:
        value = lifter.lift(node.args[0])
        return replace(value, code=method(value.code, "abs"), kept=None) if value.axes else Lifted(copy.deepcopy(node), kind="number")
    if function in ("max", "min") and len(node.args) == 2:
        lifter.mark_scalars(node)
        values = [lifter.lift(a) for a in node.args]
        if not any(v.axes for v in values):
            return Lifted(copy.deepcopy(node), kind="number")
        if any(v.kind == "number" for v in values):
            tensor, bound = (values[0], values[1]) if values[1].kind == "number" else (values[1], values[0])
            key = "min" if function == "max" else "max"
            return replace(tensor, code=method(tensor.code, "clamp", **{key: bound.code}), kept=None)
        if not all(v.axes or v.kind == "tensor" for v in values):
            raise GiveUp(f"`{function}()` of what may be a number or a tensor")
        torch_function = "maximum" if function == "max" else "minimum"
        return lifter.elementwise(values, lambda a, b: method(name("torch"), torch_function, a, b))
    if function == "len" and len(node.args) == 1:
        if is_dotted(node.args[0]) and ast.unparse(node.args[0]) not in lifter.env:
            return Lifted(copy.deepcopy(node), kind="number")
        return size_of(lifter, lifter.lift(node.args[0]), 0)
    if function in ("sum", "pow") and len(node.args) == 1 and function == "sum":
        value = lifter.lift(node.args[0])
        if value.axes and (value.rank or value.more):
            return reduction(lifter, value, "sum", [ast.Constant(0)], {})
    raise GiveUp(f"`{function}()` is called, and what it does is not shown here")


def one_number(lifter: Lifter, value: Lifted) -> Lifted:
    """What `.item()`, `int()` and `float()` take: nothing but the loop's dimensions."""
    if not value.more or not value.is_root or not value.axes:
        return value
    lifter.assume(f"`{value.root}` has {len(value.dims)} dimension{'s' * (len(value.dims) != 1)}")
    return ranked(lifter, value, value.rank)


def detached(code: ast.expr) -> ast.expr:
    return method(code, "detach")

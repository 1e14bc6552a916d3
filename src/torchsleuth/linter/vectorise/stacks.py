"""A list that every turn stacks for itself, and what it becomes when all turns are done at once."""

from __future__ import annotations

import ast
import copy
import typing

from torchsleuth.linter.vectorise.axes import Gathered
from torchsleuth.linter.vectorise.context import integer
from torchsleuth.linter.vectorise.lifted import INNER, GiveUp, Lifted, RankUnknown, aligned, number
from torchsleuth.linter.vectorise.shapes import loops_first, unlooped

if typing.TYPE_CHECKING:
    from torchsleuth.linter.vectorise.lift import Lifter


def stacked(lifter: Lifter, node: ast.Call, last: str, keywords: dict[str, ast.expr]) -> Lifted:
    if not node.args:
        raise GiveUp(f"`{last}` of nothing")
    dim = integer(keywords.get("dim", node.args[1] if len(node.args) > 1 else ast.Constant(0)))
    first = node.args[0]
    if isinstance(first, ast.Name) and isinstance(lifter.env.get(first.id), Gathered):
        gathered = lifter.env[first.id]
        return collected(lifter, gathered, last, dim)
    if isinstance(first, (ast.List, ast.Tuple)) and last == "stack" and dim is not None:
        values = [lifter.lift(e) for e in first.elts]
        if not any(v.axes for v in values):
            raise GiveUp("a stack that does not depend on the loop")
        codes, layout, more, sizes = aligned([loops_first(lifter, v) if not v.more else v for v in values], lifter.order, lifter.equal)
        if more:
            raise RankUnknown("a stack of tensors whose number of dimensions is unknown")
        if any(set(v.axes) != set(values[0].axes) or v.rank != values[0].rank for v in values):
            raise GiveUp("a stack of parts that do not all change with the same loops")
        rank = sum(d == INNER for d in layout)
        place = len(layout) - rank + (dim if dim >= 0 else dim + rank + 1)
        code = ast.Call(copy.deepcopy(node.func), [ast.List(codes, ast.Load())], [ast.keyword("dim", number(place))])
        return Lifted(code, (*layout[:place], INNER, *layout[place:]), False, (*sizes[:place], None, *sizes[place:]))
    if last == "tensor" and isinstance(first, (ast.Constant, ast.UnaryOp)):
        return Lifted(copy.deepcopy(node), kind="number")
    raise GiveUp(f"`{ast.unparse(node)[:40]}` in the loop is not understood")


def collected(lifter: Lifter, gathered, last: str, dim: int | None) -> Lifted:
    """The tensor that stacking the gathered elements gives: the loop's dimension becomes one of its own."""
    value = gathered.element
    if value is None or dim is None:
        raise GiveUp("an empty list is stacked")
    axis = gathered.axes[-1]
    if last in ("cat", "concat", "hstack", "vstack"):
        raise GiveUp("the pieces are concatenated, not stacked")
    if axis not in value.axes:
        raise GiveUp("the same value is gathered in every turn")
    return unlooped(value, axis, dim)

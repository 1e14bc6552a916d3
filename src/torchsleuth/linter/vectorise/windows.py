"""Slices that move with a loop, `x[i:i + k]`: windows, which `unfold` gives all at once where every one of them is whole."""

from __future__ import annotations

import ast
import copy
import typing
from dataclasses import dataclass

from torchsleuth.linter.vectorise.axes import Axis
from torchsleuth.linter.vectorise.context import Context, integer
from torchsleuth.linter.vectorise.lifted import FULL, GiveUp, Lifted, SizeKey, method, number, subscript

if typing.TYPE_CHECKING:
    from torchsleuth.linter.vectorise.lift import Lifter

Sum = dict[str, int]  # what is added up, by its text, and how often; numbers under ""


@dataclass
class Window:
    """`x[start + i * step : start + i * step + length]` for a loop variable `i`."""

    axis: Axis
    length: ast.expr
    step: ast.expr
    start: ast.expr | None = None


def window_of(lifter: Lifter, node: ast.Slice) -> Window | None:
    """The window that this slice is; None where it does not move with a loop, `GiveUp` where it moves in another way."""
    moving = {n.id for part in (node.lower, node.upper) if part is not None for n in ast.walk(part) if isinstance(n, ast.Name) and _is_turn(lifter, n.id)}
    if not moving:
        return None
    changes = GiveUp(f"the slice `{ast.unparse(node)}` changes from turn to turn")
    if len(moving) > 1 or node.lower is None or node.upper is None or node.step is not None:
        raise changes
    axis = lifter.axis(moving.pop())
    lower, upper = (_coefficients(part, axis.name, lifter.context) for part in (node.lower, node.upper))
    if lower is None or upper is None or ast.unparse(lower[0]) != ast.unparse(upper[0]) or axis.start:
        raise changes  # it grows, or the loop starts somewhere in the middle
    start = None
    if lower[1]:
        start = _beside(node.lower, axis.name)
        if start is None or any(times < 0 for times in lower[1].values()):
            raise changes
    length = _subtracted(upper[1], lower[1])
    written = _length(node, length, lifter.context)
    if written is None:
        raise changes
    return Window(axis, written, lower[0], start)


def unfolded(lifter: Lifter, value: Lifted, dim: int, window: Window, size: SizeKey | None) -> ast.expr:
    """The code of all windows along this dimension, the window's own dimension last."""
    if size is None or size[0] != "size":
        raise GiveUp("windows of a dimension whose size nothing shows")
    all_of_them = _require_whole(lifter, window, size)
    lifter.assume(f"`{size[1]}` has at least `{ast.unparse(window.length)}` elements along its dimension {size[2]}")
    lifter.windows.setdefault(size[1], {}).setdefault(size[2], []).extend(lifter.context.size(part) for part in (window.length, window.start) if part is not None)
    code = value.code
    if window.start is not None:
        code = subscript(code, [*[copy.copy(FULL)] * dim, ast.Slice(copy.deepcopy(window.start), None)])
    code = method(code, "unfold", number(dim), copy.deepcopy(window.length), copy.deepcopy(window.step))
    return code if all_of_them else subscript(code, [*[copy.copy(FULL)] * dim, ast.Slice(None, copy.deepcopy(window.axis.stop_code))])


def _require_whole(lifter: Lifter, window: Window, size: SizeKey) -> bool:
    """The loop ends with the last whole window (`range(n - k + 1)`, `range((n - k) // s + 1)`, `range(n // k)`): True; or before it: False."""
    context = lifter.context
    turns, length = _summed(window.axis.stop_code, context), _summed(window.length, context)
    whole = {_size_text(size, context): 1}
    if window.start is not None:
        whole = _subtracted(whole, _summed(window.start, context))
    if integer(window.step) == 1:
        beyond = _subtracted(turns, _added(_subtracted(whole, length), {"": 1}))
        if all(times < 0 for times in beyond.values()):  # `range(n - k - horizon)`: what is subtracted are lengths
            return not beyond
    else:
        by = ast.unparse(window.step)
        stepped = {f"({_text(_subtracted(whole, length))}) // {by}": 1, "": 1}
        if turns == stepped or (_summed(window.step, context) == length and turns == {f"({_text(whole)}) // {by}": 1}):
            return True
    raise GiveUp(f"nothing shows that `{ast.unparse(window.axis.stop_code)}` ends with the last whole window")


def _is_turn(lifter: Lifter, name: str) -> bool:
    return name not in lifter.env and lifter.axis(name) is not None


def _beside(node: ast.expr, turn: str) -> ast.expr | None:
    """`a` of `i + a`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        for here, there in ((node.left, node.right), (node.right, node.left)):
            if isinstance(here, ast.Name) and here.id == turn:
                return there
    return None


def _length(node: ast.Slice, length: Sum, context: Context) -> ast.expr | None:
    """`k` of `i:i + k`, `i * s:i * s + k`, `i + a:i + a + k` and `i * k:(i + 1) * k`, as it is written there."""
    for part in ast.walk(node.upper):
        if isinstance(part, ast.expr) and not isinstance(part, ast.Slice) and _summed(part, context) == length:
            return part
    return None


def _coefficients(node: ast.expr, turn: str, context: Context) -> tuple[ast.expr, Sum] | None:
    """`i * s + k` -> (`s`, {k: 1}): what the turn is multiplied by, and what is added."""
    if isinstance(node, ast.Name) and node.id == turn:
        return number(1), {}
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        for here, there in ((node.left, node.right), (node.right, node.left)):
            if _reads(here, turn) and not _reads(there, turn):
                found = _coefficients(here, turn, context)
                return (found[0], _added(found[1], _summed(there, context))) if found is not None else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for here, there in ((node.left, node.right), (node.right, node.left)):
            if _reads(here, turn) and not _reads(there, turn):
                if isinstance(here, ast.Name):
                    return there, {}
                if isinstance(here, ast.BinOp) and isinstance(here.op, ast.Add) and isinstance(here.left, ast.Name) and integer(here.right) is not None:
                    return there, {text: times * integer(here.right) for text, times in _summed(there, context).items()}
    return None


def _reads(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))


# Sums of sizes ------------------------------------------------------------------------------------


def _summed(node: ast.expr, context: Context) -> Sum:
    """`n - (k - 1)` -> {n: 1, k: -1, "": 1}; sizes under the name of what they are a size of, names under what they were set to."""
    if isinstance(node, ast.Name) and node.id in context.meant:
        return _summed(context.meant[node.id], context)
    if (value := integer(node)) is not None:
        return {"": value} if value else {}
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        left, right = _summed(node.left, context), _summed(node.right, context)
        return _added(left, right) if isinstance(node.op, ast.Add) else _subtracted(left, right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
        return {f"({_text(_summed(node.left, context))}) // {ast.unparse(node.right)}": 1}
    key, offset = context.size(node)
    return _added({_size_text(key, context): 1}, {"": offset} if offset else {})


def _size_text(key: SizeKey, context: Context) -> str:
    key = context.canonical(key)
    return key[1] if key[0] == "expr" else ":".join(str(part) for part in key)


def _added(a: Sum, b: Sum, sign: int = 1) -> Sum:
    total = {text: a.get(text, 0) + sign * b.get(text, 0) for text in {*a, *b}}
    return {text: times for text, times in total.items() if times}


def _subtracted(a: Sum, b: Sum) -> Sum:
    return _added(a, b, -1)


def _text(total: Sum) -> str:
    return " + ".join(f"{times} {text}" for text, times in sorted(total.items()))

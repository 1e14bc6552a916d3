"""What a loop accumulates: sums, products, extremes and running totals, reduced when the loop is left."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from torchsleuth.linter.vectorise.axes import Axis, Gathered
from torchsleuth.linter.vectorise.lift import Lifter
from torchsleuth.linter.vectorise.lifted import GiveUp, Lifted, Recurrence, converted, expression, method, name, number

COMMUTING = {ast.Add: "sum", ast.Mult: "prod"}


@dataclass
class Accumulator:
    name: str
    how: str  # "sum" | "prod" | "amax" | "amin"
    value: Lifted
    axes: list[str]
    depth: int  # loops around the place where it was set
    initial: Lifted | None = None  # where it was set inside the nest
    is_count: bool = False  # made of Python numbers only
    sign: int = 1
    rebinds: bool = False  # `total = total + ...`, which leaves the tensor it started from alone


class Totals:
    """The part of a reader that follows accumulators."""

    lifter: Lifter
    accumulators: dict[str, Accumulator]
    lists: dict[str, Gathered]
    depths: dict[str, int]
    tests: list[Lifted]
    before: list[ast.stmt]
    plain_numbers: set[str]

    def _leave(self, axis: Axis) -> None:
        """A loop is over: what was accumulated over it is reduced over its dimension."""
        self.lifter.axes.remove(axis)
        for accumulator in list(self.accumulators.values()):
            if axis.name not in accumulator.axes:
                continue
            accumulator.axes.remove(axis.name)
            value = accumulator.value
            if axis.name not in value.axes:
                raise GiveUp(f"`{accumulator.name}` grows by the same amount in every turn")
            accumulator.value = reduced(value, axis.name, accumulator.how)
            if len(accumulator.axes) == accumulator.depth:
                if accumulator.depth > 0 or accumulator.initial is not None:
                    del self.accumulators[accumulator.name]
                    self.lifter.env[accumulator.name] = self._with_initial(accumulator)
                    self.lifter.carried.pop(accumulator.name, None)
                else:
                    self.lifter.env.pop(accumulator.name, None)
        for gathered in self.lists.values():
            if gathered.element is not None and gathered.axes and gathered.axes[-1] == axis.name and axis.name in gathered.element.axes:
                pass

    def _with_initial(self, accumulator: Accumulator) -> Lifted:
        initial, value = accumulator.initial, accumulator.value
        if initial is None:
            raise GiveUp(f"where `{accumulator.name}` starts is not shown")
        neutral = {"sum": 0, "prod": 1}.get(accumulator.how)
        if isinstance(initial.code, ast.Constant) and initial.code.value == neutral:
            if accumulator.sign < 0:
                return replace(value, code=ast.UnaryOp(ast.USub(), value.code), kept=None)
            return value
        if accumulator.how in ("amax", "amin"):
            if _is_extreme(initial.code) or _is_first_of(initial.code, value.code):
                return value
            function = "maximum" if accumulator.how == "amax" else "minimum"
            return self.lifter.elementwise([initial, value], lambda a, b: method(name("torch"), function, a, b))
        operator = ast.Mult() if accumulator.how == "prod" else ast.Add() if accumulator.sign > 0 else ast.Sub()
        return self.lifter.elementwise([initial, value], lambda a, b: ast.BinOp(a, operator, b))

    def _accumulate(self, variable: str, operator: ast.operator | str, other: ast.expr, rebinds: bool = False) -> None:
        how = operator if isinstance(operator, str) else COMMUTING.get(type(operator)) or ("sum" if isinstance(operator, ast.Sub) else None)
        if how is None:
            raise Recurrence(f"`{variable}` carries a value from one turn to the next")
        if reads_name(other, variable):
            raise Recurrence(f"`{variable}` is computed from its own value of the turn before")
        value = self.lifter.lift(other)
        is_count = (value.kind == "number" and not value.axes) or self.is_python_number(other)
        if is_count and how == "prod" and value.axes:
            raise GiveUp(f"`{variable}` multiplies Python numbers, which do not overflow as a tensor's do")
        if self.tests:
            test = self._test()
            if how != "sum":
                raise GiveUp(f"`{variable}` is changed under a condition")
            if isinstance(value.code, ast.Constant) and value.code.value == 1:
                value = replace(test, kind="tensor", kept=None, whole=self._count_of(test))
            else:
                value = self.lifter.where(test, value, Lifted(ast.Constant(0), kind="number", is_constant=True))
        if not value.axes:
            raise GiveUp(f"`{variable}` grows by the same amount in every turn")
        initial = self.lifter.env.get(variable)
        if isinstance(initial, Gathered):
            raise GiveUp(f"`{variable}` is a list")
        sign = -1 if isinstance(operator, ast.Sub) else 1
        if variable in self.accumulators:
            raise GiveUp(f"`{variable}` is changed at several places")
        depth = self.depths.get(variable, 0) if initial is not None else 0
        axes = [axis.name for axis in self.lifter.axes]
        missing = [a for a in axes[depth:] if a not in value.axes]
        if missing:
            raise GiveUp(f"`{variable}` grows by the same amount in every turn")
        accumulator = Accumulator(variable, how, value, axes, depth, initial, is_count, sign, rebinds)
        self.accumulators[variable] = accumulator
        self.lifter.env.pop(variable, None)
        self.lifter.carried[variable] = "a running total"
        if how == "prod" and value.kind == "index":
            raise GiveUp(f"`{variable}` multiplies whole numbers, which may overflow in a tensor")
        if len(axes) - depth == 1 and how in ("sum", "prod") and sign > 0:
            running = cumulative(value, axes[-1], "cumsum" if how == "sum" else "cumprod")
            if initial is not None:
                running = self.lifter.elementwise([initial, running], lambda a, b: ast.BinOp(a, ast.Add() if how == "sum" else ast.Mult(), b)) if not _is_neutral(initial, how) else running
            elif not self._starts_neutral(variable, how):
                start = Lifted(name(variable), kind="free")
                running = self.lifter.elementwise([start, running], lambda a, b: ast.BinOp(a, ast.Add() if how == "sum" else ast.Mult(), b))
            self.lifter.env[variable] = replace(running, running=True)

    def _count_of(self, test: Lifted) -> ast.expr | None:
        """How many pairs `for i in range(n): for j in range(i + 1, n)` has."""
        if test.band is None or len(self.lifter.axes) != 2 or len(self.tests) != 1:
            return None
        how, row, column, offset = test.band
        first, second = self.lifter.axis(row), self.lifter.axis(column)
        if not (first.is_whole and second.is_whole and first.stop == second.stop) or offset not in ((0, 1) if how == "triu" else (-1, 0)):
            return None
        turns = ast.unparse(first.stop_code)
        return expression(f"{turns} * ({turns} {'+' if offset == 0 else '-'} 1) // 2")

    def is_python_number(self, node: ast.expr) -> bool:
        """`x[i].item()`, `float(x[i]) * i`: what every turn has as a number of Python's, not as a tensor."""
        if isinstance(node, ast.Constant):
            return isinstance(node.value, (int, float))
        if isinstance(node, ast.Name):
            return node.id in self.plain_numbers or (node.id not in self.lifter.env and self.lifter.axis(node.id) is not None)
        if isinstance(node, ast.BinOp):
            return self.is_python_number(node.left) and self.is_python_number(node.right)
        if isinstance(node, ast.UnaryOp):
            return self.is_python_number(node.operand)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item":
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return node.func.id in ("float", "int", "len") or node.func.id in ("abs", "max", "min", "round") and all(map(self.is_python_number, node.args))
        return False

    def _starts_neutral(self, variable: str, how: str) -> bool:
        """A running total that starts from zero (a running product: from one) just before the loop."""
        for statement in reversed(self.before):
            if isinstance(statement, ast.Assign) and any(isinstance(t, ast.Name) and t.id == variable for t in statement.targets):
                value = statement.value
                if isinstance(value, ast.Constant):
                    return value.value == (0 if how == "sum" else 1)
                last = value.func.attr if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else ""
                return last in (("zeros", "zeros_like", "new_zeros") if how == "sum" else ("ones", "ones_like", "new_ones"))
            if reads_name(statement, variable):
                return False
        return False


def reduced(value: Lifted, axis: str, how: str) -> Lifted:
    product = _matrix_product(value, axis) if how == "sum" else None
    if product is not None:
        return product
    place = value.dims.index(axis)
    dims = tuple(d for p, d in enumerate(value.dims) if p != place)
    sizes = tuple(s for p, s in enumerate(value.sizes) if p != place)
    if how == "sum" and value.whole is not None and not dims and not value.more:
        code = value.whole
    elif not dims and not value.more:
        code = method(value.code, {"amax": "max", "amin": "min"}.get(how, how))
    else:
        code = method(value.code, how, dim=number(place))
    whole = None
    if how == "sum" and not value.more and not value.rank:
        whole = value.whole if value.whole is not None else method(value.code, "sum")  # what is left is added up, too, or never
    return Lifted(code, dims, value.more, sizes, "tensor", root=value.root, doubt=value.doubt, whole=whole if dims else None)


def _matrix_product(value: Lifted, axis: str) -> Lifted | None:
    """The sum over `l` of `a[i, l] * b[l, j]` is `a @ b`."""
    if value.factors is None or value.more or value.rank:
        return None
    a, b = value.factors
    if a.rank or b.rank or a.more or b.more or axis not in a.axes or axis not in b.axes:
        return None
    if len(a.axes) == 1 and len(b.axes) == 2:
        a, b = b, a
    if len(a.axes) != 2 or len(b.axes) > 2 or len(b.axes) == 2 and set(a.axes) == set(b.axes):
        return None
    first = next(x for x in a.axes if x != axis)
    second = next((x for x in b.axes if x != axis), None)
    sizes = {label: size for v in (a, b) for label, size in zip(v.dims, v.sizes, strict=False)}
    left = converted(replace(a, kept=None), (first, axis), False)
    right = converted(replace(b, kept=None), (axis, second) if second else (axis,), False)
    dims = (first, second) if second else (first,)
    return Lifted(ast.BinOp(left, ast.MatMult(), right), dims, False, tuple(sizes.get(d) for d in dims))


def cumulative(value: Lifted, axis: str, how: str) -> Lifted:
    place = value.dims.index(axis)
    return replace(value, code=method(value.code, how, dim=number(place)), kept=None, kind="tensor")


def update_of(variable: str, value: ast.expr):
    """`v + e`, `e + v`, `max(v, e)`, `torch.maximum(v, e)` -> the operation and `e`."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Mult, ast.Sub)):
        if isinstance(value.left, ast.Name) and value.left.id == variable:
            return value.op, value.right
        if isinstance(value.right, ast.Name) and value.right.id == variable and not isinstance(value.op, ast.Sub):
            return value.op, value.left
    if isinstance(value, ast.Call) and len(value.args) == 2 and not value.keywords:
        last = value.func.attr if isinstance(value.func, ast.Attribute) else value.func.id if isinstance(value.func, ast.Name) else ""
        how = {"max": "amax", "maximum": "amax", "min": "amin", "minimum": "amin"}.get(last)
        for place in (0, 1):
            if how and isinstance(value.args[place], ast.Name) and value.args[place].id == variable:
                return how, value.args[1 - place]
    return None


def _is_neutral(value: Lifted, how: str) -> bool:
    return isinstance(value.code, ast.Constant) and value.code.value == (0 if how == "sum" else 1)


def _is_extreme(node: ast.expr) -> bool:
    return "inf" in ast.unparse(node)


def _is_first_of(initial: ast.expr, value: ast.expr) -> bool:
    """`x[:, 0]` where the running extreme is over `x`."""
    return isinstance(initial, ast.Subscript) and ast.unparse(initial.value) in ast.unparse(value)


def reads_name(node: ast.AST, variable: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == variable for n in ast.walk(node))

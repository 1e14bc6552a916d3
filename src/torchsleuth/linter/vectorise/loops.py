"""From the statements of a loop to the tensor statements that do the same for all turns at once.

A loop nest is read from the outside in: each loop adds an axis, helper variables become lifted values,
stores, appends and accumulations are collected, and on leaving a loop its accumulators are reduced over it.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass, field, replace

from torchsleuth.linter.vectorise import operators as ops
from torchsleuth.linter.vectorise.context import Context, integer, is_dotted
from torchsleuth.linter.vectorise.lift import Axis, Gathered, Lifter
from torchsleuth.linter.vectorise.lifted import (
    INNER, GiveUp, Lifted, RankUnknown, Recurrence, aligned, converted, expression, method, name, number, subscript,
)  # fmt: skip

SMALL = 4  # a fixed number of turns up to this is an unrolled formula, not a slow loop
COMMUTING = {ast.Add: "sum", ast.Mult: "prod"}


@dataclass
class Store:
    """`out[index] = value`, or `+=` where `op` says so, for all turns at once."""

    target: str
    entries: list[ast.expr]
    value: Lifted
    op: ast.operator | None
    axes: tuple[str, ...]
    test: Lifted | None = None
    tests: tuple[Lifted, ...] = ()
    previous: bool = False  # out[i] = out[i - 1] + value: a running total


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


@dataclass
class Reader:
    """Reads one loop nest."""

    context: Context
    lifter: Lifter = None  # type: ignore[assignment]
    stores: list[Store] = field(default_factory=list)
    lists: dict[str, Gathered] = field(default_factory=dict)
    accumulators: dict[str, Accumulator] = field(default_factory=dict)
    grown: dict[str, Gathered] = field(default_factory=dict)  # tensors that `torch.cat` makes longer in every turn
    helpers: list[tuple[str, Lifted]] = field(default_factory=list)
    depths: dict[str, int] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)
    tests: list[Lifted] = field(default_factory=list)
    stored: dict[tuple[str, str], Lifted] = field(default_factory=dict)
    fresh: int = 0
    all_axes: list[Axis] = field(default_factory=list)
    assumed_ranks: set[str] = field(default_factory=set)
    before: list[ast.stmt] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lifter = Lifter(self.context)

    # Loops --------------------------------------------------------------------------------------

    def read(self, loop: ast.For | ast.While, before: list[ast.stmt]) -> None:
        for node in ast.walk(loop):
            if isinstance(node, (ast.Break, ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Try, ast.With)):
                raise GiveUp(f"it contains `{type(node).__name__.lower()}`")
        self.before = before
        self._prepare(loop)
        self._loop(loop, before)

    def _prepare(self, loop: ast.AST) -> None:
        for node in ast.walk(loop):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.lifter.carried.setdefault(node.id, f"set in line {node.lineno}")
                self.bound.add(node.id)
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                if is_dotted(node.value):
                    text, index = ast.unparse(node.value), ast.unparse(node.slice)
                    if self.lifter.written.get(text, index) != index:
                        raise GiveUp(f"`{text}` is written at several indices")
                    self.lifter.written[text] = index

    def _loop(self, loop: ast.For | ast.While, before: list[ast.stmt]) -> None:
        if loop.orelse:
            raise GiveUp("it has an `else`")
        body = list(loop.body)
        if isinstance(loop, ast.While):
            axis = self._while_axis(loop, body, before)
        else:
            axis = self._for_axis(loop.target, loop.iter)
        known = set(self.lifter.env)
        self._body(body)
        self._leave(axis)
        for variable in set(self.lifter.env) - known:
            value = self.lifter.env[variable]
            if isinstance(value, Lifted) and axis.name in value.axes:
                # A helper's last value is not available outside; whoever reads it will be told.
                del self.lifter.env[variable]
                self.lifter.carried[variable] = "set in an inner loop"

    def _new_axis(self, label: str, start: int, stop, stop_code: ast.expr) -> Axis:
        if stop[0] == ("const",) and stop[1] - start <= SMALL:
            raise GiveUp("it has only a few turns")
        axis = Axis(label, start, stop, stop_code)
        self.lifter.axes.append(axis)
        self.all_axes.append(axis)
        self.lifter.seen.append(label)
        self.lifter.carried.pop(label, None)
        return axis

    def _while_axis(self, loop: ast.While, body: list[ast.stmt], before: list[ast.stmt]) -> Axis:
        test = loop.test
        if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Lt, ast.NotEq)) and isinstance(test.left, ast.Name)):
            raise GiveUp("its condition is not a count")
        counter = test.left.id
        last = body.pop() if body else None
        steps = isinstance(last, ast.AugAssign) and isinstance(last.op, ast.Add) and integer(last.value) == 1
        steps = steps and isinstance(last.target, ast.Name) and last.target.id == counter
        if not steps and isinstance(last, ast.Assign) and ast.unparse(last) == f"{counter} = {counter} + 1":
            steps = True
        if not steps or any(isinstance(n, ast.Name) and n.id == counter and isinstance(n.ctx, ast.Store) for s in body for n in ast.walk(s)):
            raise GiveUp(f"`{counter}` is not simply counted up")
        if any(isinstance(n, ast.Continue) for s in body for n in ast.walk(s)):
            raise GiveUp("`continue` in a counting while loop")
        start = None
        for statement in reversed(before):
            if any(isinstance(n, ast.Name) and n.id == counter and isinstance(n.ctx, ast.Store) for n in ast.walk(statement)):
                if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
                    start = integer(statement.value)
                break
        if start is None or start < 0:
            raise GiveUp(f"where `{counter}` starts is not shown")
        return self._new_axis(counter, start, self.context.size(test.comparators[0]), copy.deepcopy(test.comparators[0]))

    def _for_axis(self, target: ast.expr, iterated: ast.expr) -> Axis:
        if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name):
            function = iterated.func.id
            if function == "range":
                return self._range(target, iterated)
            if function == "enumerate" and len(iterated.args) == 1 and isinstance(target, ast.Tuple) and len(target.elts) == 2:
                if not isinstance(target.elts[0], ast.Name):
                    raise GiveUp("its target is not understood")
                return self._rows(target.elts[1], iterated.args[0], target.elts[0].id)
            if function == "zip" and isinstance(target, ast.Tuple) and len(target.elts) == len(iterated.args):
                return self._rows(target, iterated, None)
            raise GiveUp(f"it runs over `{ast.unparse(iterated)[:40]}`")
        if isinstance(iterated, ast.Call) and self.context.dotted(iterated.func) == "torch.arange":
            return self._range(target, iterated)
        return self._rows(target, iterated, None)

    def _range(self, target: ast.expr, call: ast.Call) -> Axis:
        if not isinstance(target, ast.Name) or call.keywords or not 1 <= len(call.args) <= 2:
            raise GiveUp("its range has a step" if len(call.args) == 3 else "its range is not understood")
        start = integer(call.args[0]) if len(call.args) == 2 else 0
        if start is None or start < 0:
            raise GiveUp("where its range starts is not a number")
        stop = call.args[-1]
        size = self._inner_size(stop)
        return self._new_axis(target.id, start, size, copy.deepcopy(stop))

    def _inner_size(self, stop: ast.expr):
        """The size a range runs to; `len(row)` of a helper is a size of the tensor it is a part of."""
        text = ast.unparse(stop)
        for variable in list(self.lifter.env):
            if variable in text.replace("(", " ").replace(")", " ").replace("[", " ").replace(".", " ").split():
                value = self.lifter.env[variable]
                if isinstance(value, Lifted) and text in (f"len({variable})", f"{variable}.shape[0]", f"{variable}.size(0)"):
                    place = value.inner_position(0)
                    size = value.sizes[place] if place < len(value.sizes) else self.lifter._unknown_size(value, place)
                    if size is not None:
                        return size, 0
                raise GiveUp(f"its range `{text}` depends on an outer loop")
        for node in ast.walk(stop):
            if isinstance(node, ast.Name) and (self.lifter.axis(node.id) or node.id in self.lifter.carried):
                raise GiveUp(f"its range `{text}` depends on an outer loop")
        return self.context.size(stop)

    def _rows(self, target: ast.expr, iterated: ast.expr, counter: str | None) -> Axis:
        """`for row in x`, `for i, row in enumerate(x)`, `for a, b in zip(x, y)`."""
        if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) and iterated.func.id == "zip":
            sources, targets = list(iterated.args), list(target.elts) if isinstance(target, ast.Tuple) else []
            if len(sources) != len(targets) or iterated.keywords:
                raise GiveUp("its zip is not understood")
        else:
            sources, targets = [iterated], [target]
        if not all(isinstance(t, ast.Name) for t in targets):
            raise GiveUp("its target is not understood")
        values = [self._source(s) for s in sources]
        self.fresh += 1
        label = counter or f"__i{self.fresh}"
        first = values[0]
        place = first.inner_position(0)
        size = first.sizes[place] if place < len(first.sizes) else self.lifter._unknown_size(first, place)
        stop_code = ast.Subscript(ast.Attribute(first.code, "shape", ast.Load()), number(place), ast.Load())
        axis = self._new_axis(label, 0, (size or ("rows", label), 0), stop_code)
        if counter:
            self.lifter.carried.pop(counter, None)
        if len(values) > 1:
            self.lifter.assume(f"{' and '.join(f'`{ast.unparse(s)}`' for s in sources)} are equally long")
        for variable, value in zip(targets, values, strict=True):
            self.lifter.env[variable.id] = self.lifter.index(value, [name(label)])
            self.depths[variable.id] = len(self.lifter.axes)
            self.lifter.carried.pop(variable.id, None)
        return axis

    def _source(self, node: ast.expr) -> Lifted:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "unbind":
            if not node.args and not node.keywords:
                node = node.func.value
        if isinstance(node, ast.Call):
            value = self.context.dotted(node.func)
            raise GiveUp(f"it runs over what `{value or ast.unparse(node.func)}` returns")
        if is_dotted(node) and ast.unparse(node) not in self.lifter.env:
            if ast.unparse(node).split(".")[0] in self.lifter.carried:
                raise Recurrence(f"`{ast.unparse(node)}` changes in the loop")
            return self.lifter.base(node)
        value = self.lifter.lift(node)
        if value.kind in ("number", "free"):
            raise GiveUp(f"nothing shows that `{ast.unparse(node)}` is a tensor")
        return value

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

    # Statements ---------------------------------------------------------------------------------

    def _body(self, statements: list[ast.stmt]) -> None:
        for place, statement in enumerate(statements):
            if isinstance(statement, ast.If) and len(statement.body) == 1 and isinstance(statement.body[0], ast.Continue) and not statement.orelse:
                rest = ast.If(ast.UnaryOp(ast.Not(), statement.test), statements[place + 1 :], [])
                ast.copy_location(rest, statement)
                if statements[place + 1 :]:
                    self._if(rest)
                return
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            self._assign(node.targets[0], node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            self._augmented(node)
        elif isinstance(node, ast.If):
            self._if(node)
        elif isinstance(node, (ast.For, ast.While)):
            self._loop(node, self._before(node))
        elif isinstance(node, ast.Expr):
            self._expression(node.value)
        elif not isinstance(node, ast.Pass):
            raise GiveUp(f"it contains `{ast.unparse(node).splitlines()[0][:40]}`")

    def _before(self, node: ast.stmt) -> list[ast.stmt]:
        return self._siblings.get(id(node), []) if hasattr(self, "_siblings") else []

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._assign_name(target.id, value)
        elif isinstance(target, ast.Subscript):
            self._store(target, value, None)
        elif isinstance(target, ast.Tuple):
            if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
                lifted = [self.lifter.lift(v) for v in value.elts]
                for part, one in zip(target.elts, lifted, strict=True):
                    if not isinstance(part, ast.Name):
                        raise GiveUp("a tuple is assigned to parts of tensors")
                    self._set(part.id, one)
            elif isinstance(value, ast.Call) and len(target.elts) == 2 and all(isinstance(t, ast.Name) for t in target.elts):
                for part, which in zip(target.elts, ("values", "indices"), strict=True):
                    if part.id != "_":
                        self._set(part.id, ops.pair_part(self.lifter, value, which))
            else:
                raise GiveUp("a tuple is unpacked")
        else:
            raise GiveUp(f"`{ast.unparse(target)}` is assigned in the loop")

    def _assign_name(self, variable: str, value: ast.expr) -> None:
        if isinstance(value, ast.List) and not value.elts:
            if self.tests:
                raise GiveUp("a list is started under a condition")
            self.lists[variable] = Gathered((), None)
            self.lifter.env[variable] = self.lists[variable]
            self.depths[variable] = len(self.lifter.axes)
            return
        if isinstance(value, ast.ListComp):
            raise GiveUp("a comprehension inside the loop")
        piece = self._grown_by(variable, value)
        if piece is not None:
            if self.tests or len(self.lifter.axes) != 1 or variable in self.grown:
                raise GiveUp(f"`{variable}` does not grow by one piece in every turn")
            lifted = self.lifter.lift(piece)
            if self.lifter.axes[0].name not in lifted.axes:
                raise GiveUp("the same value is gathered in every turn")
            self.grown[variable] = Gathered((self.lifter.axes[0].name,), lifted)
            return
        update = _update_of(variable, value)
        is_outer = variable not in self.lifter.env or self.depths.get(variable, 0) < len(self.lifter.axes)
        if update is not None and (variable in self.lifter.carried or variable in self.lifter.env) and is_outer:
            operator, other = update
            self._accumulate(variable, operator, other)
            return
        if self.context.value(variable) is not None and variable in self.lifter.carried and _reads(value, variable):
            pass  # lifting will say that it is a recurrence
        self._set(variable, self.lifter.lift(value))

    def _grown_by(self, variable: str, value: ast.expr) -> ast.expr | None:
        """`v = torch.cat([v, piece])` -> the piece."""
        if not isinstance(value, ast.Call) or self.context.dotted(value.func) not in ("torch.cat", "torch.concat"):
            return None
        if len(value.args) != 1 or not isinstance(value.args[0], (ast.List, ast.Tuple)) or len(value.args[0].elts) != 2:
            return None
        if any(k.arg != "dim" or integer(k.value) != 0 for k in value.keywords):
            return None
        first, piece = value.args[0].elts
        return piece if isinstance(first, ast.Name) and first.id == variable and not _reads(piece, variable) else None

    def _set(self, variable: str, value: Lifted) -> None:
        if variable in self.accumulators:
            raise Recurrence(f"`{variable}` carries a value from one turn to the next")
        if self.tests:
            old = self.lifter.env.get(variable)
            if isinstance(old, Lifted) and self.depths.get(variable, 0) <= len(self.lifter.axes):
                if self.depths.get(variable, 0) < len(self.lifter.axes):
                    raise Recurrence(f"`{variable}` carries a value from one turn to the next")
                value = self.lifter.where(self._test(), value, old)
            # else: set for use under this condition only; `_if` forgets it again
        elif variable in self.lifter.env and self.depths.get(variable, 0) < len(self.lifter.axes):
            raise Recurrence(f"`{variable}` carries a value from one turn to the next")
        if isinstance(value.code, ast.expr) and value.kind == "free":
            value = replace(value)
        self.lifter.env[variable] = value
        self.depths[variable] = len(self.lifter.axes)
        self.lifter.carried.pop(variable, None)
        self.helpers.append((variable, value))

    def _test(self) -> Lifted:
        test = self.tests[0]
        for other in self.tests[1:]:
            test = replace(self.lifter.elementwise([test, other], lambda a, b: ast.BinOp(a, ast.BitAnd(), b)), kind="bool")
        return test

    def _augmented(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            variable = node.target.id
            if variable in self.lifter.env and self.depths.get(variable) == len(self.lifter.axes) and variable not in self.accumulators:
                if self.tests:
                    raise GiveUp(f"`{variable}` is changed under a condition")
                old = self.lifter.env[variable]
                if isinstance(old, Gathered):
                    raise GiveUp(f"`{variable}` is a list")
                if isinstance(old.code, (ast.Name, ast.Subscript, ast.Attribute)) and old.kind == "tensor":
                    raise GiveUp(f"`{variable}` is changed in place")
                self._set(variable, self.lifter._binop(ast.BinOp(node.target, node.op, node.value)))
                return
            self._accumulate(variable, node.op, node.value)
        elif isinstance(node.target, ast.Subscript):
            self._store(node.target, node.value, node.op)
        else:
            raise GiveUp(f"`{ast.unparse(node.target)}` is changed in the loop")

    def _accumulate(self, variable: str, operator: ast.operator | str, other: ast.expr) -> None:
        how = operator if isinstance(operator, str) else COMMUTING.get(type(operator)) or ("sum" if isinstance(operator, ast.Sub) else None)
        if how is None:
            raise Recurrence(f"`{variable}` carries a value from one turn to the next")
        if _reads(other, variable):
            raise Recurrence(f"`{variable}` is computed from its own value of the turn before")
        value = self.lifter.lift(other)
        is_count = value.kind == "number" and not value.axes
        if self.tests:
            test = self._test()
            if how != "sum":
                raise GiveUp(f"`{variable}` is changed under a condition")
            if is_count and isinstance(value.code, ast.Constant) and value.code.value == 1:
                value = replace(test, kind="tensor", kept=None)
            else:
                value = self.lifter.where(test, value, Lifted(ast.Constant(0), kind="number"))
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
        accumulator = Accumulator(variable, how, value, axes, depth, initial, is_count, sign)
        self.accumulators[variable] = accumulator
        self.lifter.env.pop(variable, None)
        self.lifter.carried[variable] = "a running total"
        if len(axes) - depth == 1 and how in ("sum", "prod") and sign > 0:
            running = cumulative(value, axes[-1], "cumsum" if how == "sum" else "cumprod")
            if initial is not None:
                running = self.lifter.elementwise([initial, running], lambda a, b: ast.BinOp(a, ast.Add() if how == "sum" else ast.Mult(), b)) if not _is_neutral(initial, how) else running
            elif not self._starts_neutral(variable, how):
                start = Lifted(name(variable), kind="free")
                running = self.lifter.elementwise([start, running], lambda a, b: ast.BinOp(a, ast.Add() if how == "sum" else ast.Mult(), b))
            self.lifter.env[variable] = replace(running, running=True)

    def _starts_neutral(self, variable: str, how: str) -> bool:
        """A running total that starts from zero (a running product: from one) just before the loop."""
        for statement in reversed(self.before):
            if isinstance(statement, ast.Assign) and any(isinstance(t, ast.Name) and t.id == variable for t in statement.targets):
                value = statement.value
                if isinstance(value, ast.Constant):
                    return value.value == (0 if how == "sum" else 1)
                last = value.func.attr if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else ""
                return last in (("zeros", "zeros_like", "new_zeros") if how == "sum" else ("ones", "ones_like", "new_ones"))
            if _reads(statement, variable):
                return False
        return False

    def _if(self, node: ast.If) -> None:
        extreme = self._extreme(node)
        if extreme is not None:
            self._accumulate(*extreme)
            return
        test = self.lifter.condition(node.test)
        known = dict(self.lifter.env)
        stores = len(self.stores)
        self.tests.append(test)
        first_env = self._arm(node.body)
        self.tests.pop()
        middle = len(self.stores)
        second_env: dict = {}
        if node.orelse:
            self.lifter.env = dict(known)
            self.tests.append(replace(test, code=ast.UnaryOp(ast.Invert(), test.code), kept=None))
            second_env = self._arm(node.orelse)
            self.tests.pop()
        self._merge_stores(stores, middle, test)
        self._merge_arms(known, first_env, second_env, test, bool(node.orelse))

    def _arm(self, statements: list[ast.stmt]) -> dict:
        self._body(statements)
        return dict(self.lifter.env)

    def _merge_arms(self, known: dict, first: dict, second: dict, test: Lifted, has_else: bool) -> None:
        env = dict(known)
        for variable in set(first) | set(second):
            a, b = first.get(variable), second.get(variable)
            before = known.get(variable)
            if a is before and (b is before or not has_else):
                continue
            if variable in self.accumulators:
                env[variable] = a if a is not None else b
                env.pop(variable)
                self.lifter.carried[variable] = "a running total"
                continue
            if isinstance(a, Lifted) and isinstance(b, Lifted) and before is None:
                env[variable] = self.lifter.where(test, a, b)
                self.helpers.append((variable, env[variable]))
            elif before is None:
                env.pop(variable, None)
                self.lifter.carried[variable] = "set only under a condition"
            else:
                env[variable] = a if not has_else or b is before else b if a is before else a
                if has_else and a is not before and b is not before:
                    raise GiveUp(f"`{variable}` is changed in both arms of a condition")
        self.lifter.env = env

    def _merge_stores(self, start: int, middle: int, test: Lifted) -> None:
        """The same place written in both arms: one value, chosen by the test."""
        depth = len(self.tests)
        first, second = self.stores[start:middle], self.stores[middle:]
        for one in first:
            for other in second:
                if one.target == other.target and one.op is None and other.op is None and _same(one.entries, other.entries):
                    one.value = self.lifter.where(test, self._chosen(one, depth + 1), self._chosen(other, depth + 1))
                    self.stores.remove(other)
                    one.tests = tuple(self.tests)
                    one.test = self._test() if self.tests else None
                    break
        self.stored.clear()

    def _chosen(self, store: Store, depth: int) -> Lifted:
        """What a store leaves in its place: its value where its inner conditions hold, what was there otherwise."""
        value = store.value
        for test in reversed(store.tests[depth:]):
            place = ast.Subscript(expression(store.target), store.entries[0] if len(store.entries) == 1 else ast.Tuple(store.entries, ast.Load()), ast.Load())
            value = self.lifter.where(test, value, self.lifter.index(self.lifter.base(place.value), list(store.entries)))
        return value

    def _extreme(self, node: ast.If):
        """`if v > best: best = v` -> an accumulated maximum."""
        if len(node.body) != 1 or node.orelse or not isinstance(node.body[0], ast.Assign) or not isinstance(node.test, ast.Compare):
            return None
        target, value = node.body[0].targets[0], node.body[0].value
        if not isinstance(target, ast.Name) or len(node.test.ops) != 1:
            return None
        left, right, op = ast.unparse(node.test.left), ast.unparse(node.test.comparators[0]), node.test.ops[0]
        text = ast.unparse(value)
        if target.id not in (left, right) or text not in (left, right) or target.id == text:
            return None
        greater = isinstance(op, (ast.Gt, ast.GtE))
        if not greater and not isinstance(op, (ast.Lt, ast.LtE)):
            return None
        if left == target.id:
            greater = not greater
        self.lifter.mark_scalars(node.test)
        return target.id, "amax" if greater else "amin", value

    def _expression(self, node: ast.expr) -> None:
        if isinstance(node, ast.Constant):
            return
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append" and len(node.args) == 1:
            if isinstance(node.func.value, ast.Name):
                self._append(node.func.value.id, node.args[0])
                return
        raise GiveUp(f"`{ast.unparse(node)[:40]}` is done in every turn")

    def _append(self, variable: str, node: ast.expr) -> None:
        if self.tests:
            raise GiveUp("what is gathered depends on a condition")
        gathered = self.lists.get(variable)
        if gathered is None:
            gathered = self.lists[variable] = Gathered((), None)
            self.depths[variable] = 0
        if gathered.element is not None:
            raise GiveUp(f"`{variable}` is appended to at several places")
        value = self.lifter.lift(node)
        depth = self.depths.get(variable, 0)
        axes = tuple(axis.name for axis in self.lifter.axes[depth:])
        if any(a not in value.axes for a in axes):
            raise GiveUp("the same value is gathered in every turn")
        gathered.element, gathered.axes = value, axes
        gathered.is_number = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item"
        gathered.is_number |= isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("float", "int")
        if len(axes) > 1 and depth:
            raise GiveUp("a list gathered over several loops")

    def _store(self, target: ast.Subscript, node: ast.expr, op: ast.operator | None) -> None:
        entries = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
        entries, owner = list(entries), target.value
        while isinstance(owner, ast.Subscript):  # out[i][j] = …
            inner = owner.slice.elts if isinstance(owner.slice, ast.Tuple) else [owner.slice]
            if any(isinstance(e, ast.Slice) for e in inner):
                raise GiveUp("a slice of a slice is written to")
            entries = [*inner, *entries]
            owner = owner.value
        if isinstance(owner, ast.Name) and owner.id in self.lifter.env:
            raise GiveUp(f"`{owner.id}` is a part of another tensor and is written to")
        if not is_dotted(owner):
            raise GiveUp(f"`{ast.unparse(target)[:40]}` is written to")
        text = ast.unparse(owner)
        if text in self.lifter.carried:
            raise GiveUp(f"`{text}` is set in the loop and written to")
        if not self.context.require_tensor(text):
            raise GiveUp(f"nothing here shows that `{text}` is a tensor")
        rank = self.context.rank(text)
        fixed = sum(not isinstance(e, ast.Slice) for e in entries)
        self.lifter.wanted_rank = rank - fixed if rank is not None else None
        if self.lifter.wanted_rank == 0:
            self.lifter.mark_scalars(_scalar_part(node))
        axes = tuple(axis.name for axis in self.lifter.axes)
        running = self._running(text, entries, node, op)
        if running is not None:
            value, op_node = running
            self.stores.append(Store(text, entries, value, op_node, axes, None, (), previous=True))
            self.lifter.wanted_rank = None
            return
        value = self.lifter.lift(node)
        if value.doubt and self.lifter.wanted_rank == 0:
            raise RankUnknown(value.doubt)  # one number is stored: the indices tell how many dimensions there are
        if value.doubt:
            raise GiveUp(value.doubt)
        self.lifter.wanted_rank = None
        test = self._test() if self.tests else None
        self.stores.append(Store(text, entries, value, op, axes, test, tuple(self.tests)))

    def _running(self, text: str, entries: list[ast.expr], node: ast.expr, op) -> tuple[Lifted, ast.operator] | None:
        """`out[i] = out[i - 1] + e`: a running sum or product of `e`."""
        if op is not None or not isinstance(node, ast.BinOp) or not isinstance(node.op, (ast.Add, ast.Mult)) or self.tests:
            return None
        for earlier, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(earlier, ast.Subscript) and ast.unparse(earlier.value) == text:
                mine = earlier.slice.elts if isinstance(earlier.slice, ast.Tuple) else [earlier.slice]
                if len(mine) != len(entries):
                    continue
                changed = [(a, b) for a, b in zip(mine, entries, strict=True) if ast.unparse(a) != ast.unparse(b)]
                if len(changed) != 1:
                    continue
                before, now = self.lifter.loop_offset(changed[0][0]), self.lifter.loop_offset(changed[0][1])
                if before is None or now is None or before[0] != now[0] or before[1] != now[1] - 1 or now[1] != 0 or now[0].start != 1:
                    continue
                if _mentions(other, text):
                    return None
                value = self.lifter.lift(other)
                if now[0].name not in value.axes:
                    return None
                return cumulative(value, now[0].name, "cumsum" if isinstance(node.op, ast.Add) else "cumprod"), node.op
        return None


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
    return Lifted(code, dims, value.more, sizes, "tensor", root=value.root, doubt=value.doubt)


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


def _update_of(variable: str, value: ast.expr):
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


def _scalar_part(node: ast.expr) -> ast.expr:
    return node


def _reads(node: ast.AST, variable: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == variable for n in ast.walk(node))


def _mentions(node: ast.AST, text: str) -> bool:
    return any(isinstance(n, (ast.Name, ast.Attribute)) and ast.unparse(n) == text for n in ast.walk(node))


def _same(a: list[ast.expr], b: list[ast.expr]) -> bool:
    return [ast.unparse(x) for x in a] == [ast.unparse(x) for x in b]


def _is_neutral(value: Lifted, how: str) -> bool:
    return isinstance(value.code, ast.Constant) and value.code.value == (0 if how == "sum" else 1)


def _is_extreme(node: ast.expr) -> bool:
    return "inf" in ast.unparse(node)


def _is_first_of(initial: ast.expr, value: ast.expr) -> bool:
    """`x[:, 0]` where the running extreme is over `x`."""
    return isinstance(initial, ast.Subscript) and ast.unparse(initial.value) in ast.unparse(value)


__all__ = ["Accumulator", "Reader", "Store", "aligned", "converted", "expression", "INNER", "subscript", "reduced"]

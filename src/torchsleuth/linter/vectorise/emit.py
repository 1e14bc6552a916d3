"""The statements that results become: stores, masked and scattered stores, running totals, accumulators."""

from __future__ import annotations

import ast
import copy
import typing
from dataclasses import replace

from torchsleuth.linter.vectorise import operators as ops
from torchsleuth.linter.vectorise.branches import Store
from torchsleuth.linter.vectorise.collect import own_memory
from torchsleuth.linter.vectorise.context import is_dotted
from torchsleuth.linter.vectorise.dtypes import in_double, is_whole, keeps_dtype
from torchsleuth.linter.vectorise.lifted import INNER, ONE, GiveUp, Lifted, converted, expression, method, name, number, subscript
from torchsleuth.linter.vectorise.totals import Accumulator, reduced

if typing.TYPE_CHECKING:
    from torchsleuth.linter.vectorise.plan import Plan

EMPTY = frozenset({"torch.tensor([])", "torch.empty(0)", "torch.zeros(0)", "torch.Tensor()", "torch.Tensor([])", "torch.FloatTensor()"})


def stored(plan: Plan, store: Store, before: list[ast.stmt], keep: bool) -> ast.stmt:
    reader = plan.reader
    lifter = reader.lifter
    lifter.axes = [a for a in plan.reader.all_axes if a.name in store.axes]
    plan.outputs.append(store.target)
    written = lifter.written.pop(store.target, None)
    out = lifter.base(expression(store.target))
    if out.more and any(isinstance(e, ast.Constant) and e.value is ... for e in store.entries):
        raise GiveUp("`...` on a tensor whose number of dimensions is unknown")
    if out.more and not store.value.more:
        if store.value.axes and len(store.entries) == 1 and not any(lifter.loop_offset(e) is None for e in store.entries):
            raise GiveUp(f"how many dimensions `{store.target}` has is not shown")
        out = ops.ranked(lifter, out, _fixed_rank(store))
    env, lifter.env = lifter.env, {**lifter.env, **store.helpers}
    direct = {found[0].name for e in store.entries if (found := lifter.loop_offset(e)) is not None}
    lifter.storing, lifter.adding = True, isinstance(store.op, (ast.Add, ast.Sub))
    try:
        target = lifter.index(out, store.entries)
    finally:
        lifter.storing = lifter.adding = False
        lifter.env = env
    if written is not None:
        lifter.written[store.target] = written
    if store.previous:
        return _running_total(plan, store, target, out)
    value = store.value
    adds = isinstance(store.op, (ast.Add, ast.Sub))
    missing = [a for a in store.axes if a not in target.dims]
    if missing:
        if not adds or store.test is not None:
            raise GiveUp(f"`{store.target}` is overwritten turn after turn")
        for axis in missing:
            if axis not in value.axes:
                raise GiveUp("the same amount is added in every turn")
            value = reduced(value, axis, "sum")
    indirect = [a for a in target.axes if a not in direct]
    if indirect and (store.op is not None or value.axes or store.test is not None):
        if not adds or store.test is not None:
            raise GiveUp(f"two turns may write to the same place of `{store.target}`")
        return _scattered(plan, store, target, value, out)
    if value.kind == "free" and not value.dims and not value.more and _is_behind(target):
        raise GiveUp(f"`{ast.unparse(value.code)[:40]}` may be a number or a tensor, and is written to columns")
    if store.test is not None:
        return _masked(plan, store, target, value)
    if value.more and not target.more:
        value = ops.ranked(lifter, value, target.rank) if value.is_root else replace(value, more=False, dims=(*value.dims, *(INNER,) * (target.rank - value.rank)))
    if target.more and not value.more:
        target = replace(target, more=False)
    layout = tuple(INNER if d == ONE else d for d in target.dims)
    code = in_double(converted(value, layout, target.more), plan.context.allocations.get(store.target))
    _join_layout(lifter, value, target)
    is_plain = isinstance(target.code, (ast.Name, ast.Attribute))
    covers = is_plain and set(value.axes) == set(store.axes) - set(missing) and (value.rank == target.rank or value.more)
    allocation = _allocation(plan, store.target, before)
    fills = store.op is None or (isinstance(store.op, ast.Add) and allocation is not None and allocation.fill == "zeros")
    whole_shape = allocation is not None and (allocation.shape is None or covers)
    if fills and covers and whole_shape and not keep and keeps_dtype(plan, value, code, allocation) and not reads(code, store.target):
        plan.removed.append(allocation.statement)
        return ast.Assign([ast.Name(store.target, ast.Store())], own_memory(code, lifter))
    if store.op is not None:
        return ast.AugAssign(_as_target(target.code), store.op, code)
    place = target.code if not is_plain else ast.Subscript(target.code, ast.Slice(), ast.Store())
    return ast.Assign([_as_target(place)], code)


def _is_behind(target: Lifted) -> bool:
    """`x[:, i]`: a loop's dimension comes after one of the value's own, and what is written without a loop would meet the wrong one."""
    dims = target.dims
    return any(d not in (INNER, ONE) and any(e in (INNER, ONE) for e in dims[:p]) for p, d in enumerate(dims))


def _fixed_rank(store: Store) -> int:
    return len(store.entries)


def _join_layout(lifter, value: Lifted, target: Lifted) -> None:
    mine = [s for d, s in zip(value.dims, value.sizes, strict=False) if d == INNER]
    theirs = [s for d, s in zip(target.dims, target.sizes, strict=False) if d == INNER]
    for a, b in zip(reversed(mine), reversed(theirs), strict=False):
        lifter.equal.join(a, b)


def _masked(plan: Plan, store: Store, target: Lifted, value: Lifted) -> ast.stmt:
    lifter = plan.reader.lifter
    layout = tuple(INNER if d == ONE else d for d in target.dims)
    if target.more and not store.test.more:
        if value.more or value.rank:
            raise GiveUp(f"how many dimensions `{store.target}` has is not shown")
        target = replace(target, more=False)
    test = converted(store.test, layout, target.more)
    if store.test.band is not None and len(store.tests) == 1 and is_dotted(target.code) and target.dims == store.test.band[1:3]:
        how, _, _, offset = store.test.band
        test = method(method(name("torch"), "ones_like", target.code, dtype=expression("torch.bool")), how, number(offset))
    if store.op is not None:
        if not isinstance(store.op, (ast.Add, ast.Sub)):
            raise GiveUp("a product under a condition")
        amount = lifter.where(store.test, value, Lifted(ast.Constant(0), kind="number", is_constant=True))
        return ast.AugAssign(_as_target(target.code), store.op, converted(amount, layout, target.more))
    if not value.axes and not value.dims and not value.more and not _picks(target.code):
        return ast.Expr(method(target.code, "masked_fill_", test, value.code))
    chosen = method(name("torch"), "where", test, converted(value, layout, target.more), _loaded(target.code))
    place = target.code if isinstance(target.code, ast.Subscript) else ast.Subscript(target.code, ast.Slice(), ast.Store())
    return ast.Assign([_as_target(place)], chosen)


def _picks(code: ast.expr) -> bool:
    """`x[rows, columns]` is a copy, and what is filled in there is lost; `x[:, 1:]` is a view."""
    if not isinstance(code, ast.Subscript):
        return False
    places = code.slice.elts if isinstance(code.slice, ast.Tuple) else [code.slice]
    return any(isinstance(part, ast.Attribute) and part.attr == "arange" for place in places for part in ast.walk(place)) or _picks(code.value)


def _loaded(code: ast.expr) -> ast.expr:
    return expression(ast.unparse(code))


def _scattered(plan: Plan, store: Store, target: Lifted, value: Lifted, out: Lifted) -> ast.stmt:
    """`out[idx[i]] += v[i]`: the same place may be added to several times."""
    sign = isinstance(store.op, ast.Sub)
    layout = tuple(INNER if d == ONE else d for d in target.dims)
    owner = expression(store.target)
    index = target.code.slice if isinstance(target.code, ast.Subscript) else None
    if index is None:
        raise GiveUp("an addition by index that is not understood")
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    if any(isinstance(p, ast.Slice) for p in parts):
        raise GiveUp("an addition by index and slice")
    if value.more and not target.more:
        value = ops.ranked(plan.reader.lifter, value, target.rank)
    elif value.more and target.more:
        pass
    if value.axes:
        amount = converted(value, layout, target.more)
        if set(value.axes) != set(target.axes):
            raise GiveUp("an addition by index that is not understood")
    elif len(parts) == 1:
        amount = method(name("torch"), "full_like", copy.deepcopy(parts[0]), value.code, dtype=expression(f"{store.target}.dtype"))
        if target.rank or target.more:
            raise GiveUp("an addition by index that is not understood")
    else:
        amount = expression(f"torch.tensor({ast.unparse(value.code)}, dtype={store.target}.dtype, device={store.target}.device)")
    if sign:
        amount = ast.UnaryOp(ast.USub(), amount)
    allocation = plan.context.allocations.get(store.target)
    same = allocation is not None and allocation.dtype_of and keeps_dtype(plan, value, amount, allocation)
    if value.axes and (is_whole(amount) or not same):  # index_add_ and index_put_ do not convert, `+=` did
        amount = method(amount, "to", expression(f"{store.target}.dtype"))
    if len(parts) == 1 and len(target.axes) == 1:
        return ast.Expr(method(owner, "index_add_", number(0), parts[0], amount))
    return ast.Expr(method(owner, "index_put_", ast.Tuple(parts, ast.Load()), amount, accumulate=True))


def _running_total(plan: Plan, store: Store, target: Lifted, out: Lifted) -> ast.stmt:
    lifter = plan.reader.lifter
    first: list[ast.expr] = []
    axis_name = ""
    for entry in store.entries:
        found = lifter.loop_offset(entry)
        if found is not None and found[0].start == 1:
            first.append(ast.Slice(None, number(1)))
            axis_name = found[0].name
        elif found is not None:
            first.append(ast.Slice())
        else:
            first.append(entry)
    if not axis_name:
        raise GiveUp("a running total that is not understood")
    layout = tuple(INNER if d == ONE else d for d in target.dims)
    value = store.value
    if value.doubt:
        raise GiveUp(value.doubt)
    if value.more and not target.more:
        value = ops.ranked(lifter, value, target.rank) if isinstance(value.code, ast.Name) else replace(value, more=False)
    code = ast.BinOp(subscript(expression(store.target), first), store.op, converted(value, layout, target.more and value.more))
    return ast.Assign([_as_target(target.code)], code)


def accumulated(plan: Plan, accumulator: Accumulator, before: list[ast.stmt]) -> ast.stmt:
    variable, value = accumulator.name, accumulator.value
    if value.axes:
        raise GiveUp(f"`{variable}` is not reduced over every loop")
    if value.doubt:
        raise GiveUp(value.doubt)
    plan.outputs.append(variable)
    start = initial_of(plan, variable, before)
    code = value.code
    if accumulator.is_count:
        code = _as_number(code)
    if start is None:
        if accumulator.how in ("amax", "amin"):
            raise GiveUp(f"where `{variable}` starts is not shown")
        operator = ast.Mult() if accumulator.how == "prod" else ast.Add() if accumulator.sign > 0 else ast.Sub()
        return _updated(accumulator, operator, code, False)
    statement, initial = start
    if isinstance(initial, ast.JoinedStr) or isinstance(initial, ast.Constant) and isinstance(initial.value, str):
        raise GiveUp(f"`{variable}` is a string")
    text = ast.unparse(initial)
    neutral = {"sum": ("0", "0.0"), "prod": ("1", "1.0")}.get(accumulator.how, ())
    if text in neutral:
        starts_no_longer(plan, statement, variable)
        if accumulator.is_count and "." in text:
            code = _as_float(code)
        if accumulator.sign < 0:
            code = ast.UnaryOp(ast.USub(), code)
        return ast.Assign([ast.Name(variable, ast.Store())], code)
    if accumulator.how in ("amax", "amin"):
        axis = next((a for a in plan.reader.all_axes), None)
        if isinstance(initial, ast.Subscript) and ast.unparse(initial.value) == _extreme_source(value.code):
            starts_no_longer(plan, statement, variable)
            whole = expression(ast.unparse(initial.value))
            if axis is not None and axis.start == 1 and ast.unparse(initial.slice) == "0":
                return ast.Assign([ast.Name(variable, ast.Store())], _with_source(value.code, whole))
            return ast.Assign([ast.Name(variable, ast.Store())], code)
        if "inf" in text:
            starts_no_longer(plan, statement, variable)
            return ast.Assign([ast.Name(variable, ast.Store())], code)
        raise GiveUp(f"`{variable}` starts from `{text}`")
    operator = ast.Mult() if accumulator.how == "prod" else ast.Add() if accumulator.sign > 0 else ast.Sub()
    return _updated(accumulator, operator, code, variable in plan.context.allocations)


def _as_number(code: ast.expr) -> ast.expr:
    """`.item()` of it, for which nothing has to be detached."""
    if not any(isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr != "size" for n in ast.walk(code)):
        return code  # made of sizes: a number already
    inner = code
    while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in ("sum", "amax", "amin", "max", "min"):
        cut = inner.func.value
        if isinstance(cut, ast.Call) and isinstance(cut.func, ast.Attribute) and cut.func.attr == "detach":
            inner.func.value = cut.func.value
            break
        inner = cut
    return method(code, "item")


def _as_float(code: ast.expr) -> ast.expr:
    """`float(...)` instead of `.item()`: a total that starts from 0.0 is a float for whole numbers, too."""
    counted = isinstance(code, ast.Call) and isinstance(code.func, ast.Attribute) and code.func.attr == "item"
    return ast.Call(name("float"), [code.func.value if counted else code], [])


def _updated(accumulator: Accumulator, operator: ast.operator, code: ast.expr, is_fresh: bool) -> ast.stmt:
    """In place where the loop wrote in place or nobody else can hold the tensor (its dtype then stays), a new tensor otherwise."""
    variable = accumulator.name
    if accumulator.rebinds and not is_fresh:
        return ast.Assign([ast.Name(variable, ast.Store())], ast.BinOp(name(variable), operator, code))
    return ast.AugAssign(ast.Name(variable, ast.Store()), operator, code)


def _extreme_source(code: ast.expr) -> str:
    """`x` of `x[1:].max()` or `x.amax(dim=0)`."""
    if isinstance(code, ast.Call) and isinstance(code.func, ast.Attribute):
        inner = code.func.value
        return ast.unparse(inner.value if isinstance(inner, ast.Subscript) else inner)
    return ""


def _with_source(code: ast.Call, source: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(source, code.func.attr, ast.Load()), code.args, code.keywords)


def initial_of(plan: Plan, variable: str, before: list[ast.stmt]) -> tuple[ast.Assign, ast.expr] | None:
    """The statement just before that sets an accumulator, if nothing else looks at it in between."""
    for statement in reversed(before):
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name) and target.id == variable:
                return statement, statement.value
            if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple) and len(target.elts) == len(statement.value.elts):
                for part, value in zip(target.elts, statement.value.elts, strict=True):  # `sums, means = [], []`
                    if isinstance(part, ast.Name) and part.id == variable:
                        return statement, value
        if reads(statement, variable):
            return None
    return None


def starts_no_longer(plan: Plan, statement: ast.Assign, variable: str) -> None:
    """The start of a variable goes; of a statement that starts several, when all of them have gone."""
    target = statement.targets[0]
    if isinstance(target, ast.Tuple):
        gone = plan.started.setdefault(id(statement), set())
        gone.add(variable)
        if gone != {t.id for t in target.elts if isinstance(t, ast.Name)} or len(gone) != len(target.elts):
            return
    plan.removed.append(statement)


def _allocation(plan: Plan, target: str, before: list[ast.stmt]):
    allocation = plan.context.allocations.get(target)
    if allocation is None or plan.context.counts.get(target) != 1:
        return None
    for place, statement in enumerate(before):
        if statement is allocation.statement:
            between = before[place + 1 :]
            return None if any(reads(s, target) for s in between) else allocation
    return None


def _as_target(code: ast.expr) -> ast.expr:
    code = expression(ast.unparse(code))
    code.ctx = ast.Store()
    return code


def reads(node: ast.AST, variable: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == variable for n in ast.walk(node))

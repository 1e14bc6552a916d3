"""The statements that results become: stores, masked and scattered stores, running totals, accumulators, stacks."""

from __future__ import annotations

import ast
import copy
import typing
from dataclasses import replace

from torchsleuth.linter.vectorise import operators as ops
from torchsleuth.linter.vectorise.axes import Gathered
from torchsleuth.linter.vectorise.branches import Store
from torchsleuth.linter.vectorise.context import integer, is_dotted
from torchsleuth.linter.vectorise.lifted import INNER, ONE, GiveUp, Lifted, converted, expression, method, name, number, permuted, subscript
from torchsleuth.linter.vectorise.totals import Accumulator, reduced

if typing.TYPE_CHECKING:
    from torchsleuth.linter.vectorise.plan import Plan

EMPTY = frozenset({"torch.tensor([])", "torch.empty(0)", "torch.zeros(0)", "torch.Tensor()", "torch.Tensor([])", "torch.FloatTensor()"})
VIEWING = frozenset("transpose permute unsqueeze squeeze movedim flatten detach view expand reshape".split())


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
    direct = {found[0].name for e in store.entries if (found := lifter.loop_offset(e)) is not None}
    lifter.storing = True
    try:
        target = lifter.index(out, store.entries)
    finally:
        lifter.storing = False
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
    code = converted(value, layout, target.more)
    _join_layout(lifter, value, target)
    is_plain = isinstance(target.code, (ast.Name, ast.Attribute))
    covers = is_plain and set(value.axes) == set(store.axes) - set(missing) and (value.rank == target.rank or value.more)
    allocation = _allocation(plan, store.target, before)
    fills = store.op is None or (isinstance(store.op, ast.Add) and allocation is not None and allocation.fill == "zeros")
    whole_shape = allocation is not None and (allocation.shape is None or covers)
    if fills and covers and whole_shape and not keep and _keeps_dtype(plan, value, code, allocation) and not reads(code, store.target):
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


def _keeps_dtype(plan: Plan, value: Lifted, code: ast.expr, allocation) -> bool:
    """A store casts to the dtype of what was allocated (and copies to its device); an assignment does not."""
    if allocation.has_dtype or value.kind in ("bool", "index") or _is_integer_code(code):
        return False
    read = {ast.unparse(n) for n in ast.walk(code) if isinstance(n, (ast.Name, ast.Attribute))}
    sources = {base for base, facts in plan.reader.lifter.bases.items() if base in read and facts["kind"] == "float"}
    if not allocation.dtype_of:
        if any(k.arg == "device" for k in allocation.statement.value.keywords):
            return False
        return all(_has_default_dtype(plan.context.value(base)) for base in sources)
    like = plan.context.like
    if any(base != allocation.dtype_of and like.get(base) != allocation.dtype_of for base in sources):
        return False
    known = plan.context.value(allocation.dtype_of)
    if known is not None and known.dtype == "float" or _needs_floats(code):
        return True
    return not _may_convert(code) and not read & plan.reader.lifter.numbers


def _has_default_dtype(value) -> bool:
    return value is not None and value.is_tensor and value.op in ("rand", "randn", "zeros", "ones") and not any(k.arg in ("dtype", "device") for k in value.node.keywords)


SAME_DTYPE = frozenset(
    "abs neg clamp clamp_min clamp_max maximum minimum where amax amin max min flip transpose permute movedim unsqueeze squeeze flatten "
    "reshape clone detach contiguous masked_fill relu sign arange range tuple cpu".split()
)


def _may_convert(code: ast.expr) -> bool:
    """Whether whole numbers may come out as something else: `x / 2`, `x * 0.5`, `x.exp()`, and sums of narrow ones."""
    for node in ast.walk(code):
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Pow)) or isinstance(node, ast.Constant) and isinstance(node.value, float):
            return True
        if isinstance(node, ast.Call):
            last = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if last not in SAME_DTYPE:
                return True
    return False


def _needs_floats(code: ast.expr) -> bool:
    """Operations that refuse whole numbers."""
    return any(isinstance(n, ast.Attribute) and n.attr in ("mean", "std", "var", "norm", "softmax", "log_softmax", "normalize") for n in ast.walk(code))


def _is_integer_code(code: ast.expr) -> bool:
    if isinstance(code, ast.Call) and isinstance(code.func, ast.Attribute):
        if code.func.attr in ("argmax", "argmin", "long", "int", "bool", "any", "all", "count_nonzero", "arange"):
            return True
        if code.func.attr == "where" and len(code.args) == 3:
            return not any(isinstance(n, (ast.Subscript, ast.Call)) or isinstance(n, ast.Constant) and isinstance(n.value, float)
                           for a in code.args[1:] for n in ast.walk(a)) and all(_may_be_whole(a) for a in code.args[1:])  # fmt: skip
        if code.func.attr in ("sum",) and isinstance(code.func.value, ast.Compare):
            return True
    return isinstance(code, ast.Compare) or (isinstance(code, ast.Attribute) and code.attr == "indices")


def _may_be_whole(code: ast.expr) -> bool:
    """A number written out, or a name that may stand for one."""
    return isinstance(code.operand if isinstance(code, ast.UnaryOp) else code, (ast.Constant, ast.Name, ast.Attribute))


def _is_whole(code: ast.expr) -> bool:
    """Integers or truth values, or sums of them."""
    while isinstance(code, ast.Call) and isinstance(code.func, ast.Attribute) and code.func.attr in ("sum", "flatten", "unsqueeze", "transpose"):
        code = code.func.value
    return _is_integer_code(code) or isinstance(code, ast.UnaryOp) and _is_whole(code.operand)


def _masked(plan: Plan, store: Store, target: Lifted, value: Lifted) -> ast.stmt:
    lifter = plan.reader.lifter
    layout = tuple(INNER if d == ONE else d for d in target.dims)
    if target.more and not store.test.more:
        if value.more or value.rank:
            raise GiveUp(f"how many dimensions `{store.target}` has is not shown")
        target = replace(target, more=False)
    test = converted(store.test, layout, target.more)
    if store.op is not None:
        if not isinstance(store.op, (ast.Add, ast.Sub)):
            raise GiveUp("a product under a condition")
        amount = lifter.where(store.test, value, Lifted(ast.Constant(0), kind="number"))
        return ast.AugAssign(_as_target(target.code), store.op, converted(amount, layout, target.more))
    if not value.axes and not value.dims and not value.more:
        return ast.Expr(method(target.code, "masked_fill_", test, value.code))
    chosen = method(name("torch"), "where", test, converted(value, layout, target.more), _loaded(target.code))
    place = target.code if isinstance(target.code, ast.Subscript) else ast.Subscript(target.code, ast.Slice(), ast.Store())
    return ast.Assign([_as_target(place)], chosen)


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
    same = allocation is not None and allocation.dtype_of and _keeps_dtype(plan, value, amount, allocation)
    if value.axes and (_is_whole(amount) or not same):  # index_add_ and index_put_ do not convert, `+=` did
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
        if accumulator.is_count:
            code = method(code, "item")
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
    if accumulator.is_count:
        code = method(code, "item")
    return _updated(accumulator, operator, code, variable in plan.context.allocations)


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

"""The rewrite of one loop: which statements go, which come, and what a proof must run to compare both."""

from __future__ import annotations

import ast
import copy
import itertools
from dataclasses import dataclass, field, replace

from torchsleuth.linter.events import Frame
from torchsleuth.linter.values import TENSOR_METHODS
from torchsleuth.linter.vectorise import operators as ops
from torchsleuth.linter.vectorise.context import Context, context_of, is_dotted
from torchsleuth.linter.vectorise.lift import Gathered
from torchsleuth.linter.vectorise.lifted import (
    INNER, ONE, GiveUp, Lifted, RankUnknown, converted, expression, literal, method, name, number,
)  # fmt: skip
from torchsleuth.linter.vectorise.loops import Accumulator, Reader, Store, reduced

COLLECTORS = {"torch.stack": "stack", "torch.tensor": "tensor", "torch.cat": "cat", "torch.concat": "cat", "torch.as_tensor": "tensor",
              "torch.FloatTensor": "tensor", "torch.vstack": "vstack"}  # fmt: skip

EMPTY = frozenset({"torch.tensor([])", "torch.empty(0)", "torch.zeros(0)", "torch.Tensor()", "torch.Tensor([])", "torch.FloatTensor()"})


@dataclass
class Plan:
    loop: ast.stmt | ast.expr
    statements: list[ast.stmt] = field(default_factory=list)
    removed: list[ast.stmt] = field(default_factory=list)
    replaced: list[tuple[ast.expr, ast.expr]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    reader: Reader | None = None
    context: Context | None = None
    in_place: bool = False  # whether stores were kept as stores into what was allocated
    collected: list[tuple[ast.Call, str]] = field(default_factory=list)  # calls that collect a list, for the proof

    @property
    def assumptions(self) -> list[str]:
        return self.reader.lifter.assumptions if self.reader else []

    @property
    def is_sure(self) -> bool:
        return all(facts["sure"] for facts in self.reader.lifter.bases.values())


def plan_loop(loop: ast.For | ast.While, body: list[ast.stmt], position: int, frame: Frame, dotted, keep_stores: bool = False) -> Plan:
    """How to do without this loop; raises `GiveUp` with the reason where that is not known."""
    return _with_ranks(frame, loop, dotted, lambda reader: _plan_loop(loop, body, position, frame, reader, keep_stores))


def _with_ranks(frame: Frame, loop: ast.AST, dotted, attempt) -> Plan:
    """Try as it stands; where that fails for want of a number of dimensions, try the ones the indices suggest."""
    reader = Reader(context_of(frame, loop, dotted))
    try:
        return attempt(reader)
    except GiveUp as unknown:
        names = {n.id for n in ast.walk(loop) if isinstance(n, ast.Name)}
        unknown.has_tensors = any(facts["sure"] for facts in reader.lifter.bases.values()) or bool(names & reader.context.evidence)
        if not isinstance(unknown, RankUnknown):
            raise
        open_bases = {b: facts.get("entries", 1) for b, facts in reader.lifter.bases.items() if facts["rank"] is None}
        if not open_bases or len(open_bases) > 4:
            raise
        problem = unknown
    for ranks in _rank_choices(open_bases):
        context = context_of(frame, loop, dotted)
        context.exact_ranks.update(ranks)
        reader = Reader(context)
        try:
            plan = attempt(reader)
        except GiveUp:
            continue
        for base, rank in ranks.items():
            if base in reader.lifter.bases:
                reader.assumed_ranks.add(base)
                reader.lifter.assume(f"`{base}` has {rank} dimension{'s' * (rank != 1)}")
        return plan
    raise problem


def _rank_choices(open_bases: dict[str, int]):
    """As few assumptions as possible first: one tensor's rank, then two, then more."""
    for count in range(1, len(open_bases) + 1):
        for chosen in itertools.combinations(open_bases, count):
            for more in itertools.product((0, 1, 2) if count < 3 else (0, 1), repeat=count):
                yield {base: open_bases[base] + extra for base, extra in zip(chosen, more, strict=True)}


def _plan_loop(loop: ast.For | ast.While, body: list[ast.stmt], position: int, frame: Frame, reader: Reader, keep_stores: bool) -> Plan:
    context = reader.context
    reader._siblings = _siblings(loop)
    reader.read(loop, body[:position])
    plan = Plan(loop, reader=reader, context=context, in_place=keep_stores)
    _check_after(plan, frame, loop)
    before, after = body[:position], body[position + 1 :]
    finals: list[ast.stmt] = []
    targets = [store.target for store in reader.stores]
    if len(set(targets)) != len(targets):
        raise GiveUp("a tensor is written at several places")
    for store in reader.stores:
        finals.append(_store(plan, store, before, keep_stores))
    for accumulator in reader.accumulators.values():
        statement = _accumulated(plan, accumulator, before)
        if _is_used_after(accumulator.name, loop, frame):
            finals.append(statement)
        else:
            plan.outputs.remove(accumulator.name)
    for variable, gathered in reader.grown.items():
        start = _initial(plan, variable, before)
        if start is None or ast.unparse(start[1]) not in EMPTY:
            raise GiveUp(f"`{variable}` does not start empty just before the loop")
        plan.removed.append(start[0])
        plan.outputs.append(variable)
        code = _concatenated(reader.lifter, gathered.element, gathered.axes[0], 0, "cat").code
        finals.append(ast.Assign([ast.Name(variable, ast.Store())], _own(code)))
    for variable, gathered in reader.lists.items():
        if reader.depths.get(variable, 0) == 0:
            _gathered(plan, variable, gathered, before, after, frame, finals)
    if not finals and not plan.replaced:
        raise GiveUp("it has no result that could be computed at once")
    plan.statements = _with_helpers(plan, finals)
    if isinstance(loop, ast.While):
        _drop_counter(plan, loop, before, frame)
    return _finished(plan)


def _require_evidence(plan: Plan) -> None:
    """Where no torch operation is involved, a loop over what may be a list or numbers is nobody's business."""
    lifter = plan.reader.lifter
    if not lifter.bases:
        raise GiveUp("no tensor is involved")
    if all(facts["sure"] or facts["kind"] == "index" for facts in lifter.bases.values()):
        return
    nodes = [n for n in ast.walk(plan.loop) if isinstance(n, (ast.Call, ast.Attribute))]
    for node in nodes:
        if isinstance(node, ast.Call):
            path = plan.context.dotted(node.func)
            if path.startswith("torch.") and path != "torch.arange":
                return
            if isinstance(node.func, ast.Attribute) and node.func.attr in TENSOR_METHODS and node.func.attr != "append":
                return
    if plan.collected or any(s.target in plan.context.allocations for s in plan.reader.stores):
        return
    raise GiveUp("nothing here shows that it runs over a tensor")


def _finished(plan: Plan) -> Plan:
    """Positions are made on the device of the tensors they are used with."""
    _require_evidence(plan)
    gone = {t.id for statement in plan.removed if isinstance(statement, ast.Assign) for t in statement.targets if isinstance(t, ast.Name)}
    device = next((b for b in plan.reader.lifter.bases if "." not in b and b not in gone), None)
    if device is not None:
        placer = _Placer(device)
        plan.statements = [placer.visit(s) for s in plan.statements]
        plan.replaced = [(node, placer.visit(code)) for node, code in plan.replaced]
    return plan


class _Placer(ast.NodeTransformer):
    def __init__(self, tensor: str) -> None:
        self.tensor = tensor

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.func) == "torch.arange" and not node.keywords:
            return ast.Call(node.func, node.args, [ast.keyword("device", expression(f"{self.tensor}.device"))])
        return node


def _is_used_after(variable: str, loop: ast.AST, frame: Frame) -> bool:
    if frame.is_script:
        return True
    outer = any(isinstance(n, (ast.For, ast.While)) and n is not loop and n.lineno <= loop.lineno and n.end_lineno >= loop.end_lineno
                for n in _function_nodes(frame.node))  # fmt: skip
    return outer or any(isinstance(n, ast.Name) and n.id == variable and isinstance(n.ctx, ast.Load) and n.lineno > loop.end_lineno
                        for n in _function_nodes(frame.node))  # fmt: skip


def plan_comprehension(call: ast.Call, node: ast.ListComp | ast.GeneratorExp, kind: str, frame: Frame, dotted) -> Plan:
    """`torch.stack([f(x[i]) for i in range(n)])` as one expression."""

    def attempt(reader: Reader) -> Plan:
        gathered = _read_comprehension(node, reader)
        plan = Plan(call, reader=reader, context=reader.context)
        value = _collect(plan, gathered, kind, _collect_dim(call) if kind != "sum" else 0)
        plan.replaced = [(call, value.code)]
        return _finished(plan)

    return _with_ranks(frame, call, dotted, attempt)


def plan_assigned_comprehension(statement: ast.Assign, body: list[ast.stmt], position: int, frame: Frame, dotted) -> Plan:
    """`rows = [f(x[i]) for i in range(n)]`, stacked later."""

    def attempt(reader: Reader) -> Plan:
        gathered = _read_comprehension(statement.value, reader)
        plan = Plan(statement, reader=reader, context=reader.context)
        finals: list[ast.stmt] = []
        _gathered(plan, statement.targets[0].id, gathered, [], body[position + 1 :], frame, finals)
        plan.statements = finals
        return _finished(plan)

    return _with_ranks(frame, statement, dotted, attempt)


def _read_comprehension(node: ast.ListComp | ast.GeneratorExp, reader: Reader) -> Gathered:
    reader._prepare(node)
    axes = []
    for generator in node.generators:
        if generator.ifs or generator.is_async:
            raise GiveUp("what is gathered depends on a condition")
        axes.append(reader._for_axis(generator.target, generator.iter))
    if isinstance(node.elt, (ast.ListComp, ast.List)):
        raise GiveUp("a list of lists")
    value = reader.lifter.lift(node.elt)
    if any(a.name not in value.axes for a in axes):
        raise GiveUp("the same value is gathered in every turn")
    return Gathered(tuple(a.name for a in axes), value)


# Results ------------------------------------------------------------------------------------------


def _collect_dim(call: ast.Call) -> int:
    from torchsleuth.linter.vectorise.context import integer

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


def _collect(plan: Plan, gathered: Gathered, kind: str, dim: int) -> Lifted:
    lifter, value = plan.reader.lifter, gathered.element
    if value is None:
        raise GiveUp("the list stays empty")
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
        return _concatenated(lifter, value, axis, dim, kind)
    out = ops.unlooped(value, axis, dim)
    return replace(out, code=_own(_maybe_detached(out.code, kind, value)))


VIEWING = frozenset("transpose permute unsqueeze squeeze movedim flatten detach view expand reshape".split())


def _own(code: ast.expr) -> ast.expr:
    """A loop fills memory of its own: what would share memory with a tensor is copied."""
    inner = code
    while True:
        if isinstance(inner, ast.Attribute) and inner.attr in ("T", "mT"):
            inner = inner.value
            continue
        if is_dotted(inner) and not (isinstance(inner, ast.Attribute) and inner.attr in ("values", "indices")):
            return method(code, "clone")
        if isinstance(inner, ast.Subscript):
            parts = inner.slice.elts if isinstance(inner.slice, ast.Tuple) else [inner.slice]
            if not all(isinstance(p, (ast.Slice, ast.Constant, ast.UnaryOp)) for p in parts):
                return code
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


def _concatenated(lifter, value: Lifted, axis: str, dim: int, kind: str) -> Lifted:
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
        return Lifted(method(code, "flatten", number(0), number(1)), (INNER, *value.dims[2:]), value.more)
    order = [*range(1, dim + 1), 0, *range(dim + 1, len(value.dims))]
    from torchsleuth.linter.vectorise.lifted import permuted

    moved = permuted(value.code, order)
    return Lifted(method(moved, "flatten", number(dim), number(dim + 1)), (INNER,) * value.rank)


def _store(plan: Plan, store: Store, before: list[ast.stmt], keep: bool) -> ast.stmt:
    reader = plan.reader
    lifter = reader.lifter
    lifter.axes = [a for a in _all_axes(plan) if a.name in store.axes]
    plan.outputs.append(store.target)
    written = lifter.written.pop(store.target, None)
    out = lifter.base(expression(store.target))
    if out.more and not store.value.more:
        if store.value.axes and len(store.entries) == 1 and not any(lifter.loop_offset(e) is None for e in store.entries):
            raise GiveUp(f"how many dimensions `{store.target}` has is not shown")
        out = ops.ranked(lifter, out, _fixed_rank(store))
    direct = {found[0].name for e in store.entries if (found := lifter.loop_offset(e)) is not None}
    target = lifter.index(out, store.entries)
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
    if fills and covers and whole_shape and not keep and _keeps_dtype(value, code, allocation) and not _reads(code, store.target):
        plan.removed.append(allocation.statement)
        return ast.Assign([ast.Name(store.target, ast.Store())], _own(code))
    if store.op is not None:
        return ast.AugAssign(_as_target(target.code), store.op, code)
    place = target.code if not is_plain else ast.Subscript(target.code, ast.Slice(), ast.Store())
    return ast.Assign([_as_target(place)], code)


def _fixed_rank(store: Store) -> int:
    return len(store.entries)


def _join_layout(lifter, value: Lifted, target: Lifted) -> None:
    mine = [s for d, s in zip(value.dims, value.sizes, strict=False) if d == INNER]
    theirs = [s for d, s in zip(target.dims, target.sizes, strict=False) if d == INNER]
    for a, b in zip(reversed(mine), reversed(theirs), strict=False):
        lifter.equal.join(a, b)


def _keeps_dtype(value: Lifted, code: ast.expr, allocation) -> bool:
    """A store casts to the dtype of what was allocated; an assignment does not."""
    if allocation.like and allocation.has_dtype:
        return value.kind not in ("bool", "index") and not _is_integer_code(code)
    if allocation.has_dtype:
        return False
    return value.kind not in ("bool", "index") and not _is_integer_code(code)


def _is_integer_code(code: ast.expr) -> bool:
    if isinstance(code, ast.Call) and isinstance(code.func, ast.Attribute):
        if code.func.attr in ("argmax", "argmin", "long", "int", "bool", "any", "all", "count_nonzero", "arange"):
            return True
        if code.func.attr == "where" and len(code.args) == 3:
            return all(isinstance(a, ast.Constant) for a in code.args[1:])
        if code.func.attr in ("sum",) and isinstance(code.func.value, ast.Compare):
            return True
    return isinstance(code, ast.Compare) or (isinstance(code, ast.Attribute) and code.attr == "indices")


def _masked(plan: Plan, store: Store, target: Lifted, value: Lifted) -> ast.stmt:
    lifter = plan.reader.lifter
    layout = tuple(INNER if d == ONE else d for d in target.dims)
    if target.more and not store.test.more:
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
    from torchsleuth.linter.vectorise.lifted import subscript

    layout = tuple(INNER if d == ONE else d for d in target.dims)
    value = store.value
    if value.more and not target.more:
        value = ops.ranked(lifter, value, target.rank) if isinstance(value.code, ast.Name) else replace(value, more=False)
    code = ast.BinOp(subscript(expression(store.target), first), store.op, converted(value, layout, target.more and value.more))
    return ast.Assign([_as_target(target.code)], code)


def _accumulated(plan: Plan, accumulator: Accumulator, before: list[ast.stmt]) -> ast.stmt:
    variable, value = accumulator.name, accumulator.value
    if value.axes:
        raise GiveUp(f"`{variable}` is not reduced over every loop")
    plan.outputs.append(variable)
    start = _initial(plan, variable, before)
    code = value.code
    if start is None:
        if accumulator.how in ("amax", "amin"):
            raise GiveUp(f"where `{variable}` starts is not shown")
        operator = ast.Mult() if accumulator.how == "prod" else ast.Add() if accumulator.sign > 0 else ast.Sub()
        return ast.AugAssign(ast.Name(variable, ast.Store()), operator, code)
    statement, initial = start
    text = ast.unparse(initial)
    neutral = {"sum": ("0", "0.0"), "prod": ("1", "1.0")}.get(accumulator.how, ())
    if text in neutral:
        plan.removed.append(statement)
        if accumulator.is_count:
            code = method(code, "item")
        if accumulator.sign < 0:
            code = ast.UnaryOp(ast.USub(), code)
        return ast.Assign([ast.Name(variable, ast.Store())], code)
    if accumulator.how in ("amax", "amin"):
        axis = next((a for a in _all_axes(plan)), None)
        if isinstance(initial, ast.Subscript) and ast.unparse(initial.value) == _extreme_source(value.code):
            plan.removed.append(statement)
            whole = expression(ast.unparse(initial.value))
            if axis is not None and axis.start == 1 and ast.unparse(initial.slice) == "0":
                return ast.Assign([ast.Name(variable, ast.Store())], _with_source(value.code, whole))
            return ast.Assign([ast.Name(variable, ast.Store())], code)
        if "inf" in text:
            plan.removed.append(statement)
            return ast.Assign([ast.Name(variable, ast.Store())], code)
        raise GiveUp(f"`{variable}` starts from `{text}`")
    operator = ast.Mult() if accumulator.how == "prod" else ast.Add() if accumulator.sign > 0 else ast.Sub()
    if accumulator.is_count:
        code = method(code, "item")
    return ast.AugAssign(ast.Name(variable, ast.Store()), operator, code)


def _extreme_source(code: ast.expr) -> str:
    """`x` of `x[1:].max()` or `x.amax(dim=0)`."""
    if isinstance(code, ast.Call) and isinstance(code.func, ast.Attribute):
        inner = code.func.value
        return ast.unparse(inner.value if isinstance(inner, ast.Subscript) else inner)
    return ""


def _with_source(code: ast.Call, source: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(source, code.func.attr, ast.Load()), code.args, code.keywords)


def _initial(plan: Plan, variable: str, before: list[ast.stmt]) -> tuple[ast.Assign, ast.expr] | None:
    """The statement just before that sets an accumulator, if nothing else looks at it in between."""
    for statement in reversed(before):
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name) and target.id == variable:
                return statement, statement.value
        if _reads(statement, variable):
            return None
    return None


def _gathered(plan: Plan, variable: str, gathered: Gathered, before, after, frame: Frame, finals: list[ast.stmt]) -> None:
    if gathered.element is None:
        raise GiveUp(f"nothing is appended to `{variable}`")
    loop = plan.loop
    uses = [n for n in _function_nodes(frame.node) if isinstance(n, ast.Name) and n.id == variable and isinstance(n.ctx, ast.Load)
            and not loop.lineno <= n.lineno <= loop.end_lineno]  # fmt: skip
    uses.sort(key=lambda n: (n.lineno, n.col_offset))
    if len(uses) > 1 and after and _rebinds(after, uses[0], variable):
        uses = uses[:1]  # `rows = torch.stack(rows)`: what follows reads the tensor
    if len(uses) != 1:
        raise GiveUp(f"the list `{variable}` is used {'at several places' if uses else 'nowhere'} after the loop")
    call = next((n for n in _function_nodes(frame.node) if isinstance(n, ast.Call) and n.args and n.args[0] is uses[0]), None)
    kind = None
    if call is not None and call.lineno > loop.lineno:
        kind = COLLECTORS.get(plan.context.dotted(call.func)) or ("sum" if isinstance(call.func, ast.Name) and call.func.id == "sum" and len(call.args) == 1 else None)
    if kind is None:
        raise GiveUp(f"the list `{variable}` itself is used after the loop")
    if any(k.arg in ("dtype", "device") for k in call.keywords):
        raise GiveUp("what is gathered is given another dtype or device")
    start = _initial(plan, variable, before) if before else None
    if before:
        if start is None or ast.unparse(start[1]) not in ("[]", "list()"):
            raise GiveUp(f"`{variable}` does not start as an empty list just before the loop")
        plan.removed.append(start[0])
    value = _collect(plan, gathered, kind, _collect_dim(call) if kind != "sum" else 0)
    plan.collected.append((call, variable))
    directly = after and any(n is call for n in ast.walk(after[0])) and not isinstance(after[0], (ast.For, ast.While, ast.If, ast.With, ast.Try))
    if directly:
        plan.replaced.append((call, value.code))
    else:
        finals.append(ast.Assign([ast.Name(variable, ast.Store())], value.code))
        plan.replaced.append((call, ast.Name(variable, ast.Load())))


def _rebinds(after: list[ast.stmt], use: ast.Name, variable: str) -> bool:
    for statement in after:
        if any(n is use for n in ast.walk(statement)):
            return isinstance(statement, ast.Assign) and any(isinstance(t, ast.Name) and t.id == variable for t in statement.targets)
    return False


# Around the loop --------------------------------------------------------------------------------------


def _allocation(plan: Plan, target: str, before: list[ast.stmt]):
    allocation = plan.context.allocations.get(target)
    if allocation is None or plan.context.counts.get(target) != 1:
        return None
    for place, statement in enumerate(before):
        if statement is allocation.statement:
            between = before[place + 1 :]
            return None if any(_reads(s, target) for s in between) else allocation
    return None


def _check_after(plan: Plan, frame: Frame, loop: ast.stmt) -> None:
    """Helpers and loop variables must not be used after the loop: they would no longer exist."""
    results = {*plan.reader.grown, *plan.reader.accumulators, *(s.target for s in plan.reader.stores), *plan.reader.lists}
    hidden = plan.reader.bound - results
    outer = any(isinstance(n, (ast.For, ast.While)) and n is not loop and n.lineno <= loop.lineno and n.end_lineno >= loop.end_lineno
                for n in _function_nodes(frame.node))  # fmt: skip
    seen_store: set[str] = set()
    for node in sorted((n for n in _function_nodes(frame.node) if isinstance(n, ast.Name)), key=lambda n: (n.lineno, n.col_offset)):
        if node.id not in hidden or loop.lineno <= node.lineno <= loop.end_lineno:
            continue
        if isinstance(node.ctx, ast.Store):
            if node.lineno > loop.end_lineno:
                seen_store.add(node.id)
        elif (node.lineno > loop.end_lineno or outer) and node.id not in seen_store:
            if any(isinstance(n, ast.comprehension) and node.id in {t.id for t in ast.walk(n.target) if isinstance(t, ast.Name)}
                   for n in _function_nodes(frame.node)):  # fmt: skip
                continue
            raise GiveUp(f"`{node.id}` is used after the loop")


def _drop_counter(plan: Plan, loop: ast.While, before: list[ast.stmt], frame: Frame) -> None:
    counter = loop.test.left.id
    for statement in reversed(before):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name) and statement.targets[0].id == counter:
            others = [n for n in _function_nodes(frame.node) if isinstance(n, ast.Name) and n.id == counter
                      and not loop.lineno <= n.lineno <= loop.end_lineno and n is not statement.targets[0]]  # fmt: skip
            if not others:
                plan.removed.append(statement)
            return


def _with_helpers(plan: Plan, finals: list[ast.stmt]) -> list[ast.stmt]:
    """Helper variables of the loop that the new code needs more than once keep their names."""
    out = list(finals)
    expressions = [code for _, code in plan.replaced]
    hoisted: list[ast.stmt] = []
    counts: dict[str, int] = {}
    for variable, _ in plan.reader.helpers:
        counts[variable] = counts.get(variable, 0) + 1
    outputs = set(plan.outputs)
    for variable, value in reversed(plan.reader.helpers):
        if counts[variable] != 1 or variable in outputs:
            continue
        forms = [value.code, *([value.kept[0]] if value.kept else [])]
        best, most = None, 1
        for form in forms:
            if not any(isinstance(n, (ast.Call, ast.BinOp, ast.Compare)) for n in ast.walk(form)):
                continue
            text = ast.unparse(form)
            found = sum(_occurrences(s, text) for s in [*out, *hoisted, *expressions])
            if found > most:
                best, most = text, found
        if best is not None:
            replacer = _Replacer(best, variable)
            out = [replacer.visit(copy.deepcopy(s)) for s in out]
            hoisted = [replacer.visit(copy.deepcopy(s)) for s in hoisted]
            plan.replaced = [(node, replacer.visit(copy.deepcopy(code))) for node, code in plan.replaced]
            expressions = [code for _, code in plan.replaced]
            hoisted.insert(0, ast.Assign([ast.Name(variable, ast.Store())], expression(best)))
    return [*hoisted, *out]


class _Replacer(ast.NodeTransformer):
    def __init__(self, text: str, variable: str) -> None:
        self.text, self.variable = text, variable

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and ast.unparse(node) == self.text:
            return ast.Name(self.variable, ast.Load())
        return super().generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return node


def _occurrences(node: ast.AST, text: str) -> int:
    return sum(1 for n in ast.walk(node) if isinstance(n, (ast.Call, ast.BinOp, ast.Compare)) and ast.unparse(n) == text)


def _all_axes(plan: Plan):
    return plan.reader.all_axes


def _siblings(loop: ast.AST) -> dict[int, list[ast.stmt]]:
    """For each nested loop, the statements before it in its own block."""
    found: dict[int, list[ast.stmt]] = {}
    for node in ast.walk(loop):
        for block in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if isinstance(block, list):
                for place, statement in enumerate(block):
                    if isinstance(statement, (ast.For, ast.While)):
                        found[id(statement)] = block[:place]
    return found


def _function_nodes(function: ast.AST):
    for statement in getattr(function, "body", []):
        yield from ast.walk(statement)


def _as_target(code: ast.expr) -> ast.expr:
    code = expression(ast.unparse(code))
    code.ctx = ast.Store()
    return code


def _reads(node: ast.AST, variable: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == variable for n in ast.walk(node))


__all__ = ["Plan", "literal", "plan_assigned_comprehension", "plan_comprehension", "plan_loop"]

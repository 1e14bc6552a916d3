"""From the statements of a loop to the tensor statements that do the same for all turns at once.

A loop nest is read from the outside in: each loop adds an axis, helper variables become lifted values,
stores, appends and accumulations are collected, and on leaving a loop its accumulators are reduced over it.
"""

from __future__ import annotations

import ast
import itertools
from dataclasses import dataclass, field, replace

from torchsleuth.linter.vectorise import operators as ops
from torchsleuth.linter.vectorise.axes import Axis, Gathered
from torchsleuth.linter.vectorise.branches import Branches, Store
from torchsleuth.linter.vectorise.context import Context, integer, is_dotted
from torchsleuth.linter.vectorise.guarded import require_finite
from torchsleuth.linter.vectorise.headers import Headers
from torchsleuth.linter.vectorise.lift import Lifter, chain_root
from torchsleuth.linter.vectorise.lifted import GiveUp, Lifted, RankUnknown, Recurrence, expression, method
from torchsleuth.linter.vectorise.totals import Accumulator, Totals, cumulative, reads_name, update_of


@dataclass
class Reader(Headers, Branches, Totals):
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
    bounds: dict[str, ast.expr] = field(default_factory=dict)  # of loops that start or end where the loop around them stands
    apart: set[str] = field(default_factory=set)  # tensors written at several places, none of which is another one
    plain_numbers: set[str] = field(default_factory=set)  # helpers that are numbers of Python's in every turn

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
        places: dict[str, dict[str, ast.Subscript]] = {}
        for node in ast.walk(loop):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.lifter.carried.setdefault(node.id, f"set in line {node.lineno}")
                self.bound.add(node.id)
            if isinstance(node, ast.Subscript) and (ahead := _looks_ahead(node.slice)):
                known = self.lifter.longer.setdefault(ast.unparse(node.value), {})
                known.update({place: max(offset, known.get(place, 0)) for place, offset in ahead.items()})
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                owner = chain_root(node)
                if is_dotted(owner):
                    places.setdefault(ast.unparse(owner), {})[ast.unparse(node)] = node
        for text, written in places.items():
            if len(written) > 1 and not _never_meet(list(written.values())):
                raise GiveUp(f"`{text}` is written at several indices")
            self.lifter.written[text] = next(iter(written)) if len(written) == 1 else "several"
            if len(written) > 1:
                self.apart.add(text)

    def _loop(self, loop: ast.For | ast.While, before: list[ast.stmt]) -> None:
        if loop.orelse:
            raise GiveUp("it has an `else`")
        body = list(loop.body)
        if isinstance(loop, ast.While):
            axis = self._while_axis(loop, body, before)
        else:
            axis = self._for_axis(loop.target, loop.iter)
        known = set(self.lifter.env)
        bound = self.bounds.pop(axis.name, None)
        if bound is not None:
            self.tests.append(replace(self.lifter.condition(bound), band=self._band(bound)))
        self._body(body)
        if bound is not None:
            self.tests.pop()
        self._leave(axis)
        for variable in set(self.lifter.env) - known:
            value = self.lifter.env[variable]
            if isinstance(value, Lifted) and axis.name in value.axes:
                # A helper's last value is not available outside; whoever reads it will be told.
                del self.lifter.env[variable]
                self.lifter.carried[variable] = "set in an inner loop"

    def _band(self, bound: ast.Compare) -> tuple[str, str, str, int]:
        """`j >= i + k` or `j < i + k` as the part of a matrix it is."""
        outer, offset = self.lifter.loop_offset(bound.comparators[0])
        return ("triu", outer.name, bound.left.id, offset) if isinstance(bound.ops[0], ast.GtE) else ("tril", outer.name, bound.left.id, offset - 1)

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
            elif isinstance(value, (ast.Subscript, ast.Name)) and all(isinstance(t, ast.Name) for t in target.elts):
                for part, one in zip(target.elts, self.parts_of(self.lifter.lift(value), len(target.elts)), strict=True):
                    self._set(part.id, one)
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
        update = update_of(variable, value)
        is_outer = variable not in self.lifter.env or self.depths.get(variable, 0) < len(self.lifter.axes)
        if update is not None and (variable in self.lifter.carried or variable in self.lifter.env) and is_outer:
            operator, other = update
            self._accumulate(variable, operator, other, rebinds=True)
            return
        if self.context.value(variable) is not None and variable in self.lifter.carried and reads_name(value, variable):
            pass  # lifting will say that it is a recurrence
        self._set(variable, self.lifter.lift(value))
        (self.plain_numbers.add if self.is_python_number(value) else self.plain_numbers.discard)(variable)

    def _grown_by(self, variable: str, value: ast.expr) -> ast.expr | None:
        """`v = torch.cat([v, piece])` -> the piece."""
        if not isinstance(value, ast.Call) or self.context.dotted(value.func) not in ("torch.cat", "torch.concat"):
            return None
        if len(value.args) != 1 or not isinstance(value.args[0], (ast.List, ast.Tuple)) or len(value.args[0].elts) != 2:
            return None
        if any(k.arg != "dim" or integer(k.value) != 0 for k in value.keywords):
            return None
        first, piece = value.args[0].elts
        return piece if isinstance(first, ast.Name) and first.id == variable and not reads_name(piece, variable) else None

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
        if value.doubt and not (value.rows_of and self.context.like.get(text, text) == value.rows_of):
            raise GiveUp(value.doubt)  # unless a row of the same shape takes it, which nothing wider would fit into
        like = self.context.like
        if op is not None and rank is None and value.more and value.axes and like.get(value.root, value.root) != like.get(text, text):
            raise GiveUp(f"`{text}` and `{value.root}` may have different numbers of dimensions")  # `image[c] *= s[c]`: a number for each channel?
        self.lifter.wanted_rank = None
        test = self._test() if self.tests else None
        if test is not None and value.axes and not self.context.frame.no_grad:
            require_finite(value.code, self.lifter.numbers)
        read = {n.id for e in entries for n in ast.walk(e) if isinstance(n, ast.Name)}
        helpers = {n: v for n, v in self.lifter.env.items() if n in read}
        self.stores.append(Store(text, entries, value, op, axes, test, tuple(self.tests), helpers=helpers))

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
                if value.kind == "index":  # products of whole numbers soon exceed what they can hold
                    value = replace(value, code=method(value.code, "to", expression(f"{text}.dtype")), kind="tensor")
                return cumulative(value, now[0].name, "cumsum" if isinstance(node.op, ast.Add) else "cumprod"), node.op
        return None


def _looks_ahead(index: ast.expr) -> dict[int, int]:
    """`v[t + 1]`: in which dimensions it reaches further than the loop, and how far."""
    entries = index.elts if isinstance(index, ast.Tuple) else [index]
    return {place: offset for place, e in enumerate(entries) if isinstance(e, ast.BinOp) and isinstance(e.op, ast.Add) and isinstance(e.left, ast.Name)
            and (offset := integer(e.right) or 0) > 0}  # fmt: skip


def _never_meet(places: list[ast.Subscript]) -> bool:
    """`r[i, 0, 0]` and `r[i, 0, 1]`: any two of them differ in a number that stands at the same place."""
    if not all(is_dotted(p.value) for p in places):
        return False
    entries = [p.slice.elts if isinstance(p.slice, ast.Tuple) else [p.slice] for p in places]

    def differ(one: list[ast.expr], other: list[ast.expr]) -> bool:
        numbers = [(integer(a), integer(b)) for a, b in zip(one, other, strict=False)]
        return any(None not in pair and pair[0] != pair[1] and min(pair) >= 0 for pair in numbers)

    return all(differ(a, b) for a, b in itertools.combinations(entries, 2))


def _scalar_part(node: ast.expr) -> ast.expr:
    return node


def _mentions(node: ast.AST, text: str) -> bool:
    return any(isinstance(n, (ast.Name, ast.Attribute)) and ast.unparse(n) == text for n in ast.walk(node))

"""From an expression in a loop body to the same expression over all turns at once."""

from __future__ import annotations

import ast
import contextlib
import copy
from dataclasses import dataclass, field, replace

from torchsleuth.linter.vectorise import operators as ops
from torchsleuth.linter.vectorise.axes import Axis, Gathered
from torchsleuth.linter.vectorise.context import Context, integer, is_dotted, size_expression
from torchsleuth.linter.vectorise.guarded import require_finite
from torchsleuth.linter.vectorise.indexing import Indexing
from torchsleuth.linter.vectorise.lifted import (
    INNER,
    Equal,
    GiveUp,
    Lifted,
    RankUnknown,
    Recurrence,
    SizeKey,
    aligned,
    converted,
    expression,
    method,
    name,
    number,
)  # fmt: skip

BITWISE = (ast.LShift, ast.RShift, ast.BitAnd, ast.BitOr, ast.BitXor)  # whole numbers only: `uint8 >> 1` stays uint8, `uint8 >> torch.arange(8)` does not


@dataclass
class Lifter(Indexing):
    context: Context
    axes: list[Axis] = field(default_factory=list)  # the loops we stand in
    seen: list[str] = field(default_factory=list)  # every loop there was, in order
    env: dict[str, Lifted | Gathered] = field(default_factory=dict)
    carried: dict[str, str] = field(default_factory=dict)  # names assigned in the loop -> why they cannot be read yet
    equal: Equal = field(default_factory=Equal)
    bases: dict[str, dict] = field(default_factory=dict)  # tensors read: what is known of each
    numbers: set[str] = field(default_factory=set)
    weights: dict[str, tuple[str, str]] = field(default_factory=dict)  # given to `F.linear`: "weight" or "bias", and what is multiplied
    zipped: list[str] = field(default_factory=list)  # what a `zip` runs over beside its first: nothing says that it is as long
    modules: dict[str, str] = field(default_factory=dict)  # `self.linear` -> class
    adding: bool = False  # the place of a `+=` or `-=`
    storing: bool = False  # reading the place that is written to: what is not shown to be filled is not
    reducing: int = 0  # inside the argument of a sum, a mean or a norm
    wanted_rank: int | None = None  # inner rank that the place of storing asks for
    multiplied: bool = False  # what is read next is a factor of a matrix product
    product_rank: int | None = None  # the same for the product that is being read
    assumptions: list[str] = field(default_factory=list)
    written: dict[str, str] = field(default_factory=dict)  # tensors the loop writes to -> the place it writes, which it may read
    windows: dict[str, dict[int, list[tuple[SizeKey, int]]]] = field(default_factory=dict)  # dimensions cut into windows, and the room they need
    columns: dict[tuple[str, int], int] = field(default_factory=dict)  # dimensions that the loop unpacks, and so knows the size of
    longer: dict[str, dict[int, int]] = field(default_factory=dict)  # `v[t + 1]`: the dimensions indexed beyond the loop's positions, and how far
    inside: set[int] = field(default_factory=set)  # `x[0]` of `x[0][j]`, read as a part of the whole

    @property
    def order(self) -> list[str]:
        return self.seen

    def axis(self, label: str) -> Axis | None:
        return next((a for a in self.axes if a.name == label), None)

    @contextlib.contextmanager
    def inside_call(self):
        """What is read here is not stored itself: the place of storing says nothing of its dimensions."""
        outer, self.wanted_rank = self.wanted_rank, None
        try:
            yield
        finally:
            self.wanted_rank = outer

    def lift(self, node: ast.expr) -> Lifted:
        handler = HANDLERS.get(type(node))
        if handler is None:
            raise GiveUp(f"`{ast.unparse(node)[:40]}` is not understood")
        return handler(self, node)

    def _constant(self, node: ast.Constant) -> Lifted:
        if isinstance(node.value, (int, float)):
            return Lifted(node, kind="number", is_constant=True)
        raise GiveUp(f"the constant `{ast.unparse(node)}` is not a number")

    def _name(self, node: ast.Name) -> Lifted:
        if node.id in self.env:
            value = self.env[node.id]
            if isinstance(value, Gathered):
                raise GiveUp(f"the list `{node.id}` is used as it is")
            return value
        if node.id in self.carried:
            raise Recurrence(f"`{node.id}` carries a value from one turn to the next ({self.carried[node.id]})")
        axis = self.axis(node.id)
        if axis is not None:
            return self.positions(axis)
        return self.invariant(node)

    def positions(self, axis: Axis) -> Lifted:
        """The loop variable itself, as a tensor of all its values."""
        sure = [b for b, facts in self.bases.items() if facts.get("sure", True)]
        device = min(sure, key=lambda b: "." in b, default="")  # a name before an attribute
        bounds = [axis.stop_code] if axis.start == 0 else [number(axis.start), axis.stop_code]
        keywords = {"device": expression(f"{device}.device")} if device else {}
        code = method(name("torch"), "arange", *bounds, **keywords)
        return Lifted(code, (axis.name,), sizes=(self.axis_size(axis),), kind="index")

    def axis_size(self, axis: Axis) -> SizeKey:
        return axis.stop[0] if axis.is_whole else ("span", axis.name)

    def invariant(self, node: ast.expr) -> Lifted:
        """An expression that does not change from turn to turn."""
        text = ast.unparse(node)
        self._check_unwritten(text)
        value = self.context.value(text)
        if value is not None and value.is_tensor:
            return self.base(node)
        if value is not None and value.kind in ("list", "dict", "module", "tuple", "numpy", "str"):
            raise GiveUp(f"`{text}` is not a tensor")
        rank = self.context.rank(text)
        if rank is not None or (text in self.context.evidence and text not in self.context.against):
            return self.base(node)
        if text in self.context.sized and text in self.context.arguments:
            return self.base(node)
        if size_expression(node) is None:
            if not self.context.is_number(text):
                raise GiveUp(f"nothing here shows what `{text}` is")
            self.numbers.add(text)
        return Lifted(copy.deepcopy(node), kind="free")

    def base(self, node: ast.expr) -> Lifted:
        """A tensor from outside the loop."""
        text = ast.unparse(node)
        sure = self.context.require_tensor(text)
        rank = self.context.rank(text)
        facts = self.bases.setdefault(text, {"sure": sure, "kind": "float", "rank": rank, "extra": 0})
        facts["rank"] = rank
        self.numbers.discard(text)
        if rank is None:
            return Lifted(copy.deepcopy(node), more=True, root=text, root_used=0)
        sizes = tuple(self.context.canonical(("size", text, d)) for d in range(rank))
        return Lifted(copy.deepcopy(node), (INNER,) * rank, sizes=sizes, root=text)

    def _check_unwritten(self, text: str) -> None:
        if text in self.written:
            raise Recurrence(f"`{text}` is read in the loop that writes it")

    def _attribute(self, node: ast.Attribute) -> Lifted:
        if is_dotted(node) and isinstance(root := _root(node), ast.Name) and root.id not in self.env and root.id not in self.carried:
            if self.axis(root.id) is None and node.attr not in ("T", "mT", "values", "indices", "shape", "data"):
                path = self.context.dotted(node)
                if path.startswith(("torch.", "math.")):
                    return Lifted(copy.deepcopy(node), kind="number")
                if root.id == "self" or path.startswith(("config.", "args.", "cfg.")):
                    return self.invariant(node)
        if node.attr in ("values", "indices") and isinstance(node.value, ast.Call):
            return ops.pair_part(self, node.value, node.attr)
        if node.attr in ("T", "mT"):
            value = self.lift(node.value)
            return ops.transposed(self, value, -1, -2)
        if node.attr == "data":
            raise GiveUp("`.data` is used")
        raise GiveUp(f"the attribute `.{node.attr}` is not understood")

    def _unary(self, node: ast.UnaryOp) -> Lifted:
        value = self.lift(node.operand)
        if isinstance(node.op, ast.Not):
            if value.kind in ("number", "free"):
                raise GiveUp("a condition that does not depend on the loop")
            return replace(value, code=ast.UnaryOp(ast.Invert(), value.code), kept=None, kind="bool")
        code = ast.UnaryOp(node.op, value.code)
        kept = (ast.UnaryOp(node.op, value.kept[0]), value.kept[1]) if value.kept else None
        return replace(value, code=code, kept=kept)

    def _binop(self, node: ast.BinOp) -> Lifted:
        is_factor, self.multiplied = self.multiplied, False
        if isinstance(node.op, ast.MatMult):
            factors = []
            for part in (node.left, node.right):
                self.multiplied = isinstance(part, ast.BinOp)
                with self.inside_call():
                    factors.append(self.lift(part))
            self.product_rank = self.wanted_rank
            return ops.matmul(self, *factors, multiplied=is_factor)
        left, right = self.lift(node.left), self.lift(node.right)
        if isinstance(node.op, ast.Pow) and left.kind == "index" and not isinstance(node.right, ast.Constant):
            raise GiveUp("powers of whole numbers may overflow in a tensor")
        if isinstance(node.op, ast.Pow) and right.kind == "index" and integer(node.left) is not None and not self._counts_up(node.right):
            left = replace(left, code=expression(f"{float(integer(node.left))}"))  # Python's 2 ** -1 is 0.5, that of whole-number tensors is not
        if isinstance(node.op, BITWISE) and any(a.kind == "index" and a.axes and b.kind == "tensor" and (b.dims or b.more) for a, b in ((left, right), (right, left))):
            raise GiveUp("whole numbers of a dtype that nothing shows, which positions of the loop would widen")
        out = self.elementwise([left, right], lambda a, b: ast.BinOp(a, node.op, b))
        if isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor)) and left.kind == right.kind == "bool":
            return replace(out, kind="bool", kept=None)
        if not isinstance(node.op, (ast.Div, ast.Pow)) and all(v.kind == "index" or _is_whole_number(v) for v in (left, right)):
            out = replace(out, kind="index") if out.axes else out
        return replace(out, factors=(left, right)) if isinstance(node.op, ast.Mult) else out

    def _counts_up(self, node: ast.expr) -> bool:
        """`i`, `i + 1`: never below zero."""
        found = self.loop_offset(node)
        return found is not None and found[0].start + found[1] >= 0

    def _compare(self, node: ast.Compare) -> Lifted:
        if len(node.ops) != 1:
            parts = []
            left = node.left
            for op, right in zip(node.ops, node.comparators, strict=True):
                parts.append(self._compare(ast.Compare(left, [op], [right])))
                left = right
            return self._conjunction(parts, ast.BitAnd())
        if isinstance(node.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
            raise GiveUp(f"the test `{ast.unparse(node)}` is not a tensor comparison")
        left, right = self.lift(node.left), self.lift(node.comparators[0])
        if not left.axes and not right.axes:
            raise GiveUp(f"the test `{ast.unparse(node)}` does not depend on the loop")
        for a, b in ((left, right), (right, left)):
            if a.more and a.axes and b.more and not b.axes:
                # `scores <= level` for each level: as a rule the level is one number, and never to be lined up from the right
                raise RankUnknown(f"how many dimensions `{a.root}` has is not shown")
        out = self.elementwise([left, right], lambda a, b: ast.Compare(a, [node.ops[0]], [b]))
        return replace(out, kind="bool", kept=None)

    def _boolop(self, node: ast.BoolOp) -> Lifted:
        operator = ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr()
        return self._conjunction([self.condition(value) for value in node.values], operator)

    def _conjunction(self, parts: list[Lifted], operator: ast.operator) -> Lifted:
        out = parts[0]
        for part in parts[1:]:
            out = self.elementwise([out, part], lambda a, b: ast.BinOp(a, operator, b))
        return replace(out, kind="bool")

    def condition(self, node: ast.expr) -> Lifted:
        """A truth test over all turns; what it tests must be one number per turn."""
        self.mark_scalars(node)
        value = self.lift(node)
        if not value.axes:
            raise GiveUp(f"the test `{ast.unparse(node)}` does not depend on the loop")
        if value.kind == "bool":
            return value
        root = value.root
        if root in self.bases and isinstance(value.code, ast.Name):
            self.bases[root]["kind"] = "bool"
            return replace(value, code=method(value.code, "bool"), kept=None, kind="bool")
        return replace(value, code=ast.Compare(value.code, [ast.NotEq()], [ast.Constant(0)]), kept=None, kind="bool")

    def _ifexp(self, node: ast.IfExp) -> Lifted:
        test = self.condition(node.test)
        counters = {a.name for a in self.axes}
        tested = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)} & counters
        if tested and any(isinstance(n, ast.Subscript) and tested & {m.id for m in ast.walk(n.slice) if isinstance(m, ast.Name)}
                          for part in (node.body, node.orelse) for n in ast.walk(part)):  # fmt: skip
            raise GiveUp("an index that its condition keeps within bounds")
        return self.where(test, self.lift(node.body), self.lift(node.orelse))

    def where(self, test: Lifted, first: Lifted, second: Lifted) -> Lifted:
        for value in (first, second):
            if value.axes and not self.context.frame.no_grad:
                require_finite(value.code, self.numbers)
        if first.kind == "number" and second.kind == "number" and isinstance(first.code, ast.Constant):
            if isinstance(second.code, ast.Constant) and type(first.code.value) is not type(second.code.value):
                first = replace(first, code=ast.Constant(float(first.code.value)))
                second = replace(second, code=ast.Constant(float(second.code.value)))
        if test.band is not None and second.is_constant and isinstance(second.code, ast.Constant) and second.code.value == 0:
            part = self._part(test.band, first)
            if part is not None:
                return part
        out = self.elementwise([test, first, second], lambda c, a, b: method(name("torch"), "where", c, a, b))
        return replace(out, kind="bool" if first.kind == second.kind == "bool" else "tensor")

    def _part(self, band: tuple[str, str, str, int], value: Lifted) -> Lifted | None:
        """The values above or below a diagonal, zero elsewhere."""
        how, row, column, offset = band
        if value.more or row not in value.axes or column not in value.axes or value.kind == "bool":
            return None
        places = [p for p, d in enumerate(value.dims) if d not in (row, column)]
        layout = tuple(INNER if value.dims[p] == "1" else value.dims[p] for p in places) + (row, column)
        order = [*places, value.dims.index(row), value.dims.index(column)]
        sizes = tuple(value.sizes[p] if p < len(value.sizes) else None for p in order)
        return replace(value, code=method(converted(value, layout, False), how, number(offset)), dims=layout, sizes=sizes, kept=None, factors=None, whole=None)

    def elementwise(self, values: list[Lifted], build) -> Lifted:
        """The same operation on all turns at once, operands brought into one layout."""
        doubt, rows_of = self._doubt(values)
        codes, layout, more, sizes = aligned(values, self.order, self.equal)
        roots = [v.root for v in values if v.more and v.root]
        if len(set(roots)) > 1:
            rows = {v.root for v in values if v.more and v.root and v.axes}
            whole = sorted(set(roots) - rows)
            if rows and whole:
                self.assume(f"{_listed(whole)} {'have' if len(whole) > 1 else 'has'} no more dimensions than one turn of {_listed(sorted(rows))}")
            else:
                self.assume(f"{_listed(sorted(set(roots)))} have the same number of dimensions")
        root = roots[0] if roots else next((v.root for v in values if v.root), "")
        if not any(v.dims or v.more for v in values):
            free = any(v.kind in ("free", "tensor") for v in values)
            return Lifted(build(*codes), kind="free" if free else "number", is_constant=all(v.is_constant for v in values))
        kept, kept_more = self._kept(values, build)
        used = next((v.root_used for v in values if v.more and v.root == root), None)
        return Lifted(build(*codes), layout, more, sizes, "tensor", root=root, kept=kept, kept_more=kept_more, root_used=used, doubt=doubt, rows_of=rows_of)

    def _doubt(self, values: list[Lifted]) -> tuple[str, str]:
        """`x[i] * w[i]` with nothing known of either: a row times a number, or two rows? Not guessed, but under a sum."""
        known = next(((v.doubt, v.rows_of) for v in values if v.doubt), ("", ""))
        whole = {v.root for v in values if v.more and not v.axes and isinstance(v.code, (ast.Name, ast.Attribute))}
        if any(v.more and v.axes and v.root in whole for v in values):
            raise RankUnknown(f"how many dimensions `{next(iter(whole))}` has is not shown")  # `x - x[i]`: it has one more than its rows
        if self.reducing:
            return known
        open_rows = [v for v in values if v.more and v.axes]
        roots = {v.root for v in open_rows}
        if len(roots) > 1:
            return f"{_listed(sorted(roots))} may have different numbers of dimensions", ""
        free = [v for v in values if v.more and not v.axes and v.root and v.root not in roots]
        if roots and free:
            # `x[i] - mean` or `points - centre[i]`: which of them has more dimensions is not shown
            return f"{_listed(sorted({*roots, free[0].root}))} may have different numbers of dimensions", next(iter(roots))
        fixed = max((v.rank for v in values if v.rank and not v.more and not v.axes), default=0)
        for value in open_rows:
            if fixed > value.rank + self._least_more(value):  # `torch.eye(3) * c[i]`: it would meet the loop's dimension
                return f"how many dimensions `{value.root}` has is not shown", value.root
        tried = [v for v in values if v.axes and v.root in self.context.guessed]  # a number of dimensions that is tried shows nothing
        plain = [v for v in (*open_rows, *tried) if isinstance(v.code, (ast.Name, ast.Attribute, ast.Subscript))]
        if plain and any(v.axes and v.rank and not v.more and v.root not in self.context.guessed for v in values):
            raise GiveUp(f"how many dimensions `{plain[0].root}` has is not shown")
        return known

    def _least_more(self, value: Lifted) -> int:
        """How many of a value's unknown dimensions there are at least."""
        if value.root_used is None:
            return 0
        return max(0, self.context.least_ranks.get(value.root, 0) - value.root_used)

    def _kept(self, values: list[Lifted], build):
        """Reductions keep their dimensions through arithmetic with numbers: `(x.amax(…) - 1)`."""
        shaped = [v for v in values if v.dims or v.more]
        if not shaped or any(v.kept is None for v in shaped):
            return None, False
        dims = {v.kept[1] for v in shaped}
        if len(dims) != 1 or len({v.kept_more for v in shaped}) != 1:
            return None, False
        return (build(*(v.kept[0] if v.kept else v.code for v in values)), dims.pop()), shaped[0].kept_more

    def assume(self, text: str) -> None:
        if text not in self.assumptions:
            self.assumptions.append(text)

    def _subscript(self, node: ast.Subscript) -> Lifted:
        found = size_expression(node)
        if found is not None and _root_name(node) not in self.env and _root_name(node) not in self.carried:
            return Lifted(copy.deepcopy(node), kind="number")
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            return ops.size_of(self, self.lift(node.value.value), integer(node.slice))
        if isinstance(node.value, ast.Call) and integer(node.slice) in (0, 1, -1):
            part = ops.pair_part(self, node.value, "values" if integer(node.slice) == 0 else "indices", optional=True)
            if part is not None:
                return part
        entries = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        owner = chain_root(node)
        if id(node) not in self.inside and is_dotted(owner) and (text := ast.unparse(owner)) in self.written:
            if self.written[text] != ast.unparse(node):
                raise Recurrence(f"`{ast.unparse(node)}` is read in the loop that writes `{text}`")
        if isinstance(node.value, ast.Subscript):
            self.inside.add(id(node.value))
        if is_dotted(node.value):
            text = ast.unparse(node.value)
            if _root_name(node) not in self.env:
                if _root_name(node) in self.carried:
                    raise Recurrence(f"`{text}` carries a value from one turn to the next")
                value = self.base(node.value)
            else:
                value = self.lift(node.value)
        else:
            value = self.lift(node.value)
        return self.index(value, list(entries))

    def _call(self, node: ast.Call) -> Lifted:
        return ops.call(self, node)

    def _tuple(self, node: ast.expr) -> Lifted:
        raise GiveUp("a tuple or list is built in every turn")

    def _comprehension(self, node: ast.expr) -> Lifted:
        raise GiveUp("a comprehension inside the loop is not understood")


def _is_whole_number(value: Lifted) -> bool:
    return isinstance(value.code, ast.Constant) and isinstance(value.code.value, int)


def chain_root(node: ast.AST) -> ast.AST:
    """`x` of `x[0][j]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _root(node: ast.AST) -> ast.AST:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node


def _root_name(node: ast.AST) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        if isinstance(node, ast.Call):
            node = node.args[0] if isinstance(node.func, ast.Name) and node.args else node.func
        else:
            node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _listed(names: list[str]) -> str:
    quoted = [f"`{n}`" for n in names]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + " and " + quoted[-1]


HANDLERS = {
    ast.Constant: Lifter._constant, ast.Name: Lifter._name, ast.Attribute: Lifter._attribute, ast.UnaryOp: Lifter._unary,
    ast.BinOp: Lifter._binop, ast.Compare: Lifter._compare, ast.BoolOp: Lifter._boolop, ast.IfExp: Lifter._ifexp,
    ast.Subscript: Lifter._subscript, ast.Call: Lifter._call, ast.Tuple: Lifter._tuple, ast.List: Lifter._tuple,
    ast.ListComp: Lifter._comprehension, ast.GeneratorExp: Lifter._comprehension,
}  # fmt: skip

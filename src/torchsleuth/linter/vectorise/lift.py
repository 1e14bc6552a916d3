"""From an expression in a loop body to the same expression over all turns at once."""

from __future__ import annotations

import ast
import copy
import re
from dataclasses import dataclass, field, replace

from torchsleuth.linter.vectorise import operators as ops
from torchsleuth.linter.vectorise.context import Context, integer, is_dotted, size_expression
from torchsleuth.linter.vectorise.lifted import (
    FULL, INNER, Equal, GiveUp, Lifted, RankUnknown, Recurrence, SizeKey, aligned, expression, method, name, number, subscript,
)  # fmt: skip


# What holds positions, by its name: anything else of one or more dimensions may be a boolean mask.
INDEX_NAME = re.compile(r"id|ind|label|target|perm|order|pos|token|class|top|sort|argm|nbr|neigh|parent|arange", re.IGNORECASE)


# What holds one class or position for each example, by its name.
SEVERAL_NAME = re.compile(r"top|sort|rank|multi|cand|neigh", re.IGNORECASE)
LABEL_NAME = re.compile(r"label|target|class|^y$|^ys?_|_y$|gold|truth|answer|action|len", re.IGNORECASE)


@dataclass(frozen=True)
class Axis:
    """One loop: its variable runs from `start` to the size `stop` (a key and an offset)."""

    name: str
    start: int
    stop: tuple[SizeKey, int]
    stop_code: ast.expr

    @property
    def is_whole(self) -> bool:
        return self.start == 0 and self.stop[1] == 0


@dataclass
class Gathered:
    """A list that a loop appends to: one element per turn of `axis`."""

    axes: tuple[str, ...]
    element: Lifted | None
    is_number: bool = False


@dataclass
class Lifter:
    context: Context
    axes: list[Axis] = field(default_factory=list)  # the loops we stand in
    seen: list[str] = field(default_factory=list)  # every loop there was, in order
    env: dict[str, Lifted | Gathered] = field(default_factory=dict)
    carried: dict[str, str] = field(default_factory=dict)  # names assigned in the loop -> why they cannot be read yet
    equal: Equal = field(default_factory=Equal)
    bases: dict[str, dict] = field(default_factory=dict)  # tensors read: what is known of each
    numbers: set[str] = field(default_factory=set)
    modules: dict[str, str] = field(default_factory=dict)  # `self.linear` -> class
    reducing: int = 0  # inside the argument of a sum, a mean or a norm
    wanted_rank: int | None = None  # inner rank that the place of storing asks for
    assumptions: list[str] = field(default_factory=list)
    written: dict[str, str] = field(default_factory=dict)  # tensors the loop writes to -> index text it may read

    @property
    def order(self) -> list[str]:
        return self.seen

    def axis(self, label: str) -> Axis | None:
        return next((a for a in self.axes if a.name == label), None)

    # Expressions --------------------------------------------------------------------------------

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
        device = next((b for b, facts in self.bases.items() if facts.get("sure", True) and "." not in b), "")
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
            return Lifted(copy.deepcopy(node), more=True, root=text, as_root=True)
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
        if isinstance(node.op, ast.MatMult):
            return ops.matmul(self, self.lift(node.left), self.lift(node.right))
        left, right = self.lift(node.left), self.lift(node.right)
        out = self.elementwise([left, right], lambda a, b: ast.BinOp(a, node.op, b))
        if not isinstance(node.op, (ast.Div, ast.Pow)) and all(v.kind == "index" or _is_whole_number(v) for v in (left, right)):
            out = replace(out, kind="index") if out.axes else out
        return replace(out, factors=(left, right)) if isinstance(node.op, ast.Mult) else out

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
            if a.more and a.axes and b.more and not b.axes and a.root != b.root:
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
        return self.where(test, self.lift(node.body), self.lift(node.orelse))

    def where(self, test: Lifted, first: Lifted, second: Lifted) -> Lifted:
        if first.kind == "number" and second.kind == "number" and isinstance(first.code, ast.Constant):
            if isinstance(second.code, ast.Constant) and type(first.code.value) is not type(second.code.value):
                first = replace(first, code=ast.Constant(float(first.code.value)))
                second = replace(second, code=ast.Constant(float(second.code.value)))
        out = self.elementwise([test, first, second], lambda c, a, b: method(name("torch"), "where", c, a, b))
        return replace(out, kind="tensor")

    def elementwise(self, values: list[Lifted], build) -> Lifted:
        """The same operation on all turns at once, operands brought into one layout."""
        doubt = self._doubt(values)
        codes, layout, more, sizes = aligned(values, self.order, self.equal)
        roots = [v.root for v in values if v.more and v.root]
        if len(set(roots)) > 1:
            self.assume(f"{_listed(sorted(set(roots)))} have the same number of dimensions")
        root = roots[0] if roots else next((v.root for v in values if v.root), "")
        if not any(v.dims or v.more for v in values):
            free = any(v.kind in ("free", "tensor") for v in values)
            return Lifted(build(*codes), kind="free" if free else "number", is_constant=all(v.is_constant for v in values))
        kept, kept_more = self._kept(values, build)
        as_root = any(v.as_root and v.root == root and len(v.dims) == len(layout) for v in values if v.more)
        return Lifted(build(*codes), layout, more, sizes, "tensor", root=root, kept=kept, kept_more=kept_more, as_root=as_root, doubt=doubt)

    def _doubt(self, values: list[Lifted]) -> str:
        """`x[i] * w[i]` with nothing known of either: a row times a number, or two rows? Not guessed, but under a sum."""
        doubt = next((v.doubt for v in values if v.doubt), "")
        if self.reducing:
            return doubt
        open_rows = [v for v in values if v.more and v.axes]
        roots = {v.root for v in open_rows}
        if len(roots) > 1:
            return f"{_listed(sorted(roots))} may have different numbers of dimensions"
        plain = [v for v in open_rows if isinstance(v.code, (ast.Name, ast.Attribute, ast.Subscript))]
        if plain and any(v.axes and v.rank and not v.more for v in values):
            raise GiveUp(f"how many dimensions `{plain[0].root}` has is not shown")
        return doubt

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

    # Indexing -----------------------------------------------------------------------------------

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
        if is_dotted(node.value):
            text = ast.unparse(node.value)
            if text in self.written:
                if self.written[text] != ast.unparse(node.slice):
                    raise Recurrence(f"`{ast.unparse(node)}` is read in the loop that writes `{text}`")
            if _root_name(node) not in self.env:
                if _root_name(node) in self.carried:
                    raise Recurrence(f"`{text}` carries a value from one turn to the next")
                value = self.base(node.value)
            else:
                value = self.lift(node.value)
        else:
            value = self.lift(node.value)
        return self.index(value, list(entries))

    def index(self, value: Lifted, entries: list[ast.expr]) -> Lifted:
        """`value[entries]`, loop variables becoming dimensions of the result."""
        if value.kind in ("number", "free"):
            raise GiveUp(f"`{ast.unparse(value.code)}` is indexed, but nothing shows that it is a tensor")
        entries = self._expanded(value, entries)
        if value.more and value.is_root and value.root in self.bases:
            facts = self.bases[value.root]
            facts["entries"] = max(facts.get("entries", 0), len(value.dims) + sum(not _is_none(e) for e in entries))
        lifted_entries = [None if isinstance(e, ast.Slice) or _is_none(e) else self._entry(e) for e in entries]
        if any(e is not None and e.axes and e.kind != "index_offset" for e in lifted_entries):
            return self._gather(value, entries, lifted_entries)
        return self._basic(value, entries, lifted_entries)

    def _expanded(self, value: Lifted, entries: list[ast.expr]) -> list[ast.expr]:
        """`...` written out."""
        for place, entry in enumerate(entries):
            if isinstance(entry, ast.Constant) and entry.value is ...:
                if value.more or value.root in self.context.guessed:
                    raise GiveUp("`...` on a tensor whose number of dimensions is unknown")
                used = sum(not _is_none(e) for e in entries) - 1
                return [*entries[:place], *([copy.copy(FULL)] * (value.rank - used)), *entries[place + 1 :]]
        return entries

    def _entry(self, node: ast.expr) -> Lifted:
        """One index: a loop variable with an offset is marked as such, anything else lifted."""
        found = self.loop_offset(node)
        if found is not None:
            return Lifted(node, (found[0].name,), kind="index_offset")
        value = self.lift(node)
        if value.kind == "free":
            self.numbers.add(ast.unparse(node)) if is_dotted(node) else None
        return value

    def loop_offset(self, node: ast.expr) -> tuple[Axis, int] | None:
        """`i`, `i + 1`, `i - 1` for a loop variable `i` -> its axis and the offset."""
        if isinstance(node, ast.Name) and node.id not in self.env:
            axis = self.axis(node.id)
            return (axis, 0) if axis is not None else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            offset = integer(node.right)
            if offset is not None and isinstance(node.left, ast.Name):
                found = self.loop_offset(node.left)
                return (found[0], found[1] + (offset if isinstance(node.op, ast.Add) else -offset)) if found else None
        return None

    def slice_for(self, axis: Axis, offset: int, size: SizeKey | None) -> ast.Slice:
        """What of a dimension of this size the loop runs over."""
        start = axis.start + offset
        key, shift = axis.stop
        if start < 0:
            raise GiveUp("an index that runs below zero wraps around")
        lower = number(start) if start else None
        known = self._allocated(size)
        if known is not None:
            if known == (key, shift + offset):
                return ast.Slice(lower, None)
            if known[0] == key and shift + offset < known[1]:
                return ast.Slice(lower, number(shift + offset - known[1]))
            if known[0] == key:
                raise GiveUp("an index that runs past the end")
            if key == ("const",) or known[0] == ("const",):
                return ast.Slice(lower, _shifted(axis.stop_code, offset))
        if key == ("const",):
            return ast.Slice(lower, number(shift + offset))
        whole = size is not None and self.equal.find(size) == self.equal.find(key)
        if whole or (size is not None and size[0] == "size" and key[0] == "size" and shift + offset <= 0):
            if not whole:
                self.equal.join(key, size)
                self.assume(f"`{size[1]}` is as long as the loop along its dimension {size[2]}")
            if shift + offset > 0:
                raise GiveUp("an index that runs past the end")
            return ast.Slice(lower, number(shift + offset) if shift + offset else None)
        if shift + offset == 0 and size is None:
            return ast.Slice(lower, None if key[0] == "size" else copy.deepcopy(axis.stop_code))
        stop = _shifted(axis.stop_code, offset)
        return ast.Slice(lower, stop)

    def _allocated(self, size: SizeKey | None):
        """The key and offset of a dimension of a tensor that the function allocated with an explicit shape."""
        if size is None or size[0] != "size":
            return None
        shape = self.context.shapes.get(size[1])
        if shape is not None:
            return shape[size[2]] if 0 <= size[2] < len(shape) else None
        value = None if self.context.frame.inlined else self.context.value(size[1])
        if value is not None and value.is_tensor and value.shape is not None and 0 <= size[2] < len(value.shape):
            if isinstance(value.shape[size[2]], int):
                return ("const",), value.shape[size[2]]
        return None

    def _basic(self, value: Lifted, entries: list[ast.expr], lifted: list[Lifted | None]) -> Lifted:
        code_entries: list[ast.expr] = []
        dims: list[str] = []
        sizes: list[SizeKey | None] = []
        position = 0  # among inner dimensions of `value`
        places = [p for p, d in enumerate(value.dims) if d in (INNER, "1")]
        cursor = 0
        count = sum(not _is_none(e) for e in entries)
        if not value.more and count > len(places):
            raise GiveUp("more indices than dimensions")

        def skip_axes() -> None:
            nonlocal cursor
            while cursor < len(value.dims) and value.dims[cursor] not in (INNER, "1"):
                code_entries.append(copy.copy(FULL))
                dims.append(value.dims[cursor])
                sizes.append(value.sizes[cursor] if cursor < len(value.sizes) else None)
                cursor += 1

        for entry, found in zip(entries, lifted, strict=True):
            skip_axes()
            if _is_none(entry):
                code_entries.append(ast.Constant(None))
                dims.append(INNER)
                sizes.append(None)
                continue
            size = value.sizes[cursor] if cursor < len(value.sizes) else self._unknown_size(value, cursor)
            if isinstance(entry, ast.Slice):
                code_entries.append(self._plain_slice(entry))
                dims.append(INNER)
                sizes.append(size if entry.lower is None and entry.upper is None and entry.step is None else None)
            elif found is not None and found.kind == "index_offset":
                axis, offset = self.loop_offset(entry)
                if axis.name in dims or axis.name in value.dims:
                    return self._diagonal(value, entries, lifted)
                code_entries.append(self.slice_for(axis, offset, size))
                dims.append(axis.name)
                self._join_axis(axis, offset, size)
                sizes.append(self.axis_size(axis))
            elif found.kind == "bool" or found.more:
                raise GiveUp(f"`{ast.unparse(entry)[:30]}` may select any number of elements")
            elif found.rank:
                if any(f is not None and f is not found and (f.rank or f.more) for f in lifted):
                    raise GiveUp("indices by several tensors")
                code_entries.append(found.code)  # one tensor of positions: its dimensions stand where it stands
                dims.extend([INNER] * found.rank)
                sizes.extend(found.sizes or (None,) * found.rank)
            else:
                code_entries.append(found.code)  # a fixed index: the dimension goes
            cursor += 1
            position += 1
        rest = list(range(cursor, len(value.dims)))
        for place in rest:
            code_entries.append(copy.copy(FULL))
            dims.append(value.dims[place])
            sizes.append(value.sizes[place] if place < len(value.sizes) else None)
        code = subscript(value.code, code_entries)
        as_root = value.as_root and len(dims) == len(value.dims) + len(entries) and not any(_is_none(e) for e in entries)
        return Lifted(code, tuple(dims), value.more, tuple(sizes), "tensor", root=value.root, as_root=as_root, doubt=value.doubt)

    def _unknown_size(self, value: Lifted, place: int) -> SizeKey | None:
        if value.is_root:
            return self.context.canonical(("size", ast.unparse(value.code), place))
        return None

    def _join_axis(self, axis: Axis, offset: int, size: SizeKey | None) -> None:
        if axis.is_whole and offset == 0 and size is not None:
            self.equal.join(axis.stop[0], size)

    def _plain_slice(self, node: ast.Slice) -> ast.Slice:
        for part in (node.lower, node.upper, node.step):
            if part is not None:
                value = self.lift(part)
                if value.axes:
                    raise GiveUp(f"the slice `{ast.unparse(node)}` changes from turn to turn")
        return copy.deepcopy(node)

    def _diagonal(self, value: Lifted, entries, lifted) -> Lifted:
        return self._gather(value, entries, lifted)

    def _gather(self, value: Lifted, entries: list[ast.expr], lifted: list[Lifted | None]) -> Lifted:
        """Indexing by tensors: every index that depends on a loop becomes a tensor of indices."""
        places = [p for p, e in enumerate(lifted) if e is not None and e.axes]
        if places != list(range(places[0], places[-1] + 1)):
            raise GiveUp("indices by tensors that are not next to one another")
        if any(_is_none(e) for e in entries) or (places[0] > 0 and value.axes):
            raise GiveUp("an index by tensors that is not understood")
        own = [p for p, d in enumerate(value.dims) if d not in (INNER, "1")]
        if own and own != list(range(len(own))):
            raise GiveUp("an index by tensors into a value whose loops are not in front")
        indices: list[Lifted] = []
        for label in (value.dims[p] for p in own):
            indices.append(self.positions(self.axis(label)))
        for place in places:
            entry = lifted[place]
            size = value.sizes[len(own) + place] if len(own) + place < len(value.sizes) else self._unknown_size(value, len(own) + place)
            if entry.kind == "index_offset":
                axis, offset = self.loop_offset(entries[place])
                positions = self.positions(axis)
                if offset:
                    sign = ast.Add() if offset > 0 else ast.Sub()
                    positions = replace(positions, code=ast.BinOp(positions.code, sign, number(abs(offset))))
                self._join_axis(axis, offset, size)
                indices.append(positions)
            else:
                computed = isinstance(entry.code, ast.BinOp) and isinstance(entry.code.op, (ast.Add, ast.Sub))  # masks cannot be
                if (entry.rank or entry.more) and not computed and not INDEX_NAME.search(ast.unparse(entry.code)):
                    raise GiveUp(f"`{ast.unparse(entry.code)[:30]}` may be a mask, which selects differently in every turn")
                if entry.kind == "bool" or "mask" in ast.unparse(entry.code):
                    raise GiveUp("a mask selects differently in every turn")
                self.mark_index(entry, size)
                indices.append(entry)
        if len(indices) == 1:
            codes, layout, more, sizes = [indices[0].code], indices[0].dims, indices[0].more, indices[0].sizes
        else:
            codes, layout, more, sizes = aligned(indices, self.order, self.equal)
        self._require_single_positions(indices, places, lifted)
        if more:
            raise RankUnknown("an index tensor whose number of dimensions is unknown")
        before = [self._plain_slice(e) if isinstance(e, ast.Slice) else lifted[p].code for p, e in enumerate(entries[: places[0]])]
        after = [self._plain_slice(e) if isinstance(e, ast.Slice) else lifted[p + places[-1] + 1].code
                 for p, e in enumerate(entries[places[-1] + 1 :])]  # fmt: skip
        code = subscript(value.code, [*before, *codes, *after])
        inner_before = sum(isinstance(e, ast.Slice) for e in entries[: places[0]])
        inner_after = sum(isinstance(e, ast.Slice) for e in entries[places[-1] + 1 :])
        rest = 0 if value.more else value.rank - len(entries)
        dims = (*(INNER,) * inner_before, *layout, *(INNER,) * (inner_after + rest))
        tail = value.sizes[len(value.sizes) - rest :] if rest else ()
        all_sizes = (*(None,) * inner_before, *sizes, *(None,) * inner_after, *tail)
        return Lifted(code, dims, value.more, all_sizes, "tensor", root=value.root if value.more else "")

    def _require_single_positions(self, indices: list[Lifted], places: list[int], lifted: list[Lifted | None]) -> None:
        """`y[i, idx[i]]`: one position or several in every turn? Only where something says one may that be taken for granted."""
        if len(indices) == 1 or self.wanted_rank == 0:
            return
        if len(self.axes) > 1 and len({a for i in indices for a in i.axes}) > 1:
            return
        for place in places:
            entry = lifted[place]
            name = entry.root.rsplit(".", 1)[-1]
            if (entry.more or entry.root in self.context.guessed) and (not LABEL_NAME.search(name) or SEVERAL_NAME.search(name)):
                raise GiveUp(f"`{entry.root}` may hold one position or several for every turn")

    def mark_index(self, entry: Lifted, size: SizeKey | None) -> None:
        """This value indexes a dimension of that size: its tensor holds integers below it."""
        if entry.root in self.bases:
            facts = self.bases[entry.root]
            facts["kind"] = "index"
            facts["bound"] = size

    def mark_scalars(self, node: ast.expr) -> None:
        """Everything indexed in here yields one number: that settles how many dimensions it has."""
        indexed_again = {id(n.value) for n in ast.walk(node) if isinstance(n, ast.Subscript)}
        for child in ast.walk(node):
            if isinstance(child, ast.Subscript) and is_dotted(child.value) and isinstance(child.ctx, ast.Load) and id(child) not in indexed_again:
                text = ast.unparse(child.value)
                entries = child.slice.elts if isinstance(child.slice, ast.Tuple) else [child.slice]
                if self.context.rank(text) is None and text not in self.env and not any(isinstance(e, ast.Slice) or _is_none(e) for e in entries):
                    parents = [n for n in ast.walk(node) if isinstance(n, ast.Call) and any(c is child for c in ast.walk(n))]
                    if not parents or all(_is_elementwise_call(p) for p in parents):
                        self.context.exact_ranks[text] = len(entries)

    def _call(self, node: ast.Call) -> Lifted:
        return ops.call(self, node)

    def _tuple(self, node: ast.expr) -> Lifted:
        raise GiveUp("a tuple or list is built in every turn")

    def _comprehension(self, node: ast.expr) -> Lifted:
        raise GiveUp("a comprehension inside the loop is not understood")


def _is_elementwise_call(node: ast.Call) -> bool:
    last = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
    if isinstance(node.func, ast.Name):
        return last in ("float", "int", "abs", "max", "min", "bool")
    return last in ops.ELEMENTWISE or last == "item"


def _is_whole_number(value: Lifted) -> bool:
    return isinstance(value.code, ast.Constant) and isinstance(value.code.value, int)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


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


def _shifted(node: ast.expr, offset: int) -> ast.expr:
    node = copy.deepcopy(node)
    if not offset:
        return node
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)) and (value := integer(node.right)) is not None:
        total = (value if isinstance(node.op, ast.Add) else -value) + offset
        return _shifted(node.left, 0) if total == 0 else ast.BinOp(node.left, ast.Add() if total > 0 else ast.Sub(), number(abs(total)))
    return ast.BinOp(node, ast.Add() if offset > 0 else ast.Sub(), number(abs(offset)))


def _listed(names: list[str]) -> str:
    quoted = [f"`{n}`" for n in names]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + " and " + quoted[-1]


HANDLERS = {
    ast.Constant: Lifter._constant, ast.Name: Lifter._name, ast.Attribute: Lifter._attribute, ast.UnaryOp: Lifter._unary,
    ast.BinOp: Lifter._binop, ast.Compare: Lifter._compare, ast.BoolOp: Lifter._boolop, ast.IfExp: Lifter._ifexp,
    ast.Subscript: Lifter._subscript, ast.Call: Lifter._call, ast.Tuple: Lifter._tuple, ast.List: Lifter._tuple,
    ast.ListComp: Lifter._comprehension, ast.GeneratorExp: Lifter._comprehension,
}  # fmt: skip

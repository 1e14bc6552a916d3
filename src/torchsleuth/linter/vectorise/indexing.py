"""What indexing means over all turns: a loop variable becomes a slice, an index read from a tensor becomes a gather."""

from __future__ import annotations

import ast
import copy
import re
from dataclasses import replace

from torchsleuth.linter.vectorise import operators as ops
from torchsleuth.linter.vectorise.axes import Axis
from torchsleuth.linter.vectorise.context import Context, integer, is_dotted
from torchsleuth.linter.vectorise.lifted import FULL, INNER, Equal, GiveUp, Lifted, RankUnknown, SizeKey, aligned, method, number, subscript
from torchsleuth.linter.vectorise.windows import Window, unfolded, window_of

# What holds positions, by its name: anything else of one or more dimensions may be a boolean mask.
INDEX_NAME = re.compile(r"id|ind|label|target|perm|order|pos|token|class|top|sort|argm|nbr|neigh|parent|arange", re.IGNORECASE)
# What holds one class or position for each example, by its name; and what holds several.
LABEL_NAME = re.compile(r"label|target|class|^y$|^ys?_|_y$|gold|truth|answer|action|len", re.IGNORECASE)
SEVERAL_NAME = re.compile(r"top|sort|rank|multi|cand|neigh", re.IGNORECASE)


class Indexing:
    """The part of a lifter that reads subscripts."""

    context: Context
    axes: list[Axis]
    order: list[str]
    env: dict
    bases: dict[str, dict]
    numbers: set[str]
    equal: Equal
    wanted_rank: int | None
    longer: dict[str, dict[int, int]]
    adding: bool
    windows: dict[str, dict[int, list[tuple[SizeKey, int]]]]

    def index(self, value: Lifted, entries: list[ast.expr]) -> Lifted:
        """`value[entries]`, loop variables becoming dimensions of the result."""
        if value.kind in ("number", "free"):
            raise GiveUp(f"`{ast.unparse(value.code)}` is indexed, but nothing shows that it is a tensor")
        entries = self._expanded(value, entries)
        if value.is_root and value.root in self.bases:
            facts = self.bases[value.root]
            facts["used"] = max(facts.get("used", 0), sum(not _is_none(e) for e in entries))
            if value.more:
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
        if size is not None and key[0] == "size" and shift + offset == 0 and self.equal.find(size) == self.equal.find(key):
            return ast.Slice(lower, None)  # all there is
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
        if whole or (self._may_be_as_long(size, key) and axis.start == 0 and shift + offset == 0):
            if not whole:
                self.equal.join(key, size)
                self.assume(f"`{size[1]}` is as long as the loop along its dimension {size[2]}")
            if shift + offset > 0:
                raise GiveUp("an index that runs past the end")
            return ast.Slice(lower, number(shift + offset) if shift + offset else None)
        if shift + offset == 0 and size is None:
            return ast.Slice(lower, copy.deepcopy(axis.stop_code))
        stop = _shifted(axis.stop_code, offset)
        return ast.Slice(lower, stop)

    def _may_be_as_long(self, size: SizeKey | None, key: SizeKey) -> bool:
        """Another argument that is read from end to end is taken to end with the loop; what is computed here may have any length."""
        if self.storing or size is None or size[0] != "size" or key[0] != "size" or (size[1] == key[1] and size[2] != key[2]) or size[2] in self.longer.get(size[1], ()):
            return False
        return "." in size[1] or (size[1] in self.context.arguments and not self.context.counts.get(size[1]))

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
        windows: list[tuple[Window, SizeKey | None]] = []
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
            if isinstance(entry, ast.Slice) and (window := window_of(self, entry)) is not None:
                if window.axis.name in dims or window.axis.name in value.dims:
                    raise GiveUp("two indices that move with the same loop")
                code_entries.append(copy.copy(FULL))
                dims.append(window.axis.name)
                windows.append((window, size))
                sizes.append(self.axis_size(window.axis))
            elif isinstance(entry, ast.Slice):
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
        used = None if value.root_used is None else value.root_used + max(0, count - len(places))
        order = list(range(len(dims)))
        for window, size in windows:
            # `unfold` puts what is inside a window last; it belongs before the value's own dimensions that follow the window.
            place = dims.index(window.axis.name)
            code = unfolded(self, replace(value, code=code), place, window, size)
            own = next((p for p, d in enumerate(dims) if d in (INNER, "1") and order[p] > order[place]), len(dims))
            if value.more or own < len(dims):
                code = method(code, "movedim", number(-1), number(own))
            dims.insert(own, INNER)
            sizes.insert(own, self._window_size(window))
            order.insert(own, order[place])
        return Lifted(code, tuple(dims), value.more, tuple(sizes), "tensor", root=value.root, root_used=used, doubt=value.doubt)

    def _window_size(self, window: Window) -> SizeKey | None:
        key, offset = self.context.size(window.length)
        return key if not offset and key != ("const",) else None

    def _unknown_size(self, value: Lifted, place: int) -> SizeKey | None:
        if value.is_root:
            return self.context.canonical(("size", ast.unparse(value.code), place))
        return None

    def _join_axis(self, axis: Axis, offset: int, size: SizeKey | None) -> None:
        """The inputs of a proof are as long as the loop; whether they always are is another question."""
        if axis.start + offset >= 0 and axis.stop[1] + offset <= 0 and size is not None:
            self.equal.tries(axis.stop[0], size)

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
        if any(e is not None and not e.axes and (e.rank or e.more) for e in lifted):
            raise GiveUp("indices by several tensors, of which one is the same in every turn")
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
                # What is added to is no mask, nor is what `int` made, nor one of several tensors of indices.
                computed = isinstance(entry.code, ast.BinOp) and isinstance(entry.code.op, (ast.Add, ast.Sub)) or entry.kind == "index"
                computed = computed or sum(lifted[p].kind != "index_offset" for p in places) > 1
                if (entry.rank or entry.more) and not computed and not INDEX_NAME.search(ast.unparse(entry.code)):
                    raise GiveUp(f"`{ast.unparse(entry.code)[:30]}` may be a mask, which selects differently in every turn")
                if entry.kind == "bool" or "mask" in ast.unparse(entry.code):
                    raise GiveUp("a mask selects differently in every turn")
                self.mark_index(entry, size)
                if isinstance(entry.code, ast.Call) and isinstance(entry.code.func, ast.Attribute) and entry.code.func.attr == "detach":
                    entry = replace(entry, code=entry.code.func.value)  # of `idx[i].item()`: positions have no history
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
        used = None if value.root_used is None else value.root_used + max(0, len(entries) - value.rank)
        return Lifted(code, dims, value.more, all_sizes, "tensor", root=value.root if value.more else "", root_used=used)

    def _require_single_positions(self, indices: list[Lifted], places: list[int], lifted: list[Lifted | None]) -> None:
        """`y[i, idx[i]]`: one position or several in every turn? Only where something says one may that be taken for granted."""
        if len(indices) == 1 or self.wanted_rank == 0 or self.adding:
            return  # where several positions were added to at once, equal ones would count once: nobody means that
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
                    parents = [n for n in ast.walk(node) if isinstance(n, (ast.Call, ast.BinOp)) and any(c is child for c in ast.walk(n))]
                    if all(_is_elementwise_call(p) if isinstance(p, ast.Call) else not isinstance(p.op, ast.MatMult) for p in parents):
                        self.context.exact_ranks[text] = len(entries)
                        self.assume(f"`{text}` has {len(entries)} dimension{'s' * (len(entries) != 1)}")  # `y[i]` of [n, 1] is one number, too


def _is_elementwise_call(node: ast.Call) -> bool:
    last = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
    if isinstance(node.func, ast.Name):
        return last in ("float", "int", "abs", "max", "min", "bool")
    return last in ops.ELEMENTWISE or last == "item"


def _shifted(node: ast.expr, offset: int) -> ast.expr:
    node = copy.deepcopy(node)
    if not offset:
        return node
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)) and (value := integer(node.right)) is not None:
        total = (value if isinstance(node.op, ast.Add) else -value) + offset
        return _shifted(node.left, 0) if total == 0 else ast.BinOp(node.left, ast.Add() if total > 0 else ast.Sub(), number(abs(total)))
    return ast.BinOp(node, ast.Add() if offset > 0 else ast.Sub(), number(abs(offset)))


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None

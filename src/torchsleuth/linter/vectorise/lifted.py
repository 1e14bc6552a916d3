"""A value inside a loop, seen over all turns at once: its code, and which dimension stands for which loop.

`x[:, i]` inside `for i in …` is, over all turns, simply `x` with its dimension 1 standing for `i`. Every
expression of a loop body becomes such a `Lifted`; operands whose dimensions stand in different places are
brought into one layout (`aligned`) by permuting and inserting dimensions, as broadcasting needs.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass, field, replace

from torchsleuth.frozen import frozen

INNER = "."  # a dimension of the value itself, not of a loop
ONE = "1"  # a dimension of size one kept by a reduction


class GiveUp(Exception):
    """This loop is not rewritten; the message says why, for --verbose."""

    has_tensors = False  # whether the loop was seen to read tensors before it was given up


class RankUnknown(GiveUp):
    """It would be clear if the number of dimensions of some tensor were known."""


class Recurrence(GiveUp):
    """A turn needs the result of the turn before: there is no tensor operation that does the same."""


# What is known of the size of a dimension: ("size", tensor, dim), ("expr", text) or a number of its own.
SizeKey = tuple


@frozen
class Lifted:
    code: ast.expr
    dims: tuple[str, ...] = ()  # a loop's name or INNER, in order
    more: bool = False  # further inner dimensions, their number unknown, at the end
    sizes: tuple[SizeKey | None, ...] = ()  # one per dim
    kind: str = "tensor"  # "tensor" | "number" (a Python number, or unknown but used as one) | "index" | "bool"
    # The same value with the reduced dimensions kept at size one: (code, dims).
    kept: tuple[ast.expr, tuple[str, ...]] | None = None
    kept_more: bool = False
    root: str = ""  # the tensor whose .ndim counts the unknown dimensions
    is_constant: bool = False
    running: bool = False  # a cumulative quantity
    factors: tuple[Lifted, Lifted] | None = None  # of a product
    whole: ast.expr | None = None  # for a sum over all of a value: the sum over all turns as well
    origin: ast.expr | None = None  # the code that factors, whole and band were said of
    root_used: int | None = None  # how many of the root's dimensions are not among the unknown ones, where that is known
    doubt: str = ""  # why this may line up wrongly, unless a reduction takes all its dimensions
    band: tuple[str, str, str, int] | None = None  # of a test: ("triu", i, j, k) holds where `j >= i + k`, ("tril", i, j, k) where `j <= i + k`
    rows_of: str = ""  # with a doubt: the tensor whose rows these are, if it has the more dimensions

    def __post_init__(self) -> None:
        if self.origin is None:
            object.__setattr__(self, "origin", self.code)
        elif self.origin is not self.code:  # `replace(value, code=...)`: of another expression they say nothing
            for stale in ("factors", "whole", "band"):
                object.__setattr__(self, stale, None)
            object.__setattr__(self, "origin", self.code)

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(d for d in self.dims if d not in (INNER, ONE))

    @property
    def rank(self) -> int:
        """Known inner dimensions."""
        return sum(d in (INNER, ONE) for d in self.dims)

    @property
    def is_root(self) -> bool:
        """The tensor under its own name, not something computed from it."""
        return isinstance(self.code, (ast.Name, ast.Attribute)) and ast.unparse(self.code) == self.root

    def inner_position(self, index: int) -> int:
        """The actual dimension of inner dimension `index` (negative from the end)."""
        places = [p for p, d in enumerate(self.dims) if d in (INNER, ONE)]
        if index < 0:
            if self.more:
                return index
            if -index > len(places):
                raise GiveUp("a dimension that the value does not have")
            return places[index]
        if index < len(places):
            return places[index]
        if self.more:
            return len(self.dims) + index - len(places)
        raise GiveUp("a dimension that the value does not have")


@dataclass
class Equal:
    """Sizes that the rewrite takes to be equal (union-find), and what else it takes for granted."""

    parents: dict[SizeKey, SizeKey] = field(default_factory=dict)
    tried: dict[SizeKey, SizeKey] = field(default_factory=dict)  # further ones, for the inputs of a proof only
    notes: list[str] = field(default_factory=list)

    def find(self, key: SizeKey) -> SizeKey:
        while key in self.parents:
            key = self.parents[key]
        return key

    def found(self, key: SizeKey) -> SizeKey:
        """The class a proof puts this size into."""
        key = self.find(key)
        while key in self.tried:
            key = self.find(self.tried[key])
        return key

    def tries(self, a: SizeKey, b: SizeKey) -> None:
        a, b = self.found(a), self.found(b)
        if a != b:
            self.tried[b] = a

    def join(self, a: SizeKey | None, b: SizeKey | None) -> None:
        if a is None or b is None:
            return
        a, b = self.find(a), self.find(b)
        if a != b:
            self.parents[b] = a


# Code pieces ------------------------------------------------------------------------------------


def name(text: str) -> ast.Name:
    return ast.Name(text, ast.Load())


def number(value: int | float) -> ast.expr:
    if isinstance(value, int) and value < 0:
        return ast.UnaryOp(ast.USub(), ast.Constant(-value))
    return ast.Constant(value)


def method(code: ast.expr, attribute: str, *args: ast.expr, **keywords: ast.expr | int | bool | tuple) -> ast.expr:
    given = [ast.keyword(k, w if isinstance(w, ast.expr) else literal(w)) for k, w in keywords.items()]
    return ast.Call(ast.Attribute(code, attribute, ast.Load()), list(args), given)


def literal(value) -> ast.expr:
    if isinstance(value, tuple):
        return ast.Tuple([literal(v) for v in value], ast.Load())
    if isinstance(value, int) and not isinstance(value, bool):
        return number(value)
    return ast.Constant(value)


def dims_argument(dims: list[int]) -> ast.expr:
    return literal(dims[0] if len(dims) == 1 else tuple(dims))


def subscript(code: ast.expr, entries: list[ast.expr]) -> ast.expr:
    """`code[entries]` with trailing full slices left out."""
    entries = list(entries)
    while entries and is_full_slice(entries[-1]):
        entries.pop()
    if not entries:
        return code
    index = entries[0] if len(entries) == 1 else ast.Tuple(entries, ast.Load())
    return ast.Subscript(code, index, ast.Load())


def is_full_slice(node: ast.expr) -> bool:
    return isinstance(node, ast.Slice) and node.lower is None and node.upper is None and node.step is None


FULL = ast.Slice()


def permuted(code: ast.expr, order: list[int]) -> ast.expr:
    if order == list(range(len(order))):
        return code
    moved = [p for p, o in enumerate(order) if p != o]
    if len(moved) == 2:
        return method(code, "transpose", number(moved[0]), number(moved[1]))
    return method(code, "permute", *(number(o) for o in order))


# Layouts ----------------------------------------------------------------------------------------


def converted(value: Lifted, layout: tuple[str, ...], more: bool) -> ast.expr:
    """The code of `value` with its dimensions where `layout` wants them, ones inserted where it has none."""
    if not value.dims and not value.more:
        return value.code
    if value.kept is not None and _fits(value.kept[1], layout) and value.kept_more == more and value.axes:
        return value.kept[0]
    if value.more != more and more:
        if not value.axes:
            inner = [p for p, d in enumerate(layout) if d == INNER]
            if inner and any(d != INNER for d in layout[inner[0] :]):
                raise RankUnknown("a loop's dimension stands between those of an operand whose number of dimensions is unknown")
            return value.code  # no loop in it: broadcasting aligns it from the right
        if value.rank:
            raise RankUnknown("the number of dimensions of an operand is unknown")
        if len(value.axes) > 1 or not layout or layout[0] != value.axes[0] or len(layout) > 1:
            raise RankUnknown("the number of dimensions of an operand is unknown")
        raise _NeedsRank(value)
    wanted_inner = [p for p, d in enumerate(layout) if d == INNER]
    own_inner = [p for p, d in enumerate(value.dims) if d in (INNER, ONE)]
    unfilled = wanted_inner[: max(0, len(wanted_inner) - len(own_inner))]
    if value.more and unfilled and any(d != INNER for d in layout[unfilled[0] :]):
        raise RankUnknown("a loop's dimension stands between those of an operand whose number of dimensions is unknown")
    if len(own_inner) > len(wanted_inner):
        raise GiveUp("an operand has more dimensions than there is room for")
    source: dict[int, int] = {}  # layout place -> own dimension
    for own, place in zip(reversed(own_inner), reversed(wanted_inner), strict=False):
        source[place] = own
    for own, label in enumerate(value.dims):
        if label not in (INNER, ONE):
            if label not in layout:
                raise GiveUp("an operand runs over a loop that the result does not")
            source[layout.index(label)] = own
    places = sorted(source)
    order = [source[p] for p in places]
    if value.more and order != list(range(len(order))):
        # Only the leading dimensions are moved; the unknown ones follow untouched.
        moved = [p for p, o in enumerate(order) if p != o]
        if len(moved) == 2:
            code = method(value.code, "transpose", number(moved[0]), number(moved[1]))
        else:
            code = method(value.code, "movedim", literal(tuple(order)), literal(tuple(range(len(order)))))
    else:
        code = permuted(value.code, order)
    if places and places != list(range(places[0], len(layout))):
        entries: list[ast.expr] = []
        for place in range(places[0], len(layout)):
            entries.append(copy.copy(FULL) if place in source else ast.Constant(None))
        code = subscript(code, entries)
    return code


class _NeedsRank(RankUnknown):
    def __init__(self, value: Lifted) -> None:
        super().__init__("the number of dimensions of an operand is unknown")
        self.value = value


def _fits(dims: tuple[str, ...], layout: tuple[str, ...]) -> bool:
    return len(dims) == len(layout) and all(
        d == w or (d == ONE and w == INNER) for d, w in zip(dims, layout, strict=True)
    )  # fmt: skip


def common_layout(values: list[Lifted], order: list[str]) -> tuple[tuple[str, ...], bool]:
    """The layout that all these operands can be brought into with the least moving about."""
    more = any(v.more for v in values)
    axes = {a for v in values for a in v.axes}
    if more:
        for value in values:
            if value.more and INNER in value.dims and value.axes and value.dims[0] == INNER:
                pass
        widest = max((v for v in values if v.more), key=lambda v: len(v.dims))
        inner = widest.rank
        lead = tuple(a for a in order if a in axes)
        behind = any(d == INNER for d in widest.dims[: len(lead)])  # a loop-free operand of unknown shape must find the value's own dimensions last
        if widest.axes == lead and not (behind and any(v.kind == "free" for v in values)):
            return tuple(widest.dims), True
        return (*lead, *(INNER,) * inner), True
    widest = max(values, key=lambda v: (v.rank, len(v.dims)))
    base = tuple(INNER if d == ONE else d for d in widest.dims)
    # A loop-free operand of unknown shape must find the value's own dimensions last.
    if any(v.kind == "free" for v in values) and any(a in base for a in axes):
        last_axis = max((p for p, d in enumerate(base) if d != INNER), default=-1)
        if any(d == INNER for d in base[: last_axis + 1]):
            base = (*(d for d in base if d != INNER), *(d for d in base if d == INNER))
    missing = [a for a in order if a in axes and a not in base]
    layout = (*missing, *base)
    lead = tuple(d for d in layout if d != INNER)
    if missing and layout[: len(lead)] == lead:  # every loop in front: keep them in the order of the loops
        layout = (*(a for a in order if a in lead), *layout[len(lead) :])
    return layout, False


def aligned(values: list[Lifted], order: list[str], equal: Equal) -> tuple[list[ast.expr], tuple[str, ...], bool, tuple]:
    """Code of each operand in one layout; the layout; whether unknown dimensions follow; its sizes."""
    present = [v for v in values if v.dims or v.more]
    if not present:
        return [v.code for v in values], (), False, ()
    layout, more = common_layout(values, order)
    codes = []
    for value in values:
        if value.kept is not None and value.kept_more and any(v.more and v.root == value.root and v.root_used not in (None, len(value.kept[1])) for v in values):
            value = replace(value, kept=None)  # `x[i, j] - x[i].max()`: what is kept at size one would be more dimensions than `x[i, j]` has
        try:
            codes.append(converted(value, layout, more))
        except _NeedsRank as need:
            # Only a tensor outside the loop tells by its `.ndim` how many ones are needed.
            other = next((v for v in values if v.more and v.root_used is not None), None)
            if other is None or set(other.axes) - set(need.value.axes):
                raise
            own = other.root_used
            count: ast.expr = ast.Attribute(expression(other.root), "ndim", ast.Load())
            if own:
                count = ast.BinOp(count, ast.Sub(), ast.Constant(own))
            ones = ast.Starred(ast.BinOp(ast.Tuple([ast.Constant(1)], ast.Load()), ast.Mult(), count), ast.Load())
            codes.append(method(need.value.code, "reshape", number(-1), ones))
    sizes: list[SizeKey | None] = [None] * len(layout)
    for value in present:
        wanted_inner = [p for p, d in enumerate(layout) if d == INNER]
        own_inner = [p for p, d in enumerate(value.dims) if d in (INNER, ONE)]
        pairs = list(zip(reversed(own_inner), reversed(wanted_inner), strict=False)) if not more or value.more else []
        pairs += [(own, layout.index(label)) for own, label in enumerate(value.dims) if label not in (INNER, ONE)]
        for own, place in pairs:
            if value.dims[own] == ONE or own >= len(value.sizes):
                continue
            size = value.sizes[own]
            if sizes[place] is None:
                sizes[place] = size
            else:
                equal.join(sizes[place], size)
    return codes, layout, more, tuple(sizes)


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def with_code(value: Lifted, code: ast.expr, **changes) -> Lifted:
    return replace(value, code=code, kept=None, **changes)

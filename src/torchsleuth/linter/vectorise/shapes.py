"""Shapes of lifted values: which dimension is the loop's, which the value's own, and how to move them."""

from __future__ import annotations

import ast
import typing
from dataclasses import replace

from torchsleuth.linter.vectorise.context import integer
from torchsleuth.linter.vectorise.lifted import INNER, ONE, GiveUp, Lifted, RankUnknown, converted, method, number, permuted

if typing.TYPE_CHECKING:
    from torchsleuth.linter.vectorise.lift import Lifter

STRUCTURE = frozenset("unsqueeze squeeze transpose t flatten view reshape".split())


def loops_first(lifter: Lifter, value: Lifted) -> Lifted:
    lead = tuple(a for a in lifter.order if a in value.axes)
    layout = (*lead, *(INNER,) * value.rank)
    plain = replace(value, dims=tuple(INNER if d == ONE else d for d in value.dims))
    if plain.dims == layout:
        return plain
    sizes = {d: s for d, s in zip(plain.dims, plain.sizes, strict=False) if d != INNER}
    inner = [s for d, s in zip(plain.dims, plain.sizes, strict=False) if d == INNER]
    code = converted(replace(plain, kept=None), layout, plain.more)
    return replace(plain, code=code, dims=layout, kept=None, sizes=(*(sizes.get(a) for a in lead), *inner))


def size_of(lifter: Lifter, value: Lifted, dim: int | None) -> Lifted:
    if dim is None:
        raise GiveUp("a size of an unknown dimension")
    place = value.inner_position(dim)
    return Lifted(ast.Subscript(ast.Attribute(value.code, "shape", ast.Load()), number(place), ast.Load()), kind="number")


def ranked(lifter: Lifter, value: Lifted, rank: int) -> Lifted:
    """`value` with its unknown number of own dimensions settled."""
    missing = rank - value.rank
    if missing < 0:
        raise GiveUp("a number of dimensions that does not fit")
    if value.is_root:
        if lifter.context.least_ranks.get(value.root, 0) > len(value.dims) + missing:
            raise GiveUp(f"`{value.root}` has more dimensions")
        lifter.context.exact_ranks[value.root] = len(value.dims) + missing
        if value.root in lifter.bases:
            lifter.bases[value.root]["rank"] = len(value.dims) + missing
        sizes = tuple(lifter.context.canonical(("size", value.root, len(value.dims) + d)) for d in range(missing))
    else:
        sizes = (None,) * missing
    return replace(value, dims=(*value.dims, *(INNER,) * missing), more=False, sizes=(*value.sizes, *sizes), kept=None)


def structured(lifter: Lifter, value: Lifted, last: str, args: list[ast.expr], keywords: dict[str, ast.expr]) -> Lifted:
    if last == "unsqueeze":
        dim = integer(keywords.get("dim", args[0] if args else ast.Constant(None)))
        if dim is None:
            raise GiveUp("unsqueeze at an unknown place")
        return unsqueezed(value, dim)
    if last == "squeeze" and len(args) + len(keywords) == 1:
        dim = integer(keywords.get("dim", args[0] if args else ast.Constant(None)))
        if dim is None or value.more:
            raise RankUnknown("squeeze of a tensor whose number of dimensions is unknown")
        place = value.inner_position(dim)
        keep = [p for p in range(len(value.dims)) if p != place]
        return Lifted(method(value.code, "squeeze", number(place)), tuple(value.dims[p] for p in keep), False,
                      tuple(value.sizes[p] for p in keep if p < len(value.sizes)))  # fmt: skip
    if last == "transpose" and len(args) == 2:
        return transposed(lifter, value, integer(args[0]), integer(args[1]))
    if last == "t" and not args:
        return transposed(lifter, value, 0, 1)
    if last in ("flatten",) and not args and not keywords or (last in ("view", "reshape") and len(args) == 1 and integer(args[0]) == -1):
        if value.more:
            value = loops_first(lifter, value)
            start = len(value.axes)
            facts = lifter.bases.get(value.root)
            if facts is not None:
                facts["extra"] = max(facts["extra"], 1)
            return Lifted(method(value.code, "flatten", number(start)), (*value.axes, INNER), False, (*value.sizes[:start], None))
        value = loops_first(lifter, value)
        start = len(value.axes)
        if value.rank == 1:
            return value
        if value.rank == 0:
            return unsqueezed(value, 0)
        return Lifted(method(value.code, "flatten", number(start)), (*value.axes, INNER), False, (*value.sizes[:start], None))
    raise GiveUp(f"`{last}` changes the shape in a way that is not understood")


def unsqueezed(value: Lifted, dim: int) -> Lifted:
    places = [p for p, d in enumerate(value.dims) if d in (INNER, ONE)]
    if value.more:
        if dim >= 0 and dim <= len(places):
            place = places[dim] if dim < len(places) else len(value.dims)
        elif dim == -1:
            return replace(value, code=method(value.code, "unsqueeze", number(-1)), kept=None)
        else:
            raise RankUnknown("unsqueeze of a tensor whose number of dimensions is unknown")
    else:
        index = dim if dim >= 0 else dim + len(places) + 1
        if not 0 <= index <= len(places):
            raise GiveUp("unsqueeze out of range")
        place = places[index] if index < len(places) else len(value.dims)
    dims = (*value.dims[:place], INNER, *value.dims[place:])
    sizes = (*value.sizes[:place], None, *value.sizes[place:])
    shown = -1 if place == len(value.dims) and not value.more else place
    return Lifted(method(value.code, "unsqueeze", number(shown)), dims, value.more, sizes, root=value.root)


def transposed(lifter: Lifter, value: Lifted, first: int | None, second: int | None) -> Lifted:
    if first is None or second is None or value.more:
        raise RankUnknown("transpose of a tensor whose number of dimensions is unknown")
    a, b = value.inner_position(first), value.inner_position(second)
    dims = list(value.dims)
    dims[a], dims[b] = dims[b], dims[a]
    sizes = list(value.sizes)
    if a < len(sizes) and b < len(sizes):
        sizes[a], sizes[b] = sizes[b], sizes[a]
    return Lifted(method(value.code, "transpose", number(a), number(b)), tuple(dims), False, tuple(sizes))


def unlooped(value: Lifted, axis: str, dim: int) -> Lifted:
    """`value` with the dimension of a finished loop as its own dimension `dim`."""
    own = value.dims.index(axis)
    if value.more:
        if dim < 0:
            code = method(value.code, "movedim", number(own), number(dim))
            return replace(value, code=code, dims=tuple(d for p, d in enumerate(value.dims) if p != own), kept=None, sizes=tuple(s for p, s in enumerate(value.sizes) if p != own))
        others = [d for p, d in enumerate(value.dims) if p != own]
        places = [p for p, d in enumerate(others) if d in (INNER, ONE)]
        target = places[dim] if dim < len(places) else len(others) + dim - len(places)
        code = value.code if target == own else method(value.code, "movedim", number(own), number(target))
        if target <= len(others):
            others.insert(target, INNER)
            return replace(value, code=code, dims=tuple(others), kept=None, sizes=(None,) * len(others))
        return replace(value, code=code, dims=tuple(others), kept=None, sizes=(None,) * len(others))
    others = [d for p, d in enumerate(value.dims) if p != own]
    places = [p for p, d in enumerate(others) if d in (INNER, ONE)]
    index = dim if dim >= 0 else dim + len(places) + 1
    if not 0 <= index <= len(places):
        raise GiveUp("stacked along a dimension that does not exist")
    # Where the loop's dimension may stand among the other loops' without changing the inner order.
    lower = places[index - 1] + 1 if index > 0 else 0
    upper = places[index] if index < len(places) else len(others)
    if lower <= own <= upper:
        dims = tuple(INNER if p == own else d for p, d in enumerate(value.dims))
        return replace(value, dims=dims, kept=None)
    target = upper
    size = value.sizes[own] if own < len(value.sizes) else None
    sizes = [s for p, s in enumerate(value.sizes) if p != own]
    order = [p for p in range(len(value.dims)) if p != own]
    order.insert(target, own)
    others.insert(target, INNER)
    sizes.insert(target, size)
    return replace(value, code=permuted(value.code, order), dims=tuple(others), sizes=tuple(sizes), kept=None)

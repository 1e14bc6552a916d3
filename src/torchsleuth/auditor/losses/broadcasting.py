"""Operands that stretch one another: where broadcasting made a result that is larger than both."""

from __future__ import annotations

import dataclasses
import itertools
import math
import typing

import torch

from torchsleuth.auditor.losses.oddaxis import shapes_made
from torchsleuth.auditor.observation import Broadcast
from torchsleuth.auditor.observation_parts import Shape
from torchsleuth.auditor.samples.sampleaxis import SampleAxis
from torchsleuth.auditor.tracing.bydesign import origin_of_place
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Seen, Trace
from torchsleuth.origin import Origin
from torchsleuth.sizes import broadcast_size

# Of torch's own losses those that stretch their operands as arithmetic does; the others refuse.
_LOSSLIKE = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "poisson_nll_loss", "gaussian_nll_loss", "hinge_embedding_loss", "kl_div"}
# Those that warn of it: a library that hands over what it was given (a trainer) does not mean it either.
_WARNED = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"}
_BINARY = {"add", "sub", "mul", "div", "true_divide", "subtract", "multiply", "__rsub__", "rsub", "pow", "eq", "maximum", "minimum",
           "__radd__", "__rmul__", "add_", "sub_", "mul_", "div_", "where",
           "logaddexp", "dist", *_LOSSLIKE}  # fmt: skip
ELEMENTWISE = {"add", "sub", "mul", "div", "true_divide", "__radd__", "__rmul__", "__rsub__", "rsub", "add_", "sub_", "mul_", "div_"}
_STRETCHING = {"unsqueeze", "unsqueeze_", "view", "reshape", "expand", "expand_as", "unflatten", "keepdim", "meshgrid", "atleast_2d"}
_WEIGHTING = {"mul", "multiply", "div", "true_divide", "mul_", "div_", "__rmul__"}
_PRODUCTS = {"matmul", "__matmul__", "mm", "__rmatmul__", "cdist", "inner", "einsum"}
_REDUCING = {"mean", "sum", "nanmean", "norm"}


def broadcasts(trace: Trace, loss_key: int | None, batch: int | None, own: set[int], inside: slice) -> list[Broadcast]:
    """Operands that stretch one another, the result being larger than both; and weights of samples on a table of all pairs.

    A table of all pairs that is meant is told by what it meets: another table of the same sizes (distances, a mask,
    targets for the pairs), or itself turned over. An operand that is the model's `own` (a parameter, a buffer, or made
    from nothing `inside` the forward pass) holds features, even if there happen to be as many as samples.
    """
    on_the_way = trace.ancestors({loss_key}) if loss_key is not None else None
    candidates: list[tuple[Op, Broadcast]] = []
    samples = SampleAxis(trace, inside, batch, own)
    for op in trace.ops:
        if op.name not in _BINARY or len(op.ins) < 2 or (op.name not in _WARNED and origin_of_place(op) is not Origin.USER):
            continue
        if on_the_way is not None and not any(seen.key in on_the_way for seen in op.outs):
            continue
        one = _stretched(trace, op, batch) or _weights_on_pairs(trace, op, batch) or _on_features(trace, op, samples)
        if one is not None and not any(_without_data(trace, side, own, inside) for side in op.ins[:2]):
            candidates.append((op, one))
    made = trace.descendants({seen.key for op, one in candidates if not one.same_origin for seen in op.outs})
    paired = {key for op, one in candidates if one.same_origin for key in _sources(trace, op)}
    outer = {key for op in trace.ops if _outer(op) and on_the_way is not None and any(seen.key in on_the_way for seen in op.outs) for key in _apart(_sources(trace, op))}
    found: dict[tuple, Broadcast] = {}
    for op, one in candidates:
        span = one.site.span
        if (one.explicit and paired & _sources(trace, op)) or outer & _sources(trace, op):
            continue  # all pairs of this one with itself, or on purpose with another, are on the way to the loss, too: a distance between two sets
        if one.kind == "features" or not _meets_table(trace, op, made):
            found.setdefault((span.file, span.line, span.column, span.end_column), one)
    return list(found.values())


def _stretched(trace: Trace, op: Op, batch: int | None) -> Broadcast | None:
    for left, right in itertools.combinations(op.ins[:3] if op.name == "where" else op.ins[:2], 2):
        if not left.size or not right.size or (left.dtype is right.dtype is torch.bool):
            continue
        result = broadcast_size(left.size, right.size)
        if result is None:
            return None
        if math.prod(result) > max(math.prod(left.size), math.prod(right.size)) and _same_axis_twice(left.size, right.size):
            return _broadcast(trace, op, left, right, result, batch)
    return None


def crossed(trace: Trace, op: Op, kind: str) -> Broadcast | None:
    """The first two operands of this call, if each is stretched along the other: (N,) and (N, 1)."""
    left, right = op.ins[:2]
    if not left.size or not right.size or not _same_axis_twice(left.size, right.size) or origin_of_place(op) is not Origin.USER:
        return None
    result = broadcast_size(left.size, right.size)
    if result is None:
        return None
    one = _broadcast(trace, op, left, right, result, None) if math.prod(result) > max(math.prod(left.size), math.prod(right.size)) else None
    return dataclasses.replace(one, kind=kind) if one is not None else None


def _broadcast(trace: Trace, op: Op, left: Seen, right: Seen, result: tuple[int, ...], batch: int | None) -> Broadcast | None:
    origins = [_origin(trace, side) for side in (left, right)]
    site = trace.site(op)
    if site is None:
        return None
    short, long = sorted((left, right), key=lambda side: len(side.size))
    return Broadcast(
        op.name, shape_of(left), shape_of(right), result, site, sum(stretched for _, stretched in origins),
        op.name in _LOSSLIKE or reduced_as_it_is(trace, op), bool(origins[0][0] & origins[1][0]), batch,
        made=shapes_made(trace, long, short),
    )  # fmt: skip


def _without_data(trace: Trace, seen: Seen, own: set[int], inside: slice) -> bool:
    """Nothing of the batch went into it."""
    for key in trace.ancestors({seen.key}):
        if key in own:
            continue
        made = trace.producer.get(key)
        if made is None or (not trace.ops[made].ins and not inside.start <= made < (len(trace.ops) if inside.stop is None else inside.stop)):
            return False
    return True


def _weights_on_pairs(trace: Trace, op: Op, batch: int | None) -> Broadcast | None:
    """(B,) times a (B, B) product of the batch with itself, summed over everything: the weights lie along the second axis.

    Class weights on (B, C) scores do not come here even if C = B: the scores must be a product of two things of the
    batch, and no parameter is one. Nor does anything that is summed along one axis: there the axis was chosen.
    """
    if op.name not in _WEIGHTING:
        return None
    weights, table = sorted(op.ins[:2], key=lambda seen: len(seen.size))
    size = weights.size[0] if weights.size else 0
    if size < 2 or weights.size != (size,) or table.size != (size, size) or weights.requires_grad or weights.key in trace.parameters:
        return None
    product = _product_of_pairs(trace, table)
    site = trace.site(op)
    if product is None or site is None or _origin(trace, weights)[1] or not reduced_as_it_is(trace, op):
        return None
    return Broadcast(
        op.name, shape_of(op.ins[0]), shape_of(op.ins[1]), table.size, site, 0, True, False, batch, "weights", trace.site(product),
    )  # fmt: skip


def _on_features(trace: Trace, op: Op, samples: SampleAxis) -> Broadcast | None:
    """(B,) numbers, one for each sample, along the last axis of (B, ..., B) features."""
    if op.name not in ELEMENTWISE:
        return None
    factors, table = sorted(op.ins[:2], key=lambda seen: len(seen.size))
    site = trace.site(op)
    if site is None or not samples.misplaced(factors, table):
        return None
    return Broadcast(op.name, shape_of(op.ins[0]), shape_of(op.ins[1]), table.size, site, 0, False, False, samples.batch, "features")


def _product_of_pairs(trace: Trace, table: Seen) -> Op | None:
    """The product that made this table, element by element, without meeting another table of its sizes."""
    seen = table
    for _ in range(32):
        op = trace.maker(seen)
        if op is None:
            return None
        if op.name in _PRODUCTS:
            sides = [side for side in op.ins[:2] if len(side.size) == 2]
            return op if len(sides) == 2 and not any(_from_parameter(trace, side) for side in sides) else None
        tables = [one for one in op.ins if one.size == table.size]
        if len(tables) != 1:
            return None
        seen = tables[0]
    return None


def _from_parameter(trace: Trace, seen: Seen) -> bool:
    keys = {seen.key, *(one.key for op in trace.made_through(seen, ARRANGING) for one in op.ins[:1])}
    return bool(keys & set(trace.parameters))


def _meets_table(trace: Trace, op: Op, made: set[int]) -> bool:
    """The result, or what is computed from it element by element, meets another table of its sizes."""
    size = op.outs[0].size if op.outs else ()
    if math.prod(size) < 2:
        return False
    mine = {seen.key for seen in op.outs}
    for later in trace.ops[op.index + 1 :]:
        if not any(seen.key in mine for seen in later.ins):
            continue
        if any(seen.size == size and seen.key not in mine and seen.key not in made for seen in later.ins):
            return True
        mine.update(seen.key for seen in later.outs if seen.size == size)
    return False


def _same_axis_twice(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    """(N,) against (N, 1) and its like: the shorter operand's axis is the other's axis of equal size, one place off.

    Moved to their places its axes must fit: an (N, B) one that was turned over has none in a (B, N, 1) one.
    """
    if len(left) == len(right):
        return False
    short, long = (left, right) if len(left) < len(right) else (right, left)
    if not _in_order(short, long):
        return False
    padded = (1,) * (len(long) - len(short)) + short
    for axis, (a, b) in enumerate(zip(padded, long, strict=True)):
        if a > 1 and b == 1:
            # The same count stands elsewhere in the longer operand, where the shorter one has nothing.
            return any(n == a and padded[k] == 1 for k, n in enumerate(long) if k != axis)
    return False


def _outer(op: Op) -> bool:
    """(N, 1) with (1, N), which a mistake rarely makes."""
    sizes = [seen.size for seen in op.ins[:2]]
    return op.name in _BINARY and len(sizes) == 2 and sizes[0] == sizes[1][::-1] and len(sizes[0]) == 2 and min(sizes[0]) == 1 < max(sizes[0])


def _apart(sources: set[int]) -> set[int]:
    return sources if len(sources) == 2 else set()


def _in_order(short: tuple[int, ...], long: tuple[int, ...]) -> bool:
    """The sizes of the shorter operand stand among those of the longer one, in their order."""
    places = iter(long)
    return all(n in places for n in short if n > 1)


def _origin(trace: Trace, seen: Seen) -> tuple[set[int], bool]:
    """What the operand was rearranged from, and whether an axis of size 1 was put in on purpose."""
    explicit = False
    key = seen.key
    for op in trace.made_through(seen, ARRANGING):
        if op.name in _STRETCHING and op.outs and 1 in op.outs[0].size and len(op.outs[0].size) > len(op.ins[0].size):
            explicit = True
        if op.name == "__getitem__" and _has_none(op.plain[0][1] if len(op.plain[0]) > 1 else None):
            explicit = True
        if op.plain[1].get("keepdim") is True:
            explicit = True
        key = op.outs[0].key if op.name not in ARRANGING else (op.ins[0].key if op.ins else key)
    return {key}, explicit


def put_in(trace: Trace, seen: Seen) -> bool:
    """Was an axis of size 1 put into this operand on purpose?"""
    return _origin(trace, seen)[1]


def _sources(trace: Trace, op: Op) -> set[int]:
    """What the operands were rearranged from."""
    return {key for seen in op.ins[:2] for key in _origin(trace, seen)[0]}


def _has_none(index: typing.Any) -> bool:
    return index is None or (isinstance(index, tuple) and any(part is None for part in index))


def reduced_as_it_is(trace: Trace, op: Op) -> bool:
    """The result goes, element by element, into a sum or mean over everything."""
    keys = {seen.key for seen in op.outs}
    for later in trace.ops[op.index + 1 :]:
        if not any(seen.key in keys for seen in later.ins):
            continue
        if later.name in _REDUCING or not later.outs or later.outs[0].size == ():
            return bool(later.outs) and math.prod(later.outs[0].size) == 1
        if math.prod(later.outs[0].size) < math.prod(op.outs[0].size):
            return False
        keys |= {seen.key for seen in later.outs}
    return False


def shape_of(seen: Seen) -> Shape:
    return Shape(seen.size, str(seen.dtype).removeprefix("torch."))

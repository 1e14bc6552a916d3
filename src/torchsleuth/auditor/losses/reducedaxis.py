"""What was reduced over some axes of a table, without `keepdim`, and then meets the same table along another axis of the same size."""

from __future__ import annotations

import torch

from torchsleuth.auditor.gradients.gradients import origin_of_place
from torchsleuth.auditor.observation import Broadcast
from torchsleuth.auditor.observation_parts import Shape
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Seen, Trace
from torchsleuth.origin import Origin

_REDUCING = {"sum", "mean", "norm", "linalg_norm", "linalg_vector_norm", "vector_norm", "amax", "amin", "max", "min", "median", "std", "var",
             "logsumexp", "prod", "nansum", "nanmean", "var_mean", "std_mean"}  # fmt: skip
_MEETING = {"add", "sub", "mul", "div", "true_divide", "__rsub__", "rsub", "__radd__", "__rmul__", "__rtruediv__", "__rdiv__", "sub_", "div_", "mul_", "add_", "subtract", "divide", "multiply", "__isub__", "__itruediv__", "__imul__", "__iadd__"}  # fmt: skip
_COPYING = {"contiguous", "clone", "to", "float", "double", "half", "bfloat16", "detach", "type_as"}
_PAIRING = {"matmul", "__matmul__", "mm", "bmm", "cdist", "einsum", "inner", "baddbmm"}
_DRAWING = {"randn", "rand", "normal", "randint", "randn_like", "rand_like", "tensor"}
MOST_STEPS = 40


def off_their_axis(trace: Trace, loss_key: int | None) -> list[Broadcast]:
    """`x / x.norm(dim=1)` of a square `x`: the lengths of its rows, along its columns. `x - x.mean((0, 2, 3))` of pictures as wide as they have channels.

    A table that is the same when it is turned over (all pairs of one tensor, an adjacency) has no rows that differ from its columns; and what
    meets the table along both axes, one after the other, is meant.
    """
    on_the_way = trace.ancestors({loss_key}) if loss_key is not None else None
    found: dict[object, Broadcast] = {}
    for op in trace.ops:
        if op.name not in _MEETING or len(op.ins) < 2 or not op.outs or origin_of_place(op) is not Origin.USER:
            continue
        if on_the_way is not None and not any(seen.key in on_the_way for seen in op.outs):
            continue
        short, long = sorted(op.ins[:2], key=lambda seen: len(seen.size))
        reduced = _reduction(trace, short, long)
        if reduced is None:
            continue
        made, axes, pairs = reduced
        site, product = trace.site(op), trace.site(made)
        if site is None or product is None or any(_turned_over(trace, made.ins[0], pair) for pair in pairs) or _both_ways(trace, made, long.size):
            continue
        left, right = (Shape(seen.size, str(seen.dtype).removeprefix("torch.")) for seen in op.ins[:2])
        found.setdefault(site.span, Broadcast(op.name, left, right, op.outs[0].size, site, 0, False, True, None, "reduced", product, axes=axes, reduction=made.name))
    return list(found.values())


def _reduction(trace: Trace, short: Seen, long: Seen) -> tuple[Op, tuple[int, ...], list[tuple[int, int]]] | None:
    """The call that reduced axes of this table to make the shorter operand, and those axes; and of each axis that is left and does not lie
    where it was, which one it was and which one it meets."""
    rank = len(long.size)
    if not 0 < len(short.size) < rank:
        return None
    seen = short
    for _ in range(MOST_STEPS):
        op = trace.maker(seen)
        if op is None or origin_of_place(op) is not Origin.USER:
            return None
        if op.name in _REDUCING and op.ins and op.ins[0].size == long.size and len(op.outs[0].size) == len(short.size):
            axes = reduced_axes(op, rank)
            left = [axis for axis in range(rank) if axes is not None and axis not in axes]
            if axes is None or tuple(long.size[axis] for axis in left) != short.size:
                return None
            pairs = [(was, lies) for was, lies in zip(left, range(rank - len(left), rank), strict=True) if was != lies and long.size[was] > 1]
            return (op, axes, pairs) if pairs and _elementwise(trace, op.ins[0]) & _elementwise(trace, long) else None
        same = [one for one in op.ins if one.size == short.size]
        if len(same) != 1 or op.name in ARRANGING - _COPYING or any(one.size for one in op.ins if one is not same[0]):
            return None
        seen = same[0]
    return None


def reduced_axes(op: Op, rank: int) -> tuple[int, ...] | None:
    dim = op.argument(2, "dim") if op.name in ("norm", "linalg_norm", "linalg_vector_norm", "vector_norm") else op.argument(1, "dim")
    dim = op.argument(1, "axis", dim) if dim is None else dim
    found = dim if isinstance(dim, tuple) else (dim,)
    return tuple(sorted(one % rank for one in found)) if found and all(type(one) is int and -rank <= one < rank for one in found) else None


def _elementwise(trace: Trace, seen: Seen) -> set[int]:
    """Tables of this size that this one was computed from element by element, itself included."""
    found, todo = {seen.key}, [seen]
    while todo and len(found) < MOST_STEPS:
        op = trace.maker(todo.pop())
        if op is None or op.name in (ARRANGING - _COPYING) | _PAIRING | {"linear", "softmax", "log_softmax", "cumsum"}:
            continue
        for one in op.ins:
            if one.size == seen.size and one.key not in found and one.key not in trace.parameters:
                found.add(one.key)
                todo.append(one)
    return found


def _turned_over(trace: Trace, table: Seen, pair: tuple[int, int]) -> bool:
    """May this be the same when these two axes change places? So is what all pairs of one tensor give, and so may data be."""
    for key in _elementwise(trace, table):
        made = trace.producer.get(key)
        if made is None or not trace.ops[made].ins and trace.ops[made].name not in _DRAWING:
            if _symmetric(trace.tensor(key), pair):
                return True
        elif _pairs_of_one(trace, trace.ops[made]):
            return True
    return False


def _pairs_of_one(trace: Trace, op: Op) -> bool:
    """Was this, reduced or not, laid along two axes out of one tensor?"""
    for _ in range(4):
        sides = [one for one in op.ins if len(one.size) > 1]
        crossed = len(sides) == 2 and op.outs and len(sides[0].size) == len(sides[1].size) == len(op.outs[0].size) and op.outs[0].size not in (sides[0].size, sides[1].size)
        if op.name in _PAIRING or crossed:
            return len({_source(trace, one) for one in op.ins[:2]}) < 2
        before = trace.maker(max(op.ins, key=lambda one: len(one.size))) if op.ins else None
        if before is None or op.name not in _REDUCING | _MEETING | {"pow", "abs", "square", "exp"}:
            return False
        op = before
    return False


def _source(trace: Trace, seen: Seen) -> int:
    for op in trace.made_through(seen, ARRANGING):
        if op.name in ARRANGING and op.ins:
            seen = op.ins[0]
    return seen.key


def _symmetric(tensor: torch.Tensor | None, pair: tuple[int, int]) -> bool:
    """Also of what is gone, where nobody can tell."""
    if tensor is None or tensor.dim() <= max(pair):
        return tensor is None
    with torch._C.DisableTorchFunction():
        return bool(torch.equal(tensor.detach(), tensor.detach().transpose(*pair)))


def _both_ways(trace: Trace, made: Op, size: tuple[int, ...]) -> bool:
    """The same numbers meet a table of this size with an axis put in for those that were lost, too."""
    mine, left = {seen.key for seen in made.outs}, len(made.outs[0].size)
    turned: set[int] = set()
    for later in trace.ops[made.index + 1 :]:
        if any(seen.key in turned for seen in later.ins) and later.outs and later.outs[0].size == size:
            return True
        if any(seen.key in mine | turned for seen in later.ins):
            for seen in later.outs:
                if len(seen.size) == left:
                    mine.add(seen.key)
                elif left < len(seen.size) <= len(size) and 1 in seen.size:
                    turned.add(seen.key)
    return False

"""Dropout written by hand: features times a random mask of zeros and ones, divided by the share that is kept."""

from __future__ import annotations

from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Trace

_DRAWING = {"rand", "rand_like", "bernoulli", "bernoulli_", "uniform_"}
_CHOOSING = {"gt", "ge", "lt", "le", "__gt__", "__ge__", "__lt__", "__le__", "floor", "floor_", "round", "bernoulli", "bernoulli_"}
_TURNING = ARRANGING | {"type", "int", "bool", "add", "add_", "sub", "rsub", "__rsub__", "logical_not", "__invert__", "__radd__"}
_TIMES, _BY = {"mul", "mul_", "__rmul__", "multiply"}, {"div", "div_", "true_divide", "__itruediv__"}


def drawn_masks(trace: Trace) -> dict[int, Op]:
    """The calls (their indices) that draw such masks, and the products of each with features.

    A mask alone is no dropout: an autoencoder that hides part of its input does not scale up the rest.
    """
    found: dict[int, Op] = {}
    for op in trace.ops:
        if op.name in _DRAWING and op.outs and op.place.code is not None:
            product = _product(trace, op)
            if product is not None:
                found[op.index] = product
    return found


def _product(trace: Trace, drawn: Op) -> Op | None:
    chosen = {seen.key: drawn.name in _CHOOSING for seen in drawn.outs}  # what is made of the draw: only zeros and ones yet?
    product: Op | None = None
    scaled = False
    for op in trace.ops[drawn.index + 1 :]:
        mine = [seen.key for seen in op.ins if seen.key in chosen]
        if product is not None and any(seen in product.outs for seen in op.ins):
            scaled = scaled or _scales(op)
        if not mine or (op.place.code, op.place.frame_id) != (drawn.place.code, drawn.place.frame_id):
            continue
        others = [seen for seen in op.ins if seen.key not in chosen]
        if op.name in _TIMES and any(chosen[key] and other.size for key in mine for other in others):
            if product is None:
                product = op
                scaled = scaled or any(made is not None and _scales(made) for made in map(trace.maker, others))
        elif op.name in _TURNING | _CHOOSING | _BY | _TIMES and not any(other.size for other in others):
            scaled = scaled or _scales(op)
            chosen.update((seen.key, op.name in _CHOOSING or any(chosen[key] for key in mine)) for seen in op.outs)
    return product if scaled else None


def _scales(op: Op) -> bool:
    """Divides by a share, or multiplies by the inverse of one."""
    by = op.argument(1, "other")
    return isinstance(by, (int, float)) and ((op.name in _BY and 0 < by < 1) or (op.name in _TIMES and by > 1))

"""Which expressions made one operand a column and the other one not, so that each was stretched against the other."""

from __future__ import annotations

from torchsleuth.auditor.observation_parts import Made
from torchsleuth.auditor.tracing.bydesign import origin_of_place
from torchsleuth.auditor.tracing.trace import Op, Seen, Trace
from torchsleuth.origin import Origin

_CUTTING = {"__getitem__", "index_select", "narrow", "chunk", "split", "select", "take_along_dim"}
_DROPPING = {"squeeze", "squeeze_", "flatten", "view", "reshape", "ravel", "select", "__getitem__"}
_PRODUCTS = ("linear", "matmul", "__matmul__", "mm", "bmm", "addmm", "conv", "bilinear", "einsum", "mv")
MOST_STEPS = 60


def shapes_made(trace: Trace, long: Seen, short: Seen) -> tuple[Made, ...]:
    """Where `long` got its axis of size 1, and where `short` lost one.

    Data that have no such axis are as they are: it is the model's result that lacks a `squeeze`. A layer that gives a column is no part
    of it where the other operand was computed as a column, too, until its axis was taken away; nor is that where an axis was put in on the other side.
    """
    gained, lost = _maker(trace, long), _maker(trace, short)
    found = []
    put_in = gained is not None and bool(gained.ins) and not _is_layer(trace, gained)
    if lost is not None and _drops(lost) and short.requires_grad and not put_in and (site := trace.site(lost)) is not None:
        found.append(Made(site, lost.name, short.size, False))
    if gained is not None and 1 in gained.outs[0].size and not (found and _is_layer(trace, gained)) and (site := trace.site(gained)) is not None:
        found.append(Made(site, gained.name, long.size, True))
    return tuple(found)


def _maker(trace: Trace, seen: Seen) -> Op | None:
    """The call whose result has these axes and whose operands do not: a layer, an `unsqueeze`, a `squeeze`, a sum, the data themselves.

    None where the record does not reach it.
    """
    for _ in range(MOST_STEPS):
        op = trace.maker(seen)
        if op is None:
            return None
        if _collated(op):
            seen = op.ins[0]
        elif (before := _same_axes(trace, op, seen)) is not None:
            seen = before
        else:
            return op if origin_of_place(op) is Origin.USER else None
    return None


def _drops(op: Op) -> bool:
    """It takes an axis of size 1 away, and nothing else."""
    return op.name in _DROPPING and bool(op.ins) and tuple(n for n in op.ins[0].size if n > 1) == op.outs[0].size and len(op.ins[0].size) > len(op.outs[0].size)


def _collated(op: Op) -> bool:
    """A loader has put samples together: the axes are those of each of them."""
    return op.name == "stack" and not op.place.direct and bool(op.ins) and len(op.ins[0].size) > 0


def _is_layer(trace: Trace, op: Op) -> bool:
    return op.name.startswith(_PRODUCTS) or any(one.key in trace.parameters for one in op.ins)


def _same_axes(trace: Trace, op: Op, seen: Seen) -> Seen | None:
    """The operand that had all but the axis of the samples already."""
    if _is_layer(trace, op):
        return None
    if op.name in _CUTTING and op.ins:
        whole = op.ins[0]
        rows_only = whole.size[1:] == (seen.size if len(whole.size) == len(seen.size) + 1 else seen.size[1:])
        return whole if rows_only and whole.size[1:] else None
    return next((one for one in op.ins if one.size == seen.size), None)

"""Along which axes of the scores a mask lies: sizes are matched from the last axis on, and its samples may come to lie along heads or queries."""

from __future__ import annotations

import typing

from torchsleuth.auditor.inputs.padded import Padding
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Seen, Trace

_KEEPING = ARRANGING | {"eq", "ne", "__eq__", "__ne__", "__invert__", "logical_not", "bitwise_not", "bool", "rsub", "__rsub__", "mul", "__mul__", "float"}


def samples_astray(padding: Padding, trace: Trace, op: Op, mask: Seen, scores: tuple[int, ...]) -> dict[str, typing.Any]:
    """Fields of a `Move`, where a mask of [samples, …, positions] meets scores of [samples, …, keys] and its samples do not lie along theirs."""
    batch, length = padding.valid.shape
    if padding.axis == 0 or not 1 < len(mask.size) <= len(scores) or scores[0] != batch or scores[-1] != length or batch == 1:
        return {}
    missing = len(scores) - len(mask.size)
    if missing == 0 or mask.size[0] != batch or mask.size[-1] != length or any(size != 1 for size in mask.size[1:-1]):
        return {}
    return {"mask_site": trace.site(op), "mask_operation": op.name, "samples_axis": missing, "mask_shape": mask.size, "masked_shape": scores, "made_site": _laid_out(trace, mask)}


def _laid_out(trace: Trace, mask: Seen) -> Site | None:
    """The expression that gave the mask its axes of size 1."""
    for op in trace.made_through(mask, _KEEPING):
        if op.name in ARRANGING and op.ins and op.place.direct and len(op.ins[0].size) < len(op.outs[0].size) and op.outs[0].size == mask.size:
            return trace.site(op)
    return None


def scores_of(op: Op) -> tuple[int, ...]:
    """The size of the scores inside an attention of torch's that masks are added to as they are."""
    if op.name != "scaled_dot_product_attention" or len(op.ins) < 4 or len(op.ins[0].size) < 3:
        return ()
    return (*op.ins[0].size[:-1], op.ins[1].size[-2])

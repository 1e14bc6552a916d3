"""Where a padding mask meets the values it is to hide: the operation, the axis it lies along, or an attention that is given none."""

from __future__ import annotations

import typing

import torch

from torchsleuth.auditor.batch import Padding
from torchsleuth.auditor.trace import ARRANGING, Op, Seen, Trace

_APPLYING = {"masked_fill", "masked_fill_", "where", "add", "mul", "sub", "__setitem__", "add_", "mul_", "logical_and"}
_THROUGH = ARRANGING | _APPLYING | {"div", "dropout", "div_", "softmax", "masked_softmax"}
# Where each kind of attention takes its masks: (position, name), the one for padding first.
_ATTENTIONS = {"multi_head_attention_forward": ((14, "key_padding_mask"), (16, "attn_mask")), "scaled_dot_product_attention": ((3, "attn_mask"),)}


def masking(trace: Trace, op: Op, padding: Padding) -> dict[str, typing.Any]:
    """Fields of a `Move`: how the operation that moved was told what is padding, as far as it can be seen."""
    if op.name in _ATTENTIONS:
        given = [op.argument(position, name) for position, name in _ATTENTIONS[op.name]]
        return {"unmasked": _ATTENTIONS[op.name][0][1]} if all(one is None for one in given) else {}
    found = _application(trace, op, padding)
    if found is None:
        return {}
    applied, mask = found
    masked = max((seen for seen in applied.ins if seen is not mask), key=lambda seen: len(seen.size), default=mask)
    return {"mask_site": trace.site(applied), "mask_operation": applied.name, "mask_shape": mask.size, "masked_shape": masked.size}


def _application(trace: Trace, culprit: Op, padding: Padding) -> tuple[Op, Seen] | None:
    """The operation just before the culprit that brought the mask and the values together, and the mask as it was then."""
    pure = _mask_keys(trace, padding)
    todo, looked_at = [(seen, 0) for seen in culprit.ins], set()
    while pure and todo:
        tensor, depth = todo.pop(0)
        op = trace.maker(tensor)
        if op is None or op.index in looked_at or depth > 6:
            continue
        looked_at.add(op.index)
        mine = [seen for seen in op.ins if seen.key in pure]
        if mine and len(mine) < len(op.ins) and op.name in _APPLYING:
            return op, mine[-1]
        if op.name in _THROUGH and not mine:
            todo += [(seen, depth + 1) for seen in op.ins]
    return None


def _mask_keys(trace: Trace, padding: Padding) -> set[int]:
    """The mask and all that was made of it alone; where the call gives none, the flags that the model makes of its ids."""
    key = trace.known_key((padding.mask or padding.leaf).tensor)
    if key is None:
        return set()
    pure = {key} if padding.mask is not None else set()
    for op in trace.ops:
        if not op.ins:
            continue
        if padding.mask is None and all(seen.key == key or seen.size == () for seen in op.ins) and op.outs and op.outs[0].dtype is torch.bool:
            pure.update(seen.key for seen in op.outs)
        elif any(seen.key in pure for seen in op.ins) and all(seen.key in pure or seen.size == () for seen in op.ins):
            pure.update(seen.key for seen in op.outs)
    return pure

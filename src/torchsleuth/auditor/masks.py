"""What became of a mask on its way to the operation that let padding through: where it was applied, and whether it hides anything."""

from __future__ import annotations

import typing

import torch

from torchsleuth.auditor import batch as batches
from torchsleuth.auditor.batch import Padding
from torchsleuth.auditor.compare import Found
from torchsleuth.auditor.lab import Lab
from torchsleuth.auditor.sites import site_of
from torchsleuth.auditor.trace import ARRANGING, Op, Seen, Trace

_MASKING = {"masked_fill", "masked_fill_", "where", "add", "mul", "sub", "__setitem__", "add_", "mul_", "logical_and"}
_THROUGH = ARRANGING | _MASKING | {"div", "dropout", "div_", "softmax"}
_TURNING = ARRANGING | {"__invert__", "bitwise_not", "logical_not", "bool", "int", "long", "repeat", "repeat_interleave"}
HIDES = 1e2  # what is added to a score must be larger than that to hide it


# Where each kind of attention takes its masks: (position, name), the one for padding first.
_ATTENTIONS = {"multi_head_attention_forward": ((14, "key_padding_mask"), (16, "attn_mask")), "scaled_dot_product_attention": ((3, "attn_mask"),)}


def told(lab: Lab, padding: Padding, trace: Trace, found: Found | None, content: bool) -> dict[str, typing.Any]:
    """Fields of a `Move`: how the operation that moved was told what is padding, as far as that can be seen.

    `content`: what stands at padded positions shows. Where it is only their number, a mask that is applied may do what it should.
    """
    if found is None:
        return {}
    if found.op.name in _ATTENTIONS and all(found.op.argument(position, name) is None for position, name in _ATTENTIONS[found.op.name]):
        return {"unmasked": _ATTENTIONS[found.op.name][0][1], **(unused(lab, padding, trace, found) if content else {})}
    if content and (facts := unused(lab, padding, trace, found)):
        return facts
    pure = _mask_keys(trace, padding)
    applied = application(trace, found, pure)
    if applied is None:
        return {}
    side = next((seen for seen in applied.ins if seen.key in pure and seen.size), None)
    masked = max((seen for seen in applied.ins if seen.key not in pure), key=lambda seen: len(seen.size))
    empty = hollow(padding, trace, applied, side)
    along = {"mask_shape": side.size, "masked_shape": masked.size} if side is not None else {}
    queries = "softmax" in found.op.name and side is not None and side.size[-1:] == (1,)
    if not content and not empty and not queries:
        return {}
    return {"mask_site": trace.site(applied), "mask_operation": applied.name, **along, **empty}


def unused(lab: Lab, padding: Padding, trace: Trace, found: Found | None) -> dict[str, typing.Any]:
    """A mask that the model takes and does not use; where the part that it was not handed to was called, and with what instead."""
    if padding.mask is None or found is None:
        return {}
    keys = {key: leaf for leaf in lab.call.leaves if (key := trace.known_key(leaf.tensor)) is not None}
    used = {seen.key for op in trace.ops for seen in op.ins}
    if any(leaf.tensor is padding.mask.tensor and key in used for key, leaf in keys.items()):
        return {}
    masks = {key: leaf for key, leaf in keys.items() if leaf.tensor.shape == padding.mask.tensor.shape and batches.looks_like_mask(leaf)}
    instead = [
        leaf.name for key, leaf in masks.items()
        if _pure(trace, key) & {seen.key for seen in found.op.ins} or application(trace, found, _pure(trace, key)) is not None
    ]  # fmt: skip
    calls = trace.calls(found.op)
    return {"mask_unused": True, "instead": instead[0] if instead else "", "made_site": site_of(calls[0]) if calls else None}


def hollow(padding: Padding, trace: Trace, masking: Op, side: Seen | None) -> dict[str, typing.Any]:
    """Where the mask that was applied was made, if it is the same at all positions of rows that have padding: then it hides nothing."""
    if padding.mask is None:
        return {}
    value = _value(trace, side) if side is not None else None
    if side is None or value is None or value.shape[0] != padding.valid.shape[0]:
        return {}
    rows = value.reshape(value.shape[0], -1)[padding.padded_rows].float()
    spread = float((rows.amax(1) - rows.amin(1)).max())
    adds = masking.name in ("add", "add_", "sub")
    if spread > (HIDES if adds else 0.0) or rows.shape[1] < 2:
        return {}
    for op in trace.made_through(side, _TURNING):
        if op.name not in _TURNING:
            text = f"between {float(rows.min()):.3g} and {float(rows.max()):.3g}: too little to hide anything" if adds else "the same at all positions: it hides nothing"
            return {"hollow": text, "made_site": trace.site(op)}
    return {}


def _value(trace: Trace, seen: Seen) -> torch.Tensor | None:
    made = trace.maker(seen)
    return next((t for out, t in zip(made.outs, made.tensors, strict=False) if out.key == seen.key), None) if made is not None else None


def _pure(trace: Trace, key: int) -> set[int]:
    """This tensor and all that was made of nothing else, numbers aside."""
    pure, plain = {key}, set()
    for op in trace.ops:
        if not op.ins or all(s.key in plain for s in op.ins):
            plain.update(s.key for s in op.outs)  # of no input: a range, ones
        elif any(s.key in pure for s in op.ins) and all(s.key in pure or s.key in plain or s.size == () for s in op.ins):
            pure.update(s.key for s in op.outs)
    return pure


def _mask_keys(trace: Trace, padding: Padding) -> set[int]:
    """The mask and all that was made of it alone; where the call gives none, the flags that the model makes of its ids."""
    key = trace.known_key((padding.mask or padding.leaf).tensor)
    if key is None:
        return set()
    if padding.mask is not None:
        return _pure(trace, key)
    flags = [op.outs[0].key for op in trace.ops if op.outs and op.outs[0].dtype is torch.bool and op.ins and all(s.key == key or s.size == () for s in op.ins)]
    return set().union(*(_pure(trace, flag) for flag in flags))


def application(trace: Trace, found: Found, pure: set[int]) -> Op | None:
    """The operation just before the culprit that brought the mask (or what was made of it) and the values together."""
    todo, seen = [(s, 0) for s in found.op.ins], set()
    while todo and pure:
        tensor, depth = todo.pop(0)
        op = trace.maker(tensor)
        if op is None or op.index in seen or depth > 6:
            continue
        seen.add(op.index)
        mine = [s for s in op.ins if s.key in pure]
        if mine and len(mine) < len(op.ins) and op.name in _MASKING:
            return op
        if op.name in _THROUGH and not mine:
            todo += [(s, depth + 1) for s in op.ins]
    return None

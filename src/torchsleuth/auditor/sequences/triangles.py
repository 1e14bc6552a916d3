"""Triangular masks: where one reaches an attention, how far ahead it lets positions see, and whether the program opens it on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Seen, Trace

ATTENTIONS = {"softmax", "scaled_dot_product_attention", "multi_head_attention_forward", "_transformer_encoder_layer_fwd"}
_COMBINING = {"masked_fill", "masked_fill_", "where", "add", "add_", "mul", "mul_", "sub", "rsub", "__rsub__", "__setitem__", "eq", "ne", "lt", "gt", "le",
              "ge", "bool", "log", "isinf", "__and__", "__or__", "__invert__", "logical_and", "logical_or", "logical_not", "bitwise_not",
              "bitwise_and", "bitwise_or", "bitwise_invert", "maximum", "minimum", "__eq__", "__ne__", "div", "div_", "dropout",
              "repeat", "repeat_interleave", "type", "int", "long", "clamp", "cat", "stack", "pad"}  # fmt: skip
SOME = -2  # how far ahead a mask lets see that shows later positions to some
HIDDEN = -1e3  # an additive mask that hides is below this


@dataclass
class Attention:
    """An attention over as many keys as queries that a triangle was made for."""

    op: Op
    length: int


def masked_attentions(trace: Trace, model: nn.Module) -> Iterator[Attention]:
    """Attentions that a triangular mask reaches: one that the forward pass makes, or one that the model holds."""
    held = [buffer.shape[-1] for buffer in model.buffers() if is_triangular(buffer)]
    reached: set[int] = set()
    for op in trace.ops:
        if _makes(op):
            reached.update(seen.key for seen in op.outs)
            continue
        mine = [seen for seen in op.ins if seen.key in reached]
        if op.name in ATTENTIONS:
            squares = [seen.size[-1] for seen in (*mine, *(op.ins if held else ())) if is_square(seen) and (seen in mine or seen.size[-1] <= max(held))]
            if squares:
                yield Attention(op, squares[0])
            elif op.name == "scaled_dot_product_attention" and op.argument(5, "is_causal") is True and op.ins[0].size[-2] == op.ins[1].size[-2]:
                yield Attention(op, op.ins[0].size[-2])
        elif mine and (op.name in _COMBINING or op.name in ARRANGING):
            reached.update(seen.key for seen in op.outs)


def opening(trace: Trace) -> Op | None:
    """Where a triangle is combined with a mask that shows some of what it hides, and not all: a prefix that is read in both directions, say."""
    hidden: dict[int, torch.Tensor] = {}  # flags of what the triangle hides
    for op in trace.ops:
        if not op.outs or not op.tensors:
            continue
        value = op.tensors[0]
        if _makes(op):
            hidden[op.outs[0].key] = value == value[0, -1]
            continue
        flags = next((hidden[seen.key] for seen in op.ins if seen.key in hidden), None)
        if flags is None or op.name not in _COMBINING | ARRANGING:
            continue
        if op.name == "__getitem__" and value.dim() == 2 and value.shape[0] == value.shape[1] <= flags.shape[0]:
            flags = flags[: value.shape[0], : value.shape[0]]
        if value.shape[-2:] != flags.shape:
            continue
        covered = value[..., flags]
        if value.is_floating_point() and not bool((covered.abs() <= 1).all()) and not bool((covered < HIDDEN).any()):
            continue  # scores, not a mask
        covered = covered < HIDDEN if value.is_floating_point() and bool((covered < HIDDEN).any()) else covered
        if value.dtype is torch.bool or covered.dtype is torch.bool:
            if bool(covered.any()) and not bool(covered.all()):
                return op
            hidden[op.outs[0].key] = flags
    return None


def reach_ahead(trace: Trace, op: Op, leaves: dict[int, torch.Tensor]) -> int | None:
    """How many positions ahead an attention sees, if it is the same number for all: from its weights, or from the mask that it was given.

    -1: it sees what lies ahead, and nothing else.
    """
    visible = _visible(trace, op, leaves)
    if visible is None or visible.dim() < 2 or visible.shape[-1] != visible.shape[-2] or (length := visible.shape[-1]) < 3:
        return None
    ahead = [bool(visible.diagonal(d, -2, -1).any()) for d in range(1, length)]
    reach = sum(ahead)
    # Nothing lies ahead of the last position: one that sees only what does is given nothing, or (of equal scores) everything.
    if reach == length - 1 and not any(bool(visible[..., :-1, :].diagonal(-d, -2, -1).any()) for d in range(1, length - 1)):
        return -1
    if not 0 < reach < length - 1 or not all(ahead[:reach]):
        return None
    samples = visible.reshape(-1, length, length)  # of one at least, which no padding hides, all positions see as far
    full = torch.stack([samples.diagonal(d, -2, -1).all(-1) for d in range(1, reach + 1)]).all(0)
    return reach if bool(full.any()) else None


def shown_ahead(trace: Trace, op: Op, leaves: dict[int, torch.Tensor]) -> Seen | None:
    """The mask of this attention, if it hides a later position from some and shows one to others."""
    if op.name == "multi_head_attention_forward" and (op.argument(14, "key_padding_mask") is not None or op.argument(16, "attn_mask") is None):
        return None  # one of the padding is square where there are as many samples as positions
    masks = [seen for seen in op.ins[1:] if is_square(seen) and seen.key not in trace.parameters]
    visible = _visible(trace, op, leaves) if op.name in ATTENTIONS and op.name != "softmax" and len(masks) == 1 else None
    if visible is None or visible.shape[-1] != visible.shape[-2]:
        return None
    later = visible[..., torch.ones(visible.shape[-2:], dtype=torch.bool, device=visible.device).triu(1)]
    return masks[0] if bool(later.any()) and not bool(later.all()) else None


def idle_mask(trace: Trace, op: Op, leaves: dict[int, torch.Tensor]) -> tuple[Op, Seen, str] | None:
    """The mask over queries and keys that is applied to the scores of this attention if it hides nothing at all: by which call, and what it holds."""
    applied, scores = op, ()
    if op.name == "softmax" and op.ins:
        scores = op.ins[0].size
        applied = next((one for one in trace.made_through(op.ins[0], ARRANGING | {"div", "div_", "dropout"}) if one.name in ("masked_fill", "masked_fill_", "add", "add_") and one.place.direct), op)
    elif op.name == "scaled_dot_product_attention":
        scores = (op.ins[0].size[-2], op.ins[1].size[-2])
    elif op.name == "multi_head_attention_forward":
        scores = (op.ins[0].size[0], op.ins[1].size[0])
    for seen in applied.ins[1:] if len(scores) > 1 and (applied is not op or op.name != "softmax") else ():
        mask = leaves.get(seen.key)
        if mask is None and (made := trace.maker(seen)) is not None:
            mask = next((t for out, t in zip(made.outs, made.tensors, strict=False) if out.key == seen.key), None)
        if mask is None or seen.size[-2:] != tuple(scores[-2:]) or seen.size[-2] < 2 or not trace.ancestors({seen.key}).isdisjoint(trace.parameters):
            continue
        keeps = op.name == "scaled_dot_product_attention" and mask.dtype is torch.bool
        if bool((mask >= HIDDEN).all()) if mask.is_floating_point() else mask.dtype is torch.bool and bool((mask == keeps).all()):
            low, high = (float(end) for end in (mask.min(), mask.max()))
            if mask.is_floating_point() and bool(((mask == 0) | (mask == 1)).all()) and low < high:
                return None  # flags that were meant to hide, and are added: that is said of the mask itself
            return applied, seen, "it is the same at all places" if low == high else f"it lies between {low:.3g} and {high:.3g}"
    return None


def _visible(trace: Trace, op: Op, leaves: dict[int, torch.Tensor]) -> torch.Tensor | None:
    if op.name == "softmax":
        return op.tensors[0] > 0 if op.tensors and is_square(op.outs[0]) else None
    if op.name not in ATTENTIONS:
        return None
    for seen in op.ins[1:]:
        if not is_square(seen):
            continue
        mask = leaves.get(seen.key)
        if mask is None and (made := trace.maker(seen)) is not None:
            mask = next((t for out, t in zip(made.outs, made.tensors, strict=False) if out.key == seen.key), None)
        if mask is None:
            continue
        if mask.is_floating_point():
            return mask >= HIDDEN
        if mask.dtype is torch.bool:
            return mask if op.name == "scaled_dot_product_attention" else ~mask
    return None


def makers(trace: Trace, reach: int) -> Iterator[Op]:
    """The calls that made triangles which show so many positions ahead; all that made any where only those are seen."""
    for op in trace.ops:
        if _makes(op) and reach < 0:
            yield op
        elif _makes(op):
            diagonal = op.argument(1, "diagonal", 0)
            if diagonal == (reach if op.name.startswith("tril") else reach + 1):
                yield op


def _makes(op: Op) -> bool:
    return op.name in ("tril", "triu", "tril_", "triu_") and bool(op.outs) and len(op.outs[0].size) == 2 and is_square(op.outs[0])


def is_square(seen: Seen) -> bool:
    return len(seen.size) >= 2 and seen.size[-1] == seen.size[-2] > 1


def is_triangular(buffer: torch.Tensor) -> bool:
    if buffer.layout is not torch.strided or buffer.is_meta or buffer.is_quantized:
        return False
    square = buffer.detach().squeeze()
    if square.dim() != 2 or square.shape[0] != square.shape[1] or square.shape[0] < 3 or square.numel() > 1 << 24:
        return False
    flags = square == square[0, -1]
    if not flags.any() or flags.all():
        return False
    size = square.shape[0]
    return any(torch.equal(flags, torch.ones_like(flags).triu(k)) for k in range(0, min(4, size)))

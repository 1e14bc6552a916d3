"""Views that look like transposes: the sizes are those of another order of the axes, the elements stay where they are."""

from __future__ import annotations

import math
import typing

from torchsleuth.auditor.losses.classaxis import laid_by_layer
from torchsleuth.auditor.observation import Swap
from torchsleuth.auditor.samples.rearranging import meant
from torchsleuth.auditor.tracing.bydesign import origin_of_place
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Seen, Trace
from torchsleuth.origin import Origin

_OF_POSITIONS = {"linear", "layer_norm", "lstm", "gru", "rnn_tanh", "rnn_relu", "multi_head_attention_forward", "matmul", "__matmul__",
                 "cat", "add", "add_", "rms_norm"}  # fmt: skip
_OF_MAPS = ("conv", "max_pool", "avg_pool", "adaptive_", "interpolate", "pixel_shuffle", "batch_norm", "group_norm", "upsample")
_BETWEEN = ARRANGING | {"dropout", "relu", "gelu", "silu", "tanh", "mul"}
_COMPARING = {"sub", "add", "mse_loss", "l1_loss", "smooth_l1_loss"}
_OF_CLASSES = {"cross_entropy", "nll_loss", "softmax", "log_softmax", "argmax", "max", "topk"}
_COLOURS = (3, 4)
SMALLEST_PICTURE = 8  # pixels along a side
_Moved = tuple[int, tuple[int, ...], tuple[int, ...]]


def swapped_views(trace: Trace, keys: set[int], inside: slice) -> list[Swap]:
    """`view` or `reshape` that moves an axis: (B, T, C) to (B, C, T), or to (B, heads, T, C / heads). The elements stay where they are.

    `inside` are the calls of the model's forward pass.
    """
    wanted = trace.ancestors(keys)
    found: dict[typing.Any, Swap] = {}
    for op in trace.ops:
        if op.name not in ("view", "reshape") or not op.ins or not op.outs or origin_of_place(op) is not Origin.USER:
            continue
        before, after = (tuple(n for n in seen.size if n != 1) for seen in (op.ins[0], op.outs[0]))
        if len(before) < 2 or before == after or op.outs[0].key not in wanted:
            continue
        torn = None
        if not op.outs[0].requires_grad:  # data: only pictures tell what their axes are, and what the model takes as it is
            turned = _turned_picture(op.ins[0].size, op.outs[0].size) or _turned_film(op.ins[0].size, op.outs[0].size) or _turned_series(trace, op, inside)
            torn = None if turned else _torn_picture(trace, op)
            moved = () if turned else torn
        else:
            moved = () if sorted(before) == sorted(after) else _moved_axis(before, after) or _turned_map(trace, op) or _classes_torn(trace, op)
        if moved is None:
            continue
        site = trace.site(op)
        if site is not None:
            found.setdefault(site.span, Swap(op.name, op.ins[0].size, op.outs[0].size, site, *moved, torn=torn is not None, written="" if torn else meant(op)))
    return list(found.values())


def crossed_labels(trace: Trace, losses: typing.Iterable[Op]) -> list[Swap]:
    """Predictions (T, B, C) and labels (B, T), each made one row of: the first is in the order of time, the second in that of the samples."""
    found: dict[typing.Any, Swap] = {}
    for loss in losses:
        if len(loss.ins) < 2 or len(loss.ins[0].size) > 2 or len(loss.ins[1].size) != 1:
            continue
        given, asked = (_flattened(trace, seen) for seen in loss.ins[:2])
        if given is None or asked is None:
            continue
        site, labels = trace.site(given), trace.site(asked)
        before, turned = given.ins[0].size[: len(asked.ins[0].size)], asked.ins[0].size
        if len(turned) == 2 and min(turned) > 1 and before == turned[::-1] != turned and site is not None and labels is not None:
            found.setdefault(site.span, Swap(loss.name, given.ins[0].size, turned, site, labels=labels))
    return list(found.values())


def _flattened(trace: Trace, seen: Seen) -> Op | None:
    """The call that made one row of two axes."""
    rows = seen.size[:1]
    for op in trace.made_through(seen, {"contiguous", "float", "long", "to", "clone", "log_softmax", "detach"}):
        if op.name in ("view", "reshape", "flatten", "ravel") and op.ins and op.outs and len(op.ins[0].size) == len(seen.size) + 1:
            return op if op.ins[0].size[2:] == seen.size[1:] and (math.prod(op.ins[0].size[:2]),) == rows else None
    return None


def _moved_axis(before: tuple[int, ...], after: tuple[int, ...]) -> _Moved | None:
    """An axis that stands elsewhere after a split or a merge of the axis beside it: its size, and the sizes around it.

    (T, H * D) read off as (H, T, D), or (H, T, D) as (T, H * D). Where the axes were only split and merged, every
    axis that is still there begins at the same element; here T does not.
    """
    head = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), None)
    if head is None:
        return None
    tail = next((i for i, (a, b) in enumerate(zip(before[::-1], after[::-1], strict=False)) if a != b), 0)
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    for one, other in ((old, new), (new, old)):
        if len(one) == 2 and len(other) == 3:
            time, width = one
            heads, moved, each = other
            # Equal sizes could be axes that were split and merged where they stood: (16, 4, 4) as (4, 64) is four groups of channels.
            if moved == time and time not in (heads, each) and heads * each == width:
                return time, old, new
    return None


def _turned_map(trace: Trace, op: Op) -> _Moved | None:
    """A map of channels read off as positions with features, or back, where what comes next takes them for just that.

    (C, H, W) as (H * W, C) or (W, C * H), with channels that a convolution has laid along axis 1; and (N, C) as (C, H, W) for
    a convolution, or (B * H * W, C) as (B, C, H, W).
    """
    before, after = op.ins[0].size, op.outs[0].size
    if len(before) == 2 and len(after) == 4 and min(after) > 1 and before[1] == after[1] and before[0] == after[0] * after[2] * after[3]:
        return (before[1], before, after) if _rows_of_features(trace, op.ins[0]) and _meets_map(trace, op.outs[0]) else None
    if before[:1] != after[:1] or len(before) < 3 or len(after) < 3:
        return None
    old, new = before[1:], after[1:]
    if len(old) == len(new) == 3 and (times := new[1] // old[1]) > 1 and (new[0] * times**2, new[1] // times, new[2] // times) == old and new[2] % times == 0:
        return (old[0], old, new) if laid_by_layer(trace, op.ins[0], 1) else None  # a larger map of fewer channels
    if len(old) > 2 == len(new) and laid_by_layer(trace, op.ins[0], 1):
        channels, spots = old[0], math.prod(old[1:])
        turned = {(spots, channels), *(((old[2], channels * old[1]),) if len(old) == 3 else ())} - {(channels, spots), (channels * old[1], spots // old[1])}
        return (new[0], old, new) if new in turned and _taken(trace, op.outs[0], lambda taker: taker.name in _OF_POSITIONS) else None
    if len(old) == 2 < len(new) and new[0] == old[1] != old[0] == math.prod(new[1:]):
        return (old[0], old, new) if _taken(trace, op.outs[0], lambda taker: taker.name.startswith(_OF_MAPS)) else None
    return None


def _rows_of_features(trace: Trace, seen: Seen) -> bool:
    """One vector for each row: looked up in a table, or given by a layer."""
    made = trace.maker(seen)
    return laid_by_layer(trace, seen, 1) or made is not None and made.name == "embedding"


def _meets_map(trace: Trace, seen: Seen) -> bool:
    """Is it given to a convolution, or compared number by number with what one has given?"""
    for op in trace.ops[trace.producer.get(seen.key, 0) + 1 :]:
        if any(one.key == seen.key for one in op.ins):
            others = [one for one in op.ins if one.key != seen.key and one.size == seen.size]
            if op.name.startswith(_OF_MAPS) or op.name in _COMPARING and any(laid_by_layer(trace, _history(trace, one), 1) for one in others):
                return True
    return False


def _history(trace: Trace, seen: Seen) -> Seen:
    made = trace.maker(seen)
    return made.ins[0] if made is not None and made.name == "detach" and made.ins else seen


def _classes_torn(trace: Trace, op: Op) -> _Moved | None:
    """Scores (B, C, T) or (B, C, H, W) read off as rows of C for a loss, with classes that a convolution has laid along axis 1: a row holds C positions."""
    before, after = op.ins[0].size, op.outs[0].size
    if len(before) < 3 or len(after) != 2 or after[1] != before[1] or math.prod(before[2:]) == 1 or not laid_by_layer(trace, op.ins[0], 1):
        return None
    return (before[1], before, after) if _taken(trace, op.outs[0], lambda taker: taker.name in _OF_CLASSES) else None


def _turned_picture(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """(H, W, C) read off as (C, H, W), or back, behind as many axes as there are before them."""
    if len(before) != len(after) or len(before) < 3 or before[:-3] != after[:-3]:
        return False
    for (high, wide, colours), turned in ((before[-3:], after[-3:]), (after[-3:], before[-3:])):
        if colours in _COLOURS and min(high, wide) >= SMALLEST_PICTURE and turned in ((colours, high, wide), (colours, wide, high)):
            return True
    return False


def _turned_film(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Films (B, C, T, H, W) read off as pictures (B * T, C, H, W) or (B, T, C, H, W), or back: the channels of each are those of other moments."""
    if before[-2:] != after[-2:] or min(before[-2:], default=0) < SMALLEST_PICTURE or math.prod(before) != math.prod(after):
        return False
    if len(before) == 5 and len(after) in (4, 5):
        samples, first, second = before[:3]
        if first in _COLOURS and second != first and after[-3] == first:  # (B, C, T, H, W)
            return after[:-3] in ((samples * second,), (samples, second))
        return len(after) == 5 and second in _COLOURS and first != second and after[:3] == (samples, second, first)
    return len(before) == 4 and len(after) == 5 and before[1] in _COLOURS and after[1] == before[1] != after[2] and after[0] * after[2] == before[0]


def _turned_series(trace: Trace, op: Op, inside: slice) -> bool:
    """An input (B, T, C) of the model read off as (B, C, T) for a convolution over time, or back for a layer that takes features last."""
    before, after = op.ins[0].size, op.outs[0].size
    made, start = trace.producer.get(op.ins[0].key), inside.start or 0
    if op.index < start or made is not None and made >= start or not op.ins[0].dtype.is_floating_point:
        return False
    if len(before) != 3 or min(before) < 2 or before[1] == before[2] or after != (before[0], before[2], before[1]):
        return False
    return _taken(trace, op.outs[0], lambda taker: taker.name in _OF_POSITIONS or taker.name.startswith(_OF_MAPS))


def _torn_picture(trace: Trace, op: Op) -> _Moved | None:
    """Pictures (B, C, H, W) read off as a row of parts that begin in the middle of one colour and end in the middle of the next."""
    before, after = op.ins[0].size, op.outs[0].size
    if len(before) != 4 or before[1] not in _COLOURS or min(before[2:]) < SMALLEST_PICTURE or len(after) < 3 or after[0] != before[0]:
        return None
    each, plane = math.prod(after[2:]), before[2] * before[3]
    if plane % each == 0 or each % plane == 0 or not _taken(trace, op.outs[0], lambda taker: taker.name in _OF_POSITIONS or taker.name in ARRANGING):
        return None
    return after[1], before[1:], after[1:]


def _taken(trace: Trace, seen: Seen, fits: typing.Callable[[Op], bool]) -> bool:
    """Do all that take this up, rearranged or not, fit?"""
    keys, takers = {seen.key}, []
    for op in trace.ops[trace.producer.get(seen.key, 0) + 1 :]:
        if not any(one.key in keys for one in op.ins):
            continue
        if op.name in _BETWEEN and op.outs and op.outs[0].size == seen.size:
            keys.update(one.key for one in op.outs)
        else:
            takers.append(op)
    return bool(takers) and all(map(fits, takers))

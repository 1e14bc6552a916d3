"""Losses written by hand whose sums run over the samples, where each sample was to get a number of its own: overlaps of masks, distances of pairs."""

from __future__ import annotations

import math

import torch

from torchsleuth.auditor.losses.reducedaxis import reduced_axes
from torchsleuth.auditor.observation import AxisFact
from torchsleuth.auditor.samples.sampleaxis import SampleAxis
from torchsleuth.auditor.tracing.bydesign import origin_of_place
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Seen, Trace
from torchsleuth.origin import Origin

_SUMMING = {"sum", "mean", "norm", "linalg_norm", "linalg_vector_norm", "vector_norm"}
_DIVIDING = {"div", "true_divide", "divide", "__rdiv__", "__rtruediv__"}
_SUBTRACTING = {"sub", "subtract", "rsub", "__rsub__"}
_EACH = {"add", "sub", "mul", "div", "true_divide", "radd", "rmul", "rsub", "rdiv", "rtruediv", "pow", "sqrt",
         "square", "abs", "clamp", "clamp_min", "clip", "neg", "exp"}  # fmt: skip
_SQUASHING = {"sigmoid", "softmax", "log_softmax", "clamp", "tanh", "exp"}
_BENDING = {"relu", "clamp", "clamp_min", "clip", "maximum", "max", "softplus", "logsigmoid", "log_sigmoid", "log", "exp", "sigmoid"}
_MAPPING = ("conv", "interpolate", "upsample", "pixel_shuffle")
_FLAGGING = {"one_hot", "eq", "gt", "lt", "ge", "le", "ne", "logical_and", "logical_or", "logical_not", "bool", "isin"}
MOST_STEPS = 40


def over_samples(trace: Trace, loss_key: int | None, samples: SampleAxis) -> list[AxisFact]:
    """`2 * (p * mask).sum(0) / (p.sum(0) + mask.sum(0))` gives each pixel an overlap over the batch; `(a - b).pow(2).sum(0)` each feature a distance.

    A sum over the samples that is only averaged afterwards is as good as any other; here a quotient, or a margin, is taken of it.
    """
    if loss_key is None:
        return []
    wanted = trace.ancestors({loss_key})
    found = []
    for op in trace.ops:
        kind = "overlap" if op.name in _DIVIDING else "distance" if op.name in _SUBTRACTING else ""
        if not kind or len(op.ins) < 2 or not op.outs or op.outs[0].key not in wanted or origin_of_place(op) is not Origin.USER:
            continue
        sides = [_sums(trace, seen) for seen in op.ins[:2]]
        if not all(sides):
            continue
        sums = list({one.index: one for side in sides for one in side or ()}.values())
        if len({one.ins[0].size for one in sums}) != 1 or not any(samples.rows_are_samples(one.ins[0]) for one in sums):
            continue
        meant = any(_of_masks(trace, one) for one in sums) if kind == "overlap" else all(_of_pairs(trace, one) for one in sums) and _bent(trace, op)
        sites = list({site.span: site for one in sums if (site := trace.site(one)) is not None and not site.library}.values())
        use = trace.site(op)
        if meant and sites and use is not None:
            found.append(AxisFact(f"samples-{kind}", sums[0].name, 0, sums[0].ins[0].size, sites[0], use, others=tuple(sites[1:])))
    return list({fact.site.span: fact for fact in reversed(found)}.values())


def _sums(trace: Trace, seen: Seen) -> list[Op] | None:
    """The sums over the first axis alone that this is made of, number by number; None where anything else of its size goes in."""
    found, todo = [], [seen]
    for _ in range(MOST_STEPS):
        if not todo:
            return found
        op = trace.maker(todo.pop())
        if op is None or origin_of_place(op) is not Origin.USER:
            return None
        if op.name in _SUMMING and op.ins and op.outs and len(op.ins[0].size) > 1:
            if reduced_axes(op, len(op.ins[0].size)) != (0,):
                return None
            found.append(op)
        elif op.name.strip("_") in _EACH:
            todo += [one for one in op.ins if one.size]
        else:
            return None
    return None


def _of_masks(trace: Trace, summed: Op) -> bool:
    """Is it a product of flags for each pixel with what a convolution says of each pixel?"""
    made = trace.maker(summed.ins[0])
    if made is None or made.name.strip("_") not in ("mul", "rmul") or len(made.ins) != 2 or made.ins[0].size != made.ins[1].size:
        return False
    said, flags = sorted(made.ins, key=lambda one: not one.requires_grad)
    if not said.requires_grad or flags.requires_grad or not _flags(trace, flags):
        return False
    last = next((op for op in trace.made_through(said, ARRANGING | _SQUASHING) if op.name not in ARRANGING | _SQUASHING), None)
    if last is None or not last.name.startswith(_MAPPING) or len(last.outs[0].size) < 4:
        return False
    pixels = math.prod(last.outs[0].size[2:])
    return pixels > 1 and math.prod(said.size[1:]) in (pixels, pixels * last.outs[0].size[1])


def _flags(trace: Trace, seen: Seen) -> bool:
    for _ in range(MOST_STEPS):
        if (tensor := trace.tensor(seen.key)) is not None:
            with torch._C.DisableTorchFunction():
                return tensor.dtype is torch.bool or bool(((tensor == 0) | (tensor == 1)).all())
        op = trace.maker(seen)
        if op is None or not op.ins:
            return False
        if op.name.strip("_") in _FLAGGING:
            return True
        if op.name not in ARRANGING:
            return False
        seen = op.ins[0]
    return False


def _of_pairs(trace: Trace, summed: Op) -> bool:
    """Is it made of the differences between two results of the model, row by row, or of their products?"""
    seen = summed.ins[0]
    for op in trace.made_through(seen, {"pow", "square", "abs"}):
        if op.name in ("sub", "mul") and len({one.key for one in op.ins}) == 2:
            return all(one.requires_grad and one.size == seen.size for one in op.ins) and len(seen.size) == 2
    return False


def _bent(trace: Trace, op: Op) -> bool:
    """Does every number of it go through something that is no straight line, before they are averaged?"""
    size, keys = op.outs[0].size, {seen.key for seen in op.outs}
    for later in trace.ops[op.index + 1 :]:
        if any(seen.key in keys for seen in later.ins):
            if later.name in _BENDING and later.ins[0].size == size:
                return True
            if later.name.strip("_") in _EACH:
                keys.update(seen.key for seen in later.outs if seen.size == size)
    return False

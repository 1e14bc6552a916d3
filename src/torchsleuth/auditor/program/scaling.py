"""Gradients of a scaled loss: is the scale taken out again before they are clipped, and before the step?"""

from __future__ import annotations

import gc
import sys
import types
import typing
import weakref

import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim.optimizer import Optimizer

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import ScaledGradient
from torchsleuth.auditor.program.optimizers import parameters_of
from torchsleuth.auditor.tracing.sites import place_here, site_of
from torchsleuth.auditor.tracing.trace import Op, Trace

_UNSCALING = "_amp_foreach_non_finite_check_and_unscale_"
_STEP = GradScaler.step.__code__
_LIMITS = ("clamp", "clip", "_foreach_clamp")


def scaler_of(trace: Trace, loss: torch.Tensor) -> weakref.ref | None:
    """The scaler that has multiplied this loss by its scale."""
    made = trace.producer.get(trace.known_key(loss) or -1)
    if made is None or trace.ops[made].name not in ("mul", "__mul__") or len(trace.ops[made].ins) != 2 or trace.ops[made].place.direct:
        return None
    factor = trace.ops[made].ins[1].key
    for one in gc.get_objects():
        if GradScaler in type(one).__mro__ and (scale := _scale(one)) is not None and trace.known_key(scale) == factor:
            return weakref.ref(one)
    return None


def scaled(scaler: typing.Any, optimizer: Optimizer, trace: Trace, backward: Site | None) -> ScaledGradient | None:
    """Before the optimizer's step: are its gradients still scaled, or were they when they were limited to a norm or a value?"""
    held = _scale(scaler)
    if held is None or (scale := float(held)) == 1.0:
        return None
    kind = type(optimizer).__name__
    state = scaler._per_optimizer_states.get(id(optimizer))
    if not _inside(sys._getframe(1)) and (state is None or state["stage"].name == "READY"):
        if _divided(trace, optimizer):
            return None
        return ScaledGradient("step", kind, scale, site_of(place_here(2)), backward)
    limit = _limited(trace)
    site = trace.site(limit) if limit is not None else None
    return ScaledGradient("limit", kind, scale, site, backward) if site is not None else None


def never_scaled(optimizer: Optimizer, trace: Trace, losses: list[torch.Tensor]) -> ScaledGradient | None:
    """Before a step that a scaler takes: has it divided the gradients of a loss that it had not multiplied?"""
    scaler = _inside(sys._getframe(1))
    held = _scale(scaler) if scaler is not None else None
    key = trace.known_key(held) if held is not None else None
    if held is None or key is None or trace.truncated or (scale := float(held)) == 1.0:
        return None
    factors = trace.ancestors({key})  # also what it was before an update
    for loss in losses:
        mine = trace.known_key(loss)
        if mine is None or mine not in trace.producer:
            continue  # made by what no trace sees, a Function of the program's own
        before = trace.ancestors({mine})
        made = (trace.ops[index] for one in before if (index := trace.producer.get(one)) is not None)
        if before & factors or any(scale in (*op.plain[0], *op.plain[1].values()) for op in made):  # `loss * scaler.get_scale()`
            continue
        backward = next((op for op in reversed(trace.ops) if op.name == "backward" and op.ins and op.ins[0].key == mine), None)
        if backward is not None:
            products = (op for op in trace.ops[: backward.index] if {seen.key for seen in op.ins} >= {key, mine} and op.name in ("mul", "__mul__"))
            dropped = next((trace.site(op) for op in products if not any(seen.key == op.outs[0].key for later in trace.ops[op.index + 1 :] for seen in later.ins)), None)
            return ScaledGradient("unscaled", type(optimizer).__name__, scale, site_of(place_here(2)), trace.site(backward), dropped)
    return None


def _scale(scaler: GradScaler) -> torch.Tensor | None:
    """What it multiplies losses by; nothing before the first loss, and where it was switched off (it has no such attribute then)."""
    return getattr(scaler, "_scale", None)


def _inside(frame: types.FrameType | None) -> typing.Any:
    """The scaler that calls `step()`, if it is one."""
    while frame is not None:
        if frame.f_code is _STEP:  # of no other frame the locals are read: the program's would keep its tensors alive
            return frame.f_locals["self"]
        frame = frame.f_back
    return None


def _divided(trace: Trace, optimizer: Optimizer) -> bool:
    """Has the program written into the gradients by itself since `backward()`? It may have taken the scale out."""
    keys = {key for p in parameters_of(optimizer) if p.grad is not None and (key := trace.known_key(p.grad)) is not None}
    return any((made := trace.producer.get(key)) is not None and trace.ops[made].writes for key in keys)


def _limited(trace: Trace) -> Op | None:
    """What has written into the gradients before they were unscaled, by how large they are: a factor that was computed from them, or a bound.

    A factor that knows nothing of them (one over the number of batches) may come before or after.
    """
    unscaled = next((op for op in reversed(trace.ops) if op.name == _UNSCALING), None)
    gradients = {seen.key for seen in unscaled.ins} if unscaled is not None else set()
    for op in reversed(trace.ops[: unscaled.index] if unscaled is not None else []):
        if op.name == "backward":
            return None
        if op.writes and any(seen.key in gradients for seen in op.outs):
            before = {seen.key for seen in op.ins}
            if op.name.startswith(_LIMITS) or any((trace.ancestors({key}) - {key}) & before for key in before):
                return op
            gradients |= before
    return None

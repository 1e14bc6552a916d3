"""Why scores are large before anything was learned: the data, the first weights of layers, or a factor put on the scores."""

from __future__ import annotations

import dataclasses
import math
import typing

import torch
from torch import nn

from torchsleuth.auditor.observation import LossCall
from torchsleuth.auditor.observation_parts import Magnitude, Site
from torchsleuth.auditor.tracing.beginnings import beginning
from torchsleuth.auditor.tracing.construction import writers
from torchsleuth.auditor.tracing.owners import initialised
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Seen, Trace

WIDE = 3.0  # spread of weights, times the square root of how many numbers one result is summed from: 0.6 is torch's own, 1.4 is usual
LOUD = 10.0  # root mean square of the data
FAR = 5.0  # a bias
HIGH = 5.0  # a factor on the scores
_ABOVE = 2.5  # times what equal scores cost, and as much beside, is worth a look at why
_LAYERS = {"linear", "conv1d", "conv2d", "conv3d"}
_JOINING = {"cat", "concat", "concatenate"}
_PRODUCTS = {"matmul", "mm", "__matmul__", "addmm"}
# What comes before these has no say in how large their result is.
_LEVELLING = {"layer_norm", "batch_norm", "group_norm", "instance_norm", "rms_norm", "normalize", "tanh", "sigmoid", "softmax", "lstm", "gru", "rnn_tanh"}


def above_chance(function: str, classes: int | None, value: float) -> bool:
    """Is this loss well above that of equal scores?"""
    chance = math.log(2 if function == "binary_cross_entropy_with_logits" else classes or 1)
    return math.isfinite(value) and chance > 0 and value > max(_ABOVE * chance, chance + _ABOVE)


def magnitudes(trace: Trace, scores: Seen, factor: typing.Callable[[], tuple[float, Op | None]]) -> tuple[Magnitude, ...]:
    """What is large on the way to these scores, from the last normalisation on; where nothing is, nothing."""
    found: list[Magnitude] = []
    times, put_on = factor()
    if put_on is not None and times >= HIGH:
        found.append(Magnitude("factor", f"the scores are multiplied by {times:.3g}", trace.site(put_on)))
    computed = trace.descendants(set(trace.parameters))
    tables = {seen.key for op in trace.ops if op.name == "embedding" for seen in op.ins[1:]}
    for op in _layers(trace, scores):
        values = summed = None
        for seen in op.ins:
            if len(seen.size) > 1 and (key := weight_of(trace, seen)) is not None:
                values, summed = trace.parameters[key](), math.prod(seen.size[1:]) if op.name in _LAYERS else seen.size[-2]
                break
        if values is None or summed is None:
            continue
        if (wide := _wide(op, values, summed)) is not None:
            looked_up = trace.known_key(values) in tables
            found.append(Magnitude("tied" if looked_up else "weight", wide + (", and they are an embedding's, too" if looked_up else ""), _written(trace, values), trace.site(op)))
        bias = next((one for seen in op.ins[2:] if len(seen.size) == 1 and seen.key in trace.parameters and (one := trace.parameters[seen.key]()) is not None), None)
        if bias is not None and bias.numel() and float(bias.detach().abs().max()) > FAR:
            text = f"the bias, shape {list(bias.shape)}, holds numbers from {float(bias.min()):.3g} to {float(bias.max()):.3g}; `nn.Linear` and convolutions begin below 1"
            found.append(Magnitude("bias", text, _written(trace, bias), trace.site(op)))
        for data, key, part in _data(trace, op.ins[0], computed):
            size = math.sqrt(float(data.detach().float().square().mean()))
            if size > LOUD:
                low, high = float(data.min()), float(data.max())
                text = f"the data that `{op.name}` is given{part} lies between {low:.4g} and {high:.4g}, its root mean square is {size:.4g}; about 1 is usual"
                found.append(Magnitude("input", text, beginning(trace, key), trace.site(op)))
    return tuple({(m.kind, m.site.span if m.site is not None else m.text): m for m in found}.values())


def _data(trace: Trace, seen: Seen, computed: set[int]) -> typing.Iterator[tuple[torch.Tensor, int, str]]:
    """What a layer is given as it is; or the parts of it that are, where they were joined to what is computed (columns beside embeddings)."""
    whole, made = trace.tensor(seen.key), trace.maker(seen)
    if whole is None or not whole.is_floating_point() or not whole.numel():
        return
    if seen.key not in computed:
        yield whole, seen.key, ""
    elif made is not None and made.name in _JOINING and type(dim := made.argument(1, "dim", made.argument(1, "axis", 0))) is int and -whole.dim() <= dim < whole.dim():
        at = 0
        for one in made.ins:
            wide = one.size[dim] if len(one.size) == whole.dim() else 0
            if one.key not in computed and wide and one.dtype.is_floating_point:
                yield whole.detach().narrow(dim, at, wide), one.key, f" beside what is computed, {list(one.size)} of {list(seen.size)},"
            at += wide


def with_first_values(losses: tuple[LossCall, ...], model: nn.Module) -> tuple[LossCall, ...]:
    """Weights that were given their values before anything was seen: where the source does so."""
    def named(cause: Magnitude) -> Magnitude:
        unseen = cause.kind == "weight" and cause.site is None and cause.used is not None and cause.used.module
        return dataclasses.replace(cause, site=initialised(model, cause.used.module)) if unseen else cause  # type: ignore[union-attr]

    return tuple(dataclasses.replace(loss, magnitudes=tuple(map(named, loss.magnitudes))) if loss.magnitudes else loss for loss in losses)


def _layers(trace: Trace, scores: Seen) -> list[Op]:
    """Products with weights that lead to the scores with no normalisation in between, the last first."""
    found, todo, seen = [], [scores.key], {scores.key}
    while todo:
        index = trace.producer.get(todo.pop())
        if index is None or index >= len(trace.ops) or trace.ops[index].name in _LEVELLING:
            continue
        op = trace.ops[index]
        if op.name in _LAYERS | _PRODUCTS:
            found.append(op)
        for one in op.ins:
            if one.key not in seen and one.key not in trace.parameters:
                seen.add(one.key)
                todo.append(one.key)
    return sorted(found, key=lambda op: op.index, reverse=True)


def _written(trace: Trace, parameter: torch.Tensor) -> Site | None:
    """Where a parameter got its values: by a call with itself, or with what `.data` gives."""
    last = next(writers(trace, parameter), None)
    keys = {key for key in (trace.known_key(parameter), *(seen.key for made in writers(trace, parameter) for seen in (*made.ins[:1], *made.outs))) if key is not None}
    for op in trace.ops:
        if op.ins and op.ins[0].key in keys and (op.name in ("data", "detach") or op.writes):
            keys.update(seen.key for seen in op.outs)
            last = op if op.writes and (last is None or op.index > last.index) else last
    return trace.site(last) if last is not None else None


def weight_of(trace: Trace, seen: Seen) -> int | None:
    """The parameter that this is, however it is laid; who gave it its values does not matter."""
    while seen.key not in trace.parameters:
        made = trace.maker(seen)
        if made is None or made.name not in ARRANGING or not made.ins:
            return None
        seen = made.ins[0]
    return seen.key


def _wide(op: Op, weight: torch.Tensor, summed: int) -> str | None:
    spread = float(weight.detach().float().square().mean().sqrt())
    if spread * math.sqrt(summed) < WIDE:
        return None
    owner = f" of `{op.module}`" if op.module else ""
    return (f"the weights{owner}, shape {list(weight.shape)}, have a root mean square of {spread:.3g}; for sums of {summed} numbers "
            f"`nn.Linear` and convolutions begin with {1 / math.sqrt(3 * summed):.2g}")  # fmt: skip

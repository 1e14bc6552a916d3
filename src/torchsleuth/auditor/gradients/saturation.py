"""Activations far out where they are flat: all that a `sigmoid` or `tanh` is given lies where its slope is next to nothing, though not exactly zero.

Seen twice: in the step that was traced, and in a run of the model as the program has left it. What a loss takes at once (a probability
and its logarithm) has a slope of its own, and is not looked at; nor is what other ways lead around.
"""

from __future__ import annotations

import typing

from torch import nn

from torchsleuth.auditor.gradients.flatness import BEYOND, SaturationWatch
from torchsleuth.auditor.gradients.symmetry import filled
from torchsleuth.auditor.inputs.batch import Call
from torchsleuth.auditor.inputs.given import given
from torchsleuth.auditor.laboratory.compare import output_leaves
from torchsleuth.auditor.laboratory.runner import Runner
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import Saturated
from torchsleuth.auditor.tracing.beginnings import beginning
from torchsleuth.auditor.tracing.owners import initialised
from torchsleuth.auditor.tracing.stepview import StepView, parameter_keys
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Trace

_LEADING = {"rsub", "add", "clamp", "clip"}  # to the logarithm: of 1 - p, of p + 1e-6
_LOSSES = {"binary_cross_entropy", "log", "log2", "log1p", "logit", "xlogy"}


def saturated(runner: Runner, call: Call, step: StepView, where: Site | None) -> list[Saturated]:
    """Of what was flat in the step, what still is; with the parameters that reach the model's results by no other way."""
    then = {site.span: one for one in step.saturation.flat() if (site := step.trace.site(one.op)) is not None and not site.library}
    if not then:
        return []
    trace = Trace(watchers={}, early={})
    watch = SaturationWatch(trace)
    watch.install()
    keys = parameter_keys(trace, runner.model)
    found: dict[typing.Any, tuple[Op, Site, list[str]]] = {}

    def look(output: typing.Any) -> None:
        results = {key for _, leaf in output_leaves(output) if (key := trace.known_key(leaf)) is not None}
        flat = {one.op.index: one for one in watch.flat()}
        around = trace.ancestors(results, without=lambda op: op.index in flat)
        for one in flat.values():
            site = trace.site(one.op)
            before = trace.ancestors({seen.key for seen in one.op.ins})
            names = [name for name, p in runner.model.named_parameters() if p.requires_grad and keys[name] in before and keys[name] not in around]
            if site is not None and site.span in then and site.span not in found and names and not _scored(step.trace, then[site.span].op):
                found[site.span] = (one.op, site, names)

    runner.run(call.args, call.kwargs, trace=trace, grad=True, then=look)
    facts = []
    for span, (op, site, names) in found.items():
        cause, reason = _cause(runner.model, _layer(trace, op, keys), call, trace, step, then[span].op.index, where)
        first = then[span]
        facts.append(Saturated(op.name, site, tuple(names), float(first.lowest), float(first.highest), first.count, int(first.beyond), cause, reason))
    return facts


def _scored(trace: Trace, op: Op) -> bool:
    """Is its result handed to what takes probabilities, and takes their slope away again?"""
    keys = {seen.key for seen in op.outs}
    for later in trace.ops[op.index + 1 :]:
        if any(seen.key in keys for seen in later.ins):
            if later.name in _LOSSES:
                return True
            if later.name in ARRANGING or later.name.strip("_") in _LEADING:
                keys |= {seen.key for seen in later.outs}
    return False


def _layer(trace: Trace, op: Op, keys: dict[str, int]) -> tuple[Op, str, str] | None:
    """The linear layer or convolution whose result this is, with the names of its weight and bias."""
    made = trace.maker(op.ins[0])
    names = {key: name for name, key in keys.items()}
    mine = [names[seen.key] for seen in made.ins[1:] if seen.key in names] if made is not None else []
    return (made, mine[0], mine[1] if len(mine) > 1 else "") if made is not None and mine else None


def _cause(model: nn.Module, layer: tuple[Op, str, str] | None, call: Call, trace: Trace, step: StepView, before: int, where: Site | None) -> tuple[Site | None, str]:
    """What makes the numbers large: a bias that was filled, weights that were, or an input that is. `before`: the call in the step that was given them."""
    if layer is None:
        return None, ""
    op, weight_name, bias_name = layer
    bound = min(BEYOND.values())
    bias = model.get_parameter(bias_name).detach() if bias_name else None
    if bias is not None and bool((bias.abs() > bound).all()):
        return filled(step.trace, model.get_parameter(bias_name), before), f"`{bias_name}` holds numbers from {float(bias.min()):.3g} to {float(bias.max()):.3g}"
    weight = model.get_parameter(weight_name).detach()
    fan_in = weight[0].numel()
    leaf = next((leaf for leaf in call.leaves if trace.known_key(leaf.tensor) in _before(trace, op.ins[0].key)), None)
    if leaf is not None and leaf.tensor.is_floating_point() and float(leaf.tensor.abs().max()) > 2 * bound:
        made = beginning(step.trace, call.numbers.get(leaf.path)) or given(where, leaf.path)
        return made, f"the layer before it is given `{leaf.name}`, which reaches from {float(leaf.tensor.min()):.4g} to {float(leaf.tensor.max()):.4g}, as it is"
    if float(weight.square().mean().sqrt()) * fan_in**0.5 > bound:
        return initialised(model, weight_name), f"the numbers in `{weight_name}` have a standard deviation of {float(weight.std()):.3g}, and it adds up {fan_in} of them"
    return None, ""


def _before(trace: Trace, key: int) -> set[int]:
    """This tensor, and those that it only rearranges."""
    found = {key}
    while (at := trace.producer.get(key)) is not None and (op := trace.ops[at]).name in ARRANGING and op.ins and op.ins[0].key not in found:
        key = op.ins[0].key
        found.add(key)
    return found

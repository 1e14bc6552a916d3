"""Units of a layer that began equal and stay equal: every one computes and learns the same as the others.

What starts at one value is right where something tells the units apart (their own targets, dropout, the layer behind): then their
gradients differ, and so do they after the first step.
"""

from __future__ import annotations

import torch
from torch import nn

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import EqualUnits, Vanish
from torchsleuth.auditor.tracing.trace import Trace

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_FILLING = {"constant_", "ones_", "zeros_", "fill_", "zero_", "copy_", "__setitem__"}
CLOSE = 1e-4  # of the largest: kernels add up in different orders for different rows


def equal_units(model: nn.Module, trace: Trace, before: int | None) -> list[EqualUnits]:
    """Layers of more than one unit whose weights are the same for all of them, and whose gradients are, too. `before`: the step begins with this call."""
    found = []
    for name, module in model.named_modules():
        weight = module._parameters.get("weight") if isinstance(module, _LAYERS) else None  # one that is parametrized is computed when it is asked for
        if type(weight) is not nn.Parameter or weight.grad is None or weight.grad.is_sparse or weight.shape[0] < 2 or weight[0].numel() < 2:
            continue
        if stay_equal(weight) and _rows_alike(weight.grad) and bool(weight.grad.any()):
            found.append(EqualUnits(f"{name}.weight" if name else "weight", type(module).__name__, weight.shape[0], float(weight.grad.norm()), filled(trace, weight, before)))
    return found


def stay_equal(weight: torch.Tensor) -> bool:
    return _rows_alike(weight) and bool(torch.isfinite(weight).all())


def _rows_alike(values: torch.Tensor) -> bool:
    values = values.detach()
    return bool((values - values[:1]).abs().max() <= CLOSE * values.abs().max())


def filled_with_zeros(fact: Vanish, model: nn.Module, trace: Trace, before: int | None) -> tuple[Site, ...]:
    """Where weights behind which a gradient is lost, and those that get none because of it, were filled with zeros."""
    weights = [p for name in (*fact.zeros, *fact.weights) if (p := model.get_parameter(name)).dim() > 1 and not p.detach().any()] if fact.zeros else []
    sites = [site for weight in weights if (site := filled(trace, weight, before)) is not None]
    return tuple({site.span: site for site in sites}.values())


def filled_below_zero(fact: Vanish, model: nn.Module, trace: Trace, before: int | None) -> tuple[Site, ...]:
    """Where the program filled a bias, which gets no gradient through a `relu`, with one negative number."""
    biases = [model.get_parameter(name) for name in fact.weights if "bias" in name] if fact.operation.rstrip("_") == "relu" else []
    sites = [site for bias in biases if bool((bias.detach() < 0).all()) and (site := filled(trace, bias, before)) is not None]
    return tuple({site.span: site for site in sites}.values())


def own_numbers(trace: Trace, weight: torch.Tensor) -> set[int]:
    """What the trace has called it, before and after each write."""
    key = trace.known_key(weight)
    own = {key} if key is not None else set()
    while key is not None and (made := trace.producer.get(key)) is not None and made < len(trace.ops) and trace.ops[made].writes and trace.ops[made].ins:
        key = trace.ops[made].ins[0].key
        if key in own:
            break
        own.add(key)
    return own


def filled(trace: Trace, weight: torch.Tensor, before: int | None) -> Site | None:
    """The last call before the step that wrote values into it, also through `.data`; None where that may have been random values."""
    own = own_numbers(trace, weight)
    aliases = {seen.key for op in trace.ops[:before] if op.name in ("data", "detach") and op.ins and op.ins[0].key in own for seen in op.outs}
    written = [op for op in trace.ops[:before] if op.writes and op.ins and op.ins[0].key in own | aliases]
    return trace.site(written[-1]) if written and written[-1].name in _FILLING else None

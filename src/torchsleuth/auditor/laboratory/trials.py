"""Runs of the whole model that need no disturbed inputs: twice in eval mode, and trained on its one batch."""

from __future__ import annotations

import contextlib
import typing

import torch
from torch import nn
from torch.nn.modules import module as hooks

from torchsleuth.again.kept import Kept, untouched
from torchsleuth.auditor.inputs.batch import Call
from torchsleuth.auditor.laboratory.alone import alone
from torchsleuth.auditor.laboratory.compare import May, first_difference, moved_flags
from torchsleuth.auditor.laboratory.runner import Runner
from torchsleuth.auditor.observation import Overfit
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import ModeFact
from torchsleuth.auditor.operations.dropping import drawn_masks
from torchsleuth.auditor.tracing.owners import built
from torchsleuth.auditor.tracing.trace import Op, Trace

_ATTENTION = ("scaled_dot_product_attention", "multi_head_attention_forward")


def may_drop(op: Op) -> bool:
    """A call that drops, or would if it were told to."""
    return "dropout" in op.name or (op.name in _ATTENTION and op.argument(4 if op.name == _ATTENTION[0] else 10, "dropout_p", 0.0) != 0.0)


def dropout_in_eval(runner: Runner, call: Call) -> ModeFact | None:
    mode = "model-eval" if runner.loose else "eval"
    first = runner.run(call.args, call.kwargs, mode=mode) if runner.loose else runner.calm(call.args, call.kwargs)
    second = runner.run(call.args, call.kwargs, mode=mode, seed=1)
    nothing = May(torch.zeros(1, dtype=torch.bool, device="cpu"))
    difference = first_difference(first, second, nothing)
    if difference is None:
        return None
    one, two = Trace(keep=True), Trace(keep=True)
    with _strangers(runner.model, one) as strange:
        runner.run(call.args, call.kwargs, mode=mode, seed=0, trace=one)
    runner.run(call.args, call.kwargs, mode=mode, seed=1, trace=two)
    masks = drawn_masks(one)
    for a, b in zip(one.ops, two.ops, strict=False):
        if a.name != b.name:
            return None
        if any(x.shape == y.shape and moved_flags(x, y)[0].any() for x, y in zip(a.tensors, b.tensors, strict=False)):
            if a.index in masks:
                return ModeFact("dropout-in-eval", (a.module,), one.site(a), difference.distance, a.name, metric=one.site(masks[a.index]))
            if may_drop(a):
                return ModeFact("dropout-in-eval", (a.module,), one.site(a), difference.distance, a.name, stranger=a.index in strange, built=_kept_at(runner.model, strange.get(a.index)))
            return None
    return None


@contextlib.contextmanager
def _strangers(model: nn.Module, trace: Trace) -> typing.Iterator[dict[int, nn.Module]]:
    """The calls (their indices) that were made by layers which are no part of the model: its mode does not reach them. With these layers."""
    own, found = {id(m) for m in model.modules()}, dict[int, nn.Module]()
    running: list[nn.Module] = []

    def look(op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        if running and id(running[-1]) not in own:
            found[op.index] = running[-1]

    def leaves(module: nn.Module, given: typing.Any, result: typing.Any) -> None:
        running.pop()

    enter = hooks.register_module_forward_pre_hook(lambda module, given: running.append(module))
    leave = hooks.register_module_forward_hook(leaves, always_call=True)
    trace.every.append(look)
    try:
        yield found
    finally:
        enter.remove()
        leave.remove()


def _kept_at(model: nn.Module, layer: nn.Module | None) -> Site | None:
    """Where the plain container is made that a module of this model keeps the layer in."""
    for module in model.modules() if layer is not None else ():
        for name, value in vars(module).items():
            if not name.startswith("_") and isinstance(value, (list, tuple, dict)) and any(one is layer for one in (value.values() if isinstance(value, dict) else value)):
                return built(module, name)
    return None


def overfitted(model: nn.Module, call: Call, loss_of: typing.Callable, steps: int, lent: list[torch.Tensor]) -> Overfit | None:
    """Train copies of the parameters on this one batch; the best of three learning rates counts. `lent`: its tensors, which each step finds as they were."""
    best: Overfit | None = None
    for rate in (1e-3, 1e-2, 1e-1):
        kept = Kept(list(model.modules()))
        kept.lend(lent)
        with untouched(model, kept), alone():
            copies: dict[int, nn.Parameter] = {}
            for module in model.modules():
                for name, p in module._parameters.items():
                    if p is not None and p.requires_grad:
                        module._parameters[name] = copies.setdefault(id(p), nn.Parameter(p.detach().clone()))
            if not copies:
                return None
            optimizer = torch.optim.Adam(copies.values(), lr=rate)
            values = []
            for _ in range(steps):
                with torch.enable_grad():
                    loss = loss_of(model(*call.args, **call.kwargs))
                if loss is None:
                    return None
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                values.append(float(loss.detach()))
                kept.give_back()
        if best is None or values[-1] < best.last:
            best = Overfit(steps, values[0], values[-1])
    return best

"""Runs of the whole model that need no disturbed inputs: twice in eval mode, and trained on its one batch."""

from __future__ import annotations

import typing

import torch
from torch import nn

from torchsleuth.auditor.batch import Call
from torchsleuth.auditor.compare import May, first_difference, moved_flags
from torchsleuth.auditor.observation import ModeFact, Overfit
from torchsleuth.auditor.alone import alone
from torchsleuth.auditor.runner import Kept, Runner, untouched
from torchsleuth.auditor.trace import Op, Trace


_ATTENTION = ("scaled_dot_product_attention", "multi_head_attention_forward")


def may_drop(op: Op) -> bool:
    """A call that drops, or would if it were told to."""
    return "dropout" in op.name or (op.name in _ATTENTION and op.argument(4 if op.name == _ATTENTION[0] else 10, "dropout_p", 0.0) != 0.0)


def dropout_in_eval(runner: Runner, call: Call) -> ModeFact | None:
    first = runner.calm(call.args, call.kwargs)
    second = runner.run(call.args, call.kwargs, mode="eval", seed=1)
    nothing = May(torch.zeros(1, dtype=torch.bool))
    difference = first_difference(first, second, nothing)
    if difference is None:
        return None
    one, two = Trace(keep=True), Trace(keep=True)
    runner.run(call.args, call.kwargs, mode="eval", seed=0, trace=one)
    runner.run(call.args, call.kwargs, mode="eval", seed=1, trace=two)
    for a, b in zip(one.ops, two.ops, strict=False):
        if a.name != b.name:
            return None
        if any(x.shape == y.shape and moved_flags(x, y)[0].any() for x, y in zip(a.tensors, b.tensors, strict=False)):
            if may_drop(a):
                return ModeFact("dropout-in-eval", (a.module,), one.site(a), difference.distance, a.name)
            return None
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

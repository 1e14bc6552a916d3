"""Gradients that are zero at the start only: is one still zero when no layer begins at zero?"""

from __future__ import annotations

import typing

import torch
from torch import nn

from torchsleuth.again.kept import untouched
from torchsleuth.auditor.batch import Call
from torchsleuth.auditor.gradients import grad_states
from torchsleuth.auditor.runner import Runner


def still_zero(names: set[str], runner: Runner, call: Call, loss_of: typing.Callable[[typing.Any], typing.Any]) -> set[str]:
    """Those whose gradient is still zero when parameters that are exactly zero are given small values, and nothing is too small
    for half precision."""
    model = runner.model
    parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
    zeros = [(m, n) for m in model.modules() for n, p in m._parameters.items() if p is not None and not p.detach().any()]
    if not zeros and runner.autocast is None:
        return names
    with untouched(model), runner.precisely():
        for module, name in zeros:
            old = module._parameters[name]
            module._parameters[name] = nn.Parameter(torch.randn_like(old) * 0.1)
        result: dict[str, str] = {}

        def then(output: typing.Any) -> None:
            loss = loss_of(output)
            wanted = {n: parameters[n] for n in names if any(parameters[n] is p for p in model.parameters())}
            grads = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
            result.update(zip(wanted, grad_states(grads), strict=True))

        runner.run(call.args, call.kwargs, grad=True, then=then)
    return {n for n in names if result.get(n) == "zero"}

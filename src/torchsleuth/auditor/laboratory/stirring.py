"""Gradients that are zero at the start only: is one still zero when no layer begins at zero, or when all that gets a gradient has moved?"""

from __future__ import annotations

import typing
from collections.abc import Iterable

import torch
from torch import nn

from torchsleuth.again.kept import untouched
from torchsleuth.auditor.gradients.gradients import grad_states
from torchsleuth.auditor.inputs.batch import Call
from torchsleuth.auditor.laboratory.runner import Runner

ROUNDS = 2
Loss = typing.Callable[[typing.Any], typing.Any]


def still_zero(names: set[str], runner: Runner, call: Call, loss_of: Loss) -> set[str]:
    """Those whose gradient is still zero when parameters that are exactly zero are given small values, and nothing is too small
    for half precision."""
    zeros = [n for n, p in runner.model.named_parameters() if not p.detach().any()]
    if not zeros and runner.autocast is None:
        return names
    return {n for n, state in _stirred(zeros, names, runner, call, loss_of).items() if state == "zero"}


def never_woken(names: set[str], trained: set[str], runner: Runner, call: Call, loss_of: Loss) -> set[str]:
    """Those whose gradient is zero, and stays so when the parameters that do get a gradient (`trained`) have moved, and those that get one then."""
    for _ in range(ROUNDS if trained else 0):
        states = _stirred(trained, names, runner, call, loss_of)
        woken = {n for n in names if states.get(n) != "zero"}
        if not woken:
            return names
        names, trained = names - woken, trained | woken
    return set()


def _stirred(moved: Iterable[str], names: set[str], runner: Runner, call: Call, loss_of: Loss) -> dict[str, str]:
    """The gradients of these parameters when small numbers are added to those that are `moved`."""
    model, chosen = runner.model, set(moved)
    paths = {path: (module, n) for prefix, module in model.named_modules() for n, p in module._parameters.items() if p is not None and (path := f"{prefix}.{n}" if prefix else n) in chosen}
    result: dict[str, str] = {}
    with untouched(model), runner.precisely():
        for module, name in paths.values():
            old = module._parameters[name]
            assert old is not None
            module._parameters[name] = nn.Parameter(old.detach() + torch.randn_like(old) * 0.1)

        def then(output: typing.Any) -> None:
            loss = loss_of(output)
            wanted = {n: p for n, p in model.named_parameters() if n in names}
            grads = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
            result.update(zip(wanted, grad_states(grads), strict=True))

        runner.run(call.args, call.kwargs, grad=True, then=then)
    return result

"""One group of an optimizer's parameters with a learning rate of 0 in every step, while the others are trained: `RestingGroups`.

A group may rest for a while (a schedule that warms up, a part that is trained later), and a part that was loaded may stay as it is.
"""

from __future__ import annotations

import ast
import os
import typing
import weakref
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from torchsleuth.auditor.gradients.gradients import grad_states
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import RestingGroup
from torchsleuth.auditor.program.optimizers import OptimizerWatch, copies_of, parameters_of
from torchsleuth.auditor.tracing.modestack import unseen
from torchsleuth.auditor.tracing.owners import assignments, class_origin
from torchsleuth.auditor.tracing.sites import site_of_node, syntax_of
from torchsleuth.origin import Origin

LEAST_STEPS = 3


@dataclass
class Resting:
    optimizer: weakref.ref
    group: int
    copies: list[tuple[torch.Tensor, torch.Tensor]]
    steps: int = 0


class RestingGroups:
    """Told of each step before it is taken; asked at the end."""

    def __init__(self, optimizers: OptimizerWatch) -> None:
        self._optimizers = optimizers
        self._seen: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._resting: list[Resting] = []

    def before_step(self, optimizer: Optimizer) -> None:
        if optimizer not in self._seen:
            self._seen.add(optimizer)
            unseen(self._begin)(optimizer)
        for one in [one for one in self._resting if one.optimizer() is optimizer]:
            one.steps += 1
            if not _at_rest(optimizer.param_groups[one.group]):
                self._resting.remove(one)

    def _begin(self, optimizer: Optimizer) -> None:
        resting = [at for at, group in enumerate(optimizer.param_groups) if _at_rest(group)]
        for at in resting if len(resting) < len(optimizer.param_groups) else ():
            wanted = [p for p in optimizer.param_groups[at]["params"] if p.requires_grad]
            taught = [p for p, state in zip(wanted, grad_states(p.grad for p in wanted), strict=True) if state == "ok"]
            if taught:
                self._resting.append(Resting(weakref.ref(optimizer), at, copies_of(taught)))

    def forget(self) -> None:
        self._resting.clear()

    def found(self, models: list[tuple[str, nn.Module]], loaded: typing.Container[int]) -> list[RestingGroup]:
        """`loaded`: parameters that were given a state, which may be meant to keep it."""
        facts = []
        for one in self._resting:
            optimizer = one.optimizer()
            if optimizer is None or one.steps < LEAST_STEPS or any(not torch.equal(p.detach(), copy) for p, copy in one.copies):
                continue
            mine = {id(p) for p, _ in one.copies}
            others = {id(p) for other in (*self._optimizers.known, *self._optimizers.late) if other is not optimizer for p in parameters_of(other)}
            if any(key in loaded or key in others for key in mine) or any(_of_a_library(model, mine) for _, model in models):
                continue
            names = tuple(dict.fromkeys(f"{called}.{n}" if called else n for called, model in models for n, p in model.named_parameters() if id(p) in mine))
            built = self._optimizers.built.get(id(optimizer))
            scheduled = self._optimizers.scheduled.get(id(optimizer)) if optimizer.param_groups[one.group].get("initial_lr") else None
            rate, number = _written(built, one.group, len(optimizer.param_groups)) if scheduled is None else (None, None)
            if names:
                facts.append(RestingGroup(type(optimizer).__name__, one.group, len(optimizer.param_groups), names, one.steps, built, rate, number, scheduled))
        return facts


def _at_rest(group: dict[str, typing.Any]) -> bool:
    rate = group.get("lr")
    return isinstance(rate, (int, float)) and rate == 0 and bool(group["params"])


def _of_a_library(model: nn.Module, parameters: set[int]) -> bool:
    """A library's own model may have come with weights that are meant to stay."""
    return any(class_origin(type(module)) is Origin.LIBRARY and any(id(p) in parameters for p in module.parameters()) for module in model.modules())


def _written(built: Site | None, group: int, count: int) -> tuple[Site | None, Site | None]:
    """Where the rate of this group is written, if the groups are written out one by one in the file of the optimizer; and the one place that gives its name a 0."""
    filename = os.path.abspath(built.span.file) if built is not None else ""
    tree = syntax_of(filename) if filename else None
    written = _group_written(tree, group, count) if tree is not None else None
    if tree is None or written is None:
        return None, None
    value = _entries(written).get("lr")
    if value is None:
        return None, None
    name = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
    zeros = [given for target, given in _given(tree) if name and _called(target) == name]
    number = zeros[0] if len(zeros) == 1 and isinstance(zeros[0], ast.Constant) and zeros[0].value == 0 else None
    return site_of_node(filename, value), site_of_node(filename, number) if number is not None else None


def _group_written(tree: ast.AST, group: int, count: int) -> ast.Dict | None:
    """The one of the dictionaries in this file that is the group with this number: each written out, or those after the first ones made in a loop."""
    around = {id(part): True for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While, ast.ListComp, ast.GeneratorExp)) for part in ast.walk(node)}
    groups = sorted((node for node in ast.walk(tree) if isinstance(node, ast.Dict) and "params" in _entries(node)), key=lambda node: (node.lineno, node.col_offset))
    again = [node for node in groups if id(node) in around]
    if not again:
        return groups[group] if len(groups) == count else None
    return groups[min(group, len(groups) - 1)] if len(again) == 1 and groups[-1] is again[0] else None


def _given(tree: ast.AST) -> typing.Iterator[tuple[ast.expr, ast.expr]]:
    yield from assignments(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg is not None:
            yield ast.Name(node.arg), node.value


def _called(target: ast.expr) -> str:
    return target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else ""


def _entries(node: ast.Dict) -> dict[str, ast.expr]:
    return {key.value: value for key, value in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant) and isinstance(key.value, str)}

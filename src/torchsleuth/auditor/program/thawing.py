"""Parameters that were frozen when the first step was taken and get gradients later: does any optimizer hold them by then?"""

from __future__ import annotations

import ast
import os
import weakref
from dataclasses import dataclass, field

import torch
from torch.optim.optimizer import Optimizer

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import OptimizerFact
from torchsleuth.auditor.program.captured import Captured, called_name
from torchsleuth.auditor.program.optimizers import OptimizerWatch, parameters_of
from torchsleuth.auditor.tracing.sites import place_here, site_of, site_of_node, syntax_of

STEPS = 3  # with such gradients; a look at the gradients of all parameters, once, trains nothing


@dataclass
class Frozen:
    model: int
    name: str
    parameter: weakref.ref
    version: int  # a step writes into the tensor, and that counts


@dataclass
class ThawWatch:
    """Made when the first step is over; told of each later one; asked at the end."""

    captured: list[Captured]
    optimizers: OptimizerWatch
    _frozen: list[Frozen] = field(default_factory=list)
    _thawed: list[Frozen] = field(default_factory=list)
    _counted: int = 0
    _first: int = 0
    _step: Site | None = None
    _kind: str = ""
    _count: int = 0
    _built: Site | None = None

    def __post_init__(self) -> None:
        trained = {id(p) for optimizer in self.optimizers.known for p in parameters_of(optimizer)}
        for one in self.captured:
            if any(id(p) in trained for p in one.model.parameters()):  # the rest of it is trained
                prefix = f"{called_name(one.site)}." if len(self.captured) > 1 and called_name(one.site) else ""
                self._frozen += [Frozen(id(one.model), prefix + n, weakref.ref(p), p._version) for n, p in one.model.named_parameters() if not p.requires_grad]

    def before_step(self, optimizer: Optimizer, step: int) -> None:
        if not self._frozen or self._counted >= STEPS:
            return
        thawed = [one for one in self._frozen if (p := one.parameter()) is not None and p.requires_grad and p.grad is not None]
        if thawed:
            self._counted += 1
            self._first = self._first or step
            self._step = self._step or site_of(place_here(2))
            self._kind, self._count, self._built = type(optimizer).__name__, len(parameters_of(optimizer)), self.optimizers.built.get(id(optimizer))
            self._thawed = thawed

    def facts(self) -> list[tuple[int, OptimizerFact]]:
        """For each model: what was thawed, is held by no optimizer, and is as it was."""
        if self._counted < STEPS:
            return []
        held = {id(p) for one in (*self.optimizers.known, *self.optimizers.late) for p in parameters_of(one)}
        left: dict[int, list[str]] = {}
        for one in self._thawed:
            parameter: torch.Tensor | None = one.parameter()
            if parameter is not None and id(parameter) not in held and parameter._version == one.version:
                left.setdefault(one.model, []).append(one.name)
        about = (self._count, self._built, _thawing(self._step), self._first)
        return [(key, OptimizerFact("thawed", self._kind, tuple(names), *about, by_syntax=True)) for key, names in left.items()]


def _thawing(step: Site | None) -> Site | None:
    """The one expression in the file of the training loop that gives parameters their gradients back, as the source has it."""
    tree = syntax_of(os.path.abspath(step.span.file)) if step is not None else None
    found: list[ast.stmt | ast.expr] = []
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Attribute) and t.attr == "requires_grad" for t in node.targets):
            found += [node] if isinstance(node.value, ast.Constant) and node.value.value is True else []
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_":
            given = [*node.args, *(k.value for k in node.keywords)]
            found += [node] if not given or (isinstance(given[0], ast.Constant) and given[0].value is True) else []
    return site_of_node(os.path.abspath(step.span.file), found[0], step.function) if step is not None and len(found) == 1 else None

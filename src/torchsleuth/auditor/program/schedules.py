"""Schedules of learning rates that change nothing: never advanced, or advanced for an optimizer that takes no step. `ScheduleWatch`."""

from __future__ import annotations

import ast
import os
import weakref
from dataclasses import dataclass

from torch.optim.optimizer import Optimizer

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import IdleSchedule
from torchsleuth.auditor.program.optimizers import OptimizerWatch, parameters_of
from torchsleuth.auditor.tracing.owners import assignments
from torchsleuth.auditor.tracing.programfiles import program_syntax
from torchsleuth.auditor.tracing.sites import site_of_node

LEAST_STEPS = 3


@dataclass
class Stray:
    """A schedule of one optimizer, while another one takes the steps with the same parameters."""

    optimizer: weakref.ref
    stepping: str
    built: Site | None  # the one that takes the steps
    steps: int = 0
    advanced: int = 0


class ScheduleWatch:
    """Told of each step; asked at the end."""

    def __init__(self, optimizers: OptimizerWatch) -> None:
        self._optimizers = optimizers
        self._strays: dict[int, Stray] = {}
        self._still: dict[int, int] = {}  # optimizers whose schedule has not been advanced yet: their steps
        self._advanced: set[int] = set()

    def before_step(self, optimizer: Optimizer) -> None:
        watch = self._optimizers
        if id(optimizer) in watch.scheduled:
            reference = watch.schedules.get(id(optimizer))
            schedule = reference() if reference is not None else None
            if schedule is not None and schedule.last_epoch > 0:
                self._advanced.add(id(optimizer))
            self._still[id(optimizer)] = self._still.get(id(optimizer), 0) + 1
            return
        for key, reference in watch.schedules.items():
            schedule = reference()
            other = getattr(schedule, "optimizer", None)
            if schedule is None or not isinstance(other, Optimizer) or other in watch.stepped or _same_rates(other, optimizer):
                continue
            if key not in self._strays:
                mine = {id(p) for p in parameters_of(optimizer)}
                if not any(id(p) in mine for p in parameters_of(other)):
                    continue
                self._strays[key] = Stray(weakref.ref(other), type(optimizer).__name__, watch.built.get(id(optimizer)))
            stray = self._strays[key]
            stray.steps += 1
            stray.advanced = max(stray.advanced, schedule.last_epoch)

    def forget(self) -> None:
        self._strays.clear()
        self._still.clear()

    def found(self) -> IdleSchedule | None:
        watch = self._optimizers
        for key, stray in self._strays.items():
            other = stray.optimizer()
            if stray.steps >= LEAST_STEPS and stray.advanced and (other is None or other not in watch.stepped) and (made := watch.scheduled.get(key)) is not None:
                return IdleSchedule("elsewhere", stray.stepping, made, stray.steps, advanced=stray.advanced, built=stray.built)
        for key, steps in self._still.items():
            made = watch.scheduled.get(key)
            if steps >= LEAST_STEPS and key not in self._advanced and made is not None and not made.library and (named := _never_called(made)) is not None:
                return IdleSchedule("named" if named else "unread", "", made, steps, named=named or None)
        return None


def _same_rates(one: Optimizer, other: Optimizer) -> bool:
    """Is one wrapped around the other (by `accelerate`, for a trainer)? Then they hold the same groups, and what a schedule writes there counts for both."""
    return bool({id(group) for group in one.param_groups} & {id(group) for group in other.param_groups})


def _never_called(made: Site) -> Site | bool | None:
    """As the source has it: is the name that the schedule is given never read (False), or only for a `step` without its parentheses (there)? Otherwise None."""
    filename = os.path.abspath(made.span.file)
    trees = dict(program_syntax([made]))
    tree = trees.get(filename)
    targets = [target for target, value in assignments(tree or ast.Module([], [])) if (value.lineno, value.col_offset + 1) == (made.span.line, made.span.column)]
    if len(targets) != 1 or not isinstance(targets[0], (ast.Name, ast.Attribute)):
        return None
    name = _name(targets[0])
    reads = [node for one in trees.values() for node in ast.walk(one) if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load) and _name(node) == name]
    if any(isinstance(node, ast.Constant) and node.value == name for one in trees.values() for node in ast.walk(one)):
        return None  # `getattr(self, "scheduler")`
    only = [
        (file, node.value) for file, one in trees.items() for node in ast.walk(one)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Attribute) and node.value.attr == "step" and isinstance(node.value.value, (ast.Name, ast.Attribute)) and _name(node.value.value) == name
    ]  # fmt: skip
    if not reads:
        return False
    return site_of_node(*only[0]) if len(only) == 1 and len(reads) == 1 else None


def _name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr

"""Learning rates over the whole program: a schedule that has come to nothing long before the end."""

from __future__ import annotations

import ast
import dataclasses
import weakref
from dataclasses import dataclass

from torch.optim.optimizer import Optimizer

from torchsleuth.auditor.observation_training import NoUpdate
from torchsleuth.auditor.program.optimizers import OptimizerWatch
from torchsleuth.auditor.program.unreached import advances
from torchsleuth.auditor.tracing.programfiles import program_syntax
from torchsleuth.auditor.tracing.sites import site_of_node

NOTHING = 1e-6  # of the highest rate so far
LEAST_STEPS = 8


def with_setting(fact: NoUpdate) -> NoUpdate:
    """A learning rate of 0 that neither the optimizer was built with nor a schedule gave it: the one place in the program's files that sets a rate."""
    if fact.reason != "learning-rate" or fact.built is not None:
        return fact
    set_here = [
        site_of_node(file, node) for file, tree in program_syntax([fact.site]) for node in ast.walk(tree)
        if isinstance(node, (ast.Assign, ast.AugAssign)) and any(map(_is_rate, node.targets if isinstance(node, ast.Assign) else [node.target]))
    ]  # fmt: skip
    return dataclasses.replace(fact, rate=set_here[0]) if len(set_here) == 1 else fact


def _is_rate(target: ast.expr) -> bool:
    """`group["lr"]`"""
    return isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant) and target.slice.value == "lr"


@dataclass
class Rate:
    optimizer: weakref.ref
    kind: str
    steps: int = 0
    highest: float = 0.0
    since: int = 0  # the step from which on it has been next to nothing, without a break
    advanced: int = 0  # how often the schedule had been advanced by then


class RateWatch:
    """Told of each step; asked at the end."""

    def __init__(self, optimizers: OptimizerWatch) -> None:
        self._optimizers = optimizers
        self._rates: dict[int, Rate] = {}

    def before_step(self, optimizer: Optimizer) -> None:
        if id(optimizer) not in self._optimizers.scheduled:
            return
        rates = [group.get("lr") for group in optimizer.param_groups]
        if not rates or not all(isinstance(rate, float | int) for rate in rates):  # a tensor may be on a device, which is not waited for
            return
        seen = self._rates.get(id(optimizer))
        if seen is None or seen.optimizer() is not optimizer:
            seen = self._rates[id(optimizer)] = Rate(weakref.ref(optimizer), type(optimizer).__name__)
        now = max(rates)
        seen.steps += 1
        seen.highest = max(seen.highest, now)
        if now > NOTHING * seen.highest or not seen.highest:
            seen.since = 0
        elif not seen.since:
            seen.since, seen.advanced = seen.steps, self._advanced(optimizer)

    def _advanced(self, optimizer: Optimizer) -> int:
        reference = self._optimizers.schedules.get(id(optimizer))
        schedule = reference() if reference is not None else None
        count = getattr(schedule, "last_epoch", 0)
        return count if isinstance(count, int) else 0

    def vanished(self) -> NoUpdate | None:
        """Half of the steps and more were taken with a rate of next to nothing, up to the last one."""
        for key, rate in self._rates.items():
            left = rate.steps - rate.since + 1
            if rate.since and left >= max(LEAST_STEPS, rate.steps / 2):
                made = self._optimizers.scheduled.get(key)
                return NoUpdate(rate.kind, "vanished", built=made, steps=rate.steps, since=rate.since, advanced=rate.advanced, writers=advances(made))
        return None

"""What is noted at every optimizer step of the whole program, in a few dictionary lookups: `EveryStep`."""

from __future__ import annotations

import threading
import typing

from torch.optim.optimizer import Optimizer

from torchsleuth.auditor.program.anew import AnewWatch
from torchsleuth.auditor.program.contested import ContestedWatch
from torchsleuth.auditor.program.optimizers import OptimizerWatch
from torchsleuth.auditor.program.restinggroups import RestingGroups
from torchsleuth.auditor.program.schedules import ScheduleWatch
from torchsleuth.auditor.program.stephooks import StepHook
from torchsleuth.auditor.tracing.modestack import harmless


class EveryStep:
    """`start()` until `stop()`; `anew` and `schedules` are asked at the end."""

    def __init__(self, optimizers: OptimizerWatch) -> None:
        self.anew, self.schedules = AnewWatch(optimizers), ScheduleWatch(optimizers)
        self.groups, self.contested = RestingGroups(optimizers), ContestedWatch(optimizers)
        self._handles: list[typing.Any] = []
        self._home = threading.get_ident()

    def start(self) -> None:
        self._home = threading.get_ident()
        self._handles = [StepHook(self._before, self._after)]

    def stop(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def failed(self, error: Exception) -> None:
        self.anew.forget()
        self.schedules.forget()
        self.groups.forget()
        self.contested.forget()
        self.stop()

    @harmless
    def _before(self, optimizer: Optimizer, args: typing.Any, kwargs: typing.Any) -> None:
        if threading.get_ident() == self._home:
            self.anew.before_step(optimizer)
            self.schedules.before_step(optimizer)
            self.groups.before_step(optimizer)
            self.contested.before_step(optimizer)

    @harmless
    def _after(self, optimizer: Optimizer, args: typing.Any, kwargs: typing.Any) -> None:
        if threading.get_ident() == self._home:
            self.anew.after_step(optimizer)

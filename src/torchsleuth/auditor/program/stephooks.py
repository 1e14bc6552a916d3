"""Who is told of each optimizer step: `StepHook`, on one pair of torch's global hooks.

torch walks through its table of hooks while it calls them, and a hook added or taken out in between is an error in the
program's own step. Watches come and go in the middle of a step (one that fails gives up there), so they are kept here.
"""

from __future__ import annotations

import typing

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from torchsleuth.auditor.tracing.modestack import imagined, undispatched

Told = typing.Callable[[Optimizer, typing.Any, typing.Any], None]


class StepHook:
    """`before` and `after` are called around each step from now on, until `remove()`."""

    def __init__(self, before: Told, after: Told) -> None:
        self.before, self.after = before, after
        _STEPS.add(self)

    def remove(self) -> None:
        _STEPS.drop(self)


class _Steps:
    def __init__(self) -> None:
        self._hooks: tuple[StepHook, ...] = ()
        self._handles: list[typing.Any] = []
        self._under_way: list[Optimizer] = []

    def add(self, hook: StepHook) -> None:
        self._hooks = (*self._hooks, hook)
        if not self._handles:
            self._handles = [register_optimizer_step_pre_hook(self._before), register_optimizer_step_post_hook(self._after)]

    def drop(self, hook: StepHook) -> None:
        """Torch's hooks are taken off with the last of these; they stay, and do nothing, where torch is walking through them."""
        self._hooks = tuple(one for one in self._hooks if one is not hook)
        if not self._hooks and not self._under_way:
            for handle in self._handles:
                handle.remove()
            self._handles.clear()

    def _before(self, optimizer: Optimizer, args: typing.Any, kwargs: typing.Any) -> None:
        self._tell([hook.before for hook in self._hooks], optimizer, args, kwargs)

    def _after(self, optimizer: Optimizer, args: typing.Any, kwargs: typing.Any) -> None:
        self._tell([hook.after for hook in self._hooks], optimizer, args, kwargs)

    def _tell(self, told: list[Told], optimizer: Optimizer, args: typing.Any, kwargs: typing.Any) -> None:
        if not told or imagined():
            return
        self._under_way.append(optimizer)
        try:
            with torch._C.DisableTorchFunction(), undispatched():
                for one in told:
                    one(optimizer, args, kwargs)
        finally:
            self._under_way.pop()


_STEPS = _Steps()

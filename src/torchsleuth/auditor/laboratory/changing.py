"""Runs in which the results of one kind of call are changed, and nothing is noted: for those of which only the result is wanted."""

from __future__ import annotations

import typing

import torch
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from torchsleuth.auditor.tracing.sites import NOWHERE
from torchsleuth.auditor.tracing.trace import Change, Op


class Changing(TorchFunctionMode):
    """Changes the results of calls of one name."""

    def __init__(self, name: str, change: Change) -> None:
        super().__init__()
        self.name, self.change = name, change

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if getattr(func, "__name__", "") != self.name:
            return result
        return self.change(Op(0, self.name, NOWHERE, "", (), ((), {})), args, kwargs, result)


class ChangingModules:
    """Changes the results of these modules, each of which is one call of that name: no other call of the run is slowed down."""

    def __init__(self, name: str, modules: list[torch.nn.Module], change: Change) -> None:
        self.name, self.modules, self.change = name, modules, change
        self._hooks: list[RemovableHandle] = []

    def __enter__(self) -> None:
        self._hooks = [module.register_forward_hook(self._changed, with_kwargs=True) for module in self.modules]

    def __exit__(self, *error: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _changed(self, module: torch.nn.Module, args: tuple, kwargs: dict, result: typing.Any) -> typing.Any:
        return self.change(Op(0, self.name, NOWHERE, "", (), ((), {})), args, kwargs, result)

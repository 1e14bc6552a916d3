"""Predictions compared with labels of another shape: an accuracy or an error over all pairs. In the step, and after the first calls without gradients: `MetricWatch`.

There counts that are lost are seen, too: `confusion[labels, predictions] += 1`.
"""

from __future__ import annotations

import threading
import typing

import torch
from torch import nn
from torch.nn.modules import module as hooks

from torchsleuth.auditor.laboratory.compare import output_leaves
from torchsleuth.auditor.losses.broadcasting import crossed, put_in
from torchsleuth.auditor.observation import Broadcast, Duplicates
from torchsleuth.auditor.operations.indexed import IndexedWrites
from torchsleuth.auditor.tracing.modestack import enter_below, harmless, take_out, transformed, unseen
from torchsleuth.auditor.tracing.trace import Trace, quietly

MODULE_CALLS = 20_000  # that are waited for: a tenth of a second of a run at most
MOST_OPERATIONS = 200  # after one call
LOOKS = 3
_COMPARING = {"eq", "ne", "__eq__", "__ne__", "sub", "__sub__", "rsub", "__rsub__", "subtract", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "isclose",
              "mul", "__mul__", "add", "__add__", "__and__", "__or__", "logical_and", "logical_or"}  # fmt: skip


def compared_crosswise(trace: Trace, outputs: set[int], training: set[int]) -> list[Broadcast]:
    """What was computed from `outputs` meets something that was not, each stretched along the other, and goes into one number. `training`: all that the
    loss was computed from, which is another matter."""
    derived = trace.descendants(outputs) | outputs
    found: dict[typing.Any, Broadcast] = {}
    for op in trace.ops:
        sides = op.ins[:2]
        if op.name not in _COMPARING or len(sides) < 2 or sum(seen.key in derived for seen in sides) != 1 or any(seen.key in training for seen in op.outs):
            continue
        one = crossed(trace, op, "metric")
        if one is not None and one.reduced_into_loss and not any(put_in(trace, seen) for seen in sides if seen.key in derived):  # labels may be a column from the start
            found.setdefault(one.site.span, one)
    return list(found.values())


class MetricWatch:
    """`start()` after the first step: traces the few operations that follow a call of a trained model without gradients."""

    def __init__(self, models: typing.Iterable[nn.Module]) -> None:
        self.found: dict[typing.Any, Broadcast] = {}
        self.lost: dict[typing.Any, Duplicates] = {}
        self._writes: IndexedWrites | None = None
        self._models = {id(model) for model in models}
        self._handles: list[typing.Any] = []
        self._trace: Trace | None = None
        self._outputs: set[int] = set()
        self._calls = self._looks = 0
        self._home = threading.get_ident()

    def start(self) -> None:
        self._handles = [hooks.register_module_forward_pre_hook(self._enter), hooks.register_module_forward_hook(self._leave)]

    def stop(self) -> None:
        self.look()
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def failed(self, error: Exception) -> None:
        self.found.clear()
        self.lost.clear()
        if self._trace is not None:
            take_out(self._trace)
            self._trace = None
        self.stop()

    @harmless
    def _enter(self, module: nn.Module, inputs: typing.Any) -> None:
        self._calls += 1
        if self._trace is not None and threading.get_ident() == self._home:
            self.look()
        if self._calls > MODULE_CALLS:
            self.stop()

    @harmless
    def _leave(self, module: nn.Module, inputs: typing.Any, output: typing.Any) -> None:
        if id(module) in self._models and self._trace is None and not torch.is_grad_enabled() and threading.get_ident() == self._home and not transformed():
            self._begin(output)

    @unseen
    def _begin(self, output: typing.Any) -> None:
        self._trace = Trace(most=MOST_OPERATIONS, watchers={})
        self._writes = IndexedWrites(self._trace)
        self._trace.watchers["__getitem__"] = [quietly(self._writes.reads)]
        self._trace.early.update((name, [quietly(self._writes.writes)]) for name in ("__setitem__", "index_put_"))
        self._trace.carried = True
        self._outputs = {self._trace.key(tensor) for _, tensor in output_leaves(output)}
        enter_below(self._trace)

    def look(self) -> None:
        """What came after the call is over."""
        if self._trace is None:
            return
        trace, self._trace = self._trace, None
        trace.most = 0
        take_out(trace)
        for one in compared_crosswise(trace, self._outputs, set()):
            self.found.setdefault(one.site.span, one)
        for lost in self._writes.found if self._writes is not None else ():
            if lost.accumulating:
                self.lost.setdefault(lost.site.span, lost)
        self._looks += 1
        if self._looks >= LOOKS:
            self.stop()

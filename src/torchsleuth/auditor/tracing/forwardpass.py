"""The forward pass of the step that was traced: what it called and what it gave. An experiment need not find that out again."""

from __future__ import annotations

import copy
import typing

import torch

from torchsleuth.auditor.laboratory.accelerator import at_hand
from torchsleuth.auditor.laboratory.compare import moved_flags, output_leaves
from torchsleuth.auditor.tracing.stepview import StepView
from torchsleuth.auditor.tracing.trace import Trace


class Forward:
    """`count` calls of the trace, and the outputs that came of them."""

    def __init__(self, trace: Trace, count: int, outputs: typing.Iterable[tuple[str, torch.Tensor]]) -> None:
        self._trace, self._count = trace, count
        self._outputs = {name: tensor.detach() for name, tensor in outputs}

    def of_it(self, step: StepView) -> Trace | None:
        """The trace of the forward pass alone, if this step is the one it belongs to."""
        if step.trace is not self._trace or self._trace.truncated:
            return None
        found = copy.copy(self._trace)
        found.ops = self._trace.ops[: self._count]
        return found

    def gave(self, result: typing.Any) -> bool:
        """The same as this, as far as rounding tells."""
        leaves = dict(output_leaves(result))
        if not leaves or not leaves.keys() <= self._outputs.keys():
            return False
        pairs = [(self._outputs[name], leaf) for name, leaf in leaves.items()]
        return all(a.shape == b.shape and a.dtype == b.dtype and not moved_flags(at_hand(a), at_hand(b))[0].any() for a, b in pairs)

"""Is the model meant to be causal, which token is each position asked for, and do later tokens count?"""

from __future__ import annotations

import typing

import torch
from torch import nn

from torchsleuth.auditor import batch as batches
from torchsleuth.auditor import experiments
from torchsleuth.auditor.batch import Call, Leaf
from torchsleuth.auditor.lab import Lab
from torchsleuth.auditor.observation import LabelShift, Move
from torchsleuth.auditor.stepview import StepView
from torchsleuth.auditor.watchers import Lookup, label_shifts

Attempt = typing.Callable[[str, typing.Callable[[], typing.Any]], typing.Any]


class Causality:
    """The questions about order, for one step and the experiments on its inputs."""

    def __init__(self, call: Call, step: StepView, lab: Lab, attempt: Attempt, demanded: bool) -> None:
        self.call, self.step, self.lab, self.attempt, self.demanded = call, step, lab, attempt, demanded
        self._causal: dict[int, bool] = {}

    def shifts(self) -> tuple[LabelShift, ...]:
        return tuple(label_shifts(self.step.watch, lambda lookup: self._leaf_for(lookup).name, self._is_causal))

    def _is_causal(self, lookup: Lookup) -> bool:
        if lookup.op.index not in self._causal:
            leaf = self._leaf_for(lookup)
            self._causal[lookup.op.index] = bool(self.attempt("causality", lambda: experiments.is_causal(self.lab, leaf)))
        return self._causal[lookup.op.index]

    def moves(self) -> list[Move]:
        wanted = [lookup for _, offset, _, _, lookup in self.step.watch.shifts if offset == 1]
        intent = "The loss compares position t with token t + 1, and that token is visible at position t: the model can copy it."
        if not wanted and (intent := _meant(self.call.model, self.step)):
            named = {leaf.name for leaf in batches.sequences(self.call)}
            wanted = [lookup for lookup in self.step.watch.lookups if self._leaf_for(lookup).name in named]
        leaves = [leaf for lookup in wanted[:1] if (leaf := self._leaf_for(lookup)).path or self.lab.embedded(leaf)]
        if not leaves and self.demanded:
            intent = "The model is meant to see no later position (`causal=True`)."
            leaves = batches.sequences(self.call)[-1:]
        moves = []
        for leaf in leaves:
            moves += self.attempt("causality", lambda leaf=leaf: experiments.causal_moves(self.lab, leaf, intent)) or []
        return moves

    def _leaf_for(self, lookup: Lookup) -> Leaf:
        """The input these ids are, by value; or a stand-in, where the model made them itself."""
        for leaf in self.call.leaves:
            if leaf.tensor.shape == lookup.ids.shape and not leaf.tensor.is_floating_point() and torch.equal(leaf.values.to(lookup.ids.dtype), lookup.values):
                return leaf
        return Leaf("the ids looked up", (), lookup.ids)


def _meant(model: nn.Module, step: StepView) -> str:
    """How it is known that the model is meant to be causal: a triangular mask made in the forward pass or kept as a buffer, or its configuration."""
    config = getattr(model, "config", None)
    if config is not None:
        decoder = getattr(config, "is_decoder", False) is True or "CausalLM" in type(model).__name__
        return "The model is a decoder by its configuration." if decoder and not getattr(config, "is_encoder_decoder", False) else ""
    for op in step.trace.ops:
        if op.name in ("tril", "triu") and op.outs and len(op.outs[0].size) == 2 and op.outs[0].size[0] == op.outs[0].size[1]:
            return "The model makes a triangular mask, so it is meant to see no later position."
    if any(_is_triangular(buffer) for buffer in model.buffers()):
        return "The model holds a triangular mask, so it is meant to see no later position."
    return ""


def _is_triangular(buffer: torch.Tensor) -> bool:
    square = buffer.detach().squeeze()
    if square.dim() != 2 or square.shape[0] != square.shape[1] or square.shape[0] < 3 or square.numel() > 1 << 24:
        return False
    flags = square == square[0, -1]
    if not flags.any() or flags.all():
        return False
    size = square.shape[0]
    return any(torch.equal(flags, torch.ones_like(flags).triu(k)) for k in range(0, min(4, size)))

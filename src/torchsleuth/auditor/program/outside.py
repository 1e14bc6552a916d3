"""Plain tensors of the program that ask for gradients, belong to no module and are in no optimizer: what a loss is weighted with, a temperature.

A few steps have to pass: what is made for one step (an adversarial input, points to take derivatives at) is gone by then, and what the
program moves by hand has other values.
"""

from __future__ import annotations

import typing
import weakref
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from torchsleuth.auditor.gradients.backward import variables_below
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import Unregistered
from torchsleuth.auditor.tracing.bydesign import origin_of_place
from torchsleuth.auditor.tracing.trace import Trace
from torchsleuth.origin import Origin

STEPS = 3
MOST_ELEMENTS = 1 << 16
MOST_LEAVES = 8


@dataclass
class Outside:
    tensor: weakref.ref
    values: torch.Tensor
    fact: Unregistered


class OutsideLeaves:
    """`note()` when the first step is over, `step()` before each later one; `found` after a few of them."""

    def __init__(self) -> None:
        self.found: list[Unregistered] = []
        self._waiting: list[Outside] = []
        self._steps = 0

    def note(self, trace: Trace, loss: torch.Tensor, given: Iterable[int], known: typing.Container[int], built: Site | None) -> None:
        """`given`: what modules of the program were given, by its numbers in the trace; `known` are parameters and inputs of the models."""
        if loss.grad_fn is None:
            return
        data = trace.ancestors(set(given)) | {seen.key for op in trace.ops if op.name == "grad" for seen in op.ins}
        for leaf in variables_below(loss.grad_fn):
            key = trace.known_key(leaf)
            if type(leaf) is not torch.Tensor or id(leaf) in known or key is None or key in data or leaf.grad is None or leaf.numel() > MOST_ELEMENTS:
                continue
            maker = trace.producer.get(key)
            use = next((op for op in trace.ops if op.name not in ("requires_grad_", "backward") and any(seen.key == key for seen in op.ins) and origin_of_place(op) is Origin.USER), None)
            made, site = trace.site(trace.ops[maker]) if maker is not None else None, trace.site(use) if use is not None else None
            if made is not None and not made.library and site is not None and len(self._waiting) < MOST_LEAVES:
                fact = Unregistered((tuple(leaf.shape),), site, "", made, "outside", built)
                self._waiting.append(Outside(weakref.ref(leaf), leaf.detach().clone(), fact))

    def step(self, held: typing.Callable[[], typing.Container[int]]) -> None:
        """`held`: what the optimizers hold by now."""
        self._steps += 1
        if self._steps != STEPS or not self._waiting:
            return
        in_optimizers = held()
        for one in self._waiting:
            tensor = one.tensor()
            if tensor is not None and tensor.requires_grad and tensor.grad is not None and id(tensor) not in in_optimizers and torch.equal(tensor.detach(), one.values):
                self.found.append(one.fact)
        self._waiting.clear()

"""Models that a program trains one after the other, each with an optimizer of its own: every other kind of them gets a watch, too.

What tells one kind from another are the sizes of the parameters: the folds of a cross-validation are one kind.
"""

from __future__ import annotations

import typing
import weakref

from torch import nn
from torch.optim.optimizer import Optimizer

from torchsleuth.auditor.program.optimizers import parameters_of

MOST_MORE = 2
MOST_HELD = 100_000  # parameters
MOST_BYTES = 64 << 20  # of parameters: they are kept until the program has ended

Sizes = tuple[tuple[int, ...], ...]


class Watching(typing.Protocol):
    """A watch of one first step; see `live.StepWatch`."""

    def settle(self) -> None: ...
    def abandon(self) -> None: ...


W = typing.TypeVar("W", bound=Watching)


class InTurn(typing.Generic[W]):
    """Told of each optimizer that is built; `watches` are those that it has started."""

    def __init__(self, start: typing.Callable[[Optimizer, set[int]], W]) -> None:
        self.watches: list[W] = []
        self._start = start  # given the optimizer, and what was trained before
        self._seen: set[Sizes] = set()
        self._held: list[weakref.ref] = []  # by optimizers, which may be gone

    def built(self, optimizer: Optimizer, ready: bool, models: list[nn.Module]) -> None:
        """`ready`: the watch of the first model is through with its step, which was about these `models`."""
        held = [p for p in parameters_of(optimizer) if p.requires_grad]
        before = {id(p) for ref in self._held if (p := ref()) is not None} | {id(p) for model in models for p in model.parameters()}
        self._held += map(weakref.ref, held if len(self._held) < MOST_HELD else ())
        sizes = tuple(sorted(tuple(p.shape) for p in held))
        known, small = sizes in self._seen, sum(p.numel() * p.element_size() for p in held) <= MOST_BYTES
        self._seen.add(sizes)
        if ready and held and small and not known and len(self.watches) < MOST_MORE and not any(id(p) in before for p in held):
            for watch in self.watches:
                watch.settle()  # what the one before has not seen by now it will not see
            self.watches.append(self._start(optimizer, before))

"""Steps that a program takes by hand, without an optimizer: is a gradient still there, as it was used, when the next one arrives? `HandSteps`."""

from __future__ import annotations

import sys
import threading
import typing

import torch
from torch import nn

from torchsleuth.auditor.gradients.symmetry import own_numbers
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import KeptGradient
from torchsleuth.auditor.tracing.modestack import harmless, unseen
from torchsleuth.auditor.tracing.sites import place_here, place_of, site_of
from torchsleuth.auditor.tracing.trace import Trace

ROUNDS = 4  # gradients after the first that are looked at
LEAST = 2
MOST_PARAMETERS = 8
MOST_NUMBERS = 1 << 20


class Hand:
    """One parameter, and what arrives there."""

    def __init__(self, parameter: torch.Tensor, gradient: int) -> None:
        self.parameter, self.gradient = parameter, gradient  # its number in the trace
        self.seen = self.kept = 0
        self.norm = 0.0
        self.backward: Site | None = None
        self._before: tuple[torch.Tensor, torch.Tensor] | None = None  # the parameter and its gradient, after the last backward pass
        self._home = threading.get_ident()
        self._remember()
        self._handles = [parameter.register_hook(unseen(self._arrives)), parameter.register_post_accumulate_grad_hook(unseen(self._added))]

    def stop(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def failed(self, error: Exception) -> None:
        self.kept = 0
        self.stop()

    def _remember(self) -> None:
        grad = self.parameter.grad
        self._before = (self.parameter.detach().clone(), grad.detach().clone()) if grad is not None else None

    @harmless
    def _arrives(self, gradient: torch.Tensor) -> None:
        grad = self.parameter.grad
        if self._before is None or grad is None:
            return
        value, used = self._before
        if torch.equal(grad, used) and not torch.equal(self.parameter.detach(), value):
            self.kept += 1
            if self.backward is None:
                self.norm = float(used.norm())
                self.backward = site_of(place_here(2)) or site_of(place_of(sys._current_frames().get(self._home)))

    @harmless
    def _added(self, parameter: torch.Tensor) -> None:
        self.seen += 1
        self._remember()
        if self.seen >= ROUNDS:
            self.stop()


class HandSteps:
    """`start()` after the first backward pass, with what has a gradient then; `found()` at the end."""

    def __init__(self) -> None:
        self._hands: list[Hand] = []

    @unseen
    def start(self, taught: list[torch.Tensor], held: typing.Container[int], trace: Trace) -> None:
        """`held`: by optimizers, which are looked at elsewhere."""
        if self._hands or any(id(p) in held for p in taught):
            return
        fit = [p for p in taught if p.is_leaf and p.grad is not None and not p.grad.is_sparse and p.numel() <= MOST_NUMBERS and bool(p.grad.any())]
        self._hands = [Hand(p, trace.key(p.grad)) for p in sorted(fit, key=torch.Tensor.numel)[:MOST_PARAMETERS] if p.grad is not None]

    def stepped(self, held: typing.Callable[[], list[torch.Tensor]]) -> None:
        """An optimizer takes a step, which may be gone at the end: what it holds is no business of the program's own hands."""
        taken = {id(p) for p in held()} if self._hands else ()
        for hand in [hand for hand in self._hands if id(hand.parameter) in taken]:
            hand.stop()
            self._hands.remove(hand)

    def stop(self) -> None:
        for hand in self._hands:
            hand.stop()

    def found(self, models: list[nn.Module], trace: Trace, backward: int | None, held: typing.Container[int]) -> list[KeptGradient]:
        """Where each gradient was used, left as it was, and added to by the next one."""
        self.stop()
        added_to = [hand for hand in self._hands if hand.kept >= LEAST and hand.kept == hand.seen and id(hand.parameter) not in held]
        steps = [(hand, site) for hand in added_to if (site := _written(trace, hand, backward)) is not None]
        kept = [hand for hand, _ in steps]
        if not kept:
            return []
        names = {id(p): f"`{n}`" for model in models for n, p in model.named_parameters()}
        called = [names.get(id(hand.parameter), f"the tensor of shape {list(hand.parameter.shape)}") for hand in kept]
        name = called[0] if len(kept) == 1 else f"{called[0]} (and {len(kept) - 1} more of {len(self._hands)} that were watched)"
        return [KeptGradient("", name, kept[0].kept, kept[0].seen, kept[0].norm, steps[0][1], kept[0].backward)]


def _written(trace: Trace, hand: Hand, backward: int | None) -> Site | None:
    """Where the program wrote something into it, after the first backward pass, that was computed from its gradient."""
    own = own_numbers(trace, hand.parameter)
    aliases = {seen.key for op in trace.ops if op.name in ("data", "detach") and op.ins and op.ins[0].key in own for seen in op.outs}
    after = trace.ops[backward + 1 :] if backward is not None else []
    for op in after:
        if op.writes and op.ins and op.ins[0].key in own | aliases and hand.gradient in trace.ancestors({seen.key for seen in op.ins[1:]}):
            if (site := trace.site(op)) is not None and not site.library:
                return site
    return None

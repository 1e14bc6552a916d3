"""Gradients that arrive between the steps of each optimizer, seen at one of its parameters for a few steps.

A gradient that a step has used and that is still there when the next one arrives was kept; one that was cleared before any
step has used it was thrown away; one that another loss has left there is added to.
"""

from __future__ import annotations

import sys
import threading
import types
import typing
import weakref
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import DiscardedGradient, KeptGradient, MixedGradient
from torchsleuth.auditor.program.clearing import ClearingNotes, Holder, clears
from torchsleuth.auditor.program.optimizers import parameters_of
from torchsleuth.auditor.tracing.modestack import harmless, unseen
from torchsleuth.auditor.tracing.sites import TRAMPOLINE, Place, place_here, place_of, site_of
from torchsleuth.origin import Origin, origin_of_file

STEPS = 4
MOST_OPTIMIZERS = 4
MOST_ARRIVALS = 64  # between two steps
MOST_NUMBERS = 4096  # of a gradient that is compared with another one
SHORTER = 0.999  # and by more than rounding
AGAINST = -0.5  # the cosine of two gradients that undo one another

Frames = tuple[tuple[types.CodeType, int], ...]


class Arrival(typing.NamedTuple):
    """One backward pass that came to the parameter."""

    frames: Frames  # the program's functions that led to it, the innermost first
    fresh: bool  # nothing stood there
    turn: int  # steps of all optimizers that were taken before
    numbers: torch.Tensor | None
    cleared: Site | None  # what had cleared the gradient before this one


@dataclass
class Carry:
    """One parameter of one optimizer, and what arrives there."""

    optimizer: weakref.ref
    kind: str
    held: frozenset[int]  # the identities of all that it holds
    parameter: torch.Tensor
    name: str
    turn: typing.Callable[[], int]
    handles: list[typing.Any] = field(default_factory=list)
    used: bool = True  # the gradient that stands there has been used by a step
    standing: bool = False
    arriving: torch.Tensor | None = None
    carried: bool = False
    steps: int = 1
    times: int = 0
    norm: float = 0.0  # of the gradient that was carried over, the first time
    site: Site | None = None
    backward: Site | None = None
    period: list[Arrival] = field(default_factory=list)  # since the last step
    periods: list[list[Arrival]] = field(default_factory=list)  # those before, each with what its step has used at its end
    turns: list[int] = field(default_factory=list)  # when its steps were taken
    true: list[bool] = field(default_factory=list)  # did each step use what the last backward pass gave, but for its length?
    cleared: Site | None = None
    left: torch.Tensor | None = None  # what the last step left in the gradient
    late: list[tuple[float, float, Site | None]] = field(default_factory=list)  # norms of a used gradient before and after something shortened it, and where it was cleared then
    stepping: bool = False  # its step is being taken
    taken: bool = False  # another optimizer, which holds it too, has used a gradient that arrived there
    closure: bool = False  # the gradient that was added to arrived while it was
    asked: int = 0  # how often its steps have called their closure, as far as its state tells
    inside: list[bool] = field(default_factory=list)  # for each gradient that arrived during this step: was it added to another one?
    within: tuple[float, Site | None] | None = None  # norm of what the first of these was added to, and the backward pass
    stepped: Site | None = None  # where its steps are taken
    gathered: int = 0  # steps in which each call of the closure but the first added to what the calls before it had left
    home: int = field(default_factory=threading.get_ident)

    def attach(self) -> None:
        self.handles = [
            self.parameter.register_hook(unseen(self._arrives)),
            self.parameter.register_post_accumulate_grad_hook(unseen(self._added)),
        ]

    @harmless
    def _arrives(self, gradient: torch.Tensor) -> None:
        # `autograd.grad` comes here too; only what is added to `.grad` counts, and that shows in `_added`.
        old = self.parameter.grad
        self.standing = old is not None and bool((old._values() if old.is_sparse else old).any())
        self.arriving = _numbers(gradient)
        if self.standing and self.used and not self.period and self._rewritten(old):
            self.used = False
        if self.standing and self.used and not self.norm:
            self.norm, self.backward = _norm(old), self._from_here()
        if self.standing and self.inside and self.within is None:
            self.within = (_norm(old), self._from_here())

    def _from_here(self) -> Site | None:
        # On a GPU the engine calls from a thread of its own, while the program's waits in `backward()`.
        return site_of(place_here(3)) or site_of(place_of(sys._current_frames().get(self.home)))

    def _rewritten(self, old: torch.Tensor) -> bool:
        """The program has put other numbers there than its step left (a part of them, an average): what is added to is its own."""
        now = _numbers(old)
        return self.left is not None and now is not None and not torch.equal(now, self.left)

    @harmless
    def _added(self, parameter: torch.Tensor) -> None:
        if not self.standing:
            self.used = self.carried = False
            if not self.times:  # what was carried over before this is what is told of
                self.norm, self.backward = 0.0, None
        elif self.used:
            self.carried, self.closure = True, self.stepping
        if self.stepping:
            self.inside.append(self.standing)
        if len(self.period) < MOST_ARRIVALS:
            frame = sys._getframe(1) if threading.get_ident() == self.home else sys._current_frames().get(self.home)
            self.period.append(Arrival(_frames(frame), not self.standing, self.turn(), self.arriving, self.cleared))
        self.arriving = self.cleared = None

    def clears(self, holder: Holder, site: Site | None) -> None:
        if self.parameter.grad is not None and clears(holder, self.parameter):
            self.cleared = site
            unseen(self._look_for_shortening)(site)

    def _look_for_shortening(self, site: Site | None) -> None:
        now, left, self.left = _numbers(self.parameter.grad), self.left, None
        if left is None or now is None or self.period or not bool((now * left >= 0).all() and (now.abs() <= left.abs()).all()):
            return
        if 0 < float(now.norm()) < SHORTER * float(left.norm()):
            self.late.append((float(left.norm()), float(now.norm()), site))

    def after_step(self) -> None:
        called, self.asked = self._asked() - self.asked, self._asked()
        if called > 1 and called == len(self.inside) and all(self.inside[1:]):
            self.gathered += 1
        self.inside = []
        self.stepping, self.left = False, _numbers(self.parameter.grad)

    def _asked(self) -> int:
        optimizer = self.optimizer()
        held = [p for group in optimizer.param_groups for p in group["params"]] if optimizer is not None else []
        count = optimizer.state.get(held[0], {}).get("func_evals", 0) if optimizer is not None and held else 0  # LBFGS keeps its state at its first parameter
        return count if isinstance(count, int) else 0

    def before_step(self) -> bool:
        """False when enough has been seen."""
        self.steps += 1
        self.stepped = self.stepped or site_of(place_here(3))
        if self.carried:
            self.times += 1
            self.site = self.site or site_of(place_here(3))
        self.carried, self.used = False, True
        self.true.append(bool(self.period) and _along(_numbers(self.parameter.grad), self.period[-1].numbers))
        self.periods.append(self.period)
        self.turns.append(self.turn())
        self.period, self.stepping = [], True
        if self.steps >= STEPS:
            self.detach()
            return False
        return True

    def failed(self, error: Exception) -> None:
        self.times = 0
        self.periods.clear()
        self.detach()

    def detach(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles = []

    # -- what it adds up to -------------------------------------------------------------------------

    def discarded(self) -> tuple[int, Arrival] | None:
        """Before each step the same `backward()` came so many times, and all but its last gradient were cleared unused. With the last one.

        A gradient that is made to be looked at (an attack, a norm to log) comes from another `backward()` than the one that is used; one that
        is kept elsewhere until all are there (of each sample, of each task) is put back before the step, which then uses another.
        """
        if len(self.periods) < 2 or self.taken or not all(self.true):
            return None
        counts = {len(period) for period in self.periods}
        sources = {one.frames for period in self.periods for one in period}
        if len(counts) > 1 or counts == {1} or len(sources) > 1 or not all(one.fresh for period in self.periods for one in period):
            return None
        return counts.pop(), self.periods[-1][-1]

    def mixed(self) -> tuple[Arrival, Arrival, float] | None:
        """Each step used a gradient that was added to that of another `backward()`, which came before another optimizer's step, and undoes it."""
        found = []
        for period in self.periods:
            start = next((at for at in reversed(range(len(period))) if period[at].fresh), None)
            group = period[start:] if start is not None else []
            if len(group) != 2 or group[0].frames == group[1].frames or group[0].turn == group[1].turn:
                return None
            found.append((group[0], group[1], _cosine(group[0].numbers, group[1].numbers)))
        same = len({(one.frames, two.frames) for one, two, _ in found}) == 1
        return found[0] if len(found) >= 2 and same and all(cosine < AGAINST for _, _, cosine in found) else None

    def throws_away(self, late: Arrival, early: Arrival) -> bool:
        """Of the same two backward passes, does this one clear what the later gives before the earlier one comes again?"""
        return any(
            one.frames == late.frames and two.frames == early.frames and two.fresh
            for period in self.periods for one, two in zip(period, period[1:], strict=False)
        )  # fmt: skip


class Mixed(typing.NamedTuple):
    fact: MixedGradient
    parameter: torch.Tensor
    trained: frozenset[int]  # what the other optimizer holds


class Late(typing.NamedTuple):
    kind: str
    name: str
    times: int
    before: float
    after: float
    cleared: Site | None


class Arrivals:
    """`after_step` begins to look at an optimizer, `before_step` tells of each of its steps; the rest is asked when the program has ended."""

    def __init__(self, notes: ClearingNotes) -> None:
        self._notes = notes
        self._carries: list[Carry] = []
        self._live: list[Carry] = []
        self._turn = 0

    def before_step(self, optimizer: Optimizer) -> None:
        if self._live:
            for carry in self._live:
                if carry.optimizer() is not optimizer and carry.period and any(p is carry.parameter for p in parameters_of(optimizer)):
                    carry.taken = True
            self._live = [carry for carry in self._live if carry.optimizer() is not optimizer or carry.before_step()]
            self._turn += 1
            if not self._live:
                self.stop()

    def after_step(self, optimizer: Optimizer, models: list[tuple[str, nn.Module]]) -> None:
        """`models` are those that are trained, with the names that the program calls them by."""
        for carry in self._live:
            if carry.optimizer() is optimizer:
                unseen(carry.after_step)()
        if len(self._carries) >= MOST_OPTIMIZERS or any(carry.optimizer() is optimizer for carry in self._carries):
            return
        names = {id(p): f"{name}.{n}" if name else n for name, model in models for n, p in model.named_parameters()}
        candidates = [p for p in parameters_of(optimizer) if p.is_leaf and p.grad is not None and id(p) in names and p.numel() > 1]
        for parameter in sorted(candidates, key=lambda p: p.numel()):
            if bool((parameter.grad._values() if parameter.grad.is_sparse else parameter.grad).any()):
                held = frozenset(map(id, parameters_of(optimizer)))
                carry = Carry(weakref.ref(optimizer), type(optimizer).__name__, held, parameter, names[id(parameter)], lambda: self._turn)
                carry.attach()
                unseen(carry.after_step)()
                self._carries.append(carry)
                self._live.append(carry)
                if self._cleared not in self._notes.listeners:
                    self._notes.listeners.append(self._cleared)
                return

    def _cleared(self, holder: Holder, site: Site | None) -> None:
        for carry in self._live:
            carry.clears(holder, site)

    def stop(self) -> None:
        for carry in self._live:
            carry.detach()
        self._live = []
        if self._cleared in self._notes.listeners:
            self._notes.listeners.remove(self._cleared)

    # -- the end ------------------------------------------------------------------------------------

    def kept(self) -> list[KeptGradient]:
        found = []
        for carry in self._carries:
            chances = carry.steps - 1
            if carry.times and 2 * carry.times >= chances:
                found.append(KeptGradient(carry.kind, carry.name, carry.times, chances, carry.norm, carry.site, carry.backward, closure=carry.closure))
            elif carry.gathered and carry.within is not None:
                norm, backward = carry.within
                found.append(KeptGradient(carry.kind, carry.name, carry.gathered, chances, norm, carry.stepped, backward, closure=True, within=True))
        return found

    def discarded(self) -> list[DiscardedGradient]:
        found = []
        for carry in self._carries:
            if (seen := carry.discarded()) is not None:
                count, last = seen
                found.append(DiscardedGradient(carry.kind, carry.name, count, len(carry.periods), last.cleared, _site(last.frames)))
        return found

    def late(self) -> Late | None:
        """Gradients that were made shorter after the step had used them, and cleared before another one could."""
        for carry in self._carries:
            if len(carry.late) > 1:
                return Late(carry.kind, carry.name, len(carry.late), *carry.late[0])
        return None

    def mixed(self) -> list[Mixed]:
        found = []
        for carry in self._carries:
            early, late, cosine = carry.mixed() or (None, None, 0.0)
            if early is None or late is None:
                continue
            between = [other for other in self._carries if other is not carry and any(early.turn <= turn < late.turn for turn in other.turns)]
            if between and any(other.throws_away(late, early) for other in between):
                fact = MixedGradient(carry.kind, between[0].kind, carry.name, cosine, _site(early.frames), _site(late.frames))
                found.append(Mixed(fact, carry.parameter, between[0].held))
        return found


def _frames(frame: types.FrameType | None) -> Frames:
    found = []
    while frame is not None:
        if frame.f_code.co_name != TRAMPOLINE and origin_of_file(frame.f_code.co_filename) is Origin.USER:
            found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(found)


def _site(frames: Frames) -> Site | None:
    return site_of(Place(*frames[0], *frames[0])) if frames else None


def _norm(gradient: torch.Tensor) -> float:
    return float((gradient._values() if gradient.is_sparse else gradient).norm())


def _numbers(gradient: torch.Tensor | None) -> torch.Tensor | None:
    if gradient is None or gradient.is_sparse or gradient.is_complex():
        return None
    return gradient.detach().flatten()[:MOST_NUMBERS].float().clone()


def _cosine(one: torch.Tensor | None, two: torch.Tensor | None) -> float:
    if one is None or two is None or one.shape != two.shape:
        return 0.0
    return float(torch.nn.functional.cosine_similarity(one, two, dim=0))


def _along(one: torch.Tensor | None, two: torch.Tensor | None) -> bool:
    return _cosine(one, two) > 0.999

"""The first steps of a program's other optimizers: a generator's after a discriminator's, an actor's after a critic's.

The trace of the first step is carried on until each optimizer that the program had built by then has taken a step of its own:
what one step computes is often used by the next. Of these steps the record is read; no experiment is made on them. A step whose
gradients come from several forward passes is read here, too, when all of them are there.
"""

from __future__ import annotations

import dataclasses
import threading
import typing

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.optim.optimizer import Optimizer

from torchsleuth.auditor.gradients.backward import leaves_below
from torchsleuth.auditor.gradients.gradients import grad_states
from torchsleuth.auditor.inputs.batch import Call
from torchsleuth.auditor.laboratory.runner import unwrapped
from torchsleuth.auditor.observation import LossCall, Observation
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import Cut, NoUpdate, ScaledGradient
from torchsleuth.auditor.program.captured import Captured, called_name, renamed
from torchsleuth.auditor.program.clearing import ClearingNotes, Holder
from torchsleuth.auditor.program.optimizers import OptimizerWatch, copies_of, parameters_of
from torchsleuth.auditor.program.scaling import never_scaled
from torchsleuth.auditor.tracing.modestack import enter_below, harmless, take_out, transformed, unseen
from torchsleuth.auditor.tracing.sites import place_here, site_of
from torchsleuth.auditor.tracing.stepview import StepView, parameter_keys
from torchsleuth.auditor.tracing.trace import Op

_RECORDED = ("broadcasts", "axes", "swaps", "duplicates", "aliases", "unkept")
MOST_STEPS = 8  # of all optimizers together, after the first; a critic is often given five before the generator's turn
MOST_MODULES = 12
MOST_CALLS = 64
MOST_OPERATIONS = 60_000


class OtherSteps:
    """`start()` after the first step; `before_step` tells of every later one; `found` are the observations."""

    def __init__(
        self, first: StepView, called: list[Captured], losses: list[torch.Tensor], optimizers: OptimizerWatch, clearing: ClearingNotes,
        stepped: Optimizer | None, again: set[int],
    ) -> None:
        """`called` are modules seen so far. Of the models in `again` (identities) the first step had not ended when it was read."""
        self.view = first.continued()
        self.view.finite.resting = True  # a look at every value is too dear for steps that were not asked about
        self.view.trace.most = min(self.view.trace.most, len(first.trace.ops) + MOST_OPERATIONS)
        self.found: list[Observation] = []
        self.completed: dict[int, dict[str, typing.Any]] = {}  # fields of those models, by their identity
        self._again = again
        self.explained: set[int] = set()  # optimizers whose missing gradients have a place
        self.no_update: NoUpdate | None = None  # of the first step of one of them
        self.scaled: ScaledGradient | None = None
        self._optimizers = optimizers
        self._waiting = {id(o): o for o in optimizers.waiting(stepped)}
        self._resting: list[tuple[Optimizer, Site | None, list]] = []  # with a learning rate of 0; with copies of what they hold
        self._clearing: dict[int, Site | None] = {}  # since the last backward pass
        self._entered: list[tuple[int, int, Site | None]] = []  # calls of modules in this step: where they begin in the trace, the module
        self._cleared: dict[int, tuple[Optimizer, Site | None, list]] = {}
        self._instead: dict[int, Site] = {}  # the step of another one that had no part in the loss, where it was this one's turn
        self._twice: dict[int, Site] = {}  # the second step of another one in a row, where it was this one's turn
        self._reached = {key for loss in losses if loss.grad_fn is not None for key in leaves_below(loss.grad_fn)}  # what the losses before this step give gradients to
        self._last = stepped
        self._notes = clearing
        self._calls = {id(one.model): dataclasses.replace(one, output=None) for one in called}
        self._losses = list(losses)
        self._stepped = not again  # the next backward pass begins another step
        self._steps = 0
        self._since = len(self.view.trace.ops)
        self._depth = 0
        self._home = threading.get_ident()
        self._handles: list[typing.Any] = []

    def start(self) -> None:
        self.view.trace.carried = True
        self.view.trace.early.setdefault("backward", []).append(self._backward)
        self._handles = [
            hooks.register_module_forward_pre_hook(self._enter),
            hooks.register_module_forward_hook(self._leave, always_call=True),
        ]
        self._notes.listeners.append(self._note_cleared)
        enter_below(self.view.trace)

    def stop(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._note_cleared in self._notes.listeners:
            self._notes.listeners.remove(self._note_cleared)
        self._losses.clear()
        self._waiting.clear()
        for one in self._calls.values():
            one.output = None
        self.view.trace.most = 0
        if threading.get_ident() == self._home:
            take_out(self.view.trace)

    @property
    def over(self) -> bool:
        return not self._waiting

    def failed(self, error: Exception) -> None:
        self.stop()

    def _here(self) -> bool:
        return bool(self._waiting) and threading.get_ident() == self._home

    @harmless
    def _note_cleared(self, optimizer: Holder, site: Site | None) -> None:
        """Who clears an optimizer's gradients means it to take a step. The parameters are copied then, to see whether it ever does."""
        if id(optimizer) not in self._waiting or not isinstance(optimizer, Optimizer):
            return
        if not self._stepped:
            self._clearing[id(optimizer)] = site
        if id(optimizer) not in self._cleared:
            self._cleared[id(optimizer)] = (optimizer, site, unseen(copies_of)([p for p in parameters_of(optimizer) if p.requires_grad]))

    def idle(self) -> NoUpdate | None:
        """At the end of the program: an optimizer that changes nothing. Its first step found no gradients, because they had been cleared; or
        its learning rate is 0; or its gradients were cleared and made anew, and it never took a step. Nobody else has changed what it holds."""
        if self.no_update is not None:
            return self.no_update
        for optimizer, site, copies in self._resting:
            if all(group.get("lr") == 0 for group in optimizer.param_groups) and _unchanged(copies):  # no schedule has raised it since
                return dataclasses.replace(self._optimizers.at_rest(optimizer, site), scheduled=False, beside=True)
        for key, (optimizer, site, copies) in self._cleared.items():
            if optimizer not in self._optimizers.stepped and any(p.grad is not None for p, _ in copies) and _unchanged(copies):
                instead = [noted[key] for noted in (self._twice, self._instead) if key in noted][:1]
                return NoUpdate(type(optimizer).__name__, "never-stepped", self._optimizers.built.get(key), site, writers=tuple(instead), twice=key in self._twice)
        return None

    # -- what the program does --------------------------------------------------------------------

    @harmless
    def _enter(self, module: nn.Module, inputs: typing.Any) -> None:
        self.entered(module)

    def entered(self, module: nn.Module) -> None:
        if not self._here():
            return
        self._depth += 1
        if self._depth == 1 and not transformed():
            self._called(unwrapped(module)[0])

    @unseen
    def _called(self, module: nn.Module) -> None:
        at = len(self.view.trace.ops)
        known = self._calls.get(id(module))
        if torch.is_grad_enabled() and len(self._entered) < MOST_CALLS:
            self._entered.append((at, id(module), site_of(place_here(4))))
        if known is None and len(self._calls) < MOST_MODULES and any(p.requires_grad for p in module.parameters()):
            known = self._calls[id(module)] = Captured(module, Call(module, (), {}), site_of(place_here(4)), None)
        if known is not None and torch.is_grad_enabled():
            known.inside = slice(at, None)

    @harmless
    def _leave(self, module: nn.Module, inputs: typing.Any, output: typing.Any) -> None:
        if not self._here():
            return
        self._depth = max(0, self._depth - 1)
        one = self._calls.get(id(unwrapped(module)[0]))
        if self._depth == 0 and one is not None and one.inside.stop is None:
            one.output = output
            one.inside = slice(one.inside.start, len(self.view.trace.ops))

    @harmless
    def _backward(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        if self._here() and args and isinstance(args[0], torch.Tensor):
            if self._stepped:
                self._losses.clear()
                self._reached.clear()
            self._stepped = False
            self._clearing.clear()
            self._losses.append(args[0])
            if args[0].grad_fn is not None:
                self._reached |= leaves_below(args[0].grad_fn)

    @harmless
    def before_step(self, optimizer: Optimizer) -> None:
        if not self._here():
            return
        self._steps += 1
        twice = self._stepped and self._last is optimizer
        if twice or (not self._stepped and not any(id(p) in self._reached for p in parameters_of(optimizer))):
            for key, other in self._waiting.items():
                if other is not optimizer and any(id(p) in self._reached for p in parameters_of(other)) and (site := site_of(place_here(2))) is not None:
                    (self._twice if twice else self._instead).setdefault(key, site)
        if self._waiting.pop(id(optimizer), None) is not None and self._losses and not self.view.trace.truncated:
            if not self._lost(optimizer):
                self._read(optimizer)
                self.scaled = self.scaled or unseen(never_scaled)(optimizer, self.view.trace, self._losses)
        self._stepped, self._last = True, optimizer
        self._entered.clear()
        self._since = len(self.view.trace.ops)
        if not self._waiting or self._steps >= MOST_STEPS or self.view.trace.truncated:
            self.stop()

    @unseen
    def _lost(self, optimizer: Optimizer) -> bool:
        """Have all the gradients that the loss gave to this optimizer's parameters been taken away again?"""
        held = [p for p in parameters_of(optimizer) if p.requires_grad]
        if held and all(group.get("lr") == 0 for group in optimizer.param_groups):
            self._resting.append((optimizer, site_of(place_here(3)), copies_of(held)))
        if self._stepped or not any(id(p) in self._reached for p in held) or any(p.grad is not None for p in held):
            return False
        cleared = self._clearing.get(id(optimizer))
        self.no_update = self.no_update or NoUpdate(type(optimizer).__name__, "cleared", site_of(place_here(3)), cleared, beside=True)
        self.explained.add(id(optimizer))
        return True

    # -- the record of one step --------------------------------------------------------------------

    @unseen
    def _read(self, optimizer: Optimizer) -> None:
        optimized = {id(p) for p in parameters_of(optimizer)} - self._optimizers.elsewhere(optimizer)
        for one in self._calls.values():
            if any(id(p) in optimized and p.requires_grad for p in one.model.parameters()):
                fields = self._fields(one, optimized)
                if fields.get("cuts") or fields.get("unused"):
                    self.explained.add(id(optimizer))
                if id(one.model) in self._again:
                    self.completed.setdefault(id(one.model), fields)
                else:
                    self.found.append(Observation(type(one.model).__name__, one.site, **fields))

    def _fields(self, one: Captured, optimized: set[int]) -> dict[str, typing.Any]:
        named = dict(one.model.named_parameters())
        states = dict(zip(named, grad_states(p.grad for p in named.values()), strict=True))
        keys = parameter_keys(self.view.trace, one.model)
        *others, last = self._losses
        fields = self.view.facts(
            one.model, one.output, last, states, keys, optimized, None, slice(0, 0), optimized, slice(0, 0), self._since, others[::-1]
        )  # fmt: skip
        kept = {name: fields.get(name, ()) for name in ("weights", "cuts", "undetached", "unused")}
        if id(one.model) not in self._again:  # of those the rest was read before
            kept |= {name: fields.get(name, ()) for name in _RECORDED}
            # Not how large they are: what they compare may be trained by now.
            kept["losses"] = tuple(dataclasses.replace(call, value=None) for call in self._compared())
        kept["cuts"] = tuple(self._with_use(one, cut, keys) for cut in kept["cuts"])
        return self._named(one, kept)

    def _compared(self) -> list[LossCall]:
        """The loss functions that were called on the way to the losses of this step, and in it."""
        trace = self.view.trace
        before = trace.ancestors({key for loss in self._losses if (key := trace.known_key(loss)) is not None})
        return [call for op, call in self.view.watch.losses if op.index >= self._since and any(seen.key in before for seen in op.outs)]

    def _with_use(self, one: Captured, cut: Cut, keys: dict[str, int]) -> Cut:
        """Where this step takes up what another part of the program computed without history: a rollout's action, a sample that was kept."""
        if cut.reason != "no-grad" or any(key == id(one.model) for _, key, _ in self._entered):
            return cut
        trace = self.view.trace
        below = trace.descendants({keys[name] for name in cut.weights})
        ends = [at for at, _, _ in self._entered[1:]] + [len(trace.ops)]
        for (at, _, site), end in zip(self._entered, ends, strict=True):
            if at >= self._since and site is not None and any(seen.key in below for op in trace.ops[at:end] for seen in op.ins):
                return dataclasses.replace(cut, used=site)
        return cut

    def _named(self, one: Captured, fields: dict[str, typing.Any]) -> dict[str, typing.Any]:
        return renamed(fields, called_name(one.site)) if len(self._calls) > 1 else fields


def _unchanged(copies: list[tuple[torch.Tensor, torch.Tensor]]) -> bool:
    return bool(copies) and all(torch.equal(p.detach(), copy) for p, copy in copies)

"""The steps after the first, watched as cheaply as can be: are gradients cleared, and is the mode still the right one?

Gradients: see `arrivals`. Modes: one look at a flag at each step of
the program, and at calls of the trained models under `no_grad`; the first such call in train mode is traced, to
see whether its result is compared with targets: then it is an evaluation.
"""

from __future__ import annotations

import dataclasses
import sys
import typing
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.optim.optimizer import Optimizer

from torchsleuth.auditor.inputs.batch import Call
from torchsleuth.auditor.inputs.calling import autocast_here
from torchsleuth.auditor.laboratory.compare import distance, moved_flags, output_leaves
from torchsleuth.auditor.laboratory.runner import BATCH_NORMS, Runner, unwrapped
from torchsleuth.auditor.losses.metrics import MetricWatch
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import ModeFact, NoUpdate
from torchsleuth.auditor.program.arrivals import MOST_OPTIMIZERS, Arrivals
from torchsleuth.auditor.program.captured import Captured, called_name, copied, keywords
from torchsleuth.auditor.program.clearing import ClearingNotes
from torchsleuth.auditor.program.evaluation import comparison, tracing
from torchsleuth.auditor.program.optimizers import parameters_of
from torchsleuth.auditor.program.spoilt import SpoiltWatch
from torchsleuth.auditor.tracing.modestack import enter_below, harmless, take_out, transformed, unseen
from torchsleuth.auditor.tracing.sites import place_here, site_of, without_history
from torchsleuth.auditor.tracing.trace import Op, Trace, tensors_in

BARREN_STEPS = 3
MODULE_CALLS = 500_000  # each costs about four microseconds while hooks on all modules are there: two seconds of a run at most
MOST_OPERATIONS = 20_000  # of the traced evaluation


@dataclass
class Barren:
    """The first steps of an optimizer, as long as nothing it holds has a gradient."""

    kind: str
    count: int
    site: Site | None
    steps: int = 0
    fruitful: bool = False


class ModeNotes:
    """Where the program called `train()` and `eval()` last, for each module that it called them on."""

    def __init__(self) -> None:
        self.last: dict[int, tuple[bool, Site | None]] = {}
        self._original: typing.Any = None

    def start(self) -> None:
        notes, original = self, nn.Module.train
        self._original = original

        def train(self: nn.Module, mode: bool = True) -> nn.Module:
            if sys._getframe(1).f_code is not original.__code__:  # not the walk down to the children
                notes.last[id(self)] = notes.last[id(unwrapped(self)[0])] = (bool(mode), site_of(place_here(2)))
            return original(self, mode)

        train.__doc__, train.__wrapped__, train.torchsleuth = original.__doc__, original, self  # type: ignore[attr-defined]
        nn.Module.train = train  # type: ignore[method-assign]

    def stop(self) -> None:
        if self._original is not None and getattr(nn.Module.train, "torchsleuth", None) is self:
            nn.Module.train = self._original  # type: ignore[method-assign]

    def site(self, module: nn.Module, mode: bool) -> Site | None:
        """Where this module was last put in that mode, if it was the last thing done to its mode."""
        was, site = self.last.get(id(module), (None, None))
        return site if was is mode else None


class LaterWatch:
    """`start()` after the first step; `facts()` when the program has ended."""

    def __init__(self, captured: list[Captured], optimizer: Optimizer | None, notes: ModeNotes, clearing: ClearingNotes) -> None:
        self.notes = notes
        self.arrivals = Arrivals(clearing)
        self.spoilt = SpoiltWatch()
        self._models = {id(one.model): one for one in captured if one.training}
        self.metrics = MetricWatch(one.model for one in captured)
        self._dependent = {key: one.dependent for key, one in self._models.items()}
        self._held = {key: {id(p) for p in one.model.parameters() if p.requires_grad} for key, one in self._models.items()}
        self._barren: dict[int, Barren] = {}
        self._handles: list[typing.Any] = []
        self._calls = 0
        self.steps = 1
        self._forward_training: dict[int, bool] = {}  # was a call of this model for the coming step made in train mode?
        self._stepped = False
        self._turned: dict[int, ModeFact] = {}
        self._count: dict[int, int] = {}
        self._trains: dict[tuple[int, int], bool] = {}  # (model, optimizer): does it hold some of the model's parameters?
        self._trace: Trace | None = None
        self._evaluated: list[Captured] = []
        self._flags: dict[int, list[tuple[nn.Module, bool]]] = {}
        self._tracked: dict[int, tuple[torch.Tensor, int]] = {}
        self._comparisons: list[tuple[Captured, Op, Site | None]] = []
        self._sampled: list[Captured] = []  # called again with the same input: many answers are asked for, as dropout gives them
        self._given: dict[int, set[int]] = {}  # by the model: what the first of these calls was given
        self._looked = False
        if optimizer is not None:
            self.after_step(optimizer)

    def start(self, modules: bool = True) -> None:
        """`modules`: also look at module calls. Not for compiled models, which hooks on modules would compile anew."""
        if modules:
            self.metrics.start()
        if modules and any(self._dependent.values()):
            self._handles = [hooks.register_module_forward_pre_hook(self._enter), hooks.register_module_forward_hook(self._leave)]

    def stop(self) -> None:
        self._look()
        self.arrivals.stop()
        self.metrics.stop()
        self._remove_hooks()

    def take_off_modules(self) -> None:
        """The program compiles something: a compiler takes hooks on modules, and what watches an evaluation, for part of it."""
        self._look()
        self.metrics.stop()
        self._remove_hooks()

    def failed(self, error: Exception) -> None:
        self._evaluated.clear()
        self._comparisons.clear()
        self._remove_hooks()
        if self._trace is not None:
            take_out(self._trace)
            self._trace = None

    def _remove_hooks(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    # -- optimizer steps --------------------------------------------------------------------------

    def before_step(self, optimizer: Optimizer) -> None:
        self.steps += 1
        self.metrics.look()
        if self._trace is not None:
            self._look()
        unseen(self.arrivals.before_step)(optimizer)
        self.spoilt.look(optimizer, self.steps)
        for key, one in self._models.items():
            if not one.model.training and self._dependent[key] and not self._forward_training.get(key, False):
                self._in_eval(key, one, optimizer)
        self._stepped = True
        if len(self._barren) < MOST_OPTIMIZERS or id(optimizer) in self._barren:
            self._note_gradients(optimizer)

    def _note_gradients(self, optimizer: Optimizer) -> None:
        """Has anything that this optimizer holds a gradient? Looked at in its first steps."""
        seen = self._barren.get(id(optimizer))
        if seen is None:
            seen = self._barren[id(optimizer)] = Barren(type(optimizer).__name__, len(parameters_of(optimizer)), site_of(place_here(2)))
        if seen.steps < BARREN_STEPS and not seen.fruitful:
            seen.steps += 1
            held = parameters_of(optimizer)
            seen.fruitful = any(p.grad is not None for p in held) or not any(p.requires_grad for p in held)  # frozen for now

    def barren(self, explained: typing.Container[int] = ()) -> NoUpdate | None:
        """An optimizer whose first steps had no gradient at all to work with, and of which that is not `explained`."""
        found = next((b for key, b in self._barren.items() if b.steps >= BARREN_STEPS and not b.fruitful and key not in explained), None)
        return NoUpdate(found.kind, "barren", found.site, steps=found.steps, held=found.count) if found is not None else None

    def after_step(self, optimizer: Optimizer) -> None:
        several = len(self._models) > 1
        self.arrivals.after_step(optimizer, [(called_name(one.site) if several else "", one.model) for one in self._models.values()])

    def _in_eval(self, key: int, one: Captured, optimizer: Optimizer) -> None:
        trains = self._trains.get((key, id(optimizer)))
        if trains is None:
            trains = self._trains[(key, id(optimizer))] = any(id(p) in self._held[key] for p in parameters_of(optimizer))
        if not trains:
            return
        if key not in self._turned:
            site = site_of(place_here(2))
            self._turned[key] = ModeFact("eval-in-training", tuple(self._dependent[key][:4]), site, changed=self.notes.site(one.model, False), step=self.steps)
        self._count[key] = self._count.get(key, 0) + 1

    # -- evaluation -------------------------------------------------------------------------------

    @harmless
    def _enter(self, module: nn.Module, inputs: typing.Any) -> None:
        self._calls += 1
        if self._calls > MODULE_CALLS:
            self._look()
            self._remove_hooks()
            self._forward_training.clear()
            return
        if id(module) not in self._models or transformed():
            return
        if torch.is_grad_enabled():
            if self._stepped:
                self._forward_training.clear()
                self._stepped = False
            self._forward_training[id(module)] = module.training or self._forward_training.get(id(module), False)
            if self._trace is not None and not torch.is_inference_mode_enabled():
                self._look()
            return
        if self._looked or not module.training or not self._dependent[id(module)]:
            return
        self._silent(module, inputs)

    @unseen
    def _silent(self, module: nn.Module, inputs: typing.Any) -> None:
        if self._trace is None:
            self._trace = tracing(MOST_OPERATIONS)
            self._trace.carried = True
            enter_below(self._trace)
        elif any(one.model is module for one in self._evaluated):
            given = {key for tensor in tensors_in((inputs, keywords())) if (key := self._trace.known_key(tensor)) is not None}
            if self._judge(given):
                self._look()
            self._sampled += [one for one in self._evaluated if one.model is module and given and given <= self._given.get(id(module), set())]
            return
        self._given[id(module)] = {self._trace.key(tensor) for tensor in tensors_in((inputs, keywords()))}
        call = Call(module, tuple(inputs), keywords())
        self._evaluated.append(Captured(module, call, site_of(place_here(2)), autocast_here(call), copied(call), around=without_history(2)))
        self._flags[id(module)] = [(m, m.training) for m in module.modules()]
        norm = next((m for m in module.modules() if isinstance(m, BATCH_NORMS) and m.training and m.num_batches_tracked is not None), None)
        if norm is not None:
            self._tracked[id(module)] = (norm.num_batches_tracked, int(norm.num_batches_tracked))

    @harmless
    def _leave(self, module: nn.Module, inputs: typing.Any, output: typing.Any) -> None:
        if self._trace is None:
            return
        for one in self._evaluated:
            if one.model is module and one.output is None:
                one.output = {key for _, t in output_leaves(output) if (key := self._trace.known_key(t)) is not None}
                one.live = one.copy or Call(module, (), {})

    def _judge(self, given: typing.Iterable[int] = ()) -> bool:
        """`given`: what one of the models is called with now."""
        assert self._trace is not None
        if self._trace.truncated:
            return True
        for one in self._evaluated:
            if one.output and not any(one is seen for seen, _, _ in self._comparisons):
                op = comparison(self._trace, one.output, set(given))
                if op is not None:
                    self._comparisons.append((one, op, self._trace.site(op)))
        return bool(self._comparisons)

    def _look(self) -> None:
        """The end of the traced evaluation: was its result compared with anything?"""
        if self._trace is None:
            return
        trace = self._trace
        self._judge()
        self._trace = None
        trace.most = 0
        take_out(trace)
        self._looked = bool(self._comparisons)
        if not self._looked:
            self._evaluated.clear()

    # -- the end ----------------------------------------------------------------------------------

    def turned(self) -> list[tuple[int, ModeFact]]:
        """Models whose training went on in eval mode."""
        return [(key, dataclasses.replace(fact, steps=self._count[key])) for key, fact in self._turned.items()]

    def evaluations(self) -> list[tuple[int, ModeFact]]:
        """Models that were evaluated in train mode, where eval mode gives another result."""
        found = []
        for one, op, site in self._comparisons:
            if one.copy is None or one in self._sampled:
                continue
            gap, name = self._difference(one)
            if gap > 0:
                tracked = self._tracked.get(id(one.model))
                updated = tracked is not None and int(tracked[0]) > tracked[1]
                modules = tuple(self._dependent[id(one.model)][:4])
                found.append((
                    id(one.model),
                    ModeFact("train-in-evaluation", modules, one.site, gap, op.name, metric=site, updated=updated, output=name, around=one.around, numbers=bool(op.ins) and op.ins[0].dtype.is_floating_point),
                ))  # fmt: skip
        return found

    def _difference(self, one: Captured) -> tuple[float, str]:
        runner = Runner(one.model, one.autocast)
        was = [(m, m.training) for m in one.model.modules()]
        assert one.copy is not None
        try:
            for module, training in self._flags[id(one.model)]:
                module.training = training
            first = runner.run(one.copy.args, one.copy.kwargs)
            second = runner.run(one.copy.args, one.copy.kwargs, mode="eval")
        finally:
            for module, training in was:
                module.training = training
        for (name, a), (_, b) in zip(output_leaves(first), output_leaves(second), strict=False):
            if a.shape == b.shape and a.is_floating_point():
                flags, _ = moved_flags(a, b)
                if flags.any():
                    return distance(a, b, flags), name
        return 0.0, ""

"""What was seen of the first training step of a running program, read while its tensors are still there: `StepReading`."""

from __future__ import annotations

import dataclasses
import typing
import weakref

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from torchsleuth.auditor.gradients.backward import BackwardWatch
from torchsleuth.auditor.gradients.gradients import is_lone_bias, optimizer_facts
from torchsleuth.auditor.gradients.looseleaves import LooseLeaf, loose_leaves
from torchsleuth.auditor.gradients.silent import SilentCalls
from torchsleuth.auditor.gradients.symmetry import equal_units, filled_below_zero, filled_with_zeros
from torchsleuth.auditor.inputs.padded import known_padding
from torchsleuth.auditor.inputs.paddedbyuse import padded_labels
from torchsleuth.auditor.inputs.preflight import equal_samples, traced_facts
from torchsleuth.auditor.inputs.turnedmasks import transposed_masks
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import ModeFact, NoUpdate, ScaledGradient, Unclipped, Vanish
from torchsleuth.auditor.operations.repeated import returned_twice
from torchsleuth.auditor.program.captured import Captured, called_name, mode_dependent, path_of, renamed
from torchsleuth.auditor.program.clearing import ClearingNotes
from torchsleuth.auditor.program.everystep import EveryStep
from torchsleuth.auditor.program.later import ModeNotes
from torchsleuth.auditor.program.optimizers import OptimizerWatch, parameters_of
from torchsleuth.auditor.program.scaling import never_scaled, scaled
from torchsleuth.auditor.program.storedchanged import changed_where_stored
from torchsleuth.auditor.program.undone import undone
from torchsleuth.auditor.tracing.owners import built
from torchsleuth.auditor.tracing.sites import Place
from torchsleuth.auditor.tracing.stepview import StepView
from torchsleuth.auditor.tracing.trace import Trace

# Flat where what they are given lies beyond a margin: a loss that is zero there is at its least.
_MARGINS = {"triplet_margin_loss", "triplet_margin_with_distance_loss", "margin_ranking_loss", "hinge_embedding_loss", "cosine_embedding_loss", "multi_margin_loss",
            "multilabel_margin_loss", "relu", "clamp", "clamp_min", "clip", "maximum", "max"}  # fmt: skip


class StepReading:
    """The state that the watch fills in, and the facts that it adds up to."""

    def __init__(self) -> None:
        self.view = StepView()
        self.captured: list[Captured] = []
        self._backward = BackwardWatch(self.view.trace)
        self._optimizers = OptimizerWatch()
        self._optimizers.every = EveryStep(self._optimizers)
        self._modes = ModeNotes()
        self._clearing = ClearingNotes()
        self._scaler: weakref.ref | None = None  # of the loss
        self._scaled: ScaledGradient | None = None
        self._unclipped: Unclipped | None = None
        self._scaled_at: Site | None = None
        self._cleared: Site | None = None  # since the last backward pass
        self._silent = SilentCalls(self.view)
        self._loss: torch.Tensor | None = None
        self._loss_seen = False
        self._more: list[torch.Tensor] = []  # losses whose backward passes add to the same gradients
        self._backward_at: int | None = None
        self._asked: tuple[torch.Tensor, int] | None = None  # a loss whose gradients `torch.autograd.grad` gave, and when
        self._states: dict[int, str] = {}
        self._zero_starts: set[int] = set()  # models of which some layer was all zeros at the first backward pass: the step may have changed that
        self._keys: dict[int, dict[str, int]] = {}
        self._outermost: list[tuple[int, weakref.ref, Place]] = []  # calls of modules: before which operation, which one, and from where
        self._optimizer: Optimizer | None = None
        self._loose_leaves: list[LooseLeaf] = []

    def _facts(self, one: Captured) -> dict[str, typing.Any]:
        one.dependent = mode_dependent(one.model, self.view.trace.ops[one.inside])
        states = self._states_of(one)
        optimizer = self._optimizer
        optimized = {id(p) for p in parameters_of(optimizer)} if optimizer is not None else None
        elsewhere, step = self._elsewhere(one), self._step
        # Called with other tensors in their place (`functional_call`), the model's own are known by what those were made of.
        trace, keys = self.view.trace, self._keys[id(one.model)]
        keys.update((name, key) for name, p in one.model.named_parameters() if keys.get(name) not in trace.parameters and (key := trace.known_key(p)) is not None)
        fields = self.view.facts(one.model, one.output, self._loss, states, keys, optimized, one.live.batch_size, one.inside, elsewhere | (optimized or set()), step, beside=self._more)
        paddings, _ = known_padding(one.live)
        losses, extra = self.view.losses(paddings, padded_labels(one.live), one.live.batch_size)
        fields["losses"] = losses
        if one is max(self.captured, key=lambda c: c.size):
            self._loose_leaves = self._look_for_loose_leaves()
        ends = {key for tensor in (*(leaf.tensor for leaf in one.live.leaves), self._loss, *self._more) if tensor is not None and (key := trace.known_key(tensor)) is not None}
        fields["inputs"] = (*self.view.watch.inputs, *extra, *traced_facts(one.live, trace), *(() if one.begins else equal_samples(one.live, trace, self.view.watch.asked())), *transposed_masks(one.live, trace, self.view.watch.hidden), *self.view.integers.facts(ends), *changed_where_stored(trace, ends))
        fields["aliases"] += tuple(returned_twice(one.model, one.output, one.live, any(unused.how == "dropped" for unused in fields.get("unused", ()))))
        if optimizer is not None:
            fields.update(self._optimizer_fields(one, states))
        elif not self._loss_seen:
            fields["no_update"] = self._optimizers.no_update
        if states:
            one.versions = {name: p._version for name, p in one.model.named_parameters() if states.get(name) == "none"}
            fields["vanished"] = tuple(self._vanished(one.model, states))
            one.begun = {n: p.detach().clone() for n, p in one.model.named_parameters() for fact in fields["vanished"] if fact.steps and n in (*fact.weights, *fact.zeros)}
            if self._margins_kept(fields["vanished"]):
                fields["vanished"] = ()
                if (idle := fields.get("no_update")) is not None and idle.reason == "zero-gradient":
                    fields["no_update"] = None
            fields["equal_units"] = tuple(equal_units(one.model, self.view.trace, self._step.start))
            fields["cuts"] = (*fields.get("cuts", ()), *self._backward.refusals(one.model, states, optimized))
        return renamed(fields, called_name(one.site)) if len(self.captured) > 1 else fields

    def _inside_models(self) -> tuple[set[int], set[int]]:
        """What modules were given in the step, by its numbers in the trace; and what belongs to them, attributes that are plain tensors included."""
        trace = self.view.trace
        called = [*(one.model for one in self.captured), *(m for _, ref, _ in self._outermost if (m := ref()) is not None)]
        parts = [part for module in called for part in module.modules()]
        own = {id(value) for part in parts for value in (*vars(part).values(), *part._parameters.values(), *part._buffers.values()) if isinstance(value, torch.Tensor)}
        given = {key for one in self.captured for leaf in one.live.leaves if (key := trace.known_key(leaf.tensor)) is not None}
        layers = {op.ins[0].key for op in trace.ops if len(op.ins) > 1 and any(seen.key in trace.parameters for seen in op.ins[1:])}
        return given | layers, own | {id(leaf.tensor) for one in self.captured for leaf in one.live.leaves}

    def _look_for_loose_leaves(self) -> list[LooseLeaf]:
        """In the models, and in modules beside them that the step called: a loss with weights of its own."""
        called = [*(one.model for one in self.captured), *(m for _, ref, _ in self._outermost if (m := ref()) is not None)]
        held = {id(p) for optimizer in self._optimizers.known for p in parameters_of(optimizer)} | {id(leaf.tensor) for one in self.captured for leaf in one.live.leaves}
        loss = self.view.trace.known_key(self._loss) if self._loss is not None else None
        return loose_leaves((part for module in called for part in module.modules()), self.view.trace, loss, held)

    def _trains_something(self, optimizer: Optimizer) -> bool:
        """If none of what it holds got a gradient, it was given the wrong model: what it holds is not meant to be trained."""
        return any(self._states.get(id(p)) == "ok" for p in parameters_of(optimizer)) or "ok" not in self._states.values()

    @property
    def _step(self) -> slice:
        return slice(min(one.inside.start for one in self.captured), self._backward_at)

    def _states_of(self, one: Captured) -> dict[str, str] | None:
        return {name: self._states.get(id(p), "unknown") for name, p in one.model.named_parameters()} if self._loss_seen else None

    def _elsewhere(self, one: Captured) -> set[int]:
        """Parameters that another optimizer holds, or another model."""
        others = {id(p) for other in self.captured if other is not one for p in other.model.parameters()}
        return self._optimizers.elsewhere(self._optimizer) | others

    def _optimizer_fields(self, one: Captured, states: dict[str, str] | None) -> dict[str, typing.Any]:
        """What the optimizer that took the step holds and did."""
        optimizer, trace = self._optimizer, self.view.trace
        assert optimizer is not None
        taken = {seen.key for op in trace.ops[self._step] for seen in op.ins}
        used = {id(p) for key, ref in trace.parameters.items() if key in taken and (p := ref()) is not None}
        called = {id(m): m for _, ref, _ in self._outermost if (m := ref()) is not None}
        used |= {id(p) for module in called.values() for p in module.parameters()} | self._optimizers.elsewhere(optimizer)
        rebound = {f"{path_of(one.model, module)}{name}": site for module, name, site in self._optimizers.rebound}
        facts = optimizer_facts(one.model, optimizer, states, self._optimizers.built.get(id(optimizer)), rebound, self._elsewhere(one), used, self._optimizers.added(one.model))
        if self._fixed(one):
            facts = []
        held, named = {id(p) for p in parameters_of(optimizer)}, dict(one.model.named_parameters())
        if any(self._states.get(key) == "ok" for key in held):
            held = set()  # what it holds is trained; a copy of that which has a gradient, too, is a teacher
            facts = [dataclasses.replace(f, kind="missing") if f.kind == "foreign" else f for f in facts]
        duplicate = self._optimizers.duplicate_site(parameters_of(optimizer), {id(p) for p in named.values()}) if held else None
        facts = [dataclasses.replace(f, copied=self._optimizers.copy_site(named[f.weights[0]], held), duplicate=duplicate) for f in facts]
        if (len(called) > 1 or any(f.kind == "foreign" for f in facts)) and (name := called_name(one.site)):
            facts = [dataclasses.replace(f, weights=tuple(f"{name}.{w}" for w in f.weights)) for f in facts]
        fields: dict[str, typing.Any] = {"optimizer": tuple(facts), "no_update": self._idle_because(one), "scaled": self._scaled, "unclipped": self._unclipped}
        if not one.training and not one.model.training and one.dependent and not self._fixed(one):
            changed, held_by = self._modes.site(one.model, False), {id(p) for p in parameters_of(optimizer)}
            beside = any(other is not one and other.training and any(id(p) in held_by for p in other.model.parameters()) for other in self.captured)
            fields["modes"] = (ModeFact("eval-in-training", tuple(one.dependent[:4]), one.site, changed=changed, beside=beside, held=self._optimizers.built.get(id(optimizer)) if beside else None),)
        elif one.training and (fact := undone(one.model, self._modes)) is not None:
            fields["modes"] = (fact,)
        return fields

    def _idle_because(self, one: Captured) -> NoUpdate | None:
        """A step that changed nothing; with the parameters of one module that are zero together, and so give each other gradients of zero."""
        fact = self._optimizers.no_update
        if fact is None or fact.reason != "zero-gradient":
            return fact
        for module in one.model.modules():
            zeros = [name for name, p in module._parameters.items() if p is not None and p.requires_grad and "bias" not in name and not p.detach().any()]
            made = tuple((name, site) for name in zeros if (site := built(module, name)) is not None)
            if len(made) > 1:
                return dataclasses.replace(fact, zeros=made)
        return fact

    def _note_scale(self, optimizer: Optimizer, trace: Trace) -> None:
        """Before the first step."""
        scaler = self._scaler() if self._scaler is not None else None
        self._scaled = scaled(scaler, optimizer, trace, self._scaled_at) if scaler is not None else None
        self._scaled = self._scaled or never_scaled(optimizer, trace, [loss for loss in (self._loss, *self._more) if loss is not None])

    def _fixed(self, one: Captured) -> bool:
        """No optimizer holds any of it, and the program has put it in eval mode or runs it without gradients, too: features to compare, not to train.

        What is trained instead is another model, or tensors of the program's own: a picture, a latent code, a prompt.
        """
        held = {id(p) for optimizer in self._optimizers.known for p in parameters_of(optimizer)}
        if any(id(p) in held for p in one.model.parameters()):
            return False
        if len(self.captured) < 2 and not any(self._states.get(key) == "ok" for key in held):
            return False
        still = not any(m.training for m in one.model.modules() if m._parameters)
        return still or any(silent.model is one.model for silent in self._silent.calls)

    def _margins_kept(self, vanished: tuple[Vanish, ...]) -> bool:
        """A loss of zero, and flat there: nothing is left to learn from this batch."""
        if self._loss is None or not vanished or bool(self._loss.detach().any()):
            return False
        return all(fact.kind == "zero" and not fact.of_nothing and fact.operation in _MARGINS for fact in vanished)

    def _vanished(self, model: nn.Module, states: dict[str, str]) -> list[Vanish]:
        """NaN, unless a gradient scaler is at work (its first steps overflow by design); zero, which later steps have to confirm where a layer starts at zero."""
        wanted = {n: s for n, s in states.items() if s == "nan" or (s == "zero" and not is_lone_bias(n, states))}
        if "nan" in wanted.values() and self._scaler is not None:
            wanted = {n: s for n, s in wanted.items() if s != "nan"}
        found = self._backward.vanished(wanted, self._keys[id(model)], model) if wanted else []
        found = [dataclasses.replace(f, filled=f.filled or filled_below_zero(f, model, self.view.trace, self._step.start)) for f in found]
        if id(model) in self._zero_starts:
            found = [dataclasses.replace(f, steps=-1, filled=f.filled or filled_with_zeros(f, model, self.view.trace, self._step.start)) if f.kind == "zero" else f for f in found if f.kind != "zero" or f.site is not None]
        return found

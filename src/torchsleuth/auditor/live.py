"""The first training step of a running program, watched from outside: `StepWatch`.

From `start()` on it traces torch calls, and notes the outermost module call with its inputs, the tensor
that `backward()` is called on, the gradients after it and the optimizer that takes the first step. After
that step it takes itself off, but for a look at each later step (`later.LaterWatch`). `finish()` makes the
experiments, on copies of the inputs of that step, when the program has ended and can no longer be influenced.
"""

from __future__ import annotations

import dataclasses
import gc
import threading
import typing
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from torchsleuth.auditor.backward import BackwardWatch
from torchsleuth.auditor.batch import Call
from torchsleuth.auditor.calling import autocast_here
from torchsleuth.auditor.captured import Captured, called_name, copied, keywords, mode_dependent, path_of
from torchsleuth.auditor.compiling import CompileWatch
from torchsleuth.auditor.ending import Ending, Parts, first_line
from torchsleuth.auditor.gradients import grad_states, is_lone_bias, optimizer_facts
from torchsleuth.auditor.judge import findings
from torchsleuth.auditor.later import LaterWatch, ModeNotes
from torchsleuth.auditor.modestack import enter_below, harmless, take_out, unseen
from torchsleuth.auditor.observation import ModeFact, Observation, Vanish
from torchsleuth.auditor.optimizers import OptimizerWatch, parameters_of
from torchsleuth.auditor.preflight import traced_facts
from torchsleuth.auditor.runner import unwrapped
from torchsleuth.auditor.session import BUDGET_SECONDS
from torchsleuth.auditor.silent import SilentCalls
from torchsleuth.auditor.sites import place_here, site_of
from torchsleuth.auditor.stepview import StepView, padded, parameter_keys
from torchsleuth.auditor.trace import Op

MOST_BEFORE_STEP = 50_000  # calls kept from before the first training step


@dataclass
class StepWatch:
    """`start()`, run the program, `finish()`."""

    budget_s: float = BUDGET_SECONDS
    overfit: bool = False  # kept for symmetry with `audit`: a running program's loss cannot be repeated
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.view = StepView()
        self._backward = BackwardWatch(self.view.trace)
        self._optimizers = OptimizerWatch()
        self._modes = ModeNotes()
        self._compiling = CompileWatch(self._compiles, self._compiled_call)
        self._later: LaterWatch | None = None
        self.captured: list[Captured] = []
        self._silent = SilentCalls(self.view)
        self._silent_found: list[Observation] = []
        self.fields: dict[int, dict[str, typing.Any]] = {}
        self._handles: list[typing.Any] = []
        self._step_handles: list[typing.Any] = []
        self._depth = 0
        self._home = 0
        self._on = self._done = self._compiled = False
        self._loss: torch.Tensor | None = None
        self._loss_seen = False
        self._backward_at: int | None = None
        self._states: dict[int, str] = {}
        self._keys: dict[int, dict[str, int]] = {}
        self._optimizer: Optimizer | None = None
        self._awaited = False  # the facts were read before any optimizer took a step
        self._loose: Observation | None = None  # a step without any module

    # -- on and off -----------------------------------------------------------------------------

    def start(self) -> None:
        self._home = threading.get_ident()
        self._on = True
        trace = self.view.trace
        trace.carried = True
        trace.watchers.setdefault("backward", []).append(self._after_backward)
        trace.early.setdefault("backward", []).append(self._before_backward)
        add = self._handles.append
        add(hooks.register_module_forward_pre_hook(self._enter))
        add(hooks.register_module_forward_hook(self._leave, always_call=True))
        add(hooks.register_module_parameter_registration_hook(self._registered))
        add(hooks.register_module_module_registration_hook(self._registered))
        self._step_handles = [register_optimizer_step_pre_hook(self._before_step), register_optimizer_step_post_hook(self._after_step)]
        self._optimizers.start()
        self._modes.start()
        self._compiling.start()
        enter_below(trace)

    def _release(self) -> None:
        """The first step is over: take off all that watches it."""
        if not self._on:
            return
        self._on = False
        self._remove_hooks()
        self._compiling.release()
        self._optimizers.stop()
        self.view.trace.most = 0
        self._take_off()

    def stop(self) -> None:
        """Take off everything."""
        self._release()
        self._take_off()
        for handle in self._step_handles:
            handle.remove()
        self._step_handles.clear()
        self._modes.stop()
        self._compiling.stop()
        if self._later is not None:
            self._later.stop()

    def abandon(self) -> None:
        """The program died: take everything off and let go of what was captured."""
        self.stop()
        self.captured.clear()
        self._loss = None

    def failed(self, error: Exception) -> None:
        """Something here went wrong: the program is not to suffer from it."""
        self.notes.append(f"the watch was given up: {type(error).__name__}: {first_line(error)}")
        self._done = True
        self.stop()

    def _remove_hooks(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _take_off(self) -> None:
        if threading.get_ident() == self._home:
            take_out(self.view.trace)

    def _here(self) -> bool:
        return self._on and threading.get_ident() == self._home

    # -- what the program does --------------------------------------------------------------------

    @harmless
    def _registered(self, module: nn.Module, name: str, value: typing.Any) -> None:
        if self._here():
            self._optimizers.registered(module, name, value)

    @harmless
    def _enter(self, module: nn.Module, inputs: typing.Any) -> None:
        if not self._here():
            return
        self._depth += 1
        if self._depth == 1:
            self._called(module, inputs)

    def _called(self, module: nn.Module, inputs: typing.Any, named: dict[str, typing.Any] | None = None) -> None:
        if self._done:
            return
        if not torch.is_grad_enabled():
            self._silent.note(module)
        elif self._loss_seen and self._optimizer is None:
            self._conclude()  # a second forward pass after a backward: gradients are collected, or there is no optimizer
            unseen(self._optimizers.look_for_rebinding)(self.view.trace, self._backward_at)
            self._awaited = True
        elif any(p.requires_grad for p in module.parameters()):
            self._capture(module, inputs, named)

    @harmless
    def _compiles(self, whole_model: bool) -> None:
        """The program compiles something, and the compiler must not see the trace; nor the hooks, where modules are compiled."""
        if not self._here():
            return
        if not self._compiled:
            self._compiled = True
            self.notes.append("the program compiles its code; the step was not traced, the experiments run it uncompiled")
        self.view.trace.most = 0
        self._take_off()
        if whole_model:
            self._remove_hooks()

    @harmless
    def _compiled_call(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        if self._here():
            self._called(module, args, kwargs)

    @unseen
    def _capture(self, module: nn.Module, inputs: typing.Any, named: dict[str, typing.Any] | None) -> None:
        inner, taken = unwrapped(module)
        if taken and taken != "torch.compile":
            self.notes.append(f"the model was audited without its wrapper ({taken})")
        trace = self.view.trace
        if not self.captured and len(trace.ops) > MOST_BEFORE_STEP:
            trace.ops.clear()
            trace.producer.clear()
        if any(inner is part for c in self.captured for part in c.model.modules()):
            return  # the same again, or a part of it, as a checkpoint calls it during the backward pass
        call = Call(inner, tuple(inputs), keywords() if named is None else named)
        self._keys[id(inner)] = parameter_keys(trace, inner)
        self.captured.append(
            Captured(
                inner, call, site_of(place_here(2)), autocast_here(call), copied(call), training=module.training, inside=slice(len(trace.ops), None)
            )
        )
        trace.type_names = {name: type(m).__name__ for name, m in inner.named_modules()}

    @harmless
    def _leave(self, module: nn.Module, inputs: typing.Any, output: typing.Any) -> None:
        if not self._here():
            return
        self._depth = max(0, self._depth - 1)
        if self._depth == 0 and not self._done:
            for one in self.captured:
                if one.output is None and (one.model is module or unwrapped(module)[0] is one.model):
                    one.output = output
                    one.inside = slice(one.inside.start, len(self.view.trace.ops))

    @harmless
    def _before_backward(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        if self._here() and not self._loss_seen and args and isinstance(args[0], torch.Tensor):
            self._loss = args[0]
            self._backward_at = op.index
            self._backward.attach(self._loss)

    @harmless
    def _after_backward(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        if not self._here() or self._done or self._loss is None:
            return
        self._backward.detach()
        self._backward_passed()

    @unseen
    def _backward_passed(self) -> None:
        self._loss_seen = True
        for one in self.captured:
            parameters = list(one.model.parameters())
            self._states.update(zip(map(id, parameters), grad_states(p.grad for p in parameters), strict=True))
        self._optimizers.first_backward([p for one in self.captured for p in one.model.parameters() if self._states[id(p)] == "ok"])

    @harmless
    def _before_step(self, optimizer: Optimizer, args: typing.Any, kwargs: typing.Any) -> None:
        if threading.get_ident() != self._home:
            return
        self._optimizers.stepped.add(optimizer)
        if self._later is not None:
            if self._awaited:
                self._optimizer = optimizer
                unseen(self._optimizers.before)(optimizer)
            self._later.before_step(optimizer)
            return
        if not self._on or self._done:
            return
        if not self._loss_seen and self.captured:
            if any(p.grad is not None for p in parameters_of(optimizer)):
                self._backward_passed()  # by `torch.autograd.backward`, which no trace sees, or set by hand
            elif not any(map(callable, (*args[1:], *kwargs.values()))):  # a closure would call backward itself
                self._optimizers.idle(optimizer)
        if self._loss_seen:
            self._optimizer = optimizer
            unseen(self._optimizers.before)(optimizer)

    @harmless
    def _after_step(self, optimizer: Optimizer, args: typing.Any, kwargs: typing.Any) -> None:
        if threading.get_ident() != self._home:
            return
        if self._later is not None:
            if self._awaited and optimizer is self._optimizer:
                self._awaited = False
                unseen(self._optimizers.after)(optimizer, self._states)
                for one in self.captured:
                    self.fields.setdefault(id(one.model), {}).update(self._optimizer_fields(one, self._states_of(one)))
            self._later.after_step(optimizer)
        elif self._on and not self._done and optimizer is self._optimizer:
            unseen(self._optimizers.after)(optimizer, self._states)
            self._conclude()

    # -- the step is over -------------------------------------------------------------------------

    @unseen
    def _conclude(self) -> None:
        """Read the facts of the step while its tensors are there, then let the program go on alone."""
        if self._done:
            return
        self._done = True
        trace = self.view.trace
        trace.most = 0
        try:
            for one in self.captured:
                self.fields[id(one.model)] = self._facts(one)
            if self._loss_seen and self._optimizer is not None and self._trains_something(self._optimizer):
                self._silent_found = self._silent.observations({id(p) for p in parameters_of(self._optimizer)}, self._loss, self.captured)
            if not self.captured:
                fields = self.view.facts(nn.Module(), None, self._loss, None, {}, None, None, slice(0, 0), (), slice(0, 0))
                fields["losses"], _ = self.view.losses([])
                self._loose = Observation("the program", self._optimizers.step_site, no_update=self._optimizers.no_update, **fields)
        except Exception as error:
            for one in self.captured:  # what was seen before does not need the tensors
                self.fields.setdefault(id(one.model), {"inputs": tuple(self.view.watch.inputs)})
            self.notes.append(f"the first step could not be read: {type(error).__name__}: {first_line(error)}")
        finally:
            for one in self.captured:
                one.output = None
                one.live = one.copy or one.live
            self._loss = None
            self._release()
            if self.captured:
                self._later = LaterWatch(self.captured, self._optimizer, self._modes)
                self._later.start(modules=not self._compiled)

    def _facts(self, one: Captured) -> dict[str, typing.Any]:
        one.dependent = mode_dependent(one.model, self.view.trace.ops[one.inside])
        states = self._states_of(one)
        optimizer = self._optimizer
        optimized = {id(p) for p in parameters_of(optimizer)} if optimizer is not None else None
        elsewhere, step = self._elsewhere(one), self._step
        fields = self.view.facts(one.model, one.output, self._loss, states, self._keys[id(one.model)], optimized, one.live.batch_size, one.inside, elsewhere | (optimized or set()), step)
        paddings, _ = padded(one.live)
        losses, extra = self.view.losses(paddings)
        fields["losses"] = losses
        fields["inputs"] = (*self.view.watch.inputs, *extra, *traced_facts(one.live, self.view.trace))
        if optimizer is not None:
            fields.update(self._optimizer_fields(one, states))
        elif not self._loss_seen:
            fields["no_update"] = self._optimizers.no_update
        if states:
            fields["vanished"] = tuple(self._vanished(one.model, states))
        return fields

    def _trains_something(self, optimizer: Optimizer) -> bool:
        """If none of what it holds got a gradient, it was given the wrong model: what it holds is not meant to be trained."""
        return any(self._states.get(id(p)) == "ok" for p in parameters_of(optimizer)) or "ok" not in self._states.values()

    @property
    def _step(self) -> slice:
        return slice(self.captured[0].inside.start, self._backward_at)

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
        rebound = {f"{path_of(one.model, module)}{name}": site for module, name, site in self._optimizers.rebound}
        facts = optimizer_facts(one.model, optimizer, states, self._optimizers.built.get(id(optimizer)), rebound, self._elsewhere(one), used)
        if len(self.captured) > 1 and (name := called_name(one.site)):
            facts = [dataclasses.replace(f, weights=tuple(f"{name}.{w}" for w in f.weights)) for f in facts]
        fields: dict[str, typing.Any] = {"optimizer": tuple(facts), "no_update": self._optimizers.no_update}
        if not one.training and one.dependent:
            changed = self._modes.site(one.model, False)
            fields["modes"] = (ModeFact("eval-in-training", tuple(one.dependent[:4]), one.site, changed=changed),)
        return fields

    def _vanished(self, model: nn.Module, states: dict[str, str]) -> list[Vanish]:
        """NaN, unless a gradient scaler is at work (its first steps overflow by design); zero, unless a layer starts at zero."""
        zero_start = any(not p.detach().any() for n, p in model.named_parameters() if "bias" not in n)
        wanted = {}
        for name, state in states.items():
            if state == "nan" or (state == "zero" and not zero_start and not is_lone_bias(name, states)):
                wanted[name] = state
        if "nan" in wanted.values() and _scaled():
            wanted = {n: s for n, s in wanted.items() if s != "nan"}
        return self._backward.vanished(wanted, self._keys[id(model)]) if wanted else []

    def finish(self) -> Parts:
        """The experiments on the captured call, judged together with what the steps showed."""
        if not self._done and self._on and (self.captured or self._loss_seen):
            self._conclude()
        self.stop()
        if not self.captured and self._loose is not None:
            return Parts(findings(self._loose), tuple(self.notes), (self._loose,))
        if not self.captured:
            return Parts(notes=(*self.notes, "no training step was seen: no module with trainable parameters was called with gradients on"))
        ending = Ending(self.view, self.captured, self.fields, self._optimizers, self._later, self.budget_s)
        ending.look_for_idleness(never=self._awaited)
        return ending.parts(self._silent_found, list(self.notes))


def _scaled() -> bool:
    """Is a gradient scaler at work? Its first steps overflow by design and are skipped."""
    return any(type(o).__name__ == "GradScaler" and o.is_enabled() for o in gc.get_objects() if type(o).__name__ == "GradScaler")

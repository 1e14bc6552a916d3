"""The first training step of a running program, watched from outside: `StepWatch`.

From `start()` on it traces torch calls, and notes the outermost module call with its inputs, the tensor
that `backward()` is called on, the gradients after it and the optimizer that takes the first step. After
that step it takes itself off, but for a look at each later step (`later.LaterWatch`). `finish()` makes the
experiments, on copies of the inputs of that step, when the program has ended and can no longer be influenced.
"""

from __future__ import annotations

import dataclasses
import threading
import typing
import weakref
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.optim.optimizer import Optimizer

from torchsleuth.auditor.gradients.backward import leaves_below, variables_below
from torchsleuth.auditor.gradients.gradients import grad_states, starts_at_zero
from torchsleuth.auditor.gradients.heldalone import HeldAlone
from torchsleuth.auditor.gradients.leaves import LeafNotes
from torchsleuth.auditor.inputs.batch import Call
from torchsleuth.auditor.inputs.calling import autocast_here
from torchsleuth.auditor.judge import across, findings
from torchsleuth.auditor.laboratory.runner import unwrapped
from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.program.alternating import OtherSteps
from torchsleuth.auditor.program.byhand import HandSteps
from torchsleuth.auditor.program.captured import Captured, behind_the_loss, called_name, copied, keywords, note_again
from torchsleuth.auditor.program.clearing import Holder
from torchsleuth.auditor.program.ending import Ending, Parts, first_line, joined
from torchsleuth.auditor.program.frozenatrandom import Exchanges
from torchsleuth.auditor.program.inturn import InTurn
from torchsleuth.auditor.program.later import LaterWatch
from torchsleuth.auditor.program.optimizers import parameters_of
from torchsleuth.auditor.program.outside import OutsideLeaves
from torchsleuth.auditor.program.rates import RateWatch
from torchsleuth.auditor.program.reading import StepReading
from torchsleuth.auditor.program.scaling import scaler_of
from torchsleuth.auditor.program.selfaverage import AverageWatch
from torchsleuth.auditor.program.states import StateNotes
from torchsleuth.auditor.program.stephooks import StepHook
from torchsleuth.auditor.program.thawing import ThawWatch
from torchsleuth.auditor.tracing.compiling import CompileWatch
from torchsleuth.auditor.tracing.modestack import enter_below, harmless, take_out, transformed, unseen
from torchsleuth.auditor.tracing.sites import place_here, site_of
from torchsleuth.auditor.tracing.stepview import parameter_keys
from torchsleuth.auditor.tracing.trace import Op, Trace, tensors_in
from torchsleuth.options import DEFAULT_BUDGET_SECONDS

MOST_BEFORE_STEP = 50_000  # calls kept from before the first training step
MOST_CALLS = 1000  # of one model before its first backward pass that are looked at
MOST_OUTERMOST = 256  # calls of modules in the first step whose places are kept


@dataclass
class StepWatch(StepReading):
    """`start()`, run the program, `finish()`."""

    budget_s: float = DEFAULT_BUDGET_SECONDS
    notes: list[str] = field(default_factory=list)
    further: bool = False  # one more, for a model that is trained after the first one

    def __post_init__(self) -> None:
        StepReading.__init__(self)
        self._compiling = CompileWatch(self._compiles, self._compiled_call)
        self._later: LaterWatch | None = None
        self._others: OtherSteps | None = None
        self._averages: AverageWatch | None = None
        self._thaw: ThawWatch | None = None
        self._rates = RateWatch(self._optimizers)
        self._states_loaded = StateNotes()
        self._leaves = LeafNotes()
        self._outside = OutsideLeaves()
        self._alone = HeldAlone()
        self._exchanges = Exchanges()
        self._by_hand = HandSteps()
        self._in_turn = InTurn(self._begun_for)
        self._silent_found: list[Observation] = []
        self.fields: dict[int, dict[str, typing.Any]] = {}
        self._handles: list[typing.Any] = []
        self._step_handles: list[typing.Any] = []
        self._lasting: list[typing.Any] = []
        self._depth = 0
        self._home = 0
        self._on = self._done = self._compiled = self._compiler_seen = False  # compiled: this step's code; seen: at any time
        self._awaited = False  # the facts were read before any optimizer took a step
        self._loose: Observation | None = None  # a step without any module
        self._other_thread = False  # another thread has called a model with gradients on

    # -- on and off -----------------------------------------------------------------------------

    def start(self) -> None:
        self._home = threading.get_ident()
        self._on = True
        trace = self.view.trace
        trace.carried = True
        trace.watchers.setdefault("backward", []).append(self._after_backward)
        trace.early.setdefault("backward", []).append(self._before_backward)
        trace.early.setdefault("grad", []).append(self._before_grad)
        trace.watchers.setdefault("grad", []).append(self._after_grad)
        add = self._handles.append
        add(hooks.register_module_forward_pre_hook(self._enter))
        add(hooks.register_module_forward_hook(self._leave, always_call=True))
        self._lasting = [hooks.register_module_parameter_registration_hook(self._registered), hooks.register_module_module_registration_hook(self._registered)]
        self._step_handles = [StepHook(self._before_step, self._after_step)]
        self._optimizers.start()
        if not self.further:
            self._optimizers.listeners.append(self._built)
        self._modes.start()
        if not self.further:
            self._states_loaded.start()
        self._clearing.start()
        self._clearing.listeners.append(self._clears)
        self._compiling.start()
        enter_below(trace)

    def _release(self) -> None:
        """The first step is over: take off all that watches it."""
        if not self._on:
            return
        self._on = False
        self._remove_hooks()
        self._compiling.release()
        self._optimizers.first_over()
        self.view.trace.most = 0
        self._take_off()

    def stop(self) -> None:
        """Take off everything; those first that were put on last."""
        for watch in reversed(self._in_turn.watches):
            watch.settle()
        self._release()
        self._take_off()
        for handle in (*self._step_handles, *self._lasting):
            handle.remove()
        self._step_handles.clear()
        self._lasting.clear()
        self._optimizers.stop()
        self._modes.stop()
        self._states_loaded.stop()
        self._compiling.stop()
        self._clearing.stop()
        for watch in (self._by_hand, self._averages, self._later, self._others):
            if watch is not None:
                watch.stop()

    def abandon(self) -> None:
        """The program died: take everything off and let go of what was captured."""
        for watch in reversed(self._in_turn.watches):
            watch.abandon()
        self.stop()
        self.captured.clear()
        self._outermost.clear()
        self._loss = self._asked = None

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
        if threading.get_ident() == self._home:
            self._optimizers.registered(module, name, value)
            if not self._done:
                self._exchanges.registered(module, name, value)
            if self._on and self._outermost:
                self._leaves.registered(self.view.trace, value)

    @harmless
    def _enter(self, module: nn.Module, inputs: typing.Any) -> None:
        if not self._here():
            self._other_thread = self._other_thread or self._on and torch.is_grad_enabled() and _trains(module)
            return
        self._depth += 1
        if self._depth == 1:
            self._called(module, inputs)

    def _called(self, module: nn.Module, inputs: typing.Any, named: dict[str, typing.Any] | None = None) -> None:
        if self._done or transformed():
            return
        if len(self._outermost) < MOST_OUTERMOST:
            self._outermost.append((len(self.view.trace.ops), weakref.ref(module), place_here(3)))
        if not torch.is_grad_enabled():
            self._silent.note(module)
        elif self._loss_seen and self._optimizer is None:
            self._conclude(module)  # a second forward pass after a backward: gradients are collected, or there is no optimizer
            unseen(self._optimizers.look_for_rebinding)(self.view.trace, self._backward_at)
            self._awaited = True
        elif _trains(module):
            self._capture(module, inputs, named)

    @harmless
    def _compiles(self, whole_model: bool) -> None:
        """The program compiles something, and the compiler must not see the trace; nor the hooks, where modules are compiled."""
        self._compiler_seen = True
        for watch in self._in_turn.watches:
            watch._compiles(whole_model)
        for watch in (self._averages, self._others):
            if watch is not None:
                watch.stop()
        if self._later is not None:
            self._later.take_off_modules()
        if not self._here():
            return
        if not self._compiled:
            self._compiled = True
            self._clearing.stop()
            if not self._loss_seen:
                self.view = self.view.forgotten()
                for one in self.captured:
                    one.inside, one.again = slice(0, 0), []
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
        known = next((c for c in self.captured if any(inner is part for part in c.model.modules())), None)
        if known is not None and (known.model is not inner or self._loss is not None or known.calls >= MOST_CALLS):
            return  # a part of it, or the same again as a checkpoint calls it during the backward pass
        call = Call(inner, tuple(inputs), keywords() if named is None else named)
        one = Captured(inner, call, site_of(place_here(2)), autocast_here(call), copied(call), training=module.training, inside=slice(len(trace.ops), None))
        if one.copy is not None:
            one.copy.numbers = {leaf.path: key for leaf in call.leaves if (key := trace.known_key(leaf.tensor)) is not None}
        if known is not None:
            note_again(known, one)
            return
        self._keys[id(inner)] = parameter_keys(trace, inner)
        self.captured.append(one)
        trace.type_names = {name: type(m).__name__ for name, m in inner.named_modules()}

    @harmless
    def _leave(self, module: nn.Module, inputs: typing.Any, output: typing.Any) -> None:
        if not self._here():
            return
        self._depth = max(0, self._depth - 1)
        if self._depth == 0 and not self._done:
            for one in (call for first in self.captured for call in (first, *first.again)):
                if one.inside.stop is None and (one.model is module or unwrapped(module)[0] is one.model):
                    one.output = output
                    one.inside = slice(one.inside.start, len(self.view.trace.ops))

    @harmless
    def _clears(self, holder: Holder, site: Site | None) -> None:
        if self._loss_seen and (not self._done or self._awaited):
            trained = {id(p) for one in self.captured for p in one.model.parameters() if p.grad is not None}
            held = parameters_of(holder) if isinstance(holder, Optimizer) else list(holder.parameters())
            self._cleared = site if any(id(p) in trained for p in held) else self._cleared

    @harmless
    def _before_backward(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        self._cleared = None
        if self._here() and self._loss_seen and not self._done and args and isinstance(args[0], torch.Tensor):
            self._more.append(args[0])
            if not self.captured and len(self._more) == 1 and args[0].grad_fn is not None:
                unseen(self._optimizers.look_for_rebinding)(self.view.trace, self._backward_at, leaves_below(args[0].grad_fn))
        elif self._here() and not self._loss_seen and args and isinstance(args[0], torch.Tensor):
            if self._asked is not None:  # gradients of another loss were asked for before, and are not what the step uses
                self._asked = None
                self._backward.forget()
            self._loss = args[0]
            self._scaler, self._scaled_at = scaler_of(self.view.trace, args[0]), self.view.trace.site(op)
            self._backward_at = op.index
            self._backward.attach(self._loss)

    @harmless
    def _after_backward(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        if not self._here() or self._done or self._loss is None:
            return
        self._backward.detach()
        self._backward_passed()

    @harmless
    def _before_grad(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        """`torch.autograd.grad(loss, parameters)`: the loss of this step, if nothing but its gradients is there when the optimizer comes."""
        outputs, inputs = [*args, kwargs.get("inputs")][:2] if args else (kwargs.get("outputs"), kwargs.get("inputs"))
        losses, wanted = tensors_in(outputs), {id(tensor) for tensor in tensors_in(inputs)}
        if not self._here() or self._loss_seen or self._done or self._asked is not None or len(losses) != 1 or losses[0].numel() != 1:
            return
        if any(id(p) in wanted for one in self.captured for p in one.model.parameters()):
            self._asked = (losses[0], op.index)
            self._backward.attach(losses[0])

    @harmless
    def _after_grad(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        if self._asked is not None and self._here():
            self._backward.detach()

    def _settle_calls(self) -> None:
        """Of several calls of one model, that which the loss depends on is the one of this step."""
        key = self.view.trace.known_key(self._loss) if self._loss is not None else None
        if key is not None and any(one.again for one in self.captured):
            before = self.view.trace.ancestors({key})
            self.captured = [behind_the_loss(one, self.view.trace, before) for one in self.captured]
        for one in self.captured:
            one.again = []

    @unseen
    def _backward_passed(self) -> None:
        self._loss_seen = True
        self._settle_calls()
        models = (one.model.parameters() for one in self.captured)
        for parameters in map(list, (*models, *map(parameters_of, self._optimizers.known))):
            for key, state in zip(map(id, parameters), grad_states(p.grad for p in parameters), strict=True):
                if state not in ("none", "zero") or self._states.get(key, "none") in ("none", "zero"):
                    self._states[key] = state  # gradients that were kept elsewhere and cleared before the next loss have been there
        if not self.captured:
            variables = variables_below(self._loss.grad_fn) if self._loss is not None and self._loss.grad_fn is not None else []
            if not self._more:
                taught = [p for p in variables if p.grad is not None]
                self._optimizers.first_backward(taught, self.view.trace)
                self._by_hand.start(taught, self._held(), self.view.trace)
            return
        self._zero_starts.update(id(one.model) for one in self.captured if starts_at_zero(one.model))
        trained = [p for one in self.captured for p in one.model.parameters() if self._states[id(p)] == "ok"]
        self._optimizers.first_backward(trained, self.view.trace)
        self._by_hand.start(trained, self._held(), self.view.trace)

    def _held(self) -> set[int]:
        return {id(p) for optimizer in (*self._optimizers.known, *self._optimizers.late) for p in parameters_of(optimizer)}

    @harmless
    def _before_step(self, optimizer: Optimizer, args: typing.Any, kwargs: typing.Any) -> None:
        if threading.get_ident() != self._home:
            return
        self._optimizers.stepped.add(optimizer)
        self._states_loaded.steps += 1
        self._rates.before_step(optimizer)
        self._by_hand.stepped(lambda: parameters_of(optimizer))
        if self._averages is not None:
            self._averages.before_step()
        if self._later is not None:
            if self._awaited:
                self._optimizer = optimizer
                self._about_to_step(optimizer, (self._others or self).view.trace)
            self._later.before_step(optimizer)
            unseen(self._outside.step)(lambda: {id(p) for o in (*self._optimizers.known, *self._optimizers.late) for p in parameters_of(o)})
            for key, fact in self._optimizers.replaced(optimizer, [one.model for one in self.captured], self._later.steps):
                fields = self.fields.setdefault(key, {})
                fields["optimizer"] = (*fields.get("optimizer", ()), *([fact] if not fields.get("optimizer") else []))
            if self._thaw is not None:
                self._thaw.before_step(optimizer, self._later.steps)
            if self._others is not None:
                self._others.before_step(optimizer)
            return
        if not self._on or self._done:
            return
        if not self._loss_seen and self.captured:
            if any(p.grad is not None for p in parameters_of(optimizer)):
                self._loss, self._backward_at = self._asked or (self._loss, self._backward_at)
                self._backward_passed()  # by `torch.autograd.backward`, which no trace sees, or set by hand
            elif not any(map(callable, (*args[1:], *kwargs.values()))):  # a closure would call backward itself
                self._optimizers.idle(optimizer)
        if self._loss_seen:
            self._optimizer = optimizer
            self._about_to_step(optimizer, self.view.trace)

    @unseen
    def _about_to_step(self, optimizer: Optimizer, trace: Trace) -> None:
        self._optimizers.before(optimizer, trace, self._cleared)
        self._note_scale(optimizer, trace)
        self._unclipped = (self._others or self).view.clips.unclipped(optimizer)

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
                    unseen(self._complete)(one)
            self._later.after_step(optimizer)
            self._watch_averages()
        elif self._on and not self._done and optimizer is self._optimizer:
            unseen(self._optimizers.after)(optimizer, self._states)
            self._conclude()
        elif self._on and not self._done and not self._loss_seen and self.captured and all(p.grad is None for p in parameters_of(optimizer)):
            self._optimizers.idle(optimizer, next(filter(callable, (*args[1:], *kwargs.values())), None))  # which has called no backward either

    def _complete(self, one: Captured) -> None:
        """All gradients of the first step are there now: what had none after its first backward pass may have one."""
        fields = self.fields[id(one.model)]
        if self._others is not None:
            fields.update(self._others.completed.get(id(one.model), {}))
        prefix = f"{called_name(one.site)}."
        late = {prefixed for n, p in one.model.named_parameters() if p.grad is not None for prefixed in (n, prefix + n)}
        for name in ("cuts", "unused"):
            fields[name] = tuple(fact for fact in fields.get(name, ()) if getattr(fact, "partly", False) or not late & set(fact.weights))

    # -- the step is over -------------------------------------------------------------------------

    @unseen
    def _conclude(self, entered: nn.Module | None = None) -> None:
        """Read the facts of the step while its tensors are there, then let the program go on alone; or on into the module it has just `entered`."""
        if self._done:
            return
        self._done = True
        trace = self.view.trace
        trace.most = 0
        try:
            for one in self.captured:
                self.fields[id(one.model)] = self._facts(one)
            if self._loss is not None and self._optimizer is not None and self.captured:
                self._outside.note(trace, self._loss, *self._inside_models(), self._optimizers.built.get(id(self._optimizer)))
            if self._loss_seen and self._optimizer is not None and self._trains_something(self._optimizer):
                self._silent_found = self._silent.observations({id(p) for p in parameters_of(self._optimizer)}, self._loss, self.captured)
                modules = [one.model for one in (*self.captured, *self._silent.calls)]
                self._alone.note(self.view, self._optimizer, self._loss, {id(p) for module in modules for p in module.parameters()})
            if not self.captured:
                fields = self.view.facts(nn.Module(), None, self._loss, None, {}, None, None, slice(0, 0), (), slice(0, 0))
                fields["losses"], _ = self.view.losses([])
                still = self._optimizers.never() if self._optimizer is None else None
                self._loose = Observation("the program", self._optimizers.step_site, no_update=self._optimizers.no_update or still, **fields)
        except Exception as error:
            for one in self.captured:  # what was seen before does not need the tensors
                self.fields.setdefault(id(one.model), {"inputs": tuple(self.view.watch.inputs)})
            self.notes.append(f"the first step could not be read: {type(error).__name__}: {first_line(error)}")
        finally:
            for one in self.captured:
                one.output = None
                one.live = one.copy or one.live
            losses = [*([self._loss] if self._loss is not None else []), *self._more]
            self._loss = self._asked = None
            self._backward.forget()
            self._more.clear()
            self._release()
            if self.captured:
                self._later = LaterWatch(self.captured, self._optimizer, self._modes, self._clearing)
                self._later.start(modules=not self._compiled)
                self._thaw = ThawWatch(self.captured, self._optimizers)
                self._watch_others(losses, entered)
                self._watch_averages()

    def _watch_others(self, losses: list[torch.Tensor], entered: nn.Module | None) -> None:
        """The program has more optimizers, which take their steps after the first one; or none has taken one yet."""
        if self._optimizers.waiting(self._optimizer) and not self._compiled and threading.get_ident() == self._home:
            again = {id(one.model) for one in self.captured} if self._optimizer is None else set()
            self._others = OtherSteps(self.view, [*self._silent.calls, *self.captured], losses, self._optimizers, self._clearing, self._optimizer, again)
            self._others.start()
            if entered is not None:
                self._others.entered(entered)

    @unseen
    def _watch_averages(self) -> None:
        """Once each optimizer has taken its first step: what the program does with the weights before the next backward pass."""
        over = self._others is None or self._others.over
        if self._averages is None and over and not self._compiled and threading.get_ident() == self._home and self._optimizer is not None:
            trained = [p for optimizer in self._optimizers.stepped for p in parameters_of(optimizer) if p.grad is not None]
            self._averages = AverageWatch((self._others or self).view.trace, trained, self._optimizers)
            self._averages.start()

    @harmless
    def _built(self, optimizer: Optimizer) -> None:
        ready = self._done and self._later is not None and not self._compiler_seen and not self._on and threading.get_ident() == self._home
        ready = ready and (self._others is None or self._others.over)
        self._in_turn.built(optimizer, ready, [one.model for one in self.captured])

    def _begun_for(self, optimizer: Optimizer, before: set[int]) -> StepWatch:
        watch = StepWatch(self.budget_s, further=True)
        watch._optimizers.take_over(optimizer, self._optimizers, before)
        watch.start()
        return watch

    def settle(self) -> None:
        """Read what there is of a step that has not come to its end, and take everything off."""
        if not self._done and self._on and (self.captured or self._loss_seen):
            self._conclude()
        self.stop()

    def finish(self) -> Parts:
        """The experiments on the captured call, judged together with what the steps showed; and the same for models that were trained after it."""
        self.settle()
        return joined([self._finish(), *(watch._finish() for watch in self._in_turn.watches if watch.captured)])

    def _finish(self) -> Parts:
        self._silent_found += self._alone.found()
        kept = tuple(self._by_hand.found([one.model for one in self.captured], self.view.trace, self._backward_at, self._held()))
        if not self.captured and self._loose is not None:
            seen = (*self._silent_found, dataclasses.replace(self._loose, kept=kept))
            return Parts(across([d for observation in seen for d in findings(observation)]), tuple(self.notes), seen)
        if not self.captured:
            why = "the program trains in another thread than the main one" if self._other_thread else "no module with trainable parameters was called with gradients on"
            return Parts(notes=(*self.notes, f"no training step was seen: {why}"))
        ending = Ending(self.view, self.captured, self.fields, self._optimizers, self._later, self._others, self._outermost, self.budget_s)
        held = self._held()
        largest = self.fields.setdefault(id(max(self.captured, key=lambda c: c.size).model), {})
        largest["unregistered"] = (*largest.get("unregistered", ()), *(leaf.fact for leaf in self._loose_leaves if leaf.stays(held)), *self._outside.found)
        for key, fact in self._thaw.facts() if self._thaw is not None else ():
            fields = self.fields.setdefault(key, {})
            fields["optimizer"] = (*fields.get("optimizer", ()), fact)
        if (every := self._optimizers.every) is not None:
            called = [(called_name(one.site) if len(self.captured) > 1 else "", one.model) for one in self.captured]
            largest["resting"] = tuple(every.groups.found(called, self._states_loaded.given))
            largest["contested"] = every.contested.found(called)
        largest["frozen_at_random"] = tuple(self._exchanges.frozen([one.model for one in self.captured], self.view.trace, bool(self._optimizers.changed())))
        largest["averages"] = tuple(self._averages.found()) if self._averages is not None else ()
        largest["states"] = tuple(self._states_loaded.found.values())
        largest["not_loaded"] = tuple(self._states_loaded.nothing.values())
        ending.by_hand = kept
        ending.look_for_idleness(never=self._awaited, vanished=self._rates.vanished())
        return ending.parts(self._silent_found, list(self.notes))


@unseen
def _trains(module: nn.Module) -> bool:
    return any(p.requires_grad for p in module.parameters())

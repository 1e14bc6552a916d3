"""The optimizers of a running program: where they were built, what was exchanged behind their back, what a step changed."""

from __future__ import annotations

import dataclasses
import typing
import weakref

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import Optimizer

from torchsleuth.auditor.gradients.gradients import grad_state, grad_states
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import NoUpdate, OptimizerFact
from torchsleuth.auditor.tracing.sites import place_here, returned_by, site_of
from torchsleuth.auditor.tracing.trace import Trace

if typing.TYPE_CHECKING:
    from torchsleuth.auditor.program.everystep import EveryStep

KEPT_BYTES = 64 << 20  # copies of parameters from before the step: enough to see whether it changes any, and no burden on a full GPU

ROUNDING = 2e-5
STEPPING = {"sub", "rsub", "subtract", "add", "radd", "lerp", "addcmul", "addcdiv"}
MOST_COPIES = 20_000  # parameters
MOST_REPLACED = 1000  # notes of replaced parameters between two steps


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def at_rest(optimizer: Optimizer | None, site: Site | None) -> NoUpdate | None:
    """An optimizer that has taken no step yet, with a learning rate of 0 that no schedule has given it."""
    groups = optimizer.param_groups if optimizer is not None else []
    rates = [group.get("lr") for group in groups if group["params"] and "initial_lr" not in group]
    if not groups or len(rates) < len(groups) or not all(isinstance(rate, (int, float)) and rate == 0 for rate in rates):
        return None
    return NoUpdate(type(optimizer).__name__, "at-rest", site)


def copies_of(parameters: list[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Parameters with copies of them, the small ones first, as long as there is room."""
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    room = KEPT_BYTES
    for p in sorted(parameters, key=torch.Tensor.numel):
        room -= p.numel() * p.element_size()
        if room < 0 and found:
            break
        found.append((p, p.detach().clone()))
    return found


def _writers(parameters: list[torch.Tensor], trace: Trace) -> tuple[Site, ...]:
    """What has written into the gradients since they were made, in the order of time."""
    found: dict[typing.Any, Site] = {}
    key = next((key for p in parameters if p.grad is not None and (key := trace.known_key(p.grad)) is not None), None)
    while key is not None and (index := trace.producer.get(key)) is not None and trace.ops[index].writes:
        op = trace.ops[index]
        if (site := trace.site(op)) is not None:
            found.setdefault(site.span, site)
        at = next((i for i, seen in enumerate(op.outs) if seen.key == key), 0)
        key = op.ins[at].key if at < len(op.ins) else None
    if key is not None and (index := trace.producer.get(key)) is not None and not trace.ops[index].writes and (site := trace.site(trace.ops[index])) is not None:
        if any(op.name == "backward" for op in trace.ops[:index]) and not site.library:  # `p.grad = ...`, not what `backward()` made
            found.setdefault(site.span, site)
    return tuple(reversed(found.values()))


def _moved(before: torch.Tensor, now: torch.Tensor) -> bool:
    """By more than an average with what it was copied from (a teacher's) changes it by rounding."""
    if not before.is_floating_point():
        return not torch.equal(before, now)
    return not bool((now - before).norm() <= ROUNDING * before.norm())


class OptimizerWatch:
    """`start()` until `stop()`: notes constructions; `before` and `after` stand around the step that is looked at."""

    def __init__(self) -> None:
        self.built: dict[int, Site] = {}
        self.scheduled: dict[int, Site] = {}  # optimizer -> where its (last) schedule is made
        self.schedules: dict[int, weakref.ref] = {}
        self.known: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self.stepped: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self.late: weakref.WeakSet[Optimizer] = weakref.WeakSet()  # built after the first step
        self.at_zero: weakref.WeakSet[Optimizer] = weakref.WeakSet()  # built with a learning rate of 0
        self.rebound: list[tuple[nn.Module, str, Site]] = []
        self._added: list[tuple[weakref.ref, str, Site]] = []  # in no place of another one; before the first step
        self._replaced: list[tuple[nn.Module, str, Site, list[weakref.ref]]] = []  # after the first step; with what was there before
        self._first_over = False
        self.step_site: Site | None = None
        self.no_update: NoUpdate | None = None
        self._before: dict[int, torch.Tensor] = {}
        self._writers: tuple[Site, ...] = ()
        self.cleared: Site | None = None
        self._zeroed = False  # what stands in the gradients before the step is zero, and weight decay moves the parameters all the same
        self._rebinding: dict[typing.Any, Site] = {}
        self._waiting: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._numbers: dict[int, tuple[int, int]] = {}  # parameter -> what the trace calls it and its gradient
        self._original_init: typing.Any = None
        self._original_schedule: typing.Any = None
        self._original_copy: typing.Any = None
        self.trained_before: set[int] = set()  # what was trained before this watch began, by optimizers that may be gone
        self.listeners: list[typing.Callable[[Optimizer], None]] = []  # told of each one that is built
        self.every: EveryStep | None = None  # goes on and off with this
        self.copies: dict[int, tuple[weakref.ref, int, Site]] = {}  # parameter -> itself, what it is a copy of (or of a copy), and where that was made

    def start(self) -> None:
        """Notes where optimizers are built; that is not to be seen later."""
        if self.every is not None:
            self.every.start()
        watch, original = self, Optimizer.__init__
        self._original_init = original

        def noting(optimizer: Optimizer, *args: typing.Any, **kwargs: typing.Any) -> None:
            site = site_of(place_here(2))
            if site is not None:
                watch.built[id(optimizer)] = site
            (watch.late if watch._first_over else watch.known).add(optimizer)
            original(optimizer, *args, **kwargs)
            if all(group.get("lr") == 0 for group in optimizer.param_groups):
                watch.at_zero.add(optimizer)
            for listener in watch.listeners:
                listener(optimizer)

        noting.__doc__, noting.__wrapped__, noting.torchsleuth = original.__doc__, original, self  # type: ignore[attr-defined]
        Optimizer.__init__ = noting  # type: ignore[method-assign]

        schedules = LRScheduler.__init__
        self._original_schedule = schedules

        def scheduling(scheduler: LRScheduler, *args: typing.Any, **kwargs: typing.Any) -> None:
            optimizer = args[0] if args else kwargs.get("optimizer")
            if (site := site_of(place_here(2))) is not None:
                watch.scheduled[id(optimizer)] = site
                watch.schedules[id(optimizer)] = weakref.ref(scheduler)
            return schedules(scheduler, *args, **kwargs)

        scheduling.__doc__, scheduling.__wrapped__, scheduling.torchsleuth = schedules.__doc__, schedules, self  # type: ignore[attr-defined]
        LRScheduler.__init__ = scheduling  # type: ignore[method-assign]
        copying = nn.Parameter.__deepcopy__
        self._original_copy = copying

        def copied(parameter: nn.Parameter, memo: dict) -> nn.Parameter:
            made = copying(parameter, memo)
            if len(watch.copies) < MOST_COPIES and (site := site_of(place_here(2))) is not None:
                known, origin, _ = watch.copies.get(id(parameter), (None, 0, None))
                watch.copies[id(made)] = (weakref.ref(made), origin if known is not None and known() is parameter else id(parameter), site)
            return made

        copied.__doc__, copied.__wrapped__, copied.torchsleuth = copying.__doc__, copying, self  # type: ignore[attr-defined]
        nn.Parameter.__deepcopy__ = copied  # type: ignore[method-assign]

    def stop(self) -> None:
        if self.every is not None:
            self.every.stop()
        if self._original_init is not None and getattr(Optimizer.__init__, "torchsleuth", None) is self:
            Optimizer.__init__ = self._original_init  # type: ignore[method-assign]
        if self._original_schedule is not None and getattr(LRScheduler.__init__, "torchsleuth", None) is self:
            LRScheduler.__init__ = self._original_schedule  # type: ignore[method-assign]
        if self._original_copy is not None and getattr(nn.Parameter.__deepcopy__, "torchsleuth", None) is self:
            nn.Parameter.__deepcopy__ = self._original_copy  # type: ignore[method-assign]

    def take_over(self, optimizer: Optimizer, other: OptimizerWatch, before: set[int]) -> None:
        """What another watch has noted of this one, which has just been built; and of what was trained `before`."""
        self.known.add(optimizer)
        self.trained_before = before
        if id(optimizer) in other.built:
            self.built[id(optimizer)] = other.built[id(optimizer)]
        if optimizer in other.at_zero:
            self.at_zero.add(optimizer)

    def copy_site(self, parameter: torch.Tensor, held: typing.Container[int]) -> Site | None:
        """Where this parameter was copied (`deepcopy`) from one of those."""
        made, source, site = self.copies.get(id(parameter), (None, 0, None))
        return site if made is not None and made() is parameter and source in held else None

    def duplicate_site(self, held: typing.Iterable[torch.Tensor], own: typing.Container[int]) -> Site | None:
        """Where what an optimizer holds was copied (`deepcopy`) from one of these parameters."""
        return next((site for p in held for made, source, site in [self.copies.get(id(p), (None, 0, None))] if made is not None and made() is p and source in own), None)

    def registered(self, module: nn.Module, name: str, value: typing.Any) -> None:
        """A parameter or layer is put in the place of another one, after some optimizer was built."""
        if not self.built or not isinstance(value, (nn.Module, nn.Parameter)):
            return
        before = module._parameters.get(name) if isinstance(value, nn.Parameter) else module._modules.get(name)
        if before is None and not self._first_over and len(self._added) < MOST_REPLACED and (site := site_of(place_here(2))) is not None:
            self._added.append((weakref.ref(module), name, site))
        if before is not None and before is not value:
            site = site_of(place_here(2)) if len(self._replaced) < MOST_REPLACED else None
            if site is None:
                return
            if not self._first_over:
                self.rebound.append((module, name, site))
            else:
                parts = before.parameters() if isinstance(before, nn.Module) else [before]
                self._replaced.append((module, name, site, [weakref.ref(p) for p in parts]))

    def added(self, model: nn.Module) -> dict[str, Site]:
        """What was put into this model since some optimizer was built, by its path: the highest part of it that is new."""
        paths = {id(module): f"{path}." if path else "" for path, module in model.named_modules()}
        new = {f"{paths[id(module)]}{name}": site for ref, name, site in self._added if (module := ref()) is not None and id(module) in paths}
        return {name: site for name, site in new.items() if not any(name.startswith(other + ".") for other in new)}

    def first_over(self) -> None:
        """From now on only what is replaced is noted, and whether the optimizer that takes a step still holds what was there."""
        self._first_over = True

    def replaced(self, optimizer: Optimizer, models: list[nn.Module], steps: int) -> list[tuple[int, OptimizerFact]]:
        """Before a later step: what was put in the place of parameters that this optimizer holds, has a gradient, and no optimizer holds it."""
        if not self._replaced:
            return self._copied_later(optimizer, models, steps)
        noted, self._replaced = self._replaced, []
        held = {id(p) for p in parameters_of(optimizer)}
        trained = held | {id(p) for other in (*self.known, *self.late) for p in parameters_of(other)}
        found: dict[int, tuple[list[str], Site]] = {}
        for module, name, site, old in noted:
            value = module._parameters.get(name) if name in module._parameters else module._modules.get(name)
            new = [value] if isinstance(value, nn.Parameter) else list(value.parameters()) if isinstance(value, nn.Module) else []
            lost = {id(p) for p in new if p.grad is not None and id(p) not in trained}
            model = next((m for m in models if any(part is module for part in m.modules())), None)
            if lost and model is not None and any(id(p) in held for ref in old if (p := ref()) is not None):
                names = [n for n, p in model.named_parameters() if id(p) in lost]
                before, first = found.get(id(model), ([], site))
                found[id(model)] = (list(dict.fromkeys([*before, *names])), first)
        kind = type(optimizer).__name__
        return [(key, OptimizerFact("stale", kind, tuple(names), len(held), self.built.get(id(optimizer)), site, steps)) for key, (names, site) in found.items()]

    def _copied_later(self, optimizer: Optimizer, models: list[nn.Module], steps: int) -> list[tuple[int, OptimizerFact]]:
        """Nothing that this optimizer holds has a gradient; copies of it have one, which no optimizer holds."""
        if not self.copies or any(p.grad is not None for group in optimizer.param_groups for p in group["params"]):
            return []
        held = {id(p) for p in parameters_of(optimizer)}
        trained = {id(p) for other in (*self.known, *self.late) for p in parameters_of(other)}
        made = [(p, origin, site) for ref, origin, site in self.copies.values() if origin in held and (p := ref()) is not None]
        lost = {origin: site for p, origin, site in made if p.grad is not None and id(p) not in trained}
        for model in models:
            names = tuple(n for n, p in model.named_parameters() if id(p) in lost)
            if names:
                return [(id(model), OptimizerFact("stale", type(optimizer).__name__, names, len(held), self.built.get(id(optimizer)), step=steps, copied=next(iter(lost.values())), copied_later=True, apart=True))]
        return []

    def elsewhere(self, optimizer: Optimizer | None) -> set[int]:
        """Parameters that other optimizers hold."""
        return {id(p) for other in self.known if other is not optimizer for p in parameters_of(other)} | self.trained_before

    def waiting(self, first: Optimizer | None) -> list[Optimizer]:
        """Those that have not taken a step, beside the `first` one."""
        return [o for o in self.known if o not in self.stepped and o is not first]

    def idle(self, optimizer: Optimizer, closure: typing.Any = None) -> None:
        """A step without any gradient, after the model was called. It counts if the program never calls `backward()`."""
        if self.no_update is None and type(optimizer).__module__.startswith("torch."):  # another one may learn without gradients
            self.no_update = NoUpdate(type(optimizer).__name__, "no-backward", site_of(place_here(2)), closure=returned_by(closure))

    # -- one step ---------------------------------------------------------------------------------

    def before(self, optimizer: Optimizer, trace: Trace, cleared: Site | None) -> None:
        """`cleared`: the `zero_grad()` that was called since the last backward pass."""
        self.no_update, self.cleared = None, cleared
        self.step_site = site_of(place_here(2))
        self._writers = _writers(parameters_of(optimizer), trace)
        self._before = {id(p): copy for p, copy in copies_of(parameters_of(optimizer))}
        self._zeroed = any(group.get("weight_decay") for group in optimizer.param_groups) and set(grad_states(p.grad for p in parameters_of(optimizer))) <= {"zero", "none"}

    def after(self, optimizer: Optimizer, states: dict[int, str]) -> None:
        """`states` are the gradients' as `backward` left them."""
        parameters = parameters_of(optimizer)
        if self._before and all(torch.equal(self._before[id(p)], p.detach()) for p in parameters if id(p) in self._before):
            self.no_update = self._why_no_update(optimizer, parameters, states)
        elif self._zeroed and any(states.get(id(p)) == "ok" for p in parameters):
            # Weight decay has moved them, and nothing else has.
            self.no_update = NoUpdate(
                type(optimizer).__name__, "cleared" if self.cleared is not None else "zeroed", self.step_site, self.cleared,
                writers=self._writers if self.cleared is None else (), decayed=True,
            )  # fmt: skip
        self._before = {}

    def _why_no_update(self, optimizer: Optimizer, parameters: list[torch.Tensor], states: dict[int, str]) -> NoUpdate | None:
        name, site = type(optimizer).__name__, self.step_site
        had = any(states.get(id(p)) == "ok" for p in parameters)
        now = any(p.grad is not None and grad_state(p.grad) != "zero" for p in parameters)
        if had and not now:
            written = self.cleared is None and any(p.grad is not None for p in parameters)
            return NoUpdate(name, "zeroed", site, writers=self._writers) if written else NoUpdate(name, "cleared", site, self.cleared)
        if not now:
            return NoUpdate(name, "zero-gradient" if any(p.grad is not None for p in parameters) else "no-gradient", site)
        if all(group.get("lr") == 0 for group in optimizer.param_groups):
            return self.at_rest(optimizer, site)
        return None  # a step too small to show, or one that a scaler skipped

    def at_rest(self, optimizer: Optimizer, site: Site | None) -> NoUpdate:
        """A step with a learning rate of 0, and where that comes from."""
        zero = optimizer in self.at_zero
        made = (self.built if zero else self.scheduled).get(id(optimizer))
        scheduled = any("initial_lr" in group for group in optimizer.param_groups)
        return NoUpdate(type(optimizer).__name__, "learning-rate", site, scheduled=scheduled, built=made)

    # -- no step at all ---------------------------------------------------------------------------

    def first_backward(self, parameters: list[torch.Tensor], trace: Trace) -> None:
        """These have a gradient now; somebody should use it."""
        self._waiting = copies_of(parameters)
        self._numbers = {id(p): (trace.key(p), trace.key(p.grad)) for p, _ in self._waiting if p.grad is not None}  # the gradient may be gone later

    def at_first_backward(self) -> dict[int, torch.Tensor]:
        """What is trained, by its identity, with copies from the first backward pass."""
        return {id(p): copy for p, copy in self._waiting}

    def changed(self) -> set[int]:
        """Those that have another value now, whoever has seen to it."""
        return {id(p) for p, copy in self._waiting if p.shape != copy.shape or _moved(copy.to(p.device), p.detach())}

    def look_for_rebinding(self, trace: Trace, backward: int | None, used_again: typing.Container[int] | None = None) -> None:
        """Between a backward pass and the next forward pass: a tensor computed from a parameter and its gradient.
        `used_again`: tensors that the next loss is computed from, where there is no model that holds them."""
        if used_again is not None:
            self._waiting = [(p, copy) for p, copy in self._waiting if id(p) in used_again]
        numbers = [self._numbers[id(p)] for p, _ in self._waiting if id(p) in self._numbers]
        own, gradients = {key for key, _ in numbers}, {key for _, key in numbers}
        for op in trace.ops[backward + 1 :] if backward is not None else []:
            keys = {seen.key for seen in op.ins}
            if op.name in ("data", "detach") and keys & own:
                own |= {seen.key for seen in op.outs}
            if op.writes or not keys & gradients:
                continue
            # A step goes away from the parameter by something; a product of the two is a score of how much it matters.
            if keys & own and op.name.strip("_") in STEPPING and (site := trace.site(op)) is not None and not site.library:
                self._rebinding.setdefault(site.span, site)
                continue
            gradients |= {seen.key for seen in op.outs}

    def never(self) -> NoUpdate | None:
        """No optimizer took a step, and at the end of the program the parameters are as they were at its first backward pass."""
        if not self._unchanged(self._waiting):
            return None
        if self._rebinding:
            first, *more = self._rebinding.values()
            return NoUpdate("", "rebound", first, writers=tuple(more[:3]))
        held = {id(p) for p, _ in self._waiting}
        idle = next((o for o in self.known if held & {id(p) for p in parameters_of(o)}), None)
        return NoUpdate(type(idle).__name__, "never-stepped", self.built.get(id(idle))) if idle is not None else None

    def still(self, fact: NoUpdate, steps: int) -> NoUpdate | None:
        """A schedule may begin at zero; if all steps of the program leave everything as it is, it does not end there."""
        if fact.reason == "learning-rate" and self.changed():
            return None
        if fact.scheduled and steps >= 3 and self._unchanged(self._waiting):
            return dataclasses.replace(fact, scheduled=False, steps=steps)
        return fact

    def idle_beside(self, models: list[nn.Module]) -> NoUpdate | None:
        """An optimizer that never took a step while another one trained the rest of the same model, although its parameters got gradients."""
        for optimizer in self.known:
            mine = {id(p) for p in parameters_of(optimizer)}
            waiting = [(p, copy) for p, copy in self._waiting if id(p) in mine]
            if optimizer in self.stepped or not waiting or not self._unchanged(waiting):
                continue
            trained = {id(p) for other in self.stepped for p in parameters_of(other)}
            if mine & trained or not any({id(p) for p in m.parameters()} & mine and {id(p) for p in m.parameters()} & trained for m in models):
                continue
            return NoUpdate(type(optimizer).__name__, "never-stepped", self.built.get(id(optimizer)))
        return None

    @staticmethod
    def _unchanged(waiting: list[tuple[torch.Tensor, torch.Tensor]]) -> bool:
        return bool(waiting) and all(torch.equal(p.detach(), copy) for p, copy in waiting)

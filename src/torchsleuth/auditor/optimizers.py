"""The optimizers of a running program: where they were built, what was exchanged behind their back, what a step changed."""

from __future__ import annotations

import ast
import dataclasses
import typing
import weakref

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from torchsleuth.auditor.gradients import grad_state
from torchsleuth.auditor.observation import NoUpdate, Site
from torchsleuth.auditor.sites import place_here, site_of, site_of_node, syntax_of
from torchsleuth.auditor.trace import Trace

KEPT_BYTES = 64 << 20  # copies of parameters from before the step: enough to see whether it changes any, and no burden on a full GPU


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _copies(parameters: list[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Parameters with copies of them, the small ones first, as long as there is room."""
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    room = KEPT_BYTES
    for p in sorted(parameters, key=torch.Tensor.numel):
        room -= p.numel() * p.element_size()
        if room < 0 and found:
            break
        found.append((p, p.detach().clone()))
    return found


class OptimizerWatch:
    """`start()` until `stop()`: notes constructions; `before` and `after` stand around the step that is looked at."""

    def __init__(self) -> None:
        self.built: dict[int, Site] = {}
        self.known: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self.stepped: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self.rebound: list[tuple[nn.Module, str, Site]] = []
        self.step_site: Site | None = None
        self.no_update: NoUpdate | None = None
        self._before: dict[int, torch.Tensor] = {}
        self._rebinding: Site | None = None
        self._waiting: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._original_init: typing.Any = None

    def start(self) -> None:
        """Notes where optimizers are built; that is not to be seen later."""
        watch, original = self, Optimizer.__init__
        self._original_init = original

        def noting(optimizer: Optimizer, *args: typing.Any, **kwargs: typing.Any) -> None:
            site = site_of(place_here(2))
            if site is not None:
                watch.built[id(optimizer)] = site
            watch.known.add(optimizer)
            return original(optimizer, *args, **kwargs)

        noting.__doc__, noting.__wrapped__, noting.torchsleuth = original.__doc__, original, self  # type: ignore[attr-defined]
        Optimizer.__init__ = noting  # type: ignore[method-assign]

    def stop(self) -> None:
        if self._original_init is not None and getattr(Optimizer.__init__, "torchsleuth", None) is self:
            Optimizer.__init__ = self._original_init  # type: ignore[method-assign]

    def registered(self, module: nn.Module, name: str, value: typing.Any) -> None:
        """A parameter or layer is put in the place of another one, after some optimizer was built."""
        if not self.built or not isinstance(value, (nn.Module, nn.Parameter)):
            return
        before = module._parameters.get(name) if isinstance(value, nn.Parameter) else module._modules.get(name)
        if before is not None and before is not value:
            site = site_of(place_here(2))
            if site is not None:
                self.rebound.append((module, name, site))

    def elsewhere(self, optimizer: Optimizer | None) -> set[int]:
        """Parameters that other optimizers hold."""
        return {id(p) for other in self.known if other is not optimizer for p in parameters_of(other)}

    def idle(self, optimizer: Optimizer) -> None:
        """A step without any gradient, after the model was called. It counts if the program never calls `backward()`."""
        if self.no_update is None:
            self.no_update = NoUpdate(type(optimizer).__name__, "no-backward", site_of(place_here(2)))

    # -- one step ---------------------------------------------------------------------------------

    def before(self, optimizer: Optimizer) -> None:
        self.no_update = None
        self.step_site = site_of(place_here(2))
        self._before = {id(p): copy for p, copy in _copies(parameters_of(optimizer))}

    def after(self, optimizer: Optimizer, states: dict[int, str]) -> None:
        """`states` are the gradients' as `backward` left them."""
        parameters = parameters_of(optimizer)
        if self._before and all(torch.equal(self._before[id(p)], p.detach()) for p in parameters if id(p) in self._before):
            self.no_update = self._why_no_update(optimizer, parameters, states)
        self._before = {}

    def _why_no_update(self, optimizer: Optimizer, parameters: list[torch.Tensor], states: dict[int, str]) -> NoUpdate | None:
        name, site = type(optimizer).__name__, self.step_site
        had = any(states.get(id(p)) == "ok" for p in parameters)
        now = any(p.grad is not None and grad_state(p.grad) != "zero" for p in parameters)
        if had and not now:
            return NoUpdate(name, "cleared", site, self._clearing_call())
        if not now:
            return NoUpdate(name, "no-gradient", site)
        if all(group.get("lr") == 0 for group in optimizer.param_groups):
            return NoUpdate(name, "learning-rate", site, scheduled=any("initial_lr" in group for group in optimizer.param_groups))
        return None  # a step too small to show, or one that a scaler skipped

    # -- no step at all ---------------------------------------------------------------------------

    def first_backward(self, parameters: list[torch.Tensor]) -> None:
        """These have a gradient now; somebody should use it."""
        self._waiting = _copies(parameters)

    def changed(self) -> set[int]:
        """Those that have another value now, whoever has seen to it."""
        return {id(p) for p, copy in self._waiting if p.shape != copy.shape or not torch.equal(p.detach(), copy.to(p.device))}

    def look_for_rebinding(self, trace: Trace, backward: int | None) -> None:
        """Between a backward pass and the next forward pass: a tensor computed from a parameter and its gradient."""
        gradients = {key for p, _ in self._waiting if p.grad is not None and (key := trace.known_key(p.grad)) is not None}
        own = {key for p, _ in self._waiting if (key := trace.known_key(p)) is not None}
        for op in trace.ops[backward + 1 :] if backward is not None else []:
            keys = {seen.key for seen in op.ins}
            if op.name in ("data", "detach") and keys & own:
                own |= {seen.key for seen in op.outs}
            if op.writes or not keys & gradients:
                continue
            if keys & own and (site := trace.site(op)) is not None and not site.library:
                self._rebinding = site
                return
            gradients |= {seen.key for seen in op.outs}

    def never(self) -> NoUpdate | None:
        """No optimizer took a step, and at the end of the program the parameters are as they were at its first backward pass."""
        if not self._unchanged(self._waiting):
            return None
        if self._rebinding is not None:
            return NoUpdate("", "rebound", self._rebinding)
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

    def _clearing_call(self) -> Site | None:
        """The `zero_grad` that stands between `backward()` and `step()`, from the source around the step."""
        if self.step_site is None:
            return None
        place = place_here(2)
        filename = place.user_code.co_filename if place.user_code else ""
        tree = syntax_of(filename)
        if tree is None:
            return None
        calls = sorted(
            (n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)), key=lambda n: (n.lineno, n.col_offset)
        )
        backward = 0
        found = None
        for node in calls:
            if node.func.attr == "backward":  # type: ignore[union-attr]
                backward, found = node.lineno, None
            elif node.func.attr == "zero_grad" and backward:  # type: ignore[union-attr]
                found = node
            elif node.lineno == self.step_site.span.line and node.func.attr == "step" and found is not None:  # type: ignore[union-attr]
                return site_of_node(filename, found, self.step_site.function)
        return None

"""The first training step of a running program, watched from outside: `StepWatch`.

From `start()` on it traces torch calls, and notes the outermost module call with its inputs, the tensor
that `backward()` is called on, the gradients after it and the optimizer that takes the first step. After
that step it takes itself off; the program runs on undisturbed. `finish()` makes the experiments, on copies
of the inputs of that step, when the program has ended and can no longer be influenced.
"""

from __future__ import annotations

import ast
import dataclasses
import gc
import sys
import threading
import typing
import weakref
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from torchsleuth.auditor.backward import BackwardWatch
from torchsleuth.auditor.batch import Call
from torchsleuth.auditor.calling import autocast_here
from torchsleuth.auditor.gradients import grad_state, is_lone_bias, optimizer_facts
from torchsleuth.auditor.judge import findings
from torchsleuth.auditor.observation import ModeFact, NoUpdate, Observation, Site, Vanish
from torchsleuth.auditor.preflight import traced_facts
from torchsleuth.auditor.runner import BATCH_NORMS, unwrapped
from torchsleuth.auditor.session import BUDGET_SECONDS, Session
from torchsleuth.auditor.sites import place_here, site_of, site_of_node, syntax_of
from torchsleuth.auditor.stepview import StepView, padded, parameter_keys
from torchsleuth.auditor.trace import Op
from torchsleuth.model import Diagnosis

MOST_BEFORE_STEP = 50_000  # calls kept from before the first training step
COPIED_BYTES = 1 << 30  # inputs larger than that are not copied; no experiment is made then
_DROPPING = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)


@dataclass
class Captured:
    """An outermost module call of the step."""

    model: nn.Module
    live: Call
    site: Site | None
    autocast: typing.Any
    copy: Call | None = None
    output: typing.Any = None
    training: bool = True
    inside: slice = field(default_factory=lambda: slice(0, 0))  # the calls between its start and its return


@dataclass
class Parts:
    """What the watch found, for a report of whichever command it ran under."""

    diagnoses: tuple[Diagnosis, ...] = ()
    notes: tuple[str, ...] = ()
    observations: tuple[Observation, ...] = ()


@dataclass
class StepWatch:
    """`start()`, run the program, `finish()`."""

    budget_s: float = BUDGET_SECONDS
    overfit: bool = False  # kept for symmetry with `audit`: a running program's loss cannot be repeated
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.view = StepView()
        self._backward = BackwardWatch(self.view.trace)
        self.captured: list[Captured] = []
        self._silent: list[Captured] = []
        self._silent_found: list[Observation] = []
        self.fields: dict[int, dict[str, typing.Any]] = {}
        self._handles: list[typing.Any] = []
        self._depth = 0
        self._home = 0
        self._on = self._done = False
        self._loss: torch.Tensor | None = None
        self._loss_seen = False
        self._backward_at: int | None = None
        self._states: dict[int, str] = {}
        self._keys: dict[int, dict[str, int]] = {}
        self._optimizer: Optimizer | None = None
        self._built: dict[int, Site] = {}
        self._optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._rebound: list[tuple[nn.Module, str, Site]] = []
        self._before: dict[int, torch.Tensor] = {}
        self._no_update: NoUpdate | None = None
        self._step_site: Site | None = None
        self._original_init: typing.Any = None
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
        add(register_optimizer_step_pre_hook(self._before_step))
        add(register_optimizer_step_post_hook(self._after_step))
        self._watch_construction()
        _below_the_others(trace)

    def _stop(self) -> None:
        """Take everything off: hooks, the noted constructor and the trace."""
        if not self._on:
            return
        self._on = False
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._original_init is not None and getattr(Optimizer.__init__, "torchsleuth", None) is self:
            Optimizer.__init__ = self._original_init  # type: ignore[method-assign]
        self.view.trace.most = 0
        self._take_off()

    def abandon(self) -> None:
        """The program died: take everything off and let go of what was captured."""
        self._stop()
        self._take_off()
        self.captured.clear()
        self._loss = None

    def _take_off(self) -> None:
        if threading.get_ident() == self._home:
            _remove_mode(self.view.trace)

    def _here(self) -> bool:
        return self._on and threading.get_ident() == self._home

    # -- what the program does --------------------------------------------------------------------

    def _watch_construction(self) -> None:
        """Notes where optimizers are built; that is not to be seen later."""
        watch, original = self, Optimizer.__init__
        self._original_init = original

        def noting(optimizer: Optimizer, *args: typing.Any, **kwargs: typing.Any) -> None:
            site = site_of(place_here(2))
            if site is not None:
                watch._built[id(optimizer)] = site
            watch._optimizers.add(optimizer)
            return original(optimizer, *args, **kwargs)

        noting.__doc__, noting.__wrapped__, noting.torchsleuth = original.__doc__, original, self  # type: ignore[attr-defined]
        Optimizer.__init__ = noting  # type: ignore[method-assign]

    def _registered(self, module: nn.Module, name: str, value: typing.Any) -> None:
        if not self._here() or not self._built or not isinstance(value, (nn.Module, nn.Parameter)):
            return
        before = module._parameters.get(name) if isinstance(value, nn.Parameter) else module._modules.get(name)
        if before is not None and before is not value:
            site = site_of(place_here(2))
            if site is not None:
                self._rebound.append((module, name, site))

    def _enter(self, module: nn.Module, inputs: typing.Any) -> None:
        if not self._here():
            return
        self._depth += 1
        if self._depth != 1 or self._done:
            return
        if not torch.is_grad_enabled():
            self._silent_call(module, inputs)
            return
        if self._loss_seen and self._optimizer is None:
            self._conclude()  # a second forward pass after a backward: the step had no optimizer
            return
        if not any(p.requires_grad for p in module.parameters()):
            return
        frame = sys._getframe(1)
        kwargs = frame.f_locals.get("kwargs")
        kwargs = dict(kwargs) if isinstance(kwargs, dict) else {}
        del frame
        inner, taken = unwrapped(module)
        if "torch.compile" in taken:
            self.notes.append("the model is compiled; its step was not traced, the experiments use the model inside")
            self.view.trace.most = 0
        elif taken:
            self.notes.append(f"the model was audited without its wrapper ({taken})")
        trace = self.view.trace
        if not self.captured and len(trace.ops) > MOST_BEFORE_STEP:
            trace.ops.clear()
            trace.producer.clear()
        call = Call(inner, tuple(inputs), kwargs)
        if inner not in [c.model for c in self.captured]:
            self._keys[id(inner)] = parameter_keys(trace, inner)
            self.captured.append(Captured(inner, call, site_of(place_here(2)), autocast_here(call), _copied(call), training=module.training, inside=slice(len(trace.ops), None)))
            paths = {id(m): name for name, m in inner.named_modules()}
            trace.type_names = {name: type(m).__name__ for name, m in inner.named_modules()}
            self._paths = paths

    def _silent_call(self, module: nn.Module, inputs: typing.Any) -> None:
        """A module run under `no_grad`: of interest if the optimizer turns out to hold its parameters."""
        if len(self._silent) < 8 and not any(module is one.model for one in self._silent) and any(p.requires_grad for p in module.parameters()):
            self._keys.setdefault(id(module), parameter_keys(self.view.trace, module))
            self._silent.append(Captured(module, Call(module, (), {}), site_of(place_here(3)), None, inside=slice(len(self.view.trace.ops), None)))

    def _silent_facts(self) -> None:
        optimized = {id(p) for group in self._optimizer.param_groups for p in group["params"]} if self._optimizer is not None else set()
        for one in self._silent:
            held = {n: p for n, p in one.model.named_parameters() if id(p) in optimized}
            if not held or not self._loss_seen or any(one.model is m for c in self.captured for m in c.model.modules()):
                continue
            states = {name: grad_state(p.grad) for name, p in one.model.named_parameters()}
            fields = self.view.facts(one.model, None, self._loss, states, self._keys[id(one.model)], optimized, None, slice(0, 0), (), slice(0, 0))
            kept = {name: fields[name] for name in ("weights", "cuts") if name in fields}
            name = _called_name(one.site)
            if name and kept.get("cuts"):
                kept["cuts"] = tuple(dataclasses.replace(c, weights=tuple(f"{name}.{w}" for w in c.weights)) for c in kept["cuts"])
                kept["weights"] = tuple(dataclasses.replace(w, name=f"{name}.{w.name}") for w in kept["weights"])
            if kept.get("cuts"):
                self._silent_found.append(Observation(type(one.model).__name__, one.site, **kept))

    def _leave(self, module: nn.Module, inputs: typing.Any, output: typing.Any) -> None:
        if not self._here():
            return
        self._depth = max(0, self._depth - 1)
        if self._depth == 0 and not self._done:
            for one in self.captured:
                if one.output is None and (one.model is module or unwrapped(module)[0] is one.model):
                    one.output = output
                    one.inside = slice(one.inside.start, len(self.view.trace.ops))

    def _before_backward(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        if self._here() and not self._loss_seen and args and isinstance(args[0], torch.Tensor):
            self._loss = args[0]
            self._backward_at = op.index
            self._backward.attach(self._loss)

    def _after_backward(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        if not self._here() or self._done or self._loss is None:
            return
        self._loss_seen = True
        self._backward.detach()
        for one in self.captured:
            for parameter in one.model.parameters():
                self._states[id(parameter)] = grad_state(parameter.grad)

    def _before_step(self, optimizer: Optimizer, args: typing.Any, kwargs: typing.Any) -> None:
        if not self._here() or self._done or not self._loss_seen:
            return
        self._optimizer = optimizer
        self._step_site = site_of(place_here(2))
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self._before = {id(p): p.detach().clone() for p in parameters}

    def _after_step(self, optimizer: Optimizer, args: typing.Any, kwargs: typing.Any) -> None:
        if not self._here() or self._done or optimizer is not self._optimizer:
            return
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if self._before and all(torch.equal(self._before[id(p)], p.detach()) for p in parameters if id(p) in self._before):
            self._no_update = self._why_no_update(optimizer, parameters)
        self._before = {}
        self._conclude()

    def _why_no_update(self, optimizer: Optimizer, parameters: list[torch.Tensor]) -> NoUpdate | None:
        name, site = type(optimizer).__name__, self._step_site
        had = any(self._states.get(id(p)) == "ok" for p in parameters)
        now = any(p.grad is not None and grad_state(p.grad) != "zero" for p in parameters)
        if had and not now:
            return NoUpdate(name, "cleared", site, self._clearing_call())
        if not now:
            return NoUpdate(name, "no-gradient", site)
        if all(group.get("lr") == 0 for group in optimizer.param_groups):
            return NoUpdate(name, "learning-rate", site, scheduled=any("initial_lr" in group for group in optimizer.param_groups))
        return None  # a step too small to show, or one that a scaler skipped

    def _clearing_call(self) -> Site | None:
        """The `zero_grad` that stands between `backward()` and `step()`, from the source around the step."""
        if self._step_site is None:
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
            elif node.lineno == self._step_site.span.line and node.func.attr == "step" and found is not None:  # type: ignore[union-attr]
                return site_of_node(filename, found, self._step_site.function)
        return None

    # -- the step is over -------------------------------------------------------------------------

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
            self._silent_facts()
            if not self.captured:
                fields = self.view.facts(nn.Module(), None, self._loss, None, {}, None, None, slice(0, 0), (), slice(0, 0))
                fields["losses"], _ = self.view.losses([])
                self._loose = Observation("the program", self._step_site, no_update=self._no_update, **fields)
        except Exception as error:
            for one in self.captured:  # what was seen before does not need the tensors
                self.fields.setdefault(id(one.model), {"inputs": tuple(self.view.watch.inputs)})
            self.notes.append(f"the first step could not be read: {type(error).__name__}: {_first_line(error)}")
        finally:
            for one in self.captured:
                one.output = None
                one.live = one.copy or one.live
            self._loss = None
            self._stop()

    def _facts(self, one: Captured) -> dict[str, typing.Any]:
        states = None
        if self._loss_seen:
            states = {name: self._states.get(id(p), "unknown") for name, p in one.model.named_parameters()}
        optimizer = self._optimizer
        optimized = {id(p) for group in optimizer.param_groups for p in group["params"]} if optimizer is not None else None
        elsewhere = {id(p) for other in self._optimizers if other is not optimizer for group in other.param_groups for p in group["params"]}
        step = slice(self.captured[0].inside.start, self._backward_at)
        elsewhere |= {id(p) for other in self.captured if other is not one for p in other.model.parameters()}
        fields = self.view.facts(one.model, one.output, self._loss, states, self._keys[id(one.model)], optimized, one.live.batch_size, one.inside, elsewhere | (optimized or set()), step)
        paddings, _ = padded(one.live)
        losses, extra = self.view.losses(paddings)
        fields["losses"] = losses
        fields["inputs"] = (*self.view.watch.inputs, *extra, *traced_facts(one.live, self.view.trace))
        if optimizer is not None:
            taken = {seen.key for op in self.view.trace.ops[step] for seen in op.ins}
            used = {id(p) for key, ref in self.view.trace.parameters.items() if key in taken and (p := ref()) is not None}
            rebound = {f"{_path_of(one.model, module)}{name}": site for module, name, site in self._rebound}
            fields["optimizer"] = tuple(optimizer_facts(one.model, optimizer, states, self._built.get(id(optimizer)), rebound, elsewhere, used))
            if len(self.captured) > 1 and (name := _called_name(one.site)):
                fields["optimizer"] = tuple(dataclasses.replace(f, weights=tuple(f"{name}.{w}" for w in f.weights)) for f in fields["optimizer"])
            fields["no_update"] = self._no_update
            if not one.training:
                modules = _mode_dependent(one.model)
                if modules:
                    fields["modes"] = (ModeFact("eval-in-training", tuple(modules[:4]), one.site),)
        if states:
            fields["vanished"] = tuple(self._vanished(one.model, states))
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

    # -- the end ----------------------------------------------------------------------------------

    def finish(self) -> Parts:
        """The experiments on the captured call, judged together with what the step showed."""
        if not self._done and self._on and (self.captured or self._loss_seen):
            self._conclude()
        self._stop()
        self._take_off()
        if not self.captured and self._loose is not None:
            return Parts(findings(self._loose), tuple(self.notes), (self._loose,))
        if not self.captured:
            return Parts(notes=(*self.notes, "no training step was seen: no module with trainable parameters was called with gradients on"))
        diagnoses: list[Diagnosis] = [d for observation in self._silent_found for d in findings(observation)]
        observations = list(self._silent_found)
        notes = list(self.notes)
        for one in sorted(self.captured, key=lambda c: -sum(p.numel() for p in c.model.parameters()))[:2]:
            try:
                observation = self._observation(one)
            except Exception as error:  # a device that died with the program, for one
                kept = self.fields.get(id(one.model), {})
                notes.append(f"no experiment was made: {type(error).__name__}: {_first_line(error)}")
                observation = Observation(type(one.model).__name__, one.site, training=one.training, **kept)
            observations.append(observation)
            notes += observation.notes
            for diagnosis in findings(observation):
                if diagnosis not in diagnoses and not _repeats(diagnosis, diagnoses):
                    diagnoses.append(diagnosis)
        return Parts(tuple(diagnoses), tuple(dict.fromkeys(notes)), tuple(observations))

    def _observation(self, one: Captured) -> Observation:
        fields = self.fields.get(id(one.model), {})
        if one.copy is None:
            notes = ("the inputs of the first step were too large to copy; no experiment was made",)
            return Observation(type(one.model).__name__, one.site, training=one.training, notes=notes, **fields)
        session = Session(one.model, one.copy, None, one.site, one.autocast, self.budget_s)
        was = [(m, m.training) for m in one.model.modules()]
        try:
            if one.training != one.model.training:
                one.model.train(one.training)
            session.experiments_after(self.view, fields)
        finally:
            for module, training in was:
                module.training = training
        return session.observation()


def _below_the_others(mode: typing.Any) -> None:
    """Enter at the bottom of the stack of modes: a recorder above it sees the program's own frames, not ours."""
    others = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]
    mode.__enter__()
    for other in reversed(others):
        torch._C._push_on_torch_function_stack(other)


def _remove_mode(mode: typing.Any) -> None:
    depth = torch._C._len_torch_function_stack()
    if not any(torch._C._get_function_stack_at(level) is mode for level in range(depth)):
        return
    others = []
    while (top := torch._C._pop_torch_function_stack()) is not mode:
        others.append(top)
    for other in reversed(others):
        torch._C._push_on_torch_function_stack(other)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def _called_name(site: Site | None) -> str:
    """What the program calls the module: `head` in `head(x)`."""
    try:
        node = ast.parse(site.source.strip(), mode="eval").body if site is not None else None
    except SyntaxError:
        return ""
    return ast.unparse(node.func) if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)) else ""


def _copied(call: Call) -> Call | None:
    if sum(leaf.tensor.numel() * leaf.tensor.element_size() for leaf in call.leaves) > COPIED_BYTES:
        return None
    with torch.no_grad():
        args, kwargs = call.replaced({leaf.path: leaf.tensor.detach().clone() for leaf in call.leaves})
    return Call(call.model, args, kwargs)


def _path_of(model: nn.Module, module: nn.Module) -> str:
    path = next((name for name, m in model.named_modules() if m is module), "")
    return f"{path}." if path else ""


def _mode_dependent(model: nn.Module) -> list[str]:
    return [
        name or type(m).__name__
        for name, m in model.named_modules()
        if (isinstance(m, _DROPPING) and m.p > 0) or isinstance(m, BATCH_NORMS)
    ]


def _scaled() -> bool:
    """Is a gradient scaler at work? Its first steps overflow by design and are skipped."""
    return any(type(o).__name__ == "GradScaler" and o.is_enabled() for o in gc.get_objects() if type(o).__name__ == "GradScaler")


def _repeats(diagnosis: Diagnosis, others: list[Diagnosis]) -> bool:
    spans = {c.span for c in diagnosis.culprits}
    return any(o.rule == diagnosis.rule and spans and spans == {c.span for c in o.culprits} for o in others)

"""`clip_grad_norm_` in vain: called before the gradients are there, with an iterator that others have used up, or after the step."""

from __future__ import annotations

import ast
import sys
import types
import typing
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch.optim.optimizer import Optimizer

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import Unclipped
from torchsleuth.auditor.program.arrivals import Late
from torchsleuth.auditor.program.optimizers import parameters_of
from torchsleuth.auditor.tracing.owners import assignments
from torchsleuth.auditor.tracing.programfiles import program_syntax
from torchsleuth.auditor.tracing.sites import call_at, place_of, site_of_node, syntax_of
from torchsleuth.auditor.tracing.trace import Op, Trace, quietly
from torchsleuth.probe.names import locals_of

_DEEP = 16  # frames between the one call of torch that is made for no gradients, and the function that clips
_CLIPS = "clip_grad_norm_"
_CLIPPING = {_CLIPS, "clip_grad_value_", "clip_grads_with_norm_"}


@dataclass
class Idle:
    """A call that had no gradient to clip."""

    index: int  # of the operation in the trace
    site: Site
    given: list[weakref.ref]
    limit: float
    spent: bool  # it was given an iterator that had come to its end
    made: Site | None = None  # where that was made


@dataclass
class ClipWatch:
    trace: Trace
    idle: list[Idle] = field(default_factory=list)

    def install(self) -> None:
        self.trace.watchers.setdefault("tensor", []).append(quietly(self._look))

    def _look(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        """Of no gradients the norm is `torch.tensor(0.0)`: the only call of torch's that is made then."""
        if args != (0.0,) or kwargs:
            return
        frame: types.FrameType | None = sys._getframe(1)
        for _ in range(_DEEP):
            if frame is None or (frame.f_code.co_name == _CLIPS and frame.f_code.co_filename.endswith("clip_grad.py")):
                break
            frame = frame.f_back
        site = self.trace.site(op)
        if frame is None or frame.f_code.co_name != _CLIPS or site is None or site.library:
            return
        given = [weakref.ref(p) for p in frame.f_locals["parameters"] if isinstance(p, torch.Tensor)]
        spent, made = _spent(frame) if not given else (False, None)
        self.idle.append(Idle(op.index, site, given, float(frame.f_locals["max_norm"]), spent, made))

    def unclipped(self, optimizer: Optimizer) -> Unclipped | None:
        """Before a step: its gradients are as `backward()` left them, although the program has tried to clip them."""
        held = {id(p): p for p in parameters_of(optimizer) if p.grad is not None}
        backward = next((op.index for op in reversed(self.trace.ops) if op.name == "backward"), None)
        if not self.idle or not held or backward is None:
            return None
        gradients = {key for p in held.values() if p.grad is not None and (key := self.trace.known_key(p.grad)) is not None}
        if any(seen.key in gradients for op in self.trace.ops[backward + 1 :] for seen in (*op.ins, *op.outs) if not op.name.startswith("_amp")):
            return None  # something has looked at them since: another limit, perhaps
        for one in self.idle:
            early = one.index < backward and any(id(p) in held for ref in one.given if (p := ref()) is not None)
            if early or (one.spent and one.index > backward):
                norm = torch.stack([p.grad.detach().norm().float().cpu() for p in held.values() if p.grad is not None]).norm()
                return Unclipped("early" if early else "spent", type(optimizer).__name__, one.site, self.trace.site(self.trace.ops[backward]), one.limit, float(norm), one.made)
        return None


def clipped_late(late: Late | None, near: list[Site | None]) -> Unclipped | None:
    """Gradients that were shortened after their step, and the one expression in the program's files that clips, as the source has it."""
    if late is None:
        return None
    calls = [
        site_of_node(file, node) for file, tree in program_syntax([*near, late.cleared]) for node in ast.walk(tree)
        if isinstance(node, ast.Call) and (node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")) in _CLIPPING
    ]  # fmt: skip
    return Unclipped("late", late.kind, calls[0], late.cleared, late.after, late.before, weight=late.name, times=late.times) if len(calls) == 1 else None


def _spent(clipping: types.FrameType) -> tuple[bool, Site | None]:
    """Was what the program gave a name in it for an iterator (`filter(...)`, `model.parameters()`), not a list that happens to be empty? And where it was made."""
    caller = clipping.f_back
    while caller is not None and caller.f_code.co_filename == clipping.f_code.co_filename:
        caller = caller.f_back
    call = call_at(place_of(caller)) if caller is not None else None
    if caller is None or call is None:
        return False, None
    given = next(iter([*call.args[:1], *(k.value for k in call.keywords if k.arg == "parameters")]), None)
    scope = {**caller.f_globals, **locals_of(caller)}
    if isinstance(given, ast.Name):
        value = scope.get(given.id)
    elif isinstance(given, ast.Attribute) and isinstance(given.value, ast.Name):
        value = getattr(scope.get(given.value.id), "__dict__", {}).get(given.attr)
    else:
        return False, None
    filename = caller.f_code.co_filename
    made = [one for target, one in assignments(syntax_of(filename) or ast.Module([], [])) if ast.unparse(target) == ast.unparse(given)]
    return isinstance(value, Iterator), site_of_node(filename, made[0]) if len(made) == 1 else None

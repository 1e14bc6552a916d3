"""In-place writes, what was kept of the memory they write to, and which of them hurt a later backward."""

from __future__ import annotations

import ast
import copy

from torchsleuth.linter import expressions
from torchsleuth.linter.events import Frame, Hazard, Write
from torchsleuth.linter.flow import comes_from, exclusive, is_self_attribute, root_name
from torchsleuth.linter.gradients import trains_only_through
from torchsleuth.linter.values import Save, Storage, Value, kept_if_recorded, kept_tensors, tensor

# `x.unsqueeze_(0)` counts as a write for autograd (the version goes up, a leaf refuses it), and writes no element.
RESHAPES = frozenset("unsqueeze squeeze t transpose swapaxes swapdims as_strided".split())


class Writes(expressions.Expressions):
    def wrote(self, node: ast.AST, base: Value, where: ast.expr | None, how: str, op: str, others: tuple[Value, ...]) -> Value:
        frame = self.frame
        frame.writes += 1
        self.time += 1
        name = root_name(where)
        write = Write(node, base, ast.unparse(where) if where is not None else "", how, op, frame, frame.no_grad, name)
        self.listener.write(write)
        if base.storage is None:
            base.storage = Storage()
        for save in base.storage.saves:
            value, arms, certain = save.value
            if save.time < self.time and not exclusive(arms, frame):
                feeds = not certain and any(comes_from(o, save.result) for o in others)
                frame.hazards.append(Hazard(save, write, self.time, certain, feeds=feeds))
        after = tensor(node, base.op if how == "data" else f"{op}_", (base, *(o for o in others if o.is_tensor)))
        after.storage, after.ndim, after.shape, after.dtype = base.storage, base.ndim, base.shape, base.dtype
        if op in RESHAPES:
            after.ndim = after.shape = None
        after.leaf, after.expanded, after.assumed = base.leaf, base.expanded, base.assumed
        after.grad = base.grad
        if not frame.no_grad and how != "data" and any(o.is_tensor and o.grad for o in others):
            after.grad = True
        elif base.grad is False and any(o.grad is None and o.kind in ("tensor", "unknown") for o in others):
            after.grad = None
        if isinstance(where, ast.Name) and where.id in frame.env:
            frame.env[where.id] = after
        elif isinstance(where, ast.Attribute) and is_self_attribute(where):
            frame.attributes[where.attr] = after
        for other, bound in list(frame.env.items()):
            if bound.is_tensor and bound.storage is base.storage and bound is not after:
                # Whatever shares the memory is made from what was written, too.
                changed = copy.copy(bound)
                changed.inputs, changed.op = (bound, after), f"{op}_"
                changed.grad = True if after.grad else bound.grad
                frame.env[other] = changed
        return after

    def keep(self, node: ast.AST, op: str, result: Value, tensors: tuple[Value, ...], has_dim: bool, with_number: bool) -> None:
        """Record what this operation keeps for backward."""
        if self.frame.no_grad or result.grad is False:
            return
        self.time += 1
        if_recorded = kept_if_recorded(op, tensors, has_dim, with_number)
        for what, certain in kept_tensors(op, tensors, has_dim, with_number):
            value = result if what == "r" else tensors[what]
            if value.storage is not None and len(value.storage.saves) < 64:
                value.storage.saves.append(Save(node, result, op, what, self.time, (value, self.frame.arms, certain), what in if_recorded))

    def sink(self, how: str, value: Value) -> None:
        if value.is_tensor or value.items:
            self.time += 1
            self.frame.sinks.append((self.time, how, value))

    def _finish(self, frame: Frame) -> None:
        """At the end of a function: a hazard counts where what was computed from the kept value is still used."""
        real: dict[int, Hazard] = {}
        for hazard in frame.hazards:
            for time, how, value in frame.sinks:
                if time > hazard.time and (how == "backward" or not frame.is_script) and comes_from(value, hazard.save.result):
                    hazard.used = how
                    hazard.trained = how == "backward" and hazard.save.if_recorded and trains_only_through(value, hazard.save.result)
                    first = real.setdefault(id(hazard.write.node), hazard)
                    if first is not hazard and all(s.node is not hazard.save.node for s in (first.save, *first.others)):
                        if hazard.certain and not first.certain:
                            first.save, first.certain, hazard.save = hazard.save, True, first.save
                        if hazard.certain:
                            first.others.append(hazard.save)
                    break
        for hazard in real.values():
            self.listener.hazard(hazard)

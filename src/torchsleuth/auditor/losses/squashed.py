"""What a loss is given by an activation that does not belong before it: how far it keeps the loss up, how much gradient it leaves, what it can never give."""

from __future__ import annotations

import ast
import typing
from collections.abc import Callable

import torch

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.programfiles import program_syntax
from torchsleuth.auditor.tracing.sites import call_at, site_of_node
from torchsleuth.auditor.tracing.trace import Op, Trace

_CLASSES = {"softmax": "Softmax", "sigmoid": "Sigmoid", "log_softmax": "LogSoftmax", "relu": "ReLU", "tanh": "Tanh"}
_RANGES = {"sigmoid": (0.0, 1.0), "softmax": (0.0, 1.0), "tanh": (-1.0, 1.0), "relu": (0.0, float("inf"))}
_COMPARING = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"}
OUT_OF_REACH = 0.25  # of the targets; a few may be noise
_BEYOND = 0.05


def built(trace: Trace, activation: Op) -> tuple[Site | None, bool]:
    """The one expression in the program that builds a module of this activation, if a module applied it; and whether it is a part of another one (a list of layers)."""
    kind, site, call = _CLASSES.get(activation.name.rstrip("_")), trace.site(activation), call_at(activation.place)
    if kind is None or site is None or (call is not None and _is_function(call.func, activation.name.rstrip("_"))):
        return None, False
    found = []
    for file, tree in program_syntax([site]):
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == kind)
        found += [(site_of_node(file, node), not isinstance(_around(node, parents), (ast.Assign, ast.AnnAssign))) for node in calls]
    if len(found) != 1 or (not found[0][1] and _used_elsewhere(trace, activation, call)):
        return None, False
    return found[0]


def _around(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> ast.AST | None:
    """`x = a() if b else c()` assigns either."""
    above = parents.get(node)
    return parents.get(above) if isinstance(above, ast.IfExp) else above


def _used_elsewhere(trace: Trace, activation: Op, call: ast.Call | None) -> bool:
    """A layer that is called by its name in another place, too, where it may be right."""
    others = {op.place.user_offset: op for op in trace.ops if op.name == activation.name and op.place.user_offset != activation.place.user_offset}
    calls = [call_at(op.place) for op in others.values()]
    return call is not None and any(other is not None and ast.unparse(other.func) == ast.unparse(call.func) for other in calls)


def belongs_not(loss: str, activation: Op, facts: dict[str, typing.Any]) -> bool:
    """Is it worth a look at where the activation was built?"""
    kind = activation.name.rstrip("_")
    if loss in _COMPARING:
        return "out_of_reach" in facts
    if loss == "binary_cross_entropy":
        return "asked" in facts
    return kind in _RANGES and loss in ("cross_entropy", "nll_loss", "binary_cross_entropy_with_logits", "ctc_loss", "kl_div")


def _is_function(called: ast.expr, name: str) -> bool:
    """`F.softmax`, `x.sigmoid()`, and not a layer that is called so: `self.softmax`."""
    return getattr(called, "attr", getattr(called, "id", "")).rstrip("_") == name and not ast.unparse(called).startswith("self.")


def of_activation(name: str, made: Op | None, given: torch.Tensor, target: torch.Tensor) -> dict[str, typing.Any]:
    """Numbers for what the activation `made` does to the loss `name`."""
    if made is None:
        return {}
    kind, values = made.name.rstrip("_"), given.float()
    if name == "cross_entropy" and kind == "softmax" and not target.is_floating_point() and given.dim() > 1:
        goal = torch.zeros_like(values).scatter_(1, target.clamp(0, given.shape[1] - 1).unsqueeze(1), 1.0)
        through = values.softmax(1) - goal
        return _gradients(values - goal, values * (through - (through * values).sum(1, keepdim=True)))
    if name == "binary_cross_entropy_with_logits" and kind == "sigmoid":
        return _gradients(values - target, (values.sigmoid() - target) * values * (1 - values))
    if name == "binary_cross_entropy" and kind == "softmax" and isinstance(axis := made.argument(1, "dim"), int) and given.dim() > 1 and target.shape == given.shape:
        asked = target.float().sum(axis)
        return {"asked": float(asked.max()), "asked_over": axis % given.dim()} if given.shape[axis] > 1 and float(asked.max()) > 1.5 and bool((target.float() >= 0).all()) else {}
    if name == "cross_entropy" and kind == "relu" and not target.is_floating_point() and given.dim() > 1:
        own = values.gather(1, target.clamp(0, given.shape[1] - 1).unsqueeze(1))
        return {"cut_off": (int((values == 0).sum()), values.numel(), int((own == 0).sum()), own.numel())}
    if name in _COMPARING and kind in _RANGES and target.shape == given.shape and target.numel() > 1:
        low, high = _RANGES[kind]
        outside = (target < low - _BEYOND) | (target > high + _BEYOND)
        if int(outside.sum()) > max(1, OUT_OF_REACH * target.numel()):
            return {"out_of_reach": (int(outside.sum()), target.numel(), float(target.min()), float(target.max()))}
    return {}


def _gradients(direct: torch.Tensor, through: torch.Tensor) -> dict[str, typing.Any]:
    whole = float(direct.norm())
    return {"gradient_left": float(through.norm()) / whole} if whole > 0 else {}


def twice(activation_of: Callable[[typing.Any], Op | None], made: Op | None) -> Op | None:
    """The activation before this one, if nothing stands between them."""
    before = activation_of(made.ins[0]) if made is not None and made.name in ("sigmoid", "softmax") and made.ins else None
    return before if before is not None and before.name in ("sigmoid", "softmax") else None

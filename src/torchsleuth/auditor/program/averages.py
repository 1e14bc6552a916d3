"""A moving average of a model's weights that never moves: the loop that should write into the copy gives its name to a new tensor.

Two things are needed: a copy of the trained model that is at the end what the model was at its first backward pass (observed), and a
loop over the parameters of two models in the program's source whose result nothing takes up; or one over their states.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

import torch
from torch import nn

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import NoUpdate
from torchsleuth.auditor.program.optimizers import OptimizerWatch
from torchsleuth.auditor.tracing.programfiles import program_syntax
from torchsleuth.auditor.tracing.sites import site_of_node

_MAKING = {"mul", "add", "sub", "lerp", "addcmul", "multiply", "subtract"}


def never_moved(optimizers: OptimizerWatch, models: list[nn.Module], called: Iterable[nn.Module], near: list[Site | None]) -> NoUpdate | None:
    """`models` are trained; `called`: the modules of the first step; `near`: places of the program in whose folders its files lie."""
    if not _still(optimizers, models, called):
        return None
    files = list(program_syntax(near))
    found = [site_of_node(file, statement) for file, tree in files for statement in _without_effect(tree)]
    if len(found) == 1:
        return NoUpdate("", "average", found[0])
    found = [site_of_node(file, statement) for file, tree in files for statement in _not_loaded(tree)] if not found else []
    return NoUpdate("", "average", found[0], unloaded=True) if len(found) == 1 else None


def _still(optimizers: OptimizerWatch, models: list[nn.Module], called: Iterable[nn.Module]) -> bool:
    """Is there a copy of what is trained, which all training has left as it was?"""
    first = optimizers.at_first_backward()
    if not first or not optimizers.changed():
        return False
    copies = [(p, origin) for ref, origin, _ in optimizers.copies.values() if origin in first and (p := ref()) is not None and id(p) not in first]
    if copies and len({origin for _, origin in copies}) == len(first) and all(_equal(p, first[origin]) for p, origin in copies):
        return True
    for module in called:  # built beside it, and given its state
        mine = list(module.parameters())
        for theirs in (list(model.parameters()) for model in models if len(mine) and not any(id(p) in first for p in mine)):
            if len(mine) == len(theirs) and all(id(q) in first and _equal(p, first[id(q)]) for p, q in zip(mine, theirs, strict=True)):
                return True
    return False


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.device == other.device and torch.equal(one.detach(), other)


def _without_effect(tree: ast.AST) -> Iterator[ast.stmt]:
    """Statements in a loop over the parameters of two models that compute from both and keep nothing."""
    for loop in ast.walk(tree):
        if not isinstance(loop, ast.For) or sum(isinstance(n, ast.Attribute) and n.attr in ("parameters", "named_parameters", "values", "items") for n in ast.walk(loop.iter)) < 2:
            continue
        names = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
        inside = [n for statement in loop.body for n in ast.walk(statement)]
        for node in inside:
            read = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)} & names if isinstance(node, (ast.Assign, ast.Expr)) else set()
            if len(read) < 2:
                continue
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(name := node.targets[0], ast.Name) and name.id in read:
                later = (n for n in inside if isinstance(n, ast.Name) and n.id == name.id and isinstance(n.ctx, ast.Load) and n.lineno > (node.end_lineno or node.lineno))
                if next(later, None) is None:
                    yield node
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _only_makes(node.value):
                yield node


def _not_loaded(tree: ast.AST) -> Iterator[ast.stmt]:
    """Statements in a loop that put new tensors into what `state_dict()` gave, which nothing takes up after it."""
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        inside = list(ast.walk(function))
        states = {name.id for node in inside if isinstance(node, ast.Assign) and _gives_state(node.value) for name in node.targets if isinstance(name, ast.Name)}
        for loop in (node for node in inside if isinstance(node, ast.For)):
            after = {n.id for n in inside if isinstance(n, ast.Name) and n.lineno > (loop.end_lineno or loop.lineno)}
            for node in (part for statement in loop.body for part in ast.walk(statement)):
                target = node.targets[0] if isinstance(node, ast.Assign) else None
                if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and target.value.id in states - after:
                    yield node


def _gives_state(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "state_dict"


def _only_makes(call: ast.Call) -> bool:
    """`slow.data.mul(0.99).add(fast.data)`: a chain of methods without an underscore at their end."""
    methods = []
    node: ast.expr = call
    while isinstance(node, (ast.Call, ast.Attribute)):
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Attribute):
                return False
            methods.append(node.func.attr)
            node = node.func.value
        else:
            node = node.value
    return isinstance(node, ast.Name) and bool(set(methods) & _MAKING) and set(methods) <= _MAKING | {"detach", "clone"}

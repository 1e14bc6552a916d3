"""The input of `autograd.grad` that has no gradient: it does not require grad, or the outputs were not computed from it."""

from __future__ import annotations

import ast
import dataclasses
import re
import typing

import torch

from torchsleuth.capture.investigations.backward_root import made_at, root_fact
from torchsleuth.capture.investigations.lost import Search
from torchsleuth.capture.syntax import node_at
from torchsleuth.evidence import GradientCut, GradInput, TensorFact
from torchsleuth.probe import graph
from torchsleuth.probe.tensors import storage_of
from torchsleuth.record.oplog import Operation

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_MOST_LEAVES = 6
_MOST_STEPS = 5000


def investigate(crash: Crash) -> GradInput | None:
    call = crash.place_of_failure()
    inputs = _inputs(crash)
    if call is None or not inputs or not crash.roots:
        return None
    position = _offending(crash, inputs)
    if position is None:
        return None
    tensor, root = inputs[position], crash.roots[0]
    reached = {id(node) for node in crash.nodes}
    return GradInput(
        call,
        _fact(crash, tensor, position, len(inputs)),
        position,
        made_at(crash, tensor)[0],
        root_fact(crash, root),
        made_at(crash, root)[0],
        root.grad_fn is not None,
        _leaves(crash),
        _shared(crash, tensor, reached),
        _cut(crash, tensor),
    )


def _inputs(crash: Crash) -> tuple[torch.Tensor, ...]:
    for function, name in (("grad", "inputs_tuple"), ("grad", "inputs"), ("backward", "inputs")):
        found = crash.local(function, name, "__init__.py")
        if isinstance(found, torch.Tensor):
            return (found,)
        if isinstance(found, dict):
            found = tuple(found.values())
        if isinstance(found, (list, tuple)) and found and all(isinstance(item, torch.Tensor) for item in found):
            return tuple(found)
    return ()


def _offending(crash: Crash, inputs: tuple[torch.Tensor, ...]) -> int | None:
    said = re.search(r"Tensor at index (\d+) appears", crash.message)
    if said is not None:
        return int(said[1]) if int(said[1]) < len(inputs) else None
    return next((position for position, item in enumerate(inputs) if not item.requires_grad), None)


def _fact(crash: Crash, tensor: torch.Tensor, position: int, count: int) -> TensorFact:
    """By its name, or by what the call says in its place."""
    fact = crash.names.fact(tensor)
    said = _said(crash)
    if said is None:
        return fact
    items = list(said.elts) if isinstance(said, (ast.List, ast.Tuple)) else [said] if count == 1 else []
    text = ast.unparse(items[position]) if position < len(items) and not isinstance(items[position], ast.Starred) else ""
    is_name = isinstance(items[position], (ast.Name, ast.Attribute)) if text else False
    if fact.name and (is_name or not text):
        return fact
    return dataclasses.replace(fact, name=text, kind="variable", view_of="") if 0 < len(text) <= 60 else fact


def _said(crash: Crash) -> ast.expr | None:
    entry = crash.user_entry()
    call = node_at(entry[0].f_code, entry[1]) if entry is not None else None
    if not isinstance(call, ast.Call):
        return None
    named = next((keyword.value for keyword in call.keywords if keyword.arg == "inputs"), None)
    if named is not None:
        return named
    is_grad = isinstance(call.func, (ast.Attribute, ast.Name)) and ast.unparse(call.func).endswith("grad")
    return call.args[1] if is_grad and len(call.args) > 1 else None


def _leaves(crash: Crash) -> tuple[str, ...]:
    """The leaves below the roots that have names."""
    found = []
    for node in crash.nodes:
        variable = getattr(node, "variable", None)
        named = crash.names.by_id(id(variable)) if variable is not None else None
        if named is not None:
            found.append(named.name)
    return tuple(dict.fromkeys(found))[:_MOST_LEAVES]


def _shared(crash: Crash, tensor: torch.Tensor, reached: set[int]) -> str:
    """`x` for `x[:, 0]`: what the input is a part of, where the outputs were computed from that."""
    if tensor.grad_fn is None or not tensor._is_view():
        return ""
    for node in graph.walk([tensor.grad_fn], 2000):
        if id(node) not in reached:
            continue
        variable = getattr(node, "variable", None)
        owners = [crash.names.by_id(id(variable))] if variable is not None else crash.names.with_grad_fn(node)
        return next((owner.name for owner in owners if owner is not None and storage_of(owner.tensor) == storage_of(tensor)), "")
    return ""


def _cut(crash: Crash, tensor: torch.Tensor) -> GradientCut | None:
    """The root was computed from the input's values all the same: one of its leaves was cut off from what they had become."""
    search = Search(crash)
    for node in crash.nodes:
        leaf = getattr(node, "variable", None)
        if leaf is None or leaf is tensor:
            continue
        made = search.producer(id(leaf), storage_of(leaf), None)
        if made is not None and made.name == "requires_grad_":
            made = search.producer(id(leaf), storage_of(leaf), made.index)
        losing = next((mark for mark in made.operands if mark.requires_grad), None) if made is not None else None
        if made is not None and losing is not None and _is_behind(search, made, id(tensor)):
            cut = search.cut(made, losing, list(made.results))
            if cut is not None and cut.reason == "detach":
                return cut
    return None


def _is_behind(search: Search, operation: Operation, ident: int) -> bool:
    """Whether what an operation gave was computed from the values of this tensor, by whatever way."""
    pending, seen = [operation], {operation.index}
    while pending and len(seen) < _MOST_STEPS:
        current = pending.pop()
        for mark in current.operands:
            if mark.ident == ident:
                return True
            made = search.producer(mark.ident, mark.storage, current.index)
            if made is not None and made.index not in seen:
                seen.add(made.index)
                pending.append(made)
    return False

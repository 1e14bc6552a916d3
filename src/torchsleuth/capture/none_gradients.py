"""Whose `.grad` was None where Python met one: found by the syntax of the failing expression and what its names stand for.

`images.grad.abs()`, `w - lr * w.grad`, `torch.cat([p.grad for p in parameters])`, a variable that was given one of these before, and
the None that `autograd.grad(..., allow_unused=True)` returns.
"""

from __future__ import annotations

import ast
import typing

import torch

from torchsleuth.bindings import bindings, function_node
from torchsleuth.capture.alignment import called_name
from torchsleuth.capture.definitions import Definitions
from torchsleuth.capture.evaluate import UNKNOWN
from torchsleuth.capture.failure import Entry, Failure
from torchsleuth.capture.scopes import comprehensions_around, position_in
from torchsleuth.capture.syntax import operand_expressions

_STEPS = 6
_ITERATORS = frozenset({"list", "tuple", "reversed", "filter", "iter", "tqdm", "sorted"})  # go over what they are given last


class NoneGradient(typing.NamedTuple):
    tensor: torch.Tensor
    entry: Entry  # the frame, and
    node: ast.expr  # the expression in it: `x.grad`, or the call of `autograd.grad`
    owner: str  # `x`
    returned: bool = False  # `autograd.grad` returned it
    others: tuple[torch.Tensor, ...] = ()  # of the same list or module, whose gradient is None as well


def none_gradient(failure: Failure, definitions: Definitions, asked: bool) -> NoneGradient | None:
    """In the running expression of the user's own frame; `asked`: an attribute was asked of None."""
    entry = failure.user
    if entry is None:
        return None
    node = entry.node.func if isinstance(entry.node, ast.Call) and asked else entry.node
    if asked:
        suspects = [node.value] if isinstance(node, ast.Attribute) else []
    else:
        suspects = [part for operand in operand_expressions(node) for part in _written_out(operand)]
    search = _Search(failure, definitions)
    return next((found for suspect in suspects if (found := search.of(entry, suspect, _STEPS)) is not None), None)


def is_none(tensor: torch.Tensor) -> bool:
    """Not asked of results, which warn: they have none unless they were told to keep it."""
    return tensor.grad is None if tensor.is_leaf or tensor.retains_grad else True


def _written_out(node: ast.expr) -> list[ast.expr]:
    node = node.value if isinstance(node, ast.Starred) else node
    return [part for element in node.elts for part in _written_out(element)] if isinstance(node, (ast.List, ast.Tuple)) else [node]


def _comprehended(entry: Entry, node: ast.AST, name: str) -> ast.comprehension | None:
    """The `for` of a comprehension that a name at this place belongs to."""
    around = comprehensions_around(entry.statement, node) if entry.statement is not None else []
    return next((loop for item in around for loop in item.generators if position_in(loop.target, name) is not None), None)


class _Search:
    def __init__(self, failure: Failure, definitions: Definitions) -> None:
        self._entries, self._definitions = failure.entries, definitions

    def of(self, entry: Entry, node: ast.AST, steps: int, position: int | None = None) -> NoneGradient | None:
        """`position`: the expression is a tuple of which this element is meant."""
        if steps == 0:
            return None
        if isinstance(node, ast.Attribute) and node.attr == "grad":
            return self._asked(entry, node)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return self._element(entry, node, steps)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int):
            return self.of(entry, node.value, steps - 1, node.slice.value)
        if isinstance(node, ast.Call) and called_name(node) == "grad":
            return self._returned(entry, node, position)
        return self._named(entry, node, steps, position) if isinstance(node, ast.Name) else None

    def _asked(self, entry: Entry, node: ast.Attribute) -> NoneGradient | None:
        tensor = entry.evaluator.value(node.value)
        if isinstance(tensor, torch.Tensor):
            return NoneGradient(tensor, entry, node, ast.unparse(node.value)) if is_none(tensor) else None
        loop = _comprehended(entry, node, node.value.id) if tensor is UNKNOWN and isinstance(node.value, ast.Name) else None
        return self._first(entry, node, loop.iter) if loop is not None else None  # from Python 3.12 on its variable is gone with it

    def _element(self, entry: Entry, node: ast.ListComp | ast.GeneratorExp, steps: int) -> NoneGradient | None:
        element, loop = node.elt, node.generators[0]
        if isinstance(element, ast.Attribute) and element.attr == "grad" and isinstance(element.value, ast.Name) and len(node.generators) == 1:
            return self._first(entry, element, loop.iter) if position_in(loop.target, element.value.id) is not None else None
        return None

    def _first(self, entry: Entry, node: ast.Attribute, iterated: ast.expr) -> NoneGradient | None:
        without = [tensor for tensor in self._tensors(entry, iterated, _STEPS) if is_none(tensor)]
        return NoneGradient(without[0], entry, node, ast.unparse(node.value), others=tuple(without[1:])) if without else None

    def _named(self, entry: Entry, node: ast.Name, steps: int, position: int | None) -> NoneGradient | None:
        value = entry.evaluator.value(node)
        if isinstance(value, (list, tuple)) and position is None:
            position = next((at for at, item in enumerate(value) if item is None), None)
        elif value is not None and value is not UNKNOWN and position is None:
            return None
        scope = function_node(entry.code)
        bound = [item for item in bindings(scope) if item[0] == node.id] if scope is not None else []
        looped = [item for item in bound if item[3].startswith("loop")]
        if len(bound) == 1 and looped:
            return self._looped(entry, looped[0][1].target, looped[0][2], node.id, steps)
        loop = _comprehended(entry, node, node.id)
        if loop is not None:
            return self._looped(self._around(entry), loop.target, loop.iter, node.id, steps)
        step = self._definitions.step(entry, node)
        if step is None:
            return None
        part = next((item for item in bound if item[3] == "assign-part" and item[2] is step[1]), None)
        if part is not None and isinstance(part[1], ast.Assign):
            selectors = position_in(part[1].targets[0], node.id)
            position = selectors[0] if selectors and isinstance(selectors[0], int) else None
        return self.of(*step, steps - 1, position)

    def _around(self, entry: Entry) -> Entry:
        """The frame that a comprehension stands in: up to Python 3.11 it has one of its own."""
        inside = entry.code.co_name in ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>") and entry.position > 0
        return self._entries[entry.position - 1] if inside else entry

    def _looped(self, entry: Entry, target: ast.expr, iterated: ast.expr, name: str, steps: int) -> NoneGradient | None:
        if isinstance(iterated, ast.Call) and called_name(iterated) in ("zip", "enumerate") and isinstance(target, ast.Tuple):
            at = next((k for k, item in enumerate(target.elts) if position_in(item, name) is not None), None)
            if at is not None and called_name(iterated) == "enumerate":
                at -= 1
                target = target.elts[1] if len(target.elts) == 2 else target
            given = iterated.args[at] if at is not None and 0 <= at < len(iterated.args) else None
            return self._looped(entry, target, given, name, steps - 1) if given is not None and steps else None
        return self.of(entry, iterated, steps - 1)

    def _returned(self, entry: Entry, call: ast.Call, position: int | None) -> NoneGradient | None:
        """The input of `autograd.grad` in that place."""
        told = {keyword.arg: keyword.value for keyword in call.keywords}
        if not isinstance(told.get("allow_unused"), ast.Constant) or not told["allow_unused"].value:
            return None
        said = told.get("inputs") or (call.args[1] if len(call.args) > 1 else None)
        inputs = self._tensors(entry, said, _STEPS) if said is not None else []
        if position is None or not 0 <= position < len(inputs):
            return None
        text = ast.unparse(said.elts[position] if isinstance(said, (ast.List, ast.Tuple)) and position < len(said.elts) else said if len(inputs) == 1 else call)
        return NoneGradient(inputs[position], entry, call, text if text != ast.unparse(call) else "", returned=True)

    def _tensors(self, entry: Entry, node: ast.expr, steps: int) -> list[torch.Tensor]:
        """What an expression goes over, where that can be had without running code of the program's."""
        value = entry.evaluator.value(node)
        if isinstance(value, torch.Tensor):
            return [value]
        if isinstance(value, dict):
            value = list(dict.values(value))
        if isinstance(value, (list, tuple)):
            items = [item[1] if isinstance(item, tuple) and len(item) == 2 else item for item in value]
            return [item for item in items if isinstance(item, torch.Tensor)]
        if isinstance(node, (ast.List, ast.Tuple)):
            return [tensor for element in node.elts for tensor in self._tensors(entry, element.value if isinstance(element, ast.Starred) else element, steps - 1)]
        if isinstance(node, ast.Call) and steps:
            owner = entry.evaluator.value(node.func.value) if isinstance(node.func, ast.Attribute) else None
            if isinstance(owner, torch.nn.Module) and called_name(node) in ("parameters", "named_parameters") and type(owner).named_parameters is torch.nn.Module.named_parameters:
                return list(owner.parameters())
            if isinstance(owner, dict) and called_name(node) in ("values", "items"):
                return [item for item in dict.values(owner) if isinstance(item, torch.Tensor)]
            return self._tensors(entry, node.args[-1], steps - 1) if called_name(node) in _ITERATORS and node.args else []
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)) and steps and len(node.generators) == 1:
            plain = isinstance(node.elt, ast.Name) and position_in(node.generators[0].target, node.elt.id) is not None
            return self._tensors(entry, node.generators[0].iter, steps - 1) if plain else []
        step = self._definitions.step(entry, node) if isinstance(node, ast.Name) and steps else None
        return self._tensors(*step, steps - 1) if step is not None else []

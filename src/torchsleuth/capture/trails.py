"""Follows a size, a dtype or a value back through expressions, where the log did not see them being computed.

The trail goes by syntax from the failing expression to its operands and through assignments and arguments of live
frames, and each step is checked by re-evaluating it: where the recomputed tensor is not like the one at hand (a
variable was bound again, a function of the user's stands in between), the trail ends there.
"""

from __future__ import annotations

import ast
import dataclasses
import types
import typing

import torch

from torchsleuth.capture.arguments import call_at_node
from torchsleuth.capture.axes import COUNTS, followed
from torchsleuth.capture.definitions import Definitions
from torchsleuth.capture.evaluate import UNKNOWN
from torchsleuth.capture.failure import Entry
from torchsleuth.capture.returns import UNSEEN
from torchsleuth.capture.unlogged import operation_word
from torchsleuth.evidence_forward import Made
from torchsleuth.probe.tensors import storage_of
from torchsleuth.record.oplog import Mark

if typing.TYPE_CHECKING:
    from torchsleuth.capture.loaders import Loaders

_MOST_STEPS = 40

# From (operation name, operands, result) to the operand to go on with, and what is then looked for in it; None to stop.
Choice = typing.Callable[[str, tuple[Mark, ...], Mark], int | None]


def mark_of(tensor: torch.Tensor) -> Mark | None:
    try:
        return Mark(
            id(tensor), storage_of(tensor), tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.dtype,
            tensor.device, -1, tensor.requires_grad, tensor.is_leaf,
        )  # fmt: skip
    except Exception:
        return None


class Trails:
    def __init__(self, definitions: Definitions, loaders: Loaders | None = None) -> None:
        self._definitions, self._loaders = definitions, loaders

    def follow(self, entry: Entry, node: ast.AST, choose: Choice) -> Made | None:
        """The expression at which `choose` stops, or the last one that can be followed."""
        tensor = entry.evaluator.value(node)
        at, settled = (entry, node), False
        for _ in range(_MOST_STEPS):
            axis = choose.axis if isinstance(choose, SizeChoice) else None
            if self._loaders is not None and isinstance(tensor, torch.Tensor) and (axis is None or axis < tensor.dim()):
                batch = self._loaders.batch(entry, node, axis, tensor.shape[axis] if axis is not None else 0)
                if batch is not None:
                    return batch
                through = self._through_layer(entry, node, tensor) if axis == 0 else None
                if through is not None:
                    entry, node, tensor = through
                    at = (entry, node)
                    continue
            if isinstance(node, (ast.Name, ast.Attribute)) and not self._is_view(node):
                found = self._definitions.step(entry, node)
                if found is None:
                    break
                before, (entry, node) = (entry, node), found
                at = found
                value = entry.evaluator.value(node)
                if self._loaders is not None and axis == 0 and self._through_layer(entry, node, tensor) is not None:
                    continue
                if not _alike(value, tensor) or self._binds_itself(entry, node):
                    unseen = self._definitions.made(*before) if isinstance(node, ast.Call) else None
                    if unseen is not None and unseen.operation in UNSEEN:  # `X, y = load()`, of `torch.from_numpy`
                        return unseen
                    break
                tensor = value
                continue
            children = list(_children(entry, node))
            marks = [mark_of(child) for _, child in children]
            result = mark_of(tensor) if isinstance(tensor, torch.Tensor) else None
            if result is None or not children or None in marks:
                settled = isinstance(node, ast.Call) and result is not None and _is_torch_call(entry, node)  # a constructor
                break
            chosen = choose(_name(node), tuple(marks), result)  # type: ignore[arg-type]
            if chosen is None:
                settled = True
                break
            node, tensor = children[chosen]
            at = (entry, node)
        axis = choose.axis if isinstance(choose, SizeChoice) else None
        taken = self._definitions.taken(*at, axis, tensor.shape[axis] if axis is not None and isinstance(tensor, torch.Tensor) and axis < tensor.dim() else 0)
        if taken is not None:
            return taken
        made = self._definitions.here(*at)
        if made is None or isinstance(at[1], ast.Name):
            return None
        return made if settled else dataclasses.replace(made, complete=False)

    def _through_layer(self, entry: Entry, node: ast.AST, tensor: typing.Any) -> tuple[Entry, ast.AST, torch.Tensor] | None:
        """`layer(x)` has as many samples as `x`; of `x = layer(x)`, as many as what the caller gave for `x`."""
        if not isinstance(node, ast.Call) or not node.args or not isinstance(entry.evaluator.value(node.func), torch.nn.Module):
            return None
        argument: ast.AST = node.args[0]
        if self._binds_itself(entry, node):
            caller, given = self._definitions.argument_expression(entry, argument.id) if isinstance(argument, ast.Name) else (None, None)
            if caller is None or given is None:
                return None
            entry, argument = caller, given
        value = entry.evaluator.value(argument)
        return (entry, argument, value) if isinstance(value, torch.Tensor) and value.shape[:1] == tensor.shape[:1] else None

    @staticmethod
    def _is_view(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and node.attr in ("T", "mT", "H", "mH", "real", "imag", "data")

    @staticmethod
    def _binds_itself(entry: Entry, node: ast.AST) -> bool:
        """`x = f(x)`: the `x` inside is another tensor than the `x` of now."""
        names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
        return any(name in names for name in _rebound(entry, node))


def _rebound(entry: Entry, value: ast.AST) -> set[str]:
    """Names that the statement around `value`, or one after it, binds."""
    from torchsleuth.bindings import bindings_in

    return {name for name, line in bindings_in(entry.code) if line >= value.lineno}


def _alike(one: typing.Any, other: typing.Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    return one.shape == other.shape and one.dtype == other.dtype


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Subscript):
        return "__getitem__"
    if isinstance(node, ast.BinOp):
        return "matmul" if isinstance(node.op, ast.MatMult) else type(node.op).__name__.lower()
    if isinstance(node, ast.Attribute):
        return node.attr
    return operation_word(node)


def _children(entry: Entry, node: ast.AST) -> typing.Iterator[tuple[ast.AST, torch.Tensor]]:
    """The tensor operands of an expression. Nothing where one of them cannot be had, or the user's own code is called."""
    if isinstance(node, ast.Attribute):
        value = entry.evaluator.value(node.value)
        if isinstance(value, torch.Tensor):
            yield node.value, value
        return
    if isinstance(node, ast.Call) and not _is_torch_call(entry, node):
        return
    call = call_at_node(node, entry)
    if call is None:
        return
    found: list[tuple[ast.AST, torch.Tensor]] = []
    for given in call.given:
        if given.value is UNKNOWN or given.node is None:
            return
        if isinstance(given.value, torch.Tensor):
            found.append((given.node, given.value))
        elif isinstance(given.value, (list, tuple)) and isinstance(given.node, (ast.List, ast.Tuple)):
            for element, value in zip(given.node.elts, given.value):
                if isinstance(value, torch.Tensor):
                    found.append((element, value))
    if isinstance(node, ast.Subscript):
        index = entry.evaluator.value(node.slice)
        if isinstance(index, torch.Tensor):
            found.append((node.slice, index))
    yield from found


def _is_torch_call(entry: Entry, node: ast.Call) -> bool:
    from torchsleuth.capture.evaluate import is_torch_function

    if isinstance(node.func, ast.Attribute) and isinstance(entry.evaluator.value(node.func.value), torch.Tensor):
        return True
    return is_torch_function(entry.evaluator.value(node.func))


class SizeChoice:
    """Follows the size at an axis; the axis moves along."""

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def __call__(self, name: str, operands: tuple[Mark, ...], result: Mark) -> int | None:
        found = followed(types.SimpleNamespace(name=name, operands=operands), result, self.axis)  # type: ignore[arg-type]
        if found is None:
            return None
        operand, self.axis = found
        return next(position for position, mark in enumerate(operands) if mark is operand)


def property_choice(what: str) -> Choice:
    def choose(name: str, operands: tuple[Mark, ...], result: Mark) -> int | None:
        if what == "dtype" and name in COUNTS:
            return None
        return next((k for k, mark in enumerate(operands) if getattr(mark, what) == getattr(result, what)), None)

    return choose


def value_choice(carries: frozenset[str] | set[str]) -> Choice:
    def choose(name: str, operands: tuple[Mark, ...], result: Mark) -> int | None:
        return 0 if name in carries and operands[0].dtype == result.dtype else None

    return choose



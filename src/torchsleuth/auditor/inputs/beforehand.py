"""Where the inputs of `torchsleuth.audit(model, batch)` were made, before anything was recorded: by syntax, where it leaves one reading.

A name leads to what it was bound to last, a key or position to its part of a literal, a call to what the program's own function
returns. Where two branches may have done it, or a library's code has, there is no answer.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import sys
import types
import typing
from collections.abc import Iterator, Mapping

import torch

from torchsleuth.auditor.inputs.bysyntax import DEPTH, Keys, Made, Scope, bound_in, followed, moves_along, node_at, scope_of_frame
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.sites import TRAMPOLINE
from torchsleuth.bindings import function_node
from torchsleuth.origin import Origin, origin_of_file

_MOST_PARTS = 256  # of a batch
_ASKING = ("audit", "assert_")  # calls that begin an audit: the batch is their second argument


class Beforehand:
    """What is known of one call of `audit`: the expressions for `batch` and `target` and their values, and what the loss knows by itself."""

    def __init__(self, given: Mapping[str, typing.Any], loss: typing.Callable | None = None) -> None:
        self._given = given
        self._known = dict(_known_to(loss)) if isinstance(loss, types.FunctionType) else {}
        self._loss = loss
        self._frame = next((f for f in _frames(sys._getframe(1)) if origin_of_file(f.f_code.co_filename) is Origin.USER and f.f_code.co_name != TRAMPOLINE), None)
        if self._frame is None:  # somebody's test or tool in a place of its own
            return
        self._here = (self._frame.f_code, self._frame.f_lasti)

    def close(self) -> None:
        """Nothing of the program's is held any longer than its call takes."""
        self._frame, self._given, self._known, self._loss = None, {}, {}, None

    def tensors(self) -> Iterator[torch.Tensor]:
        for value in self._given.values():
            yield from (tensor for _, tensor in _parts(value, ()))
        yield from self._known.values()

    def made(self, tensor: torch.Tensor, copied: bool = False) -> Site | None:
        """The expression that gave this tensor its values; `copied`: or that copied them."""
        found = self._maker(tensor, copied)
        return found[1].site(found[0]) if found is not None else None

    def shifted(self, tensor: torch.Tensor) -> Site | None:
        """The expression that moved these labels along: `ids[:, 1:]`, or a `roll`."""
        found = self._maker(tensor)
        for _ in range(DEPTH):
            if found is None:
                return None
            node, scope = found
            if (cut := next((part for part in ast.walk(node) if moves_along(part)), None)) is not None:
                return scope.site(cut)
            receiver = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
            if receiver is None or isinstance(receiver, ast.Name) and receiver.id in scope.names and not bound_in(scope, receiver.id):
                receiver = node.args[0] if isinstance(node, ast.Call) and node.args else None
            if isinstance(receiver, (ast.List, ast.Tuple)):  # `cat([ids[:, 1:], end], 1)`
                receiver = receiver.elts[0] if receiver.elts else None
            found = followed(receiver, scope, (), DEPTH) if isinstance(receiver, ast.expr) else None
        return None

    def _maker(self, tensor: torch.Tensor, copied: bool = False) -> Made | None:
        if self._frame is None:
            return None
        for name, value in self._given.items():
            keys = next((keys for keys, part in _parts(value, ()) if part is tensor), None)
            if keys is not None and (start := self._argument(name)) is not None:
                node, scope, above = start
                return followed(node, dataclasses.replace(scope, copied=copied), above + keys, DEPTH)
        return next((self._named_by_loss(name, copied) for name, known in self._known.items() if known is tensor), None)

    def _named_by_loss(self, name: str, copied: bool) -> Made | None:
        """Of `lambda output: cross_entropy(output, labels)` the labels: a variable of the function around it, or of the module."""
        assert isinstance(self._loss, types.FunctionType) and self._frame is not None
        body, around = function_node(self._loss.__code__), scope_of_frame(self._frame)
        use = next((node for node in ast.walk(body) if isinstance(node, ast.Name) and node.id == name), None) if body is not None else None
        if use is None or around is None:
            return None
        if name in self._loss.__code__.co_freevars and not any(node is use for node in ast.walk(around.tree)):
            return None
        own = around if any(node is use for node in ast.walk(around.tree)) else Scope(body, self._loss.__code__.co_filename, "", self._loss.__globals__)
        return followed(use, dataclasses.replace(own, copied=copied), (), DEPTH)

    def _argument(self, name: str) -> tuple[ast.expr, Scope, Keys] | None:
        """The expression that was given under this name, or one of which it is a part."""
        assert self._frame is not None
        scope = scope_of_frame(self._frame)
        node = node_at(*self._here) if scope is not None else None
        if scope is None or node is None:
            return None
        called = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and called.startswith(_ASKING):
            given = next((k.value for k in node.keywords if k.arg == name), None)
            if given is None and name == "batch" and len(node.args) > 1 and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
                given = node.args[1]
            return (given, scope, ()) if given is not None else None
        # `torchsleuth audit module:function`: what the function returns
        return (node, scope, (name,)) if isinstance(node, ast.Dict) or name != "batch" else (node, scope, (1,))


def _frames(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _parts(value: typing.Any, keys: Keys) -> Iterator[tuple[Keys, typing.Any]]:
    """The tensors of a batch with the keys and positions that lead to them."""
    if isinstance(value, torch.Tensor):
        yield keys, value
    elif isinstance(value, Mapping):
        for key, item in list(value.items())[:_MOST_PARTS]:
            if isinstance(key, (str, int)):
                yield from _parts(item, (*keys, key))
    elif isinstance(value, (tuple, list)) and len(keys) < 4:
        for position, item in enumerate(value[:_MOST_PARTS]):
            yield from _parts(item, (*keys, position))


def _known_to(function: types.FunctionType) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that a function uses beside those it is given."""
    closed = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    for name, cell in closed:
        with contextlib.suppress(ValueError):  # an empty cell
            if isinstance(cell.cell_contents, torch.Tensor):
                yield name, cell.cell_contents
    for name in function.__code__.co_names:
        if isinstance(value := function.__globals__.get(name), torch.Tensor):
            yield name, value

"""States that change nothing: `load_state_dict` given the very tensors that the model holds, or names of which the model has none. `StateNotes` sees the calls."""

from __future__ import annotations

import ast
import collections
import functools
import os
import typing
from collections.abc import Mapping

import torch
from torch import nn

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import NothingLoaded, OwnState
from torchsleuth.auditor.tracing.modestack import harmless
from torchsleuth.auditor.tracing.owners import assignments
from torchsleuth.auditor.tracing.sites import call_at, place_here, site_of, site_of_node, syntax_of

MOST_CALLS = 1000


class StateNotes:
    """`start()` until `stop()`; `found` are the calls that loaded what was there already, which count from the first optimizer step on;
    `nothing` those that loaded nothing, by the identity of the module."""

    def __init__(self) -> None:
        self.found: dict[typing.Any, OwnState] = {}
        self.nothing: dict[int, NothingLoaded] = {}
        self.given: set[int] = set()  # parameters that some state was loaded into
        self.steps = 0
        self._calls = 0
        self._original: typing.Any = None

    def start(self) -> None:
        notes, original = self, nn.Module.load_state_dict
        self._original = original

        @functools.wraps(original)
        def load_state_dict(module: nn.Module, state_dict: typing.Any, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
            notes.look(module, state_dict)
            given = names_in(state_dict)
            result = original(module, state_dict, *args, **kwargs)
            notes.loaded(module, given, result)
            return result

        load_state_dict.torchsleuth = self  # type: ignore[attr-defined]
        nn.Module.load_state_dict = load_state_dict  # type: ignore[method-assign]

    def stop(self) -> None:
        if self._original is not None and getattr(nn.Module.load_state_dict, "torchsleuth", None) is self:
            nn.Module.load_state_dict = self._original  # type: ignore[method-assign]

    def failed(self, error: Exception) -> None:
        self._calls = MOST_CALLS

    @harmless
    def loaded(self, module: nn.Module, given: dict[str, list[str]], result: typing.Any) -> None:
        own = [name for name, _ in module.named_parameters()]
        missing = set(getattr(result, "missing_keys", ()))
        self.given.update(id(p) for name, p in module.named_parameters() if name not in missing)
        if not given or not own:
            return
        if not missing.issuperset(own):
            self.nothing.pop(id(module), None)  # what was not loaded at first was loaded then
            return
        site, kind = site_of(place_here(3)), type(module).__name__
        if site is None or site.library or set(own) & given.keys():
            return
        prefix = next((name[: -len(own[0])] for name in given if name.endswith(own[0]) and {name[: -len(own[0])] + one for one in own} <= given.keys()), "")
        lacking = next((name[: -len(first)] for first in list(given)[:1] for name in own if name.endswith(first) and all(name[: -len(first)] + one in own for one in given)), "")
        entry = next((name for name, inner in given.items() if set(own) <= set(inner)), "")
        self.nothing[id(module)] = NothingLoaded(site, kind, tuple(own), tuple(given), prefix, lacking, entry)

    @harmless
    def look(self, module: nn.Module, state: typing.Any) -> None:
        if not self.steps or self._calls >= MOST_CALLS or not isinstance(state, Mapping):
            return
        self._calls += 1
        own = dict(module.named_parameters())
        if not own or not all(isinstance(there := state.get(name), torch.Tensor) and _same(there, p) for name, p in own.items()):
            return
        place = place_here(3)
        site, call = site_of(place), call_at(place)
        if site is None or site.library or call is None or len(call.args) < 1 or site.span in self.found:
            return
        given, receiver = call.args[0], call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "state_dict":
            other = ast.unparse(given.func.value)
            if receiver is not None and other != ast.unparse(receiver):
                self.found[site.span] = OwnState(site, self.steps, _named_twice(site, receiver, given.func.value), other)
        elif isinstance(given, (ast.Name, ast.Attribute, ast.Subscript)):
            self.found[site.span] = OwnState(site, self.steps, _taken(site, given))


def names_in(state: typing.Any) -> dict[str, list[str]]:
    """What the state calls its entries, before anybody changes them; with the names in those that are dictionaries themselves."""
    if type(state) not in (dict, collections.OrderedDict) or not all(isinstance(name, str) for name in state):
        return {}
    return {name: [one for one in value if isinstance(one, str)] if type(value) in (dict, collections.OrderedDict) else [] for name, value in state.items()}


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.device == other.device and one.shape == other.shape and one.numel() > 0 and one.data_ptr() == other.data_ptr()


def _taken(load: Site, given: ast.expr) -> Site | None:
    """The one place in the file of this call where what it is given is made of a `state_dict()`, as the source has it."""
    filename = os.path.abspath(load.span.file)
    tree = syntax_of(filename)
    made = [value for target, value in assignments(tree) if _last(target) == _last(given) and _takes_state(value)] if tree is not None else []
    if tree is not None and isinstance(given, ast.Subscript) and isinstance(given.slice, ast.Constant):
        entries = [pair for node in ast.walk(tree) if isinstance(node, ast.Dict) for pair in zip(node.keys, node.values, strict=True)]
        made += [value for key, value in entries if isinstance(key, ast.Constant) and key.value == given.slice.value and _takes_state(value)]
    return site_of_node(filename, made[0]) if len(made) == 1 else None


def _named_twice(load: Site, receiver: ast.expr, other: ast.expr) -> Site | None:
    """`self.target = self.policy`"""
    filename = os.path.abspath(load.span.file)
    tree = syntax_of(filename)
    made = [value for target, value in assignments(tree) if {_last(target), _last(value)} == {_last(receiver), _last(other)}] if tree is not None else []
    return site_of_node(filename, made[0]) if len(made) == 1 else None


def _last(node: ast.expr) -> str:
    """`self.best_state` and `stopper.best_state` are taken for the same."""
    return node.attr if isinstance(node, ast.Attribute) else ast.unparse(node)


def _takes_state(value: ast.expr) -> bool:
    """`m.state_dict()`, or a new dictionary of the same tensors: `{k: v for k, v in m.state_dict().items()}`, `dict(m.state_dict())`."""
    called = {node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)}
    return "state_dict" in called and called <= {"state_dict", "items", "dict", "OrderedDict", "copy", "cpu", "detach", "to"}

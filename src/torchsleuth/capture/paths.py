"""The user's own path to a module or parameter: `model.bert.embeddings.word_embeddings`, from a variable of their frames."""

from __future__ import annotations

import inspect
import types
import typing

import torch

from torchsleuth.capture.failure import Failure
from torchsleuth.origin import Origin
from torchsleuth.probe.names import locals_of


class Paths:
    """Prefers the outermost variable that is not `self`: the name under which the user built the model."""

    def __init__(self, failure: Failure) -> None:
        self.modules: dict[int, str] = {}
        self.tensors: dict[int, tuple[str, str]] = {}
        roots: list[tuple[str, torch.nn.Module]] = []
        for entry in failure.entries:
            if entry.origin is Origin.USER:
                for scope in (locals_of(entry.frame), entry.frame.f_globals):
                    for name, value in list(scope.items()):
                        if isinstance(name, str):
                            roots += [(path, module) for path, module in _modules(name, value)]
        # A wrapper's `*args` names nothing: `self` says more than `args[0]`.
        passed_on = {f"{name}[" for entry in failure.entries if (name := _rest(entry.code))}
        roots.sort(key=lambda root: 2 if root[0].startswith(tuple(passed_on)) else root[0] == "self" or root[0].startswith(("self.", "_")))
        inner: set[int] = set()
        for _, root in roots:
            inner |= {id(sub) for sub in _submodules(root) if sub is not root}
        for whole in (True, False):  # roots that are no part of another module first: they give the longest path
            for name, root in roots:
                if (id(root) in inner) is not whole:
                    self._add(name, root)

    def _add(self, name: str, root: torch.nn.Module) -> None:
        try:
            named = list(root.named_modules(remove_duplicate=False))
        except Exception:
            return
        for path, module in named:
            full = f"{name}.{path}" if path else name
            self.modules.setdefault(id(module), full)
            for table, kind in (("_parameters", "parameter"), ("_buffers", "buffer")):
                for key, tensor in module.__dict__.get(table, {}).items():
                    if tensor is not None:
                        self.tensors.setdefault(id(tensor), (f"{full}.{key}", kind))


def _rest(code: types.CodeType) -> str:
    """The name of `*args`, where a function has that."""
    return code.co_varnames[code.co_argcount + code.co_kwonlyargcount] if code.co_flags & inspect.CO_VARARGS else ""


def _modules(name: str, value: object) -> typing.Iterator[tuple[str, torch.nn.Module]]:
    if isinstance(value, torch.nn.Module):
        yield name, value
    elif type(value) in (list, tuple) and len(value) <= 64:
        for position, item in enumerate(value):
            if isinstance(item, torch.nn.Module):
                yield f"{name}[{position}]", item
    elif name == "self" or type(value).__module__ == "__main__":
        for key, item in list(getattr(value, "__dict__", {}).items())[:64]:
            if isinstance(item, torch.nn.Module):
                yield f"{name}.{key}", item


def _submodules(module: torch.nn.Module) -> list[torch.nn.Module]:
    try:
        return list(module.modules())
    except Exception:
        return []

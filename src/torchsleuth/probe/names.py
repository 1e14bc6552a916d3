"""What the user calls a tensor: found by identity in the frames' variables, modules, optimizers and containers."""

from __future__ import annotations

import inspect
import itertools
import sys
import types
import typing
from collections.abc import Iterable, Iterator

import torch

from torchsleuth import env
from torchsleuth.evidence import TensorFact
from torchsleuth.frozen import frozen
from torchsleuth.origin import Origin, origin_of
from torchsleuth.probe.tensors import storage_of, tensor_fact

_MOST_ITEMS = 512  # of a container looked into
_DEPTH = 3


@frozen
class Named:
    name: str
    kind: str  # "parameter", "buffer", "variable"
    tensor: torch.Tensor


class Names:
    """An index of every tensor in sight. Lives only while a crash is captured."""

    def __init__(self, frames: Iterable[types.FrameType]) -> None:
        self._by_id: dict[int, Named] = {}
        self._by_storage: dict[int, list[Named]] = {}
        self.modules: list[tuple[str, torch.nn.Module]] = []
        self.optimizers: list[tuple[str, torch.optim.Optimizer]] = []
        self._seen: set[int] = set()
        scopes = list(_scopes(frames))
        self._find_modules(scopes)
        for name, module in self.modules:
            self._add_module(name, module)
        for scope in scopes:
            for name, value in scope.items():
                if isinstance(name, str) and not name.startswith("__"):
                    self._add(name, value, _DEPTH)

    # -- questions ------------------------------------------------------------------------------

    def fact(self, tensor: torch.Tensor) -> TensorFact:
        named = self._by_id.get(id(tensor)) or self.same_view(tensor)
        if named is not None:
            return tensor_fact(tensor, named.name, named.kind)
        sharing = self.sharing(tensor)
        for owner in sharing:  # `linear` saves the transpose of its weight: to the user that is the weight
            if owner.kind in ("parameter", "buffer") and owner.tensor.numel() == tensor.numel() or _is_transpose(owner.tensor, tensor):
                return tensor_fact(owner.tensor, owner.name, owner.kind)
        # What is smaller than the tensor is a part of it, not what it is a part of.
        whole = [owner for owner in sharing if owner.tensor.numel() >= tensor.numel() and owner.tensor._base is not tensor]
        whole.sort(key=lambda owner: owner.tensor._base is not None)
        return tensor_fact(tensor, view_of=whole[0].name if whole else "")

    def same_view(self, tensor: torch.Tensor) -> Named | None:
        """Something that holds just this memory in this layout: an alias, or the variable behind a saved tensor."""
        for named in self.sharing(tensor):
            other = named.tensor
            try:
                if other.shape == tensor.shape and other.stride() == tensor.stride():
                    if other.storage_offset() == tensor.storage_offset():
                        return named
            except Exception:
                continue
        return None

    def sharing(self, tensor: torch.Tensor) -> list[Named]:
        storage = storage_of(tensor)
        return self._by_storage.get(storage, []) if storage else []

    def by_id(self, ident: int) -> Named | None:
        return self._by_id.get(ident)

    def with_grad_fn(self, node: typing.Any) -> list[Named]:
        found = []
        for named in self._by_id.values():
            if named.tensor.grad_fn is not None and named.tensor.grad_fn is node:
                found.append(named)
        return found

    def all(self) -> list[Named]:
        return list(self._by_id.values())

    # -- building -------------------------------------------------------------------------------

    def _find_modules(self, scopes: list[dict[str, typing.Any]]) -> None:
        """Modules that are no part of another one in sight, so that parameters get their longest path."""
        found: dict[int, tuple[str, torch.nn.Module]] = {}
        for scope in scopes:
            for name, value in scope.items():
                for path, item in _held(str(name), value, 2):
                    if isinstance(item, torch.nn.Module):
                        found.setdefault(id(item), (path, item))
                    elif isinstance(item, torch.optim.Optimizer) and all(item is not o for _, o in self.optimizers):
                        self.optimizers.append((path, item))
        inner = {id(sub) for _, module in found.values() for sub in _submodules(module) if sub is not module}
        self.modules = [(name, module) for key, (name, module) in found.items() if key not in inner]

    def _add_module(self, name: str, module: torch.nn.Module) -> None:
        try:
            parameters = list(module.named_parameters(remove_duplicate=False))
            buffers = list(module.named_buffers(remove_duplicate=False))
        except Exception:
            return
        for path, tensor in parameters:
            self._put(f"{name}.{path}", "parameter", tensor)
        for path, tensor in buffers:
            self._put(f"{name}.{path}", "buffer", tensor)
        for prefix, sub in _named_submodules(module):
            for key, value in list(vars(sub).items()):
                if key not in ("_parameters", "_buffers", "_modules"):
                    self._add(f"{name}.{prefix}.{key}" if prefix else f"{name}.{key}", value, 1)

    def _add(self, name: str, value: object, depth: int) -> None:
        for path, item in _held(name, value, depth):
            if isinstance(item, torch.Tensor):
                self._put(path, "variable", item)

    def _put(self, name: str, kind: str, tensor: torch.Tensor) -> None:
        if id(tensor) in self._by_id:
            return
        named = Named(name, kind, tensor)
        self._by_id[id(tensor)] = named
        storage = storage_of(tensor)
        if storage:
            self._by_storage.setdefault(storage, []).append(named)


def _is_transpose(one: torch.Tensor, other: torch.Tensor) -> bool:
    """The same elements with their dimensions in another order."""
    try:
        return one.storage_offset() == other.storage_offset() and sorted(zip(one.shape, one.stride())) == sorted(zip(other.shape, other.stride()))
    except Exception:
        return False


def locals_of(frame: types.FrameType) -> dict[str, typing.Any]:
    """A copy of a frame's locals, by the names that stand in the source (pytest's `@py_assert1` does not), that leaves
    nothing behind in the frame.

    Up to Python 3.12 reading `f_locals` makes the frame keep a second reference to every local. The frame may go on
    running (the program caught the exception), so that copy is emptied again; the variables themselves are untouched.
    """
    scope = {name: value for name, value in frame.f_locals.items() if isinstance(name, str) and name.isidentifier()}
    if env.LOCALS_ARE_A_SNAPSHOT and frame.f_code.co_flags & inspect.CO_OPTIMIZED and sys.gettrace() is None:
        frame.f_locals.clear()
    return scope


def _scopes(frames: Iterable[types.FrameType]) -> Iterator[dict[str, typing.Any]]:
    """Locals of the program's frames, innermost first, then their globals, then torch's own frames."""
    frames = list(frames)
    globals_seen: list[dict] = []
    late = []
    for frame in reversed(frames):
        origin = origin_of(frame.f_code)
        if origin in (Origin.OURS, Origin.STDLIB):
            continue
        scope = locals_of(frame)
        if origin is Origin.TORCH:
            late.append(scope)
            continue
        yield scope
        if origin is Origin.USER and all(frame.f_globals is not seen for seen in globals_seen):
            globals_seen.append(frame.f_globals)
    for seen in globals_seen:
        yield dict(seen)
    for scope in late:
        yield {name: value for name, value in scope.items() if isinstance(value, torch.nn.Module)}


def _held(name: str, value: object, depth: int) -> Iterator[tuple[str, object]]:
    """The value and, for plain containers and simple objects, what they hold, with the expression that reaches it."""
    yield name, value
    if depth <= 0 or isinstance(value, (str, bytes, torch.Tensor, torch.nn.Module, types.ModuleType, type)):
        return
    if isinstance(value, dict):
        for key, item in list(dict.items(value))[:_MOST_ITEMS]:  # not a subclass's own `items`: that may load and run anything
            if isinstance(key, (str, int)):
                yield from _held(f"{name}[{key!r}]", item, depth - 1)
    elif isinstance(value, (list, tuple)):
        plain = tuple.__iter__(value) if isinstance(value, tuple) else list.__iter__(value)
        for position, item in enumerate(itertools.islice(plain, _MOST_ITEMS)):
            yield from _held(f"{name}[{position}]", item, depth - 1)
    elif isinstance(value, torch.optim.Optimizer):
        return
    elif is_plain_object(value):
        for key, item in list(vars(value).items())[:64]:
            if isinstance(item, (torch.Tensor, torch.nn.Module, torch.optim.Optimizer, list, tuple, dict)):
                yield from _held(f"{name}.{key}", item, depth - 1)


def is_plain_object(value: object) -> bool:
    """An instance of a class of the program's own (a trainer, a dataclass): its attributes have names to the user."""
    module = type(value).__module__ or ""
    return hasattr(value, "__dict__") and module.split(".", 1)[0] not in ("torch", "builtins", "numpy", "typing")


def _submodules(module: torch.nn.Module) -> list[torch.nn.Module]:
    try:
        return list(module.modules())
    except Exception:
        return [module]


def _named_submodules(module: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    try:
        return list(module.named_modules())
    except Exception:
        return []

"""Layers that a step leaves out because the program did not go that way (an optional input that was not given, another task's head), or has come to its end."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator

from torch import nn


def on_another_way(model: nn.Module, path: str, called: Iterable[str]) -> bool:
    """Does a method of the class that holds this layer use it? Then it is not forgotten: this step did not come by there.

    `called` are the paths of the modules that the step has used. What is below a module that was never entered is
    left out with the whole of it.
    """
    used = set(called)
    while (above := path.rpartition(".")[0]) and not _reached(model, above, used):
        path = above
    holder, _, name = path.rpartition(".")
    while name.isdigit() and holder:  # in a list or a sequence
        holder, _, name = holder.rpartition(".")
    return any(name in names for names in _mentioned(type(model.get_submodule(holder))))


def _reached(model: nn.Module, path: str, used: set[str]) -> bool:
    """Something of it was used; or it stands in a sequence, which enters all of its parts, of which another was used."""
    holder = path.rpartition(".")[0]
    in_sequence = type(model.get_submodule(holder)).forward is nn.Sequential.forward
    return _used(path, used) or (in_sequence and (_used(holder, used) if holder else bool(used)))


def _used(path: str, used: set[str]) -> bool:
    return any(one == path or one.startswith(path + ".") for one in used)


def ends_a_row(model: nn.Module, path: str, missing: Iterable[str]) -> bool:
    """A layer of the last of several equal blocks, which makes what the next block would take: the others' are trained, and so is the rest of this one."""
    left, parts = set(missing), path.split(".")
    for at, part in enumerate(parts[:-1]):
        row = model.get_submodule(".".join(parts[:at])) if part.isdigit() else None
        if row is None or int(part) != len(list(row.children())) - 1 or part == "0":
            continue
        block = ".".join(parts[: at + 1])
        rest = [name for name, _ in row.get_submodule(part).named_parameters() if not f"{block}.{name}".startswith(path + ".")]
        others = [".".join((*parts[:at], str(k), *parts[at + 1 :])) for k in range(int(part))]
        used = all(f"{other}.{name}" not in left for other in others for name, _ in _parameters(model, other))
        if used and any(f"{block}.{name}" not in left for name in rest) and all(_parameters(model, other) for other in others):
            return True
    return False


def _parameters(model: nn.Module, path: str) -> list[tuple[str, nn.Parameter]]:
    try:
        return list(model.get_submodule(path).named_parameters())
    except AttributeError:
        return []


def _mentioned(kind: type) -> Iterator[frozenset[str]]:
    """The names that each method looks up, but for those that only set the layers up."""
    replaced: set[str] = set()
    for owner in kind.__mro__:
        if owner is nn.Module:
            return
        for name, method in vars(owner).items():
            function = getattr(method, "__func__", method)
            if isinstance(function, types.FunctionType) and "init" not in name and "reset" not in name and name not in replaced:
                names = frozenset(_names(function.__code__))
                if "super" not in names:
                    replaced.add(name)
                yield names


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)

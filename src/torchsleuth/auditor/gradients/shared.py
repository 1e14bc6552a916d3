"""One layer, or one set of weights, at several places of a model: entries of a list that are one object, and default values that all take."""

from __future__ import annotations

import ast
import collections
import inspect

from torch import nn

from torchsleuth.auditor.observation import SharedLayer
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.owners import built, class_origin, default_of
from torchsleuth.origin import Origin


def shared_layers(model: nn.Module) -> list[SharedLayer]:
    """The same layer object at several places of one list, sequence or dict of layers."""
    found = []
    for path, container in model.named_modules():
        if not isinstance(container, (nn.ModuleList, nn.Sequential, nn.ModuleDict)) or len(container) < 2:
            continue
        places: dict[int, list[int | str]] = collections.defaultdict(list)
        for position, (name, layer) in enumerate(container._modules.items()):
            places[_held(layer)].append(name if isinstance(container, nn.ModuleDict) else position)
        objects = {id(layer) for layer in container._modules.values()}
        for layer in container._modules.values():
            positions = places.pop(_held(layer), [])
            if len(positions) < 2 or layer is None or not (weights := sum(p.numel() for p in layer.parameters())):
                continue
            holder = model.get_submodule(path.rpartition(".")[0]) if path else container
            site = built(holder, path.rpartition(".")[2])
            # Several names for one part (agents that share a policy) are often meant; one call for all names of a dict is not.
            if class_origin(type(holder)) is Origin.LIBRARY or (isinstance(container, nn.ModuleDict) and not _one_call_for_all(site)):
                continue
            copied = len(objects) == len(container)
            found.append(SharedLayer(path, type(container).__name__, tuple(positions), type(layer).__name__, weights, site, copied))
    return [*found, *_shared_by_default(model)]


def _shared_by_default(model: nn.Module) -> list[SharedLayer]:
    """`def __init__(self, norm=nn.LayerNorm(8))`: the default value is made once, when the class is, and all that take it share it."""
    holders: dict[tuple[type, str], list[tuple[str, nn.Module]]] = collections.defaultdict(list)
    for path, module in model.named_modules():
        if class_origin(type(module)) is not Origin.USER:
            continue
        made = inspect.unwrap(type(module).__init__)
        defaults = [(n, p.default) for n, p in inspect.signature(made).parameters.items() if isinstance(p.default, nn.Module)] if inspect.isfunction(made) else []
        for name, layer in defaults:
            if any(held is layer for held in module._modules.values()) and any(True for _ in layer.parameters()):
                holders[type(module), name].append((path, layer))
    return [
        SharedLayer("", kind.__name__, tuple(path for path, _ in held), type(held[0][1]).__name__, sum(p.numel() for p in held[0][1].parameters()), default_of(kind, name), default=name)
        for (kind, name), held in holders.items() if len(held) > 1
    ]  # fmt: skip


def _held(layer: nn.Module | None) -> int:
    """What tells this layer's weights from another's. `copy.copy` gives a new object that goes on with the very tables of the old one."""
    tables = [table for table in (layer._parameters, layer._modules) if isinstance(table, dict) and table] if layer is not None else []
    return id(tables[0]) if tables else id(layer)


def _one_call_for_all(site: Site | None) -> bool:
    """`dict.fromkeys(names, nn.Linear(...))`: the layer is made once, for all names."""
    try:
        tree = ast.parse(site.source.strip(), mode="eval") if site is not None else None
    except SyntaxError:
        return False
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)] if tree is not None else []
    return any(isinstance(c.func, ast.Attribute) and c.func.attr == "fromkeys" and len(c.args) == 2 and isinstance(c.args[1], ast.Call) for c in calls)

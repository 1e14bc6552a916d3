"""Layers that the model uses and does not own, so that `.to()` of the model leaves them where they are: what holds or makes them."""

from __future__ import annotations

import ast
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.attributes import attribute_definition
from torchsleuth.capture.definitions import Definitions
from torchsleuth.capture.failure import Failure, is_module_call
from torchsleuth.evidence_forward import Made
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of_file
from torchsleuth.probe.names import locals_of

_DEPTH = 3
TABLES = ("_parameters", "_buffers", "_modules")


def unowned(failure: Failure, definitions: Definitions, parameter: object) -> Made | None:
    """For a parameter that the model does not know: `[nn.Linear(32, n) for n in sizes]` of `self.heads = …`, which holds its layer ("layers"), or
    the call in `forward` that makes it ("new layer")."""
    running = [(entry, module) for entry in failure.entries if is_module_call(entry) and isinstance(module := locals_of(entry.frame).get("self"), torch.nn.Module)]
    if not isinstance(parameter, torch.Tensor) or not running or _owns(running[0][1], parameter):
        return None
    for _, module in running:
        for part in module.modules():
            for name, value in vars(part).items():
                if name not in TABLES and any(_owns(inner, parameter) for inner in modules_in(value, _DEPTH)) and _is_the_users(type(part)):
                    return _made("layers", attribute_definition(part, name))
    for entry in failure.entries:
        for name, value in locals_of(entry.frame).items() if entry.origin is Origin.USER and entry.code.co_name == "forward" else ():
            if isinstance(value, torch.nn.Module) and name != "self" and _owns(value, parameter):
                step = definitions.step(entry, ast.Name(name, ast.Load()))
                return _made("new layer", (step[0].code, step[1])) if step is not None and step[0] is entry and isinstance(step[1], ast.Call) else None
    return None


def _made(what: str, found: tuple[types.CodeType, ast.AST] | None) -> Made | None:
    place = source.place_of_node(*found, Known.INFERRED) if found is not None else None
    return Made(what, place) if place is not None else None


def _owns(module: torch.nn.Module, parameter: torch.Tensor) -> bool:
    return any(one is parameter for one in module.parameters())


def modules_in(value: object, depth: int) -> typing.Iterator[torch.nn.Module]:
    if isinstance(value, torch.nn.Module):
        yield value
    elif depth and isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from modules_in(item, depth - 1)


def _is_the_users(cls: type) -> bool:
    code = getattr(getattr(cls, "__init__", None), "__code__", None)
    return code is not None and origin_of_file(code.co_filename) is Origin.USER

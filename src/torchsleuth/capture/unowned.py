"""Layers that the model uses and does not own: what holds them, so that `.to()` of the model leaves them where they are."""

from __future__ import annotations

import ast
import types
import typing

import torch

from torchsleuth.capture.attributes import attribute_definition
from torchsleuth.capture.failure import Failure, is_module_call
from torchsleuth.origin import Origin, origin_of_file
from torchsleuth.probe.names import locals_of

_DEPTH = 3
_TABLES = ("_parameters", "_buffers", "_modules")


def held_in_plain_container(failure: Failure, parameter: object) -> tuple[types.CodeType, ast.AST] | None:
    """For a parameter that no running module has registered: `[nn.Linear(32, n) for n in sizes]` of `self.heads = …`, which holds its layer."""
    running = [module for entry in failure.entries if is_module_call(entry) and isinstance(module := locals_of(entry.frame).get("self"), torch.nn.Module)]
    if not isinstance(parameter, torch.Tensor) or not running or any(_owns(module, parameter) for module in running[:1]):
        return None
    for module in running:
        for part in module.modules():
            for name, value in vars(part).items():
                if name not in _TABLES and any(_owns(inner, parameter) for inner in _modules_in(value, _DEPTH)) and _is_the_users(type(part)):
                    return attribute_definition(part, name)
    return None


def _owns(module: torch.nn.Module, parameter: torch.Tensor) -> bool:
    return any(one is parameter for one in module.parameters())


def _modules_in(value: object, depth: int) -> typing.Iterator[torch.nn.Module]:
    if isinstance(value, torch.nn.Module):
        yield value
    elif depth and isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _modules_in(item, depth - 1)


def _is_the_users(cls: type) -> bool:
    code = getattr(getattr(cls, "__init__", None), "__code__", None)
    return code is not None and origin_of_file(code.co_filename) is Origin.USER

"""Where a module of the program's was made: its constructor call, found by syntax and live objects."""

from __future__ import annotations

import ast
import types

import torch

from torchsleuth import source
from torchsleuth.capture.attributes import attribute_definition
from torchsleuth.capture.bindings import function_node
from torchsleuth.capture.definitions import Definitions
from torchsleuth.capture.failure import Failure
from torchsleuth.capture.scopes import argument_for, parameter_of
from torchsleuth.capture.unlogged import operation_word
from torchsleuth.evidence_forward import Made
from torchsleuth.model import Known


def owner_of(failure: Failure, tensor: torch.Tensor | None) -> torch.nn.Module | None:
    for _, root in failure.crash.names.modules:
        for module in root.modules():
            held = (*module.__dict__.get("_parameters", {}).values(), *module.__dict__.get("_buffers", {}).values())
            if any(item is tensor for item in held):
                return module
    return None


def module_made(failure: Failure, definitions: Definitions, module: torch.nn.Module | None) -> Made | None:
    """The constructor call of a module, by syntax: in its owner's class, among a Sequential's arguments, or a variable's."""
    found = module_node(failure, definitions, module)
    place = source.place_of_node(*found, Known.INFERRED) if found is not None else None
    return Made(operation_word(found[1]), place) if found is not None and place is not None else None


def module_node(
    failure: Failure, definitions: Definitions, module: torch.nn.Module | None, depth: int = 4
) -> tuple[types.CodeType, ast.AST] | None:
    """That call itself, and the code it stands in."""
    if module is None or depth == 0:
        return None
    for _, root in failure.crash.names.modules:
        for owner in root.modules():
            for name, child in owner.__dict__.get("_modules", {}).items():
                if child is not module:
                    continue
                if isinstance(owner, (torch.nn.Sequential, torch.nn.ModuleList)) and name.isdigit():
                    return _element(module_node(failure, definitions, owner, depth - 1), int(name), len(owner))
                found = attribute_definition(owner, name)
                if found is None or not isinstance(found[1], ast.Name):
                    return found
                return _handed_over(*found, module_node(failure, definitions, owner, depth - 1))
    return definitions.of_module(module)


def _handed_over(code: types.CodeType, name: ast.Name, owner: tuple[types.CodeType, ast.AST] | None) -> tuple[types.CodeType, ast.AST] | None:
    """`self.inner = inner`: what the call that made the owner was given for `inner`, where that is a call itself."""
    scope = function_node(code)
    if owner is None or not isinstance(owner[1], ast.Call) or scope is None or parameter_of(scope, name.id) is None:
        return None
    given, _ = argument_for(owner[1], scope, True, name.id)
    return (owner[0], given) if isinstance(given, ast.Call) else None


def _element(made: tuple[types.CodeType, ast.AST] | None, position: int, count: int) -> tuple[types.CodeType, ast.AST] | None:
    """The element of `nn.Sequential(a, b, c)` or `nn.ModuleList([a, b, c])`, where the syntax shows all of them."""
    if made is None or not isinstance(made[1], ast.Call):
        return made
    arguments = made[1].args
    elements = arguments[0].elts if len(arguments) == 1 and isinstance(arguments[0], (ast.List, ast.Tuple)) else arguments
    if len(elements) != count or any(isinstance(element, ast.Starred) for element in elements):
        return made
    return made[0], elements[position]

"""Where a module of the program's was made: its constructor call, found by syntax and live objects."""

from __future__ import annotations

import ast
import types

import torch

from torchsleuth import source
from torchsleuth.bindings import function_node, returns_of
from torchsleuth.capture.attributes import attribute_definition
from torchsleuth.capture.definitions import Definitions
from torchsleuth.capture.failure import Failure
from torchsleuth.capture.scopes import argument_for, parameter_of
from torchsleuth.capture.unlogged import operation_word, stand_in
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


def _returned_by_helper(code: types.CodeType, call: ast.Call) -> tuple[types.CodeType, ast.Call] | None:
    """`stage(8, 16)`, where `stage` is a function of the same file with one `return nn.Sequential(…)`."""
    tree = source.tree_of(code.co_filename)
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    found = [item for item in tree.body if isinstance(item, ast.FunctionDef) and item.name == name] if tree is not None and name else []
    returns = list(returns_of(found[0])) if len(found) == 1 else []
    value = returns[0].value if len(returns) == 1 else None
    return (stand_in(code.co_filename, name), value) if isinstance(value, ast.Call) else None


def _element(made: tuple[types.CodeType, ast.AST] | None, position: int, count: int) -> tuple[types.CodeType, ast.AST] | None:
    """The element of `nn.Sequential(a, b, c)` or `nn.ModuleList([a, b, c])`, where the syntax shows all of them, also in a helper
    that returned it; else the whole."""
    if made is None or not isinstance(made[1], ast.Call):
        return made
    helper = _returned_by_helper(made[0], made[1])
    return (_written(*helper, position, count) if helper is not None else None) or _written(made[0], made[1], position, count) or made


def _written(code: types.CodeType, call: ast.Call, position: int, count: int) -> tuple[types.CodeType, ast.AST] | None:
    arguments = call.args
    alone = arguments[0] if len(arguments) == 1 else None
    alone = alone.value if isinstance(alone, ast.Starred) else alone
    if isinstance(alone, (ast.ListComp, ast.GeneratorExp)) and len(alone.generators) == 1:  # all are made by this one expression
        return code, alone.elt
    elements = alone.elts if isinstance(alone, (ast.List, ast.Tuple)) else arguments
    if len(elements) != count or any(isinstance(element, ast.Starred) for element in elements):
        return None
    return code, elements[position]

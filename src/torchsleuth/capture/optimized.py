"""An optimizer that was given no parameters: the model they were asked of, and the layers that it uses and does not own."""

from __future__ import annotations

import ast

import torch

from torchsleuth import source
from torchsleuth.capture.attributes import attribute_definition
from torchsleuth.capture.definitions import Definitions
from torchsleuth.capture.failure import Entry, Failure
from torchsleuth.capture.unowned import TABLES, modules_in
from torchsleuth.evidence_forward import NoParameters
from torchsleuth.model import Known

_EMPTY = "optimizer got an empty parameter list"
_DEPTH = 3


def no_parameters(failure: Failure, definitions: Definitions, message: str) -> NoParameters | None:
    call, entry = failure.program.node, failure.program
    if _EMPTY not in message or not isinstance(call, ast.Call) or not call.args:
        return None
    given, home = call.args[0], entry
    step = definitions.step(entry, given) if isinstance(given, ast.Name) else None
    if step is not None:
        home, given = step
    model = _asked(given, home)
    if model is None:
        return None
    called = ast.unparse(given.func.value) if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) else ""
    count = sum(1 for _ in model.parameters())
    if count:
        place = source.place_of_node(home.code, given, Known.INFERRED) if step is not None else None
        return NoParameters(called, type(model).__name__, count, iterator=place) if place is not None else None
    for name, value in vars(model).items():
        held = [module for module in modules_in(value, _DEPTH) if any(True for _ in module.parameters())] if name not in TABLES else []
        found = attribute_definition(model, name) if held else None
        if found is not None:
            kinds = dict.fromkeys(type(module).__name__ for module in held)
            return NoParameters(called, type(model).__name__, 0, f"self.{name}", type(value).__name__, len(held), tuple(kinds), source.place_of_node(*found, Known.INFERRED))
    return NoParameters(called, type(model).__name__, 0)


def _asked(node: ast.AST, entry: Entry) -> torch.nn.Module | None:
    """`net` of `net.parameters()`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "parameters" or node.args or node.keywords:
        return None
    value = entry.evaluator.value(node.func.value)
    return value if isinstance(value, torch.nn.Module) else None

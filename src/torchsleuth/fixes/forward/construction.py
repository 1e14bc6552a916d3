"""Modules and optimizers that were not made as torch wants it: `super().__init__()` first, the parameters instead of the model."""

from __future__ import annotations

import ast
import re

from torchsleuth.fixes.forward.operands import Failed
from torchsleuth.fixes.script import Function, called
from torchsleuth.model import Fix

OPTIMIZED = re.compile(r"'(\w+)' object is not iterable|optimizer can only optimize Tensors, but one of the params is (?:torch\.nn\.modules\.)?([\w.]+)")
_OPTIMIZERS = ("SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "Adagrad", "Adadelta", "ASGD", "LBFGS", "SparseAdam", "Adafactor")


def initialised_first(failed: Failed) -> Fix | None:
    """`super().__init__()` as the first statement of a module's `__init__`; moved there where it comes too late."""
    script = failed.script
    home = script.class_of(failed.call) if script is not None and failed.call is not None else None
    makers = [n for n in home.body if isinstance(n, Function) and n.name == "__init__"] if home is not None else []
    if script is None or len(makers) != 1 or not any(failed.call is n for n in ast.walk(makers[0])):
        return None
    body = makers[0].body
    documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and isinstance(body[0].value.value, str)
    first = body[1 if documented and len(body) > 1 else 0]
    late = [n for n in body if isinstance(n, ast.Expr) and isinstance(n.value, ast.Call) and re.fullmatch(r"super\([^()]*\)\.__init__", ast.unparse(n.value.func))]
    if len(late) > 1 or first.lineno == makers[0].lineno:
        return None
    text = script.segment(late[0].value) if late else "super().__init__()"
    edits = [*script.before(first, text), *(edit for statement in late for edit in script.removed(statement))]
    return failed.scripts.fix(f"Set up the module before anything is assigned to it: `{text}` first.", edits)


def of_parameters(failed: Failed) -> Fix | None:
    """`SGD(model, lr=0.1)` → `SGD(model.parameters(), lr=0.1)`; `SGD(model.parameters, …)` lacks its brackets only."""
    script, call = failed.script, failed.call
    if script is None or not isinstance(call, ast.Call) or called(call) not in _OPTIMIZERS or not call.args or isinstance(call.args[0], ast.Starred):
        return None
    model = call.args[0]
    if isinstance(model, ast.Attribute) and model.attr == "parameters":
        return failed.scripts.fix("Call it: `parameters()`.", [script.insert(script.end(model), "()")])
    said = OPTIMIZED.search(failed.message)
    if not isinstance(model, (ast.Name, ast.Attribute)) or said is None or said[1] in ("int", "float", "NoneType", "method", "function", "str"):
        return None
    return failed.scripts.fix(f"Give it the parameters: `{script.segment(model)}.parameters()`.", script.wrapped(model, ".parameters()"))

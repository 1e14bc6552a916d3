"""Modules that write in place: where `inplace=True` was asked for in the user's source."""

from __future__ import annotations

import ast

from torchsleuth.fixes.script import Script, path_of
from torchsleuth.model import Edit

# Where `inplace` stands when it is passed by position.
_POSITIONS = {
    "ReLU": 0, "ReLU6": 0, "SELU": 0, "SiLU": 0, "Mish": 0, "Hardswish": 0, "Hardsigmoid": 0, "LeakyReLU": 1, "ELU": 1,
    "CELU": 1, "Dropout": 1, "Dropout1d": 1, "Dropout2d": 1, "Dropout3d": 1, "AlphaDropout": 1, "FeatureAlphaDropout": 1,
    "Hardtanh": 2, "Threshold": 2, "RReLU": 2,
}  # fmt: skip


def inplace_flags(script: Script, call: ast.AST | None) -> list[ast.expr]:
    """The `True`s that make the module behind this call write in place; empty where they cannot be told."""
    if not isinstance(call, ast.Call):
        return []
    own = flags_in(call.func)  # `nn.ReLU(inplace=True)(x)`
    if flags_in(call) and not own:
        return []  # a function's own flag: its call is rewritten as a write
    if own:
        return own
    name = path_of(call.func)
    if not name:
        return []
    for node in ast.walk(script.tree):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(path_of(target) == name for target in targets) and _same_owner(script, node, call, name):
            flags = flags_in(node.value)
            if flags:
                return flags
    everywhere = flags_in(script.tree)
    return everywhere if len(everywhere) == 1 else []


def _same_owner(script: Script, assignment: ast.AST, call: ast.AST, name: str) -> bool:
    """`self.act` of one class is not that of another."""
    if not name.startswith("self."):
        return True
    return script.class_of(assignment) is script.class_of(call)


def flags_in(node: ast.AST) -> list[ast.expr]:
    found: list[ast.expr] = []
    for inner in ast.walk(node):
        if not isinstance(inner, ast.Call):
            continue
        for keyword in inner.keywords:
            if keyword.arg == "inplace" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True:
                found.append(keyword.value)
        position = _POSITIONS.get(path_of(inner.func).rsplit(".", 1)[-1])
        if position is not None and position < len(inner.args):
            argument = inner.args[position]
            if isinstance(argument, ast.Constant) and argument.value is True:
                found.append(argument)
    return found


def switched_off(script: Script, flags: list[ast.expr]) -> list[Edit]:
    return [script.replace(flag, "False") for flag in flags]

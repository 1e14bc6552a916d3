"""Functions that a DataLoader calls to join samples to a batch: the one that a loader was given, and the loaders that were given one."""

from __future__ import annotations

import ast
import typing

from torchsleuth import source
from torchsleuth.capture.classes import lineage, method_of
from torchsleuth.capture.finished import Frame, frame_at
from torchsleuth.capture.imported import definition_of
from torchsleuth.capture.partials import bound_value, is_partial
from torchsleuth.capture.scopes import class_of, positional_names


def loaders_given(files: typing.Iterable[str], frame: Frame, parameter: str) -> typing.Iterator[tuple[Frame, ast.AST]]:
    """The datasets, and where they stand, whose samples come into this parameter of a function."""
    called = _called(frame)
    for filename in dict.fromkeys((frame.filename, *files)):
        tree = source.tree_of(filename)
        for call in ast.walk(tree) if tree is not None else ():
            joins = next((k.value for k in call.keywords if k.arg == "collate_fn"), None) if isinstance(call, ast.Call) else None
            around = frame_at(filename, call) if joins is not None else None
            before = _filled_before(around, joins, called, frame.scope) if around is not None and joins is not None else None
            names = positional_names(frame.scope, frame.arguments == "self")
            if before is not None and before < len(names) and names[before] == parameter:
                dataset = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "dataset"), None)  # type: ignore[union-attr]
                if dataset is not None:
                    yield around, dataset  # type: ignore[misc]


def _called(frame: Frame) -> str:
    """The name a program has for it: of an object that is called, its class."""
    name = getattr(frame.scope, "name", "")
    owner = class_of(frame.filename, frame.scope) if name == "__call__" else None
    return owner.name if owner is not None else name


def _filled_before(around: Frame, joins: ast.AST, called: str, scope: ast.AST) -> int | None:
    """How many arguments a `partial` has put before the samples; None where what the loader was given is another function."""
    if joins is scope:
        return 0
    if getattr(joins, "attr", getattr(joins, "id", "")) == called and not isinstance(scope, ast.Lambda) and getattr(scope, "name", "") != "__call__":
        return 0
    made = bound_value(around, joins.id) if isinstance(joins, ast.Name) else joins
    if isinstance(made, ast.Call) and is_partial(made) and getattr(made.args[0], "attr", getattr(made.args[0], "id", "")) == called:
        return len(made.args) - 1
    is_object = isinstance(made, ast.Call) and getattr(scope, "name", "") == "__call__" and getattr(made.func, "attr", getattr(made.func, "id", "")) == called
    return 0 if is_object else None


def joining(around: Frame, joins: ast.AST) -> tuple[str, ast.FunctionDef | ast.Lambda, tuple[ast.Call, Frame] | None] | None:
    """The function that `collate_fn=joins` stands for, its file, and for the method of an object the call that made the object."""
    made = bound_value(around, joins.id) if isinstance(joins, ast.Name) else joins
    made = made.args[0] if isinstance(made, ast.Call) and is_partial(made) else made
    if isinstance(made, ast.Lambda):
        return around.filename, made, None
    found = definition_of(around.filename, made.func if isinstance(made, ast.Call) else made or joins)
    if found is None or isinstance(found[1], ast.FunctionDef) is isinstance(made, ast.Call):
        return None
    if isinstance(found[1], ast.FunctionDef):
        return found[0], found[1], None
    for home, kind in lineage(found[0], found[1]):
        method = method_of(kind, "__call__")
        if method is not None and isinstance(made, ast.Call):
            return home, method, (made, around)
    return None

"""Which `nn.ReLU(inplace=True)` was it? The module that the log saw write, by its path, and where the source makes it."""

from __future__ import annotations

import ast
import inspect
import re
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.alignment import called_name
from torchsleuth.capture.syntax import function_of
from torchsleuth.evidence import Place
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash


def writing_module(crash: Crash, ident: int) -> tuple[str, str, Place | None] | None:
    """(path, class, where it was made) of the live module with this id."""
    for name, root in crash.names.modules if ident else ():
        for path, module in root.named_modules():
            if id(module) == ident and getattr(module, "inplace", None) is True:
                whole = f"{name}.{path}" if path else name
                return whole, type(module).__name__, _made(crash, name, root, path, type(module).__name__)
    return None


def called_inplace_modules(crash: Crash, call: str, operation: str) -> list[int]:
    """The ids of the modules that do this operation in place when `self.body(x)` is run: none, if one of them does not."""
    called = re.fullmatch(r"(?:[\w.]+\.)?(\w+)\(.*\)", call, re.DOTALL)
    found: dict[int, bool] = {}
    for name, root in crash.names.modules if called is not None else ():
        for path, module in root.named_modules():
            if called[1] in (name, *path.split(".")) and type(module).__name__.lower() == operation.replace("_", ""):
                found[id(module)] = getattr(module, "inplace", None) is True
    return list(found) if all(found.values()) else []


def _made(crash: Crash, name: str, root: torch.nn.Module, path: str, class_name: str) -> Place | None:
    """Followed from the innermost class of the user's own on the way: `self.features = nn.Sequential(...)`, its sixth."""
    parts = path.split(".") if path else []
    for depth in reversed(range(len(parts))):
        owner = root.get_submodule(".".join(parts[:depth]))
        code = getattr(inspect.unwrap(type(owner).__init__), "__code__", None)
        if isinstance(code, types.CodeType) and origin_of(code) is Origin.USER:
            return _followed(code, _assigned(code, f"self.{parts[depth]}"), parts[depth + 1 :], class_name)
    for frame, _ in reversed(crash.entries):
        if origin_of(frame.f_code) is Origin.USER and name in frame.f_code.co_names + frame.f_code.co_varnames:
            return _followed(frame.f_code, _assigned(frame.f_code, name), parts, class_name)
    return None


def _assigned(code: types.CodeType, target: str) -> list[ast.expr]:
    """What the function (or file) of this code assigns to it, each time."""
    scope = source.tree_of(code.co_filename) if code.co_name == "<module>" else function_of(code)
    found = []
    for node in ast.walk(scope) if scope is not None else ():
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            if target in [ast.unparse(item) for item in (node.targets if isinstance(node, ast.Assign) else [node.target])]:
                found.append(node.value)
    return found


def _followed(code: types.CodeType, values: list[ast.expr], rest: list[str], class_name: str) -> Place | None:
    if len(values) != 1:
        return None
    value = values[0]
    for part in rest:
        items = _items(value)
        if not part.isdigit() or items is None or int(part) >= len(items):
            return None
        value = items[int(part)]
    if not isinstance(value, ast.Call) or called_name(value) != class_name:
        return None
    return source.place_of_node(code, value, Known.INFERRED)


def _items(value: ast.expr) -> list[ast.expr] | None:
    """The modules that `nn.Sequential(a, b)` and `nn.ModuleList([a, b])` spell out."""
    if not isinstance(value, ast.Call) or called_name(value) not in ("Sequential", "ModuleList"):
        return None
    items = value.args
    if len(items) == 1 and isinstance(items[0], (ast.List, ast.Tuple)):
        items = items[0].elts
    elif len(items) == 1 and isinstance(items[0], ast.Starred) and isinstance(items[0].value, (ast.List, ast.Tuple)):
        items = items[0].value.elts
    return None if any(isinstance(item, (ast.Starred, ast.Dict)) for item in items) else list(items)

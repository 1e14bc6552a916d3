"""What a part of an expression was made by, by syntax alone: where its names were bound, what functions of the program's own return.

Where two statements may have done it, or a library's code has, there is no answer.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Mapping

import torch

from torchsleuth import source
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.beginnings import CONVERTING
from torchsleuth.auditor.tracing.sites import expression, site_of_node
from torchsleuth.auditor.tracing.trace import ARRANGING
from torchsleuth.bindings import bindings, function_node, returns_of
from torchsleuth.frozen import frozen
from torchsleuth.origin import Origin, origin_of_file

DEPTH = 24
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COPYING = frozenset({"clone", "copy", "deepcopy"})
_HANDING_ON = ARRANGING | CONVERTING | {"to", "cpu", "cuda", "numpy"}

Key = str | int
Keys = tuple[Key, ...]


@frozen
class Scope:
    """A function or module whose source is read, and whatever lives of it."""

    tree: ast.AST
    file: str
    name: str
    names: Mapping[str, typing.Any]  # what a global name stands for
    frame: types.FrameType | None = None  # where it is running
    copied: bool = False  # a copy is what is looked for, too

    def site(self, node: ast.expr | ast.stmt) -> Site:
        return site_of_node(self.file, node, self.name)


Made = tuple[ast.expr | ast.stmt, Scope]


def scope_of_frame(frame: types.FrameType) -> Scope | None:
    code, names = frame.f_code, frame.f_globals
    tree = function_node(code)
    if tree is None:  # a frame that only stands where the function returns: see `targets`
        whole = source.tree_of(code.co_filename)
        inside = (n for n in ast.walk(whole) if isinstance(n, ast.FunctionDef) and n.name == code.co_name and n.lineno <= code.co_firstlineno <= (n.end_lineno or 0)) if whole is not None else ()
        tree, names = next(iter(inside), None), {}
    return Scope(tree, code.co_filename, code.co_qualname, names, frame) if tree is not None else None


def node_at(code: types.CodeType, offset: int) -> ast.expr | None:
    """The expression of the program's that is being evaluated."""
    span, _ = expression(code, offset)
    tree = source.tree_of(code.co_filename)
    if span is None or tree is None:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and node.lineno == span.line and node.end_lineno == span.end_line:
            if site_of_node(code.co_filename, node).span == span:
                return node
    return None


def moves_along(node: ast.AST) -> bool:
    """`x[:, 1:]`, `x[..., 1:]`, `x[1:]`, `x.roll(-1)`."""
    if isinstance(node, ast.Call):
        return getattr(node.func, "attr", "") == "roll"
    if not isinstance(node, ast.Subscript):
        return False
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return any(isinstance(part, ast.Slice) and isinstance(part.lower, ast.Constant) and part.lower.value in (1, 2) for part in parts)


def followed(node: ast.expr | ast.stmt, scope: Scope, keys: Keys, depth: int) -> Made | None:
    """The expression that made the part of `node` that `keys` lead to, and where it stands."""
    if depth <= 0:
        return None
    follow = functools.partial(followed, depth=depth - 1)
    if isinstance(node, ast.Name):
        return _of_name(node, scope, keys, depth)
    if isinstance(node, (ast.Tuple, ast.List)):
        whole = not any(isinstance(element, ast.Starred) for element in node.elts)
        return follow(node.elts[keys[0]], scope, keys[1:]) if keys and whole and type(keys[0]) is int and keys[0] < len(node.elts) else None
    if isinstance(node, ast.Dict):
        given = [value for key, value in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant) and keys and key.value == keys[0]]
        return follow(given[-1], scope, keys[1:]) if given else None
    if isinstance(node, ast.NamedExpr):
        return follow(node.value, scope, keys)
    if isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if isinstance(key, (str, int)) and not isinstance(key, bool):
            return follow(node.value, scope, (key, *keys))
        return (node, scope) if not keys and moves_along(node) else follow(node.value, scope, keys) if not keys else None
    if isinstance(node, ast.Call):
        return _of_call(node, scope, keys, depth)
    return (node, scope) if not keys and isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare)) else None


def _of_call(node: ast.Call, scope: Scope, keys: Keys, depth: int) -> Made | None:
    callee = _meant(node.func, scope)
    if isinstance(callee, type) and issubclass(callee, (dict, Mapping)) or callee in (tuple, list):
        named = [k.value for k in node.keywords if keys and k.arg == keys[0]]
        if named:
            return followed(named[0], scope, keys[1:], depth - 1)
        return followed(node.args[0], scope, keys, depth - 1) if len(node.args) == 1 and keys else None
    copy = scope.copied and getattr(node.func, "attr", getattr(node.func, "id", "")) in _COPYING
    if isinstance(node.func, ast.Attribute) and node.func.attr in _HANDING_ON and not copy and not isinstance(callee, types.FunctionType):
        if not isinstance(callee, types.BuiltinFunctionType):  # `torch.clone(x)`
            return followed(node.func.value, scope, keys, depth - 1)
    if isinstance(callee, types.FunctionType) and origin_of_file(callee.__code__.co_filename) is Origin.USER:
        inside = _of_function(callee, scope.copied, keys, depth)
        return inside or ((node, scope) if not keys else None)
    return (node, scope) if not keys else None


def _of_function(function: types.FunctionType, copied: bool, keys: Keys, depth: int) -> Made | None:
    code = function.__code__
    unusual = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    tree = function_node(code)
    if code.co_flags & unusual or hasattr(function, "__wrapped__") or not isinstance(tree, _FUNCTIONS):
        return None
    values = [tree.body] if isinstance(tree, ast.Lambda) else [one.value for one in returns_of(tree)]
    if len(values) != 1 or values[0] is None:
        return None
    return followed(values[0], Scope(tree, code.co_filename, code.co_qualname, function.__globals__, copied=copied), keys, depth - 1)


def _of_name(node: ast.Name, scope: Scope, keys: Keys, depth: int) -> Made | None:
    found = bound_in(scope, node.id)
    if not found:
        if isinstance(scope.tree, _FUNCTIONS) and node.id in _parameters(scope.tree):
            return _of_parameter(node.id, scope, keys, depth)
        return _of_global(node.id, scope, keys, depth) if isinstance(scope.tree, _FUNCTIONS) else None
    last = _last_before(scope.tree, [(statement, value, kind) for _, statement, value, kind in found], node)
    if last is None:
        return None
    statement, value, kind = last
    if keys and (stored := _stored(scope.tree, node, statement, keys[0])) is not None:
        return followed(stored, scope, keys[1:], depth - 1)
    if not keys and (written := _written(scope.tree, node, statement)) is not None:
        return written, scope
    if kind == "assign-part" and isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        names = [getattr(element, "id", None) for element in getattr(statement.targets[0], "elts", ())]
        if names.count(node.id) == 1 and not any(isinstance(element, ast.Starred) for element in statement.targets[0].elts):
            return followed(value, scope, (names.index(node.id), *keys), depth - 1)
        return None
    return followed(value, scope, keys, depth - 1) if kind == "assign" else None


def _of_global(name: str, scope: Scope, keys: Keys, depth: int) -> Made | None:
    """Which binding of the module's was in force when the function ran, its syntax tells only where there is one."""
    tree = source.tree_of(scope.file)
    module = Scope(tree, scope.file, "<module>", scope.names, copied=scope.copied) if tree is not None else None
    found = bound_in(module, name) if module is not None else []
    if module is None or len(found) != 1 or found[0][3] != "assign" or not isinstance(found[0][2], ast.expr):
        return None
    return followed(found[0][2], module, keys, depth - 1)


def _of_parameter(name: str, scope: Scope, keys: Keys, depth: int) -> Made | None:
    """What a running function was given, by the one that called it."""
    caller = scope.frame.f_back if scope.frame is not None else None
    outer = scope_of_frame(caller) if caller is not None and origin_of_file(caller.f_code.co_filename) is Origin.USER else None
    call = node_at(caller.f_code, caller.f_lasti) if outer is not None and caller is not None else None
    if outer is None or not isinstance(call, ast.Call) or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    given = next((k.value for k in call.keywords if k.arg == name), None)
    names = _parameters(scope.tree)
    position = names.index(name) - (isinstance(call.func, ast.Attribute) and names[0] in ("self", "cls"))
    if given is None and 0 <= position < len(call.args):
        given = call.args[position]
    return followed(given, dataclasses.replace(outer, copied=scope.copied), keys, depth - 1) if given is not None else None


def _parameters(function: ast.AST) -> list[str]:
    arguments = function.args  # type: ignore[attr-defined]
    return [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def bound_in(scope: Scope, name: str) -> list[tuple[str, ast.AST, ast.AST, str]]:
    return [found for found in bindings(scope.tree) if found[0] == name]


def _meant(node: ast.expr, scope: Scope) -> typing.Any:
    """What a name or a dotted name stands for, without running anything."""
    if isinstance(node, ast.Name):
        local = scope.frame.f_locals if scope.frame is not None else {}
        builtins = scope.names.get("__builtins__", {})
        builtins = builtins if isinstance(builtins, dict) else vars(builtins)
        return local.get(node.id, scope.names.get(node.id, builtins.get(node.id)))
    if isinstance(node, ast.Attribute):
        owner = _meant(node.value, scope)
        if isinstance(owner, types.ModuleType):
            return vars(owner).get(node.attr)
        if owner is not None and not isinstance(owner, torch.Tensor):
            found = inspect.getattr_static(owner, node.attr, None)
            return found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
    return None


# -- order -------------------------------------------------------------------------------------------

Block = tuple[int, str]  # a statement by its identity, and the name of the list that it holds


@functools.lru_cache(maxsize=64)
def _blocks(tree: ast.AST) -> dict[int, tuple[Block, ...]]:
    """For each node the blocks that it stands in, the outermost first."""
    found: dict[int, tuple[Block, ...]] = {}

    def visit(node: ast.AST, inside: tuple[Block, ...]) -> None:
        found[id(node)] = inside
        for field, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    visit(child, (*inside, (id(node), field)) if isinstance(child, ast.stmt) and not isinstance(node, ast.With) else inside)

    visit(tree, ())
    return found


_Bound = typing.TypeVar("_Bound", bound=tuple)


def _last_before(tree: ast.AST, candidates: list[_Bound], use: ast.expr) -> _Bound | None:
    """The binding that was in force: the last one before, if nothing but the way to the use itself decides whether it was made."""
    blocks = _blocks(tree)
    own = blocks.get(id(use))
    before = [one for one in candidates if (one[0].lineno, one[0].col_offset) < (use.lineno, use.col_offset) and not _contains(one[0], use)]
    if own is None or not before:
        return None
    last = max(before, key=lambda one: (one[0].lineno, one[0].col_offset))
    if not set(blocks.get(id(last[0]), ())) <= set(own):
        return None
    loops = {id(node) for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While, ast.AsyncFor))}
    turning = {block for block in own if block[0] in loops}
    again = [one for one in candidates if one not in before and turning & set(blocks.get(id(one[0]), ()))]
    return None if again and not turning & set(blocks.get(id(last[0]), ())) else last


def _written(tree: ast.AST, use: ast.Name, bound: ast.AST) -> ast.stmt | None:
    """`mask[rows] = 0` after the binding, once or in a loop: what stands there from then on. (What a tensor is copied into was there before.)"""
    blocks = _blocks(tree)
    turning = {id(node) for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While, ast.AsyncFor))}
    for node in sorted((n for n in ast.walk(tree) if isinstance(n, ast.Assign)), key=lambda n: n.lineno, reverse=True):
        target = node.targets[0]
        if not bound.lineno <= node.lineno <= use.lineno or node is bound or _contains(node, use) or not isinstance(target, ast.Subscript):
            continue
        if isinstance(target.value, ast.Name) and target.value.id == use.id and _is_number(node.value):
            return node if all(block in blocks[id(use)] or block[0] in turning for block in blocks[id(node)]) else None
    return None


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "float" and len(node.args) == 1:  # float("nan")
        return isinstance(node.args[0], ast.Constant)
    if getattr(node.operand if isinstance(node, ast.UnaryOp) else node, "attr", "") in ("nan", "inf"):
        return True
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) else node, ast.Constant) or isinstance(node, (ast.Name, ast.Attribute)) and getattr(node, "id", getattr(node, "attr", "")).isupper()


def _contains(statement: ast.AST, use: ast.expr) -> bool:
    """`x = x.long()`: the use is of what was there before. (A loop contains its uses, too, and comes before them.)"""
    return not isinstance(statement, (ast.For, ast.AsyncFor, ast.With)) and any(node is use for node in ast.walk(statement))


def _stored(tree: ast.AST, use: ast.Name, bound: ast.AST, key: Key) -> ast.expr | None:
    """`batch["labels"] = …` between the binding of a name and its use."""
    stores = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(target := node.targets[0], ast.Subscript):
            named = isinstance(target.value, ast.Name) and target.value.id == use.id
            if named and isinstance(target.slice, ast.Constant) and target.slice.value == key and node.lineno >= bound.lineno:
                stores.append((node, node.value))
    last = _last_before(tree, stores, use)
    return last[1] if last is not None else None

"""The statement that keeps a state for the next round: `self.state = h, c` at the end of a method that begins with `self.state`."""

from __future__ import annotations

import ast
import types
import typing
from collections.abc import Sequence

from torchsleuth import source
from torchsleuth.capture.syntax import function_of
from torchsleuth.evidence import Place
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of
from torchsleuth.record.oplog import Operation
from torchsleuth.record.ring import Kind

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def kept_at(maker: Operation | None, user: Operation | None, names: Sequence[str]) -> Place | None:
    """Where the maker's method stores these in an attribute that the user's method reads; None unless there is one such place."""
    if maker is None or user is None or not names:
        return None
    kept = names[0].removeprefix("self.") if len(names) == 1 and names[0].startswith("self.") else ""  # known by the attribute it is kept in
    if not kept and not all(name.isidentifier() for name in names):
        return None
    making, using = _method(maker.user_code), _method(user.user_code)
    if making is None or using is None or making[1] is not using[1]:
        return _renamed_in_loop(user, names[0]) if len(names) == 1 and not kept else None
    found = []
    for statement in ast.walk(making[0]):
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            attribute = _attribute(statement.targets[0])
            stored = _names(statement.value)
            if attribute and stored and (attribute == kept or stored <= set(names)) and _reads(using[0], using[1], attribute):
                found.append(statement)
    return source.place_of_node(maker.user_code, found[0], Known.INFERRED) if len(found) == 1 else None


def _renamed_in_loop(user: Operation, name: str) -> Place | None:
    """`state = h` at the end of a round that has begun with `state`, if nothing else in the loop sets it."""
    code, tree = user.user_code, source.tree_of(user.user_code.co_filename)
    where = source.instruction_range(code, user.user_lasti)
    if tree is None or where is None:
        return None
    loops = [node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While)) and node.lineno <= where[0] <= node.end_lineno]
    inner = max(loops, key=lambda loop: loop.lineno, default=None)
    setting = [node for node in ast.walk(inner) if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)] if inner is not None else []
    found = [node for node in ast.walk(inner) if isinstance(node, ast.Assign) and node.targets == setting and isinstance(node.value, ast.Name)] if len(setting) == 1 else []
    return source.place_of_node(code, found[0], Known.INFERRED) if found and found[0].lineno > where[0] else None


def carried_by_caller(crash: Crash, older: int, newer: int, inner: set[types.CodeType]) -> tuple[str, Place] | None:
    """`out, self.state = self.model(x, self.state)`: one statement of a function that was still running at the backward, at
    which it stood when the tensor was made and again when it was used. The functions that did so, called there, have returned
    since: their own variables have carried nothing over."""
    frames = [frame.f_code for frame, _ in crash.entries if origin_of(frame.f_code) is Origin.USER]
    if inner & set(frames):
        return None
    lines: dict[types.CodeType, dict[int, int]] = {code: {} for code in frames}
    for event in crash.timeline.events():
        if event.kind is Kind.LINE and event.code in lines:
            # An event has the number of the next node: the last one before a node has its number or a smaller one.
            for number in (older, newer):
                if event.sequence <= number:
                    lines[event.code][number] = event.where
    for code in reversed(frames):
        one, other = (source.statement_at(code.co_filename, lines[code].get(number, 0)) for number in (older, newer))
        if isinstance(one, ast.Assign) and one is other:
            stored = {ast.unparse(node) for target in one.targets for node in _parts(target)}
            given = {ast.unparse(item) for call in ast.walk(one.value) if isinstance(call, ast.Call)
                     for argument in (*call.args, *(keyword.value for keyword in call.keywords)) for item in _parts(argument)}  # fmt: skip
            both = stored & given
            place = source.place_of_node(code, one, Known.INFERRED) if len(both) == 1 else None
            if place is not None and not _is_set_between(crash, code, one, older, newer, *both):
                return both.pop(), place
    return None


def _is_set_between(crash: Crash, code: types.CodeType, keeping: ast.stmt, older: int, newer: int, name: str) -> bool:
    """`x = batch`, and then `x = layer(x)` for each layer: what another statement has put there since is no state of the last round."""
    lines = {event.where for event in crash.timeline.events() if event.kind is Kind.LINE and event.code is code and older < event.sequence <= newer}
    for line in lines:
        statement = source.statement_at(code.co_filename, line)
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target] if isinstance(statement, (ast.For, ast.AnnAssign)) else []
        if statement is not keeping and any(ast.unparse(part) == name for target in targets for part in _parts(target)):
            return True
    return False


def _parts(node: ast.expr) -> list[ast.expr]:
    """The variables and attributes of `a, (b, self.c)`."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return [part for item in node.elts for part in _parts(item)]
    return [node] if isinstance(node, (ast.Name, ast.Attribute)) else []


def _method(code: types.CodeType) -> tuple[ast.AST, ast.ClassDef] | None:
    function, tree = function_of(code), source.tree_of(code.co_filename)
    owners = ast.walk(tree) if tree is not None and function is not None else ()
    return next(((function, owner) for owner in owners if isinstance(owner, ast.ClassDef) and function in owner.body), None)


def _attribute(target: ast.expr) -> str:
    """`state` of `self.state` and of `self.state[i]`."""
    target = target.value if isinstance(target, ast.Subscript) else target
    return target.attr if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self" else ""


def _names(value: ast.expr) -> set[str]:
    """The variables that a value is put together from: `h`, `(h, c)`, `State(h, c)`."""
    if isinstance(value, ast.Name):
        return {value.id}
    parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id[:1].isupper():
        parts = [*value.args, *(keyword.value for keyword in value.keywords)]
    if not parts or not all(isinstance(part, ast.Name) for part in parts):
        return set()
    return {part.id for part in parts}


def _reads(function: ast.AST, owner: ast.ClassDef, attribute: str) -> bool:
    """Directly, or by a property or method of the same class that does."""
    read = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}
    if attribute in read:
        return True
    helpers = [item for item in owner.body if isinstance(item, Function) and item.name in read and item is not function]
    return any(isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr == attribute for item in helpers for node in ast.walk(item))

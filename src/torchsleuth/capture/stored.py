"""The expression that puts a tensor into a list or queue which outlives the step: `z` of `self.data.append((z, action, reward))`."""

from __future__ import annotations

import ast
import types
import typing

from torchsleuth import source
from torchsleuth.bindings import function_node
from torchsleuth.capture.live_values import values_of
from torchsleuth.evidence import Place
from torchsleuth.model import Known
from torchsleuth.origin import Origin
from torchsleuth.probe.holders import stored_in

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_PUTS = ("append", "appendleft", "insert")


def stored_at(crash: Crash, made_by: typing.Any) -> Place | None:
    """Where the result of this node was put into the list that still has it; None unless there is one such place."""
    entry = crash.user_entry()
    held = stored_in(entry[0], made_by) if entry is not None else None
    if held is None:
        return None
    found = []
    for code in _functions(entry[0], held.owner):
        scope = function_node(code) if code.co_name != "<module>" else source.tree_of(code.co_filename)
        for call in ast.walk(scope) if scope is not None else ():
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _PUTS and call.args and _is_held(call.func.value, held.name, held.owner):
                found.append((code, _part(call.args[-1], held.within)))
    if held.owner is not None:
        found += _from_outside(crash, held.name, held.owner, held.within)
    if len({(code.co_filename, getattr(part, "lineno", 0), getattr(part, "col_offset", 0)) for code, part in found}) != 1 or found[0][1] is None:
        return None
    return source.place_of_node(found[0][0], found[0][1], Known.INFERRED)


def is_data(crash: Crash, made_by: typing.Any) -> bool:
    """Whether what is differentiated leads to something to train without all that lies in that list: a list of losses is no data."""
    entry = crash.user_entry()
    held = stored_in(entry[0], made_by) if entry is not None else None
    return held is not None and _trains_without(crash, held.nodes)


def _from_outside(crash: Crash, name: str, owner: object, within: tuple[int | str, ...]) -> list[tuple[types.CodeType, ast.expr | None]]:
    """`memory.slots.append(h)` in a function that is still running, which has the object itself."""
    found = []
    for code in {frame.f_code for frame, _ in crash.entries if source.origin_of(frame.f_code) is Origin.USER}:
        scope = function_node(code) if code.co_name != "<module>" else source.tree_of(code.co_filename)
        for call in ast.walk(scope) if scope is not None else ():
            put = call.func if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _PUTS and call.args else None
            if put is not None and isinstance(put.value, ast.Attribute) and put.value.attr == name:
                if any(value is owner for value in values_of(crash, code, put.value.value)):
                    found.append((code, _part(call.args[-1], within)))
    return found


def _trains_without(crash: Crash, nodes: list[typing.Any]) -> bool:
    """Whether the graph reaches a leaf on a way that none of these nodes is on."""
    pending = [root.grad_fn for root in crash.roots if root.grad_fn is not None]
    seen = set(nodes)
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        if hasattr(node, "variable"):
            return True
        seen.add(node)
        pending += [inner for inner, _ in node.next_functions if inner is not None]
    return False


def _functions(frame: types.FrameType, owner: object) -> list[types.CodeType]:
    """The methods of the object's class; for a variable the function itself."""
    if owner is None:
        return [frame.f_code]
    functions = [function for base in type(owner).__mro__ for function in vars(base).values() if isinstance(function, types.FunctionType)]
    return [function.__code__ for function in functions if source.origin_of(function.__code__) is Origin.USER]


def _is_held(node: ast.expr, name: str, owner: object) -> bool:
    node = node.value if isinstance(node, ast.Subscript) else node
    return isinstance(node, ast.Name) and node.id == name if owner is None else isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.value, ast.Name)


def _part(element: ast.expr, within: tuple[int | str, ...]) -> ast.expr | None:
    """The expression for one part of what is put there: of a tuple, a dictionary, or a call that makes an object."""
    if not within:
        return element if isinstance(element, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)) else None
    at = within[0]
    if isinstance(element, (ast.Tuple, ast.List)) and isinstance(at, int) and at < len(element.elts) and not any(isinstance(item, ast.Starred) for item in element.elts):
        return element.elts[at]
    if isinstance(element, ast.Dict):
        return next((value for key, value in zip(element.keys, element.values) if isinstance(key, ast.Constant) and key.value == at), None)
    if isinstance(element, ast.Call):
        return next((keyword.value for keyword in element.keywords if keyword.arg == at), None)
    return None

"""Where parameters were frozen, as the log has seen it, and which of the program's calls had that done."""

from __future__ import annotations

import ast
import typing

from torchsleuth import source
from torchsleuth.bindings import function_node
from torchsleuth.evidence import Place
from torchsleuth.origin import Origin, origin_of
from torchsleuth.record.oplog import Operation

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_MOST = 3  # places; where there are more, none of them is the one to look at


def frozen_at(crash: Crash, parameters: set[int]) -> tuple[Place, ...]:
    """Where these parameters were frozen, if the log has seen it: a few places, in the order in which they ran."""
    places = {}
    for operation in _freezing(crash, parameters):
        place = crash.timeline.place_of_operation(operation)
        if place is not None:
            places[place.span] = place
    return tuple(places.values()) if len(places) <= _MOST else ()


def frozen_by(crash: Crash, parameters: set[int]) -> tuple[Place, ...]:
    """The program's calls of functions that froze these parameters because they were given them: `freeze(model)`."""
    places = {}
    for operation in _freezing(crash, parameters):
        caller = operation.stack[1] if operation.stack[:1] == ((operation.user_code, operation.user_lasti),) and len(operation.stack) > 1 else None
        if caller is not None and origin_of(caller[0]) is Origin.USER and _was_given(operation):
            place = source.place_of_instruction(*caller)
            if place is not None:
                places[place.span] = place
    return tuple(places.values()) if len(places) <= _MOST else ()


def _was_given(operation: Operation) -> bool:
    """What this line of a function freezes is a parameter of the function, or a part of one."""
    code = operation.user_code
    where, scope = source.instruction_range(code, operation.user_lasti), function_node(code)
    if where is None or scope is None or code.co_name in ("<module>", "__init__"):
        return False
    given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    statement = source.statement_at(code.co_filename, where[0])
    loops = [node for node in ast.walk(scope) if isinstance(node, ast.For) and node.lineno <= where[0] <= (node.end_lineno or node.lineno)]
    frozen = [node.iter for node in loops] or ([statement] if statement is not None else [])
    return any(isinstance(node, ast.Name) and node.id in given for part in frozen for node in ast.walk(part))


def _freezing(crash: Crash, parameters: set[int]) -> typing.Iterator[Operation]:
    for operation in crash.timeline.operations:
        if operation.name in ("requires_grad=", "requires_grad_") and any(mark.ident in parameters and mark.requires_grad for mark in operation.operands):
            yield operation

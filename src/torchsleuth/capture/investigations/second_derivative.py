"""Which custom Function with `@once_differentiable` was differentiated, where it was applied, and what asked for the first derivative.

Its node is not in the graph of the second derivative: there torch has put one that only raises. The lines that ran tell.
"""

from __future__ import annotations

import ast
import types
import typing

from torchsleuth import source
from torchsleuth.bindings import function_node
from torchsleuth.capture.alignment import called_name
from torchsleuth.evidence import Place, SecondDerivative
from torchsleuth.record.ring import Event, Kind

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash


def investigate(crash: Crash) -> SecondDerivative | None:
    second = crash.place_of_failure()
    marks: dict[int, ast.expr | None] = {}
    applied: dict[str, Event] = {}  # by the Function's name: the line that applied it last
    line: Event | None = None
    found: dict[int, tuple[types.CodeType, ast.expr, Event | None]] = {}
    for event in crash.timeline.events():
        if event.kind is Kind.LINE:
            line = event
        if event.kind is not Kind.START:
            continue
        owner, _, name = _qualified(event.code).rpartition(".")
        if name == "forward" and owner and line is not None:
            applied[owner] = line
        mark = marks.setdefault(id(event.code), _mark(event.code)) if name == "backward" and owner else None
        if mark is not None:
            found[id(event.code)] = event.code, mark, applied.get(owner)
    if second is None or len(found) != 1:
        return None
    ((code, mark, applying),) = found.values()
    first = next((op for op in reversed(crash.timeline.operations) if op.name == "grad" and not op.raised), None)
    asked = crash.timeline.place_of_operation(first) if first is not None else None
    function = _qualified(code).split(".")[-2]
    return SecondDerivative(function, source.place_of_node(code, mark), _applied(applying) if applying is not None else None, asked, second)


def _qualified(code: types.CodeType) -> str:
    return code.co_qualname.replace("<locals>.", "")


def _mark(code: types.CodeType) -> ast.expr | None:
    scope = function_node(code)
    decorators = scope.decorator_list if isinstance(scope, ast.FunctionDef) else []
    return next((item for item in decorators if ast.unparse(item).rsplit(".", 1)[-1] == "once_differentiable"), None)


def _applied(line: Event) -> Place | None:
    statement = source.statement_at(line.code.co_filename, line.where)
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call) and called_name(node) == "apply"] if statement is not None else []
    return source.place_of_node(line.code, calls[0]) if len(calls) == 1 else None

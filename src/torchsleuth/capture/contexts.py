"""The `with` statement that put new tensors on another device: `with torch.device("meta"):`, found by syntax."""

from __future__ import annotations

import ast
import types
import typing

from torchsleuth import source
from torchsleuth.bindings import function_node
from torchsleuth.evidence_forward import Made
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of

_DEVICES = frozenset({"device", "init_empty_weights", "DeviceContext"})


def device_context(stack: typing.Sequence[tuple[types.CodeType, int]]) -> Made | None:
    """The innermost one around the calls that made a tensor."""
    for code, lasti in stack:
        where, scope = source.instruction_range(code, lasti), function_node(code)
        if where is None or scope is None or origin_of(code) is not Origin.USER:
            continue
        for statement in ast.walk(scope):
            if isinstance(statement, ast.With) and statement.body[0].lineno <= where[0] <= (statement.end_lineno or where[0]):
                for item in statement.items:
                    call = item.context_expr
                    if isinstance(call, ast.Call) and getattr(call.func, "attr", getattr(call.func, "id", "")) in _DEVICES:
                        place = source.place_of_node(code, call, Known.INFERRED)
                        return Made("with", place) if place is not None else None
    return None

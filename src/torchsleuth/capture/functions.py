"""What the source of a custom autograd Function says: where its forward keeps tensors for backward."""

from __future__ import annotations

import ast
import inspect
import types
import typing

from torchsleuth import source
from torchsleuth.bindings import function_node
from torchsleuth.capture.alignment import called_name
from torchsleuth.evidence import Place
from torchsleuth.model import Known


def kept_in_forward(node: typing.Any) -> Place | None:
    """The one `ctx.save_for_backward(...)` of the Function whose node this is; None where there are several, or it is no Function."""
    cls = getattr(type(node), "_forward_cls", None)
    found = []
    for function in (getattr(cls, "forward", None), getattr(cls, "setup_context", None)) if cls is not None else ():
        code = getattr(inspect.unwrap(function), "__code__", None) if function is not None else None
        scope = function_node(code) if isinstance(code, types.CodeType) else None
        calls = ast.walk(scope) if scope is not None else ()
        found += [(code, call) for call in calls if isinstance(call, ast.Call) and called_name(call) == "save_for_backward"]
    return source.place_of_node(*found[0], Known.INFERRED) if len(found) == 1 else None

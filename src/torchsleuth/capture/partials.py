"""Calls of what `functools.partial` made: `layer(10)` for a `layer = partial(nn.Linear, 32)`, as if all arguments stood in the call."""

from __future__ import annotations

import ast

from torchsleuth.capture.finished import Frame
from torchsleuth.capture.scopes import bound_to, enclosing, parameter_of


def filled(frame: Frame, call: ast.Call) -> ast.Call:
    """The call with the arguments of the partial before its own; the call itself where its name is bound to none, or to several things."""
    made = _bound(frame, call.func.id) if isinstance(call.func, ast.Name) else None
    if not isinstance(made, ast.Call) or getattr(made.func, "id", getattr(made.func, "attr", "")) != "partial" or not made.args:
        return call
    own = {keyword.arg for keyword in call.keywords}
    return ast.Call(made.args[0], [*made.args[1:], *call.args], [*(k for k in made.keywords if k.arg not in own), *call.keywords])


def _bound(frame: Frame, name: str) -> ast.AST | None:
    scope: ast.AST | None = frame.scope
    while scope is not None:
        values = bound_to(scope, name)
        if values or parameter_of(scope, name) is not None:
            return values[0][0] if len(values) == 1 and not values[0][1] else None
        scope = enclosing(frame.filename, scope) if not isinstance(scope, ast.Module) else None
    return None

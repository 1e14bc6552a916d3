"""Calls in which others call: of what `functools.partial` made, `layer(10)` for a `layer = partial(nn.Linear, 32)`, and of what a thread runs,
as if all arguments stood in the call."""

from __future__ import annotations

import ast
import typing

from torchsleuth.capture.finished import Frame
from torchsleuth.capture.scopes import argument_for, bound_to, default_of, enclosing, parameter_of

_MOST_NAMES = 6


def filled(frame: Frame, call: ast.Call) -> ast.Call:
    """The call with the arguments of the partial before its own; the call itself where its name is bound to none, or to several things."""
    made = bound_value(frame, call.func.id) if isinstance(call.func, ast.Name) else None
    if not isinstance(made, ast.Call) or not is_partial(made):
        return call
    own = {keyword.arg for keyword in call.keywords}
    return ast.Call(made.args[0], [*made.args[1:], *call.args], [*(k for k in made.keywords if k.arg not in own), *call.keywords])


def is_partial(call: ast.Call) -> bool:
    return getattr(call.func, "id", getattr(call.func, "attr", "")) == "partial" and bool(call.args)


def partials_of(tree: ast.AST, name: str) -> typing.Iterator[tuple[ast.Call, ast.Call]]:
    """Every `partial(name, …)`, `Thread(target=name, args=…)` and `pool.submit(name, …)`: it, and the call of the function that it stands for."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        by = getattr(call.func, "id", getattr(call.func, "attr", ""))
        named = {keyword.arg: keyword.value for keyword in call.keywords}
        function = call.args[0] if by in ("partial", "submit") and call.args else named.get("target") if by in ("Thread", "Process") else None
        if function is None or getattr(function, "attr", getattr(function, "id", "")) != name:
            continue
        if by in ("partial", "submit"):
            yield call, ast.Call(function, call.args[1:], call.keywords)
            continue
        given, options = named.get("args", ast.Tuple([], ast.Load())), named.get("kwargs")
        if isinstance(given, (ast.Tuple, ast.List)):
            yield call, ast.Call(function, given.elts, [ast.keyword(None, options)] if options is not None else [])


def bound_value(frame: Frame, name: str, left: int = _MOST_NAMES) -> ast.AST | None:
    """What the name stands for, through other names, parameters and their defaults."""
    scope: ast.AST | None = frame.scope
    while scope is not None and left > 0:
        values = bound_to(scope, name)
        if parameter_of(scope, name) is not None:
            if values or scope is not frame.scope:
                return None
            given = argument_for(frame.call, scope, frame.arguments == "self", name)[0] if frame.call is not None and frame.outer is not None else None
            if given is not None and frame.outer is not None:
                return bound_value(frame.outer, given.id, left - 1) if isinstance(given, ast.Name) else given
            values = ((default, ()),) if (default := default_of(scope, name)) is not None else ()
        if values:
            value = values[0][0] if len(values) == 1 and not values[0][1] else None
            around = enclosing(frame.filename, scope) if not isinstance(scope, ast.Module) else None
            if isinstance(value, ast.Name) and value.id != name:
                return bound_value(Frame(frame.filename, around or scope, "", None, None), value.id, left - 1)
            return value
        scope = enclosing(frame.filename, scope) if not isinstance(scope, ast.Module) else None
    return None

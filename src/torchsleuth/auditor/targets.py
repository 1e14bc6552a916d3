"""What the command line audits by name: a function that builds a model and a batch."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
import types
import typing
from pathlib import Path

from torchsleuth.auditor.tracing.sites import TRAMPOLINE, syntax_of
from torchsleuth.errors import UsageError, message_of
from torchsleuth.model import Outcome, RaisedException, Report
from torchsleuth.origin import Origin, origin_of_file

_NAMES = ("model", "batch", "loss_fn", "target", "optimizer")


def audit_function(module_name: str, function: str, audit: typing.Callable[..., Report]) -> Report:
    """What `audit` says of what the function returns. `module_name` is an importable name or a path to a file."""
    build = _function(module_name, function)
    try:
        inspect.signature(build).bind()
    except TypeError as error:
        raise UsageError(f"{function}() must take no arguments: {error}") from error
    try:
        made = build()
    except Exception as error:
        _print_traceback(error)
        raised = RaisedException(type(error).__name__, message_of(error))
        return Report("audit", Outcome.CRASH, raised, (), (f"{function}() raised {raised.type}; there is nothing to audit",))
    if isinstance(made, dict):
        unknown = sorted(set(made) - set(_NAMES))
        if unknown or "model" not in made or "batch" not in made:
            raise UsageError(f"{function}() must return 'model' and 'batch' (and may return {', '.join(_NAMES[2:])}), not {', '.join(made)}")
        given = made
    elif isinstance(made, tuple) and 2 <= len(made) <= 3:
        given = dict(zip(("model", "batch", "loss_fn"), made, strict=False))
    else:
        raise UsageError(f"{function}() must return (model, batch), (model, batch, loss_fn) or a dict, not {type(made).__name__}")
    return _called_from(build, functools.partial(audit, **given))


def _called_from(build: typing.Callable, call: typing.Callable[[], Report]) -> Report:
    """`call()`, made from a frame that stands where `build` returns.

    What is computed without a line of the program's (a loss of torch's, which the audit calls) is then said of the
    expression that put model, batch and loss together.
    """
    code = getattr(inspect.unwrap(build), "__code__", None)
    tree = syntax_of(code.co_filename) if code is not None else None
    if code is None or tree is None:
        return call()
    own = next((n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == code.co_name and n.lineno <= _line_after(code) <= (n.end_lineno or 0)), None)
    inner = {r for n in ast.walk(own) if n is not own and isinstance(n, (ast.FunctionDef, ast.Lambda)) for r in ast.walk(n)} if own is not None else set()
    values = [n.value for n in ast.walk(own) if isinstance(n, ast.Return) and n.value is not None and n not in inner] if own is not None else []
    if own is None or not values:
        return call()
    made = ast.parse(f"def {own.name}(): return call()")
    for node in ast.walk(made):
        if hasattr(node, "lineno"):
            ast.copy_location(node, values[-1])
    scope: dict[str, typing.Any] = {"call": call}
    exec(compile(made, code.co_filename, "exec"), scope)
    return scope[own.name]()


def _line_after(code: types.CodeType) -> int:
    """A line inside the function: the first one may be a decorator's."""
    return max((line for _, _, line in code.co_lines() if line is not None), default=code.co_firstlineno)


def _function(module_name: str, function: str) -> typing.Callable[[], typing.Any]:
    sys.path.insert(0, os.getcwd())
    try:
        if module_name.endswith(".py"):
            path = Path(module_name)
            if not path.is_file():
                raise UsageError(f"no such file: {module_name}")
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[path.stem] = module
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(module_name)
    except ImportError as error:
        raise UsageError(f"cannot import {module_name}: {error}") from error
    found = getattr(module, function, None)
    if not callable(found):
        raise UsageError(f"{module_name} has no function {function}")
    return found


def _print_traceback(error: BaseException) -> None:
    """As Python would have printed it: without our own frames and those that ran the script."""
    shown = traceback.TracebackException.from_exception(error)
    kept = [
        frame
        for frame in shown.stack
        if frame.name != TRAMPOLINE and origin_of_file(frame.filename) is not Origin.OURS and not frame.filename.startswith("<frozen runpy")
    ]
    shown.stack = traceback.StackSummary.from_list(kept)
    print("".join(shown.format()), end="", file=sys.stderr)

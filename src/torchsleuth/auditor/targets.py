"""What the command line audits: a function that builds a model and a batch, or a script's first training step."""

from __future__ import annotations

import importlib
import importlib.util
import os
import runpy
import sys
import traceback
import typing
from pathlib import Path

from torchsleuth.auditor.live import StepWatch
from torchsleuth.auditor.session import audit
from torchsleuth.auditor.sites import TRAMPOLINE
from torchsleuth.errors import UsageError
from torchsleuth.model import Outcome, RaisedException, Report
from torchsleuth.origin import Origin, origin_of_file

_NAMES = ("model", "batch", "loss_fn", "target", "optimizer")


def audit_function(module_name: str, function: str, overfit: bool, budget_s: float) -> Report:
    """`module_name` is an importable name or a path to a file."""
    made = _function(module_name, function)()
    if isinstance(made, dict):
        unknown = sorted(set(made) - set(_NAMES))
        if unknown or "model" not in made or "batch" not in made:
            raise UsageError(f"{function}() must return 'model' and 'batch' (and may return {', '.join(_NAMES[2:])}), not {', '.join(made)}")
        given = made
    elif isinstance(made, tuple) and 2 <= len(made) <= 3:
        given = dict(zip(("model", "batch", "loss_fn"), made, strict=False))
    else:
        raise UsageError(f"{function}() must return (model, batch), (model, batch, loss_fn) or a dict, not {type(made).__name__}")
    return audit(overfit=overfit, budget_s=budget_s, **given)


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


def audit_script(script: str, arguments: list[str], budget_s: float) -> tuple[Report, int]:
    """The report on the script's first training step, and the script's own exit status."""
    if not Path(script).is_file():
        raise UsageError(f"no such file: {script}")
    watch = StepWatch(budget_s)
    status, error = 0, None
    kept_argv, kept_path = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = [script, *arguments], os.path.dirname(os.path.abspath(script))
    watch.start()
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException as raised:
        error, status = raised, 130 if isinstance(raised, KeyboardInterrupt) else 1
        _print_traceback(raised)
    finally:
        sys.argv, sys.path[0] = kept_argv, kept_path
    parts = watch.finish()
    exception = RaisedException(type(error).__name__, str(error)) if error is not None else None
    outcome = Outcome.FINDINGS if parts.diagnoses else Outcome.CRASH if error is not None else Outcome.OK
    return Report("audit", outcome, exception, parts.diagnoses, parts.notes), status


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

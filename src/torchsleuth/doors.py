"""The front doors inside a program: `install()`, `with watch():` and `audit(model, batch)`."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import threading
import typing

from torchsleuth.model import Report
from torchsleuth.options import Options
from torchsleuth.pipeline import Watch
from torchsleuth.uncollected import uncollected

_installed: Watch | None = None
_shown = 0  # id() of the exception that IPython had shown last when a cell began


def install(**options: typing.Any) -> None:
    """Watch the rest of this program or notebook; failures are reported after their traceback.

    Chains to the `sys.excepthook` and `threading.excepthook` that are there; in IPython it reports after the cell.
    """
    global _installed
    if _installed is not None:
        return
    import torch  # noqa: F401  (recording needs it, and a program that installs us uses it)

    watch_ = _installed = Watch(Options(**options))
    watch_.start()
    shell = _ipython()
    if shell is not None:
        _before_cell()
        shell.events.register("pre_run_cell", _before_cell)
        shell.events.register("post_run_cell", _after_cell)
        return
    before, before_thread = sys.excepthook, threading.excepthook

    def on_exception(kind, error, traceback):
        _strip(error)
        before(kind, error, error.__traceback__)
        if _installed is watch_:
            watch_.conclude(error)

    def on_thread_exception(arguments):
        if arguments.exc_value is not None:
            _strip(arguments.exc_value)
        before_thread(arguments)
        if arguments.exc_value is not None and _installed is watch_:
            watch_.conclude(arguments.exc_value)

    sys.excepthook, threading.excepthook = on_exception, on_thread_exception


def uninstall() -> None:
    """Stop watching. The hooks stay where others may have chained to them, and do nothing."""
    global _installed
    if _installed is not None:
        _installed.stop()
        _installed = None
    shell = _ipython()
    if shell is not None:
        with contextlib.suppress(ValueError):
            shell.events.unregister("pre_run_cell", _before_cell)
            shell.events.unregister("post_run_cell", _after_cell)


@contextlib.contextmanager
def watch(**options: typing.Any) -> typing.Iterator[Watch]:
    """`with torchsleuth.watch(): …` reports what goes wrong inside, and lets the exception through."""
    import torch  # noqa: F401

    watch_ = Watch(Options(**options), "watch")
    watch_.start()
    try:
        yield watch_
    except Exception as error:
        watch_.stop()
        _strip(error)
        watch_.conclude(error)
        raise
    else:
        if watch_.options.caught or watch_.options.json:
            watch_.conclude(None)
    finally:
        watch_.stop()


def audit(model: typing.Any, batch: typing.Any, **options: typing.Any) -> Report:
    """Experiments on `model` with `batch`: see `torchsleuth.auditor.session.audited`, whose options these are.

    A model that fails on the batch is explained like a program that does: it is run once more, recorded.
    """
    with uncollected():
        from torchsleuth.auditor.session import audited

    report, failing = audited(model, batch, **options)
    if failing is None or report.diagnoses:
        return report
    watch_ = Watch(Options(quiet=True), "audit")
    watch_.start()
    try:
        failing()
    except Exception as error:
        watch_.stop()
        _strip(error)
        return dataclasses.replace(report, diagnoses=watch_.diagnoses_of(error, sys._getframe().f_back))
    finally:
        watch_.stop()
    return report


def _before_cell(*_: object) -> None:
    global _shown
    _shown = id(getattr(sys, "last_value", None))


def _after_cell(result: typing.Any) -> None:
    error = result.error_in_exec
    if error is None and id(last := getattr(sys, "last_value", None)) != _shown:
        error = last  # `%run` shows it itself, and the cell ends well
    if error is not None and _installed is not None:
        from torchsleuth import source

        source.forget()
        old = _installed
        old.conclude(error)
        # Reporting has ended the recording; the next cell gets a new one.
        fresh = Watch(old.options)
        globals()["_installed"] = fresh
        fresh.start()


def _ipython() -> typing.Any:
    module = sys.modules.get("IPython")
    return module.get_ipython() if module is not None else None


def _strip(error: BaseException) -> None:
    from torchsleuth.record import tracebacks

    tracebacks.strip(error)

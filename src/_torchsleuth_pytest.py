"""The pytest plugin: `pytest --torchsleuth` explains a torch error beneath the test that failed of it. Imports nothing before it is asked to."""

from __future__ import annotations

import sys
import typing

import pytest

_HISTORY = 1 << 17  # of one test; a test's own ring is made anew each time


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("torchsleuth").addoption(
        "--torchsleuth", action="store_true", help="record tests that use torch, and explain the torch errors that make them fail"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--torchsleuth"):
        config.pluginmanager.register(Explainer(), "torchsleuth-explainer")


class Explainer:
    """Each test is a program of its own: recorded from its set-up on, exactly for its first seconds, until it fails or ends."""

    def __init__(self) -> None:
        from torchsleuth.program import begin_with_torch

        self._watch: typing.Any = None
        begin_with_torch(self._begin)

    def _begin(self) -> None:
        """torch is there, and where a test runs it is recorded from here on."""
        if self._watch is not None:
            self._watch.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> typing.Iterator[None]:
        from torchsleuth.options import Options
        from torchsleuth.pipeline import Watch

        self._watch = Watch(Options(quiet=True, history=_HISTORY))
        if "torch" in sys.modules:
            self._watch.start()
        try:
            return (yield)
        finally:
            self._watch.stop()
            self._watch = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo) -> typing.Iterator[None]:
        error = call.excinfo.value if call.excinfo is not None else None
        if error is None or self._watch is None or "torch" not in sys.modules:
            return (yield)
        from torchsleuth.record import tracebacks

        self._watch.stop()
        tracebacks.strip(error)
        report = yield
        if report.failed:
            diagnoses = self._watch.diagnoses_of(error, None)
            if diagnoses:
                from torchsleuth.model import Outcome, Report

                report.sections.append(("torchsleuth", str(Report("run", Outcome.CRASH, None, diagnoses)).strip("\n")))
        return report

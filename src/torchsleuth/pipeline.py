"""The order of stages: record, capture, diagnose, render. The only module that knows it.

`Watch` serves all front doors: `torchsleuth run` (`program.py`), `install()` and `with watch():` (`doors.py`).
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import os
import sys
import types
import typing

from torchsleuth import source
from torchsleuth.children import Children
from torchsleuth.errors import message_of
from torchsleuth.model import Confidence, Diagnosis, Fact, Known, Outcome, RaisedException, Report
from torchsleuth.options import Options
from torchsleuth.wording import short

_MOST_CAUGHT = 20
_MOST_FROM_ONE_PLACE = 5  # a search by trial and error in a loop is not looked at each time
_SHARE_OF_A_CHILD = 8
_MOST_VERIFIED = 3  # of those; each may cost three times what it took to get there


_serials = itertools.count()
_shown: dict[tuple, int] = {}  # what was printed, and by which watch


class Watch:
    """Records from `start()` on; turns an exception into a report. One per program."""

    def __init__(self, options: Options, command: str = "run") -> None:
        self.options = options
        self._command = command
        self._serial = next(_serials)
        self._recorder: typing.Any = None
        self._child_recorder: typing.Any = None  # in a forked child: its own
        self._caught: list[tuple[tuple, RaisedException, tuple[Diagnosis, ...]]] = []
        self._handled: collections.Counter[tuple] = collections.Counter()  # how often an exception from here was looked at
        self._unverified: dict[tuple, typing.Any] = {}  # of those: what a verification has to know about the failure
        self._busy = False
        self._auditors: tuple[typing.Any, typing.Any] | None = None
        self._children = Children(self._record_in_child, self._diagnosed_in_child)
        self.delivered: Report | None = None  # the last report that had something to say
        self.replay: typing.Any = None  # what a re-run of the program needs
        if options.verify:
            from torchsleuth.verify.replay import Replay

            self.replay = Replay()

    # -- recording ------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin recording. torch must have been imported."""
        if self._recorder is not None:
            return
        from torchsleuth.record.recorder import Recorder

        options = self.options
        if self.replay is not None:
            self.replay.note_torch()
        self._recorder = Recorder(
            options.history,
            None if options.deep else options.exact_seconds,
            self._on_handled if options.caught else None,
            options.guard,
        )
        recording = self._recorder.start()
        self._children.attend()
        if options.audit:
            self._start_audit()
        if options.verbose:
            _say(f"recording with {recording.choice}")
        for note in recording.notes:
            _say(note)

    def _start_audit(self) -> None:
        from torchsleuth.auditor.program.live import StepWatch
        from torchsleuth.checker.live import FunctionWatch

        self._auditors = StepWatch(self.options.budget_s), FunctionWatch()
        for auditor in self._auditors:
            auditor.start()

    def stop(self) -> None:
        self._children.leave()
        if self._recorder is not None:
            self._recorder.stop()

    # -- reporting ------------------------------------------------------------------------------

    def report(self, error: BaseException | None, handled: bool = False) -> Report:
        """What to say at the end: of the exception that ended the program, and of those it caught.

        `handled`: it caught this one, too, and ended itself because of it.
        """
        self.stop()
        exception, diagnoses = None, ()
        if error is not None:
            outer = error.__traceback__.tb_frame.f_back if handled and error.__traceback__ is not None else None
            exception, diagnoses = self._diagnosed(error, outer, final=True, handled=handled)
        caught = [item for item in self._caught if error is None or item[0] != _identity(error)]
        caught += [((), *told) for told in self._children.died()]
        if self._unverified:
            caught = self._verified(caught)
        diagnoses += tuple(diagnosis for _, _, found in caught for diagnosis in found)
        findings, audit_notes = self._audited(crashed=isinstance(error, Exception))  # Ctrl-C ends a long training, and spoils nothing
        diagnoses += findings
        if error is not None:
            outcome = Outcome.CRASH
        else:
            outcome = Outcome.FINDINGS if diagnoses else Outcome.OK
            exception = caught[0][1] if caught else None
        notes = tuple(self._recorder.recording.notes) if self._recorder and diagnoses else ()
        notes += audit_notes + tuple(
            f"{file} has been changed since it was loaded: its lines are shown as they ran."
            for file in source.changed_since(culprit.span.file for diagnosis in diagnoses for culprit in diagnosis.culprits)
        )
        self._children.dismiss()
        return Report(self._command, outcome, exception, diagnoses, notes)

    def _verified(self, caught: list) -> list:
        """The errors that the program handled itself, with their fixes tried (`--caught --verify`)."""
        from torchsleuth.repair import verified

        found = []
        for ident, exception, diagnoses in caught:
            failure = self._unverified.pop(ident, None)
            if failure is not None:
                diagnoses = verified(diagnoses, self.replay.verifier(failure, self._progress))
            found.append((ident, exception, diagnoses))
        return found

    def _progress(self, text: str) -> None:
        if not self.options.quiet:
            _say(text)

    def _audited(self, crashed: bool) -> tuple[tuple[Diagnosis, ...], tuple[str, ...]]:
        """What the audit of the first step and of custom Functions found; after a crash there is nothing to trust."""
        if self._auditors is None:
            return (), ()
        step, functions = self._auditors
        self._auditors = None
        if crashed:
            step.abandon()
            functions.stop()
            return (), ()
        parts = step.finish()
        # `check` answers whether a Function is right everywhere; here only what this program suffers from is a finding, and no advice.
        reports = functions.reports(as_used=True)
        checked = tuple(diagnosis for report in reports if not report.ok for diagnosis in report.diagnoses)
        return parts.diagnoses + checked, parts.notes + tuple(note for report in reports for note in report.notes)

    def deliver(self, report: Report) -> None:
        """To the terminal and to the file asked for."""
        if report.diagnoses:
            self.delivered = report
        if self.options.remember:
            from torchsleuth import repair

            repair.keep(report)
        if self.options.json:
            from torchsleuth.render import json

            try:
                json.write(report, self.options.json)
            except OSError as error:
                _say(f"cannot write {self.options.json}: {error.strerror}")
        if self.options.audit and not report.diagnoses and not self.options.quiet:
            _say("; ".join(("the audit found nothing", *report.notes)))
        if report.diagnoses and not self.options.quiet and not self._told_within(report):
            from torchsleuth.render import terminal

            console = terminal.console_for()
            console.print()
            terminal.show(report, console)

    def _told_within(self, report: Report) -> bool:
        """A `watch()` or `install()` of the program's own, inside `torchsleuth run`, has printed this already."""
        key = tuple((diagnosis.rule, diagnosis.title, tuple(culprit.span for culprit in diagnosis.culprits)) for diagnosis in report.diagnoses)
        within = _shown.get(key, -1) > self._serial
        _shown[key] = max(_shown.get(key, -1), self._serial)
        return within

    def conclude(self, error: BaseException | None, handled: bool = False) -> None:
        """Report and deliver; a failure of our own is one line, and the program's traceback stands."""
        try:
            with _never_harm():
                self.deliver(self.report(error, handled))
        except KeyboardInterrupt:
            _say("interrupted; there is no report")

    def conclude_thread(self, error: BaseException) -> None:
        """A thread died of this; the program goes on."""
        with _never_harm(), self._recorder.paused() if self._recorder else contextlib.nullcontext():
            exception, diagnoses = self._diagnosed(error, None)
            if diagnoses:
                self._caught.append((_identity(error), exception, diagnoses))

    def diagnoses_of(self, error: BaseException, outer: types.FrameType | None) -> tuple[Diagnosis, ...]:
        """What is to be said of an exception that somebody else reports."""
        with _never_harm():
            return self._diagnosed(error, outer)[1]
        return ()

    def _diagnosed(
        self, error: BaseException, outer: types.FrameType | None, final: bool = False, handled: bool = False
    ) -> tuple[RaisedException, tuple[Diagnosis, ...]]:
        exception = RaisedException(type(error).__name__, message_of(error))
        if not isinstance(error, Exception) or "torch" not in sys.modules:
            return exception, ()
        # Tensors of a class of the program's are asked about, too, and its `__torch_function__` must not run for that.
        with sys.modules["torch"]._C.DisableTorchFunctionSubclass():
            return exception, self._explained(error, outer, final, handled)

    def _explained(self, error: Exception, outer: types.FrameType | None, final: bool, handled: bool) -> tuple[Diagnosis, ...]:
        from torchsleuth.capture.collect import collect
        from torchsleuth.capture.crash import Crash
        from torchsleuth.diagnose import diagnose
        from torchsleuth.repair import repaired

        recording = self._recorder.recording if self._recorder else None
        on_purpose = True  # the exception that is told of was raised by a `raise`
        for link in causes(error):
            crash = Crash(link, recording, outer)
            try:
                if link is error:
                    on_purpose = crash.is_the_programs_own()
                told = self._children.told(link)
                if told:
                    if final and self.replay is not None:
                        from torchsleuth.repair import verified

                        told = verified(told, self.replay.verifier(self.replay.failure(error, crash, caught=handled), self._progress))
                    return told
                only = ""
                if crash.is_the_programs_own():
                    if not crash.is_a_librarys_own():
                        continue
                    only = "library-check"
                diagnoses, evidence = diagnose(type(link).__name__, message_of(link), lambda needs, crash=crash: collect(crash, needs), only)
                if not diagnoses or evidence is None:
                    continue
                verifier = None
                if self.replay is not None:
                    failure = self.replay.failure(error, crash, caught=handled or not final)
                    if final:
                        verifier = self.replay.verifier(failure, self._progress)
                    elif len(self._unverified) < _MOST_VERIFIED:
                        self._unverified[_identity(error)] = failure
                found = _with_wrapper(repaired(diagnoses, evidence, verifier), error, link, on_purpose)
                if final and self.options.repro:
                    from torchsleuth.repro import writing

                    _say(writing.write(diagnoses[0], evidence, self.options.repro))
                return found
            finally:
                crash.release()
        if final and self.options.repro:
            _say("no reproduction was written: the failure could not be explained")
        return ()

    def _record_in_child(self) -> None:
        from torchsleuth.record.recorder import Recorder

        self._recorder.stop()
        # A pool may have dozens: each gets a smaller memory.
        self._child_recorder = Recorder(self.options.history // _SHARE_OF_A_CHILD, None if self.options.deep else self.options.exact_seconds)
        self._child_recorder.start()

    def _diagnosed_in_child(self, error: BaseException, outer: types.FrameType | None) -> tuple[Diagnosis, ...]:
        """In a forked child. What the parent recorded ends at the fork, and must not be taken for what came after."""
        self._recorder, self.replay = self._child_recorder, None
        with self._recorder.paused() if self._recorder is not None else contextlib.nullcontext():
            return self._diagnosed(error, outer)[1]

    def _on_handled(self, error: BaseException, frame: types.FrameType) -> None:
        """The program is about to handle an exception itself (`--caught`)."""
        if self._busy or len(self._caught) >= _MOST_CAUGHT or isinstance(type(error).__str__, types.FunctionType):
            return  # the program's own code makes the words of such an exception, and would run once more than without us
        if isinstance(error, AttributeError):
            return  # to ask for an attribute, and to do without it, is how programs tell kinds of objects apart
        from torchsleuth.diagnose import is_nominated

        identity, places = _identity(error), _places(error)
        if not is_nominated(error) or any(item[0] == identity for item in self._caught) or self._handled[places] >= _MOST_FROM_ONE_PLACE:
            return
        self._handled[places] += 1
        self._busy = True
        try:
            with _never_harm(), self._recorder.paused():
                exception, diagnoses = self._diagnosed(error, frame.f_back)
                if diagnoses and all(_spots(diagnoses) != _spots(found) for _, _, found in self._caught):
                    self._caught.append((identity, exception, diagnoses))
                else:
                    self._unverified.pop(identity, None)
        finally:
            self._busy = False


def _places(error: BaseException) -> tuple:
    """Where an exception was on its way so far, innermost last."""
    out, link = [], error.__traceback__
    while link is not None:
        out.append((link.tb_frame.f_code, link.tb_lasti))
        link = link.tb_next
    return tuple(out)


def _identity(error: BaseException) -> tuple:
    """Tells one exception on its way out, handled more than once, from others; its id alone does not: a dead one's is used again."""
    return (id(error), message_of(error), *_places(error)[-1:])


def _spots(diagnoses: tuple[Diagnosis, ...]) -> list[tuple]:
    """The same rule at the same expressions: the same error with other values, of which one report is enough."""
    return [(diagnosis.rule, *((culprit.role, culprit.span) for culprit in diagnosis.culprits)) for diagnosis in diagnoses]


def causes(error: BaseException) -> typing.Iterator[Exception]:
    """The exception, then what it was raised from: a program may wrap torch's error in its own, or gather several in a group."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        link = pending.pop()
        if not isinstance(link, Exception) or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        pending.append(link.__cause__ or link.__context__)  # `from None` changes what is printed, not what happened
        if isinstance(link, ExceptionGroup):
            pending += reversed(link.exceptions)


def _with_wrapper(diagnoses: tuple[Diagnosis, ...], error: BaseException, link: BaseException, on_purpose: bool) -> tuple[Diagnosis, ...]:
    """What came of the exception that is explained: the traceback above ends with another one.

    A mistake in a handler may be all that is wrong: the program may have had an answer to the first one.
    """
    if link is error:
        return diagnoses
    outer, inner = f"`{short(_in_a_line(error), 80)}`", type(link).__name__
    cause: BaseException | None = error
    while cause is not None and cause is not link:
        cause = cause.__cause__
    if isinstance(error, ExceptionGroup):
        text = f"This {inner} is the first of those in {outer} that can be explained."
    else:
        text = f"{outer} was raised from this {inner}." if cause is link else f"{outer} was raised while the program handled this {inner}."
    found = []
    for diagnosis in diagnoses:
        unsure = not on_purpose and cause is not link and diagnosis.confidence is Confidence.CERTAIN
        confidence = Confidence.LIKELY if unsure else diagnosis.confidence
        found.append(dataclasses.replace(diagnosis, confidence=confidence, facts=(*diagnosis.facts, Fact(text, Known.OBSERVED))))
    return tuple(found)


@contextlib.contextmanager
def _never_harm() -> typing.Iterator[None]:
    try:
        yield
    except Exception as error:
        if os.environ.get("TORCHSLEUTH_DEBUG"):
            raise
        _say(f"could not finish its report ({_in_a_line(error)}); the traceback above stands")


def _in_a_line(error: BaseException) -> str:
    first, *others = message_of(error).splitlines() or [""]
    return f"{type(error).__name__}: {first}{' …' * bool(others)}"


def _say(text: str) -> None:
    with contextlib.suppress(Exception):
        print(f"torchsleuth: {text}", file=sys.stderr)

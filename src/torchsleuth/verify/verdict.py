"""From fixes to verdicts: tries each on a patched copy, keeps what held, drops what was refuted."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import typing
from dataclasses import dataclass
from pathlib import Path

from torchsleuth.frozen import frozen
from torchsleuth.linter.edits import edited_bytes
from torchsleuth.model import Applicability, Diagnosis, Fact, Fix, Known, Span, Status, Verdict, from_plain, to_plain
from torchsleuth.verify.instrument import mapped
from torchsleuth.verify.job import Backward, Job, Launch, Result, message_shape
from torchsleuth.wording import short

LONGEST = 120.0  # seconds to the failure beyond which a program is not run again unasked
SHORTEST = 3.0  # a program is taken to need at least this long: starting Python and torch costs that much
TIMES = 3.0
_FOR_DIFFERENCES = 0.2  # the part of the time that is left which finite differences may take


@frozen
class Failure:
    """What must not come again, and what was known about it when it happened."""

    type: str
    message: str
    place: Span | None  # the user's innermost statement that ran: an expression of it
    roots: tuple[float, ...] = ()  # numbers for what backward was called on
    seen: tuple[tuple[str, float], ...] = ()  # and for the tensors in sight there
    visit: int = 1  # how often the statement had been begun, the failing time included; 0 where that is not known
    caught: bool = False  # the program handled it itself
    seconds: float = 0.0  # from the program's start


@dataclass(slots=True)
class Verifier:
    """Runs patched copies of one program. `seconds` is the time the program took to reach its failure."""

    launch: Launch | None
    failure: Failure
    seconds: float
    seed: int | None = None
    states: dict | None = None
    environment: dict[str, str] | None = None
    say: typing.Callable[[str], None] = lambda text: None
    _left: float | None = None
    _reference: Result | None = None
    _folder: str = ""

    def verified(self, diagnosis: Diagnosis, fixes: list[Fix]) -> tuple[Diagnosis, list[Fix]]:
        """The diagnosis with what was found out, and the fixes that are still offered, best first."""
        if not fixes:
            return diagnosis, fixes
        reason = self._not_verifiable()
        if reason:
            return diagnosis, [_with(fix, Status.NOT_RUN, reason) for fix in fixes]
        if self._left is None:
            self._left = TIMES * max(self.seconds, SHORTEST)
        self.say("verifying: a patched copy of the program is run again; what it writes goes to the same places as before")
        held: list[Fix] = []
        refuted: list[Fact] = []
        with tempfile.TemporaryDirectory(prefix="torchsleuth-verify-") as folder:
            self._folder = folder
            for number, fix in enumerate(fixes, 1):
                if held and held[0].verdict.status is Status.PASSED:
                    held.append(fix)
                    continue
                self.say(f"fix {number} of {len(fixes)}: {short(fix.title, 80)}")
                try:
                    verdict = self._verdict(fix, diagnosis.rule)
                except KeyboardInterrupt:
                    self.say("verification was interrupted")
                    held += [_with(f, Status.NOT_RUN, "not run: interrupted") for f in fixes[number - 1 :]]
                    break
                self.say(f"  {verdict.status.value}: {verdict.text}")
                if verdict.status in (Status.SAME_FAILURE, Status.NEW_FAILURE):
                    refuted.append(Fact(f"Another fix was tried and did not hold ({short(fix.title, 70)}): {verdict.text}", Known.RECOMPUTED))
                elif verdict.status is Status.PASSED:
                    held.insert(0, dataclasses.replace(fix, verdict=verdict))
                else:
                    held.append(dataclasses.replace(fix, verdict=verdict))
        return dataclasses.replace(diagnosis, facts=(*diagnosis.facts, *refuted)), held

    def _not_verifiable(self) -> str:
        if self.launch is None:
            return "not run: only a program started with `torchsleuth run` can be started again"
        if self.failure.place is None:
            return "not run: the failure has no place in the program's own files"
        if self.seconds > LONGEST:
            return f"not run: the program took {self.seconds:.0f} s to reach its failure. By hand: {self._by_hand()}"
        return ""

    def _by_hand(self) -> str:
        launch = self.launch
        program = ["-m", launch.name] if launch.is_module else [launch.name]
        return f"torchsleuth fix, then {shlex.join(['python', *program, *launch.arguments])}"

    # -- one fix --------------------------------------------------------------------------------

    def _verdict(self, fix: Fix, rule: str) -> Verdict:
        if self._left < min(self.seconds, SHORTEST):
            return Verdict(Status.NOT_RUN, "not run: the time for verification was used up by the fixes before it")
        overlay, point, at = self._patched(fix)
        result, seconds = self._run(overlay, point, at, copies_saved=False)
        place = f"line {self.failure.place.line}"
        if result is None:
            return Verdict(Status.NOT_RUN, f"not finished within {seconds:.0f} s. By hand: {self._by_hand()}")
        if result.reads_input:
            return Verdict(Status.NOT_RUN, f"not run: the program reads standard input. By hand: {self._by_hand()}")
        refuted = self._refuted(result, point, place, rule)
        if refuted is not None:
            return refuted
        return self._shown(fix, rule, result, place)

    def _refuted(self, result: Result, point: str, place: str, rule: str) -> Verdict | None:
        if result.type and result.type != "SystemExit":
            same = result.type == self.failure.type and message_shape(result.message) == message_shape(self.failure.message)
            where = f"line {result.line}" if os.path.realpath(result.file or "?") == os.path.realpath(point) else f"{os.path.basename(result.file)}:{result.line}"
            if same and result.passes < max(self.failure.visit, 1):
                return Verdict(Status.SAME_FAILURE, f"the same error came again ({where} of the patched program)")
            passed = result.passes >= max(self.failure.visit, 1)
            after = f"{place} was passed with it, and then there was another error, " if passed else ""
            second = ". If that is a mistake of its own, this was right for the first" if passed else ""
            return Verdict(Status.NEW_FAILURE, f"{after}{result.type} at {where} of the patched program: {short(result.message, 120)}{second}")
        if result.type == "SystemExit":
            return Verdict(Status.NOT_RUN, f"the patched program left with status {result.message}; what that means is not known")
        if result.ended and result.begun > result.passes:
            return Verdict(Status.SAME_FAILURE, f"the program ran to its end, but {place} raised again and the program handled it")
        if result.ended and not result.passes:
            return Verdict(Status.NOT_RUN, f"the patched program ran to its end without coming to {place}; what that shows is not known")
        if not result.ended and result.passes < max(self.failure.visit, 1):
            failed = f", and it failed the {_ordinal(self.failure.visit)} time" if self.failure.visit > 1 else ""
            times = f"was passed {_times(result.passes)}" if result.passes else "was not reached"
            return Verdict(Status.NOT_RUN, f"{place} {times} in the time there was{failed}. By hand: {self._by_hand()}")
        noted = result.backwards
        if noted and noted[-1].infinite and not any(item.infinite for item in noted[:-1]):
            return Verdict(Status.NEW_FAILURE, f"{place} was passed, but {noted[-1].infinite} gradient(s) are not finite")
        if noted and noted[-1].missing and not noted[-1].gradients:
            return Verdict(Status.NEW_FAILURE, f"{place} was passed, but no gradient arrived anywhere")
        if rule == "lost-gradient" and noted and 0 < noted[-1].optimized == noted[-1].untouched:
            return Verdict(Status.NEW_FAILURE, f"{place} was passed, but none of the optimizer's {noted[-1].optimized} parameters got a gradient")
        return None

    def _shown(self, fix: Fix, rule: str, result: Result, place: str) -> Verdict:
        """What held, said exactly."""
        texts, not_shown = [], []
        if result.passes:
            visit = self.failure.visit
            where = f", where it had failed the {_ordinal(visit)} time" if 1 < visit <= result.passes else ""
            if visit > result.passes:
                not_shown.append(f"it was not reached a {_ordinal(visit)} time, where it had failed")
            texts.append(f"{place} was passed {_times(result.passes)} without an error{where}")
        if result.ended:
            texts.append("the program ran to its end")
        else:
            not_shown.append("the rest of the program was not run")
        if not self.failure.visit and not result.ended:
            not_shown.append("whether the visit at which it failed was among these")
        self._values(fix, result, texts, not_shown)
        last = result.backwards[-1] if result.backwards else None
        if last is None:
            not_shown.append("no backward ran, so no gradient was looked at")
        else:
            if last.gradients:
                texts.append(f"{len(last.gradients)} gradient{'s' * (len(last.gradients) != 1)} present and finite")
            if last.missing:
                texts.append(f"{last.missing} leaves of the graph got none")
            if last.untouched:
                texts.append(f"{last.untouched} of the optimizer's {last.optimized} parameters have no gradient")
            if rule == "inplace-saved-tensor":
                compared = self._compared(fix, result)
                if isinstance(compared, Verdict):
                    return compared
                (texts if compared.startswith("gradients equal") else not_shown).append(compared)
            self._differences(fix, rule, result, texts, not_shown)
        text = "; ".join(texts)
        return Verdict(Status.PASSED, f"{text}. Not shown: {'; '.join(not_shown)}." if not_shown else f"{text}.")

    def _values(self, fix: Fix, result: Result, texts: list[str], not_shown: list[str]) -> None:
        """Whether what was computed up to the failure is the same as in the failing run."""
        safe = fix.applicability is Applicability.SAFE
        if self.failure.roots:
            if _has_roots(result.backwards, self.failure.roots):
                texts.append("backward started from the same value as in the failing run")
            elif safe:
                not_shown.append("the value that backward started from was not the same as in the failing run")
            return
        compared = [(set(dict(seen)) & set(dict(self.failure.seen)), dict(seen)) for seen in result.seen]
        known = dict(self.failure.seen)
        for names, seen in compared:
            if names and all(_close(seen[name], known[name], 1e-5) for name in names):
                listed = ", ".join(f"`{name}`" for name in sorted(names)[:3]) + (", ..." if len(names) > 3 else "")
                texts.append(f"up to there the tensors in sight ({listed}) had the values of the failing run")
                return
        if safe and any(names for names, _ in compared):
            not_shown.append("the tensors in sight there had other values than in the failing run")

    def _differences(self, fix: Fix, rule: str, result: Result, texts: list[str], not_shown: list[str]) -> None:
        """Finite differences of the step's loss: that they agree is evidence; that they do not may be meant."""
        found = result.differences
        wrong = next((item for item in found if not item.agrees), None)
        if wrong is not None:
            check = "; `torchsleuth check` says more" if rule.startswith("custom-backward") else ""
            why = "an approximation, as said above" if "approximation" in fix.meaning else "a detach, a custom backward or a kink in the step can mean that"
            not_shown.append(
                f"that the gradients are those of the loss: along one direction it changes by {wrong.measured:.3g}, they say "
                f"{wrong.predicted:.3g} ({why}){check}"
            )
        elif found:
            texts.append(f"finite differences of the loss agree with the gradients ({_steps(len(found))})")
        elif not any(text.startswith("gradients equal") for text in texts):
            reason = f": {result.without_differences}" if result.without_differences else ""
            not_shown.append(f"the gradients' values were not compared with anything{reason}")

    def _compared(self, fix: Fix, result: Result) -> Verdict | str:
        """Against the unpatched program with every saved tensor copied: that is the gradient of what it computed."""
        if self._left < min(self.seconds, SHORTEST):
            return "the gradients were not compared with a reference (no time left)"
        if self._reference is None:
            place = self.failure.place
            self._reference, _ = self._run({}, os.path.abspath(place.file), (place.line, place.column), copies_saved=True)
        reference = self._reference
        if reference is None:
            return "the gradients were not compared with a reference (it was not finished in the time there was)"
        if not reference.backwards:
            return "the gradients were not compared with a reference (it could not be run)"
        mine, theirs = ({item.number: item for item in run.backwards} for run in (result, reference))
        pairs = [(mine[number], theirs[number]) for number in sorted(set(mine) & set(theirs))]
        if not pairs:
            return "the gradients were not compared with a reference (it did not get as far)"
        if all(_same_gradients(one, other) for one, other in pairs):
            return "gradients equal those of the unpatched program run with every saved tensor copied"
        if fix.applicability is Applicability.SAFE:
            return Verdict(Status.NEW_FAILURE, "it runs, but its gradients differ from those of the unpatched program run with every saved tensor copied")
        return "its gradients are not those of the unpatched computation, because it computes something else, as said above"

    # -- running --------------------------------------------------------------------------------

    def _patched(self, fix: Fix) -> tuple[dict[str, str], str, tuple[int, int]]:
        """The patched texts in our folder, and where the failing statement is in them."""
        overlay: dict[str, str] = {}
        place = self.failure.place
        at = (place.line, place.column)
        for label in dict.fromkeys(edit.span.file for edit in fix.edits):
            edits = [edit for edit in fix.edits if edit.span.file == label]
            path = os.path.abspath(label)
            copy = os.path.join(self._folder, f"{len(os.listdir(self._folder))}.py")
            Path(copy).write_bytes(edited_bytes(Path(path).read_bytes(), label, edits))
            overlay[os.path.realpath(path)] = copy
            if label == place.file:
                at = mapped(place.line, place.column, edits)
        return overlay, os.path.abspath(place.file), at

    def _run(self, overlay: dict[str, str], point: str, at: tuple[int, int], copies_saved: bool) -> tuple[Result | None, float]:
        count = len(os.listdir(self._folder))
        result, job_file, states = (os.path.join(self._folder, f"{count}.{name}") for name in ("result", "job", "states"))
        if self.states:
            Path(states).write_text(json.dumps(self.states))
        job = Job(
            self.launch, overlay, point, at[0], self.seed, states if self.states else "", copies_saved, result, self.failure.visit, at[1],
            0.0 if copies_saved else _FOR_DIFFERENCES * self._left,
        )  # fmt: skip
        Path(job_file).write_text(json.dumps(to_plain(job)))
        began = time.monotonic()
        limit = max(self._left, 1.0)
        child = subprocess.Popen(
            [sys.executable, *_interpreter_flags(), "-m", "torchsleuth.verify.child", job_file],
            cwd=self.launch.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(limit)
        finally:
            _end(child)
            spent = time.monotonic() - began
            self._left -= spent
        try:
            return from_plain(Result, json.loads(Path(result).read_text())), spent
        except (OSError, ValueError):
            return None, spent


def _interpreter_flags() -> list[str]:
    return subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]


def _end(child: subprocess.Popen) -> None:
    """The run and whatever it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(Exception):
        child.wait(5)


def _with(fix: Fix, status: Status, text: str) -> Fix:
    return dataclasses.replace(fix, verdict=Verdict(status, text))


def _times(count: int) -> str:
    return "once" if count == 1 else "twice" if count == 2 else f"{count} times"


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0, "th")
    return f"{number}{ending}"


def _steps(count: int) -> str:
    return "one step" if count == 1 else f"{count} steps"


def _close(one: float, other: float, relative: float = 1e-4) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return math.isclose(one, other, rel_tol=relative, abs_tol=1e-6)


def _has_roots(backwards: tuple[Backward, ...], roots: tuple[float, ...]) -> bool:
    return any(
        len(item.roots) == len(roots) and all(_close(one, other, 1e-6) for one, other in zip(item.roots, roots, strict=True)) for item in backwards
    )


def _same_gradients(one: Backward, other: Backward) -> bool:
    if len(one.gradients) != len(other.gradients):
        return False
    return all(
        shape == other_shape and _close(number, other_number)
        for (shape, number), (other_shape, other_number) in zip(one.gradients, other.gradients, strict=True)
    )

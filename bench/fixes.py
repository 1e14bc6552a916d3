"""`--verify` over every crash program of the tests: which first fix passes, and what the verdict does not show.

    python -m bench.fixes                 the backward fixtures and the forward cases
    python -m bench.fixes backward        only those (or: forward, or a part of a name)

Each program is run in a fork as `torchsleuth run --verify` runs it; the re-runs are real subprocesses.
"""

from __future__ import annotations

import collections
import importlib
import os
import pickle
import sys
import tempfile
import time
import typing
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent.parent / "tests"


@dataclass(frozen=True)
class Line:
    """What verification said about one program."""

    name: str
    rule: str
    fixes: int  # mechanical ones that are still offered
    status: str  # of the first of them; "no fix" where there is none
    text: str
    refuted: tuple[str, ...]
    seconds: float


def programs() -> dict[str, tuple[Path | None, str]]:
    """Name -> (fixture file, or None) and text."""
    found: dict[str, tuple[Path | None, str]] = {}
    for path in sorted(TESTS.glob("rules/*/*/crash_*.py")):
        found[f"{path.parent.parent.name}/{path.parent.name}/{path.stem.removeprefix('crash_')}"] = (path, path.read_text())
    sys.path[:0] = [str(TESTS / "forward"), str(TESTS / "rules" / "forward"), str(TESTS)]
    for module in sorted((TESTS / "rules" / "forward").glob("cases_*.py")):
        for case in importlib.import_module(module.stem).CASES:
            found[f"forward/{case.rule}/{case.name}"] = (None, case.program)
    return found


def verified(name: str, path: Path | None, text: str) -> Line:
    with tempfile.TemporaryDirectory() as folder:
        if path is None:
            path = Path(folder) / "program.py"
            path.write_text(text)
        began = time.perf_counter()
        diagnoses = in_fork(lambda: _diagnoses(path), Path(folder) / "answer")
        seconds = time.perf_counter() - began
    if not diagnoses:
        return Line(name, "", 0, "no report", "", (), seconds)
    first = diagnoses[0]
    fixes = [fix for fix in first.fixes if fix.edits]
    refuted = tuple(fact.text for fact in first.facts if fact.text.startswith("Another fix was tried"))
    if not fixes:
        return Line(name, first.rule, 0, "no fix", "", refuted, seconds)
    verdict = fixes[0].verdict
    return Line(name, first.rule, len(fixes), verdict.status.value, verdict.text, refuted, seconds)


def in_fork(work: typing.Callable[[], typing.Any], answer: Path) -> typing.Any:
    child = os.fork()
    if child == 0:
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            answer.write_bytes(pickle.dumps(work()))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    return pickle.loads(answer.read_bytes()) if answer.exists() else None


def _diagnoses(path: Path) -> typing.Any:
    import torch

    from torchsleuth.options import Options
    from torchsleuth.pipeline import Watch
    from torchsleuth.program import run_script
    from torchsleuth.verify.job import Launch

    os.environ["TORCHSLEUTH_DEBUG"] = "1"
    os.chdir(path.parent)
    torch.set_num_threads(1)
    watch = Watch(Options(quiet=True, verify=True))
    watch.replay.launch = Launch(path.name, (), False, os.getcwd())
    run_script(path.name, [], watch)
    return watch.delivered.diagnoses if watch.delivered else ()


def main(wanted: str = "") -> None:
    import torch  # noqa: F401  (forks inherit it)

    chosen = {name: what for name, what in programs().items() if wanted in name}
    lines = []
    for name, (path, text) in chosen.items():
        line = verified(name, path, text)
        lines.append(line)
        print(f"{line.status:13} {line.fixes} {line.seconds:5.1f} s  {name}")
        for refuted in line.refuted:
            print(f"{'':24}refuted: {refuted}")
        if line.text:
            print(f"{'':24}{line.text}")
        sys.stdout.flush()
    counts = collections.Counter(line.status for line in lines)
    with_fix = [line for line in lines if line.status not in ("no fix", "no report") or line.refuted]
    passed = counts["passed"]
    print(f"\n{len(lines)} programs: {', '.join(f'{count} {status}' for status, count in counts.most_common())}")
    if with_fix:
        print(f"of {len(with_fix)} with a mechanical fix, {passed} passed ({passed / len(with_fix):.0%})")


if __name__ == "__main__":
    main(*sys.argv[1:2])

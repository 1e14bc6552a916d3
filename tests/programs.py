"""Runs whole programs under torchsleuth in forked children (torch is imported once) and reads their marks.

A fixture program says in comments what its report must name:

    h += 1  # culprit: mutate          this line is a culprit in this role
    # says: `h` [3]                    each of these words must stand in the report
"""

from __future__ import annotations

import json
import os
import pickle
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch  # noqa: F401  (children inherit it)

from torchsleuth.options import Options
from torchsleuth.pipeline import Watch
from torchsleuth.program import run_script

_MARK = re.compile(r"# culprit: ([\w-]+)")


@dataclass(frozen=True)
class Run:
    status: int
    stdout: str
    stderr: str
    report: dict | None

    @property
    def diagnoses(self) -> list[dict]:
        return self.report["diagnoses"] if self.report else []

    def culprits(self) -> set[tuple[str, int]]:
        return {(c["role"], c["line"]) for d in self.diagnoses for c in d["culprits"]}

    def words(self) -> str:
        return json.dumps(self.diagnoses, ensure_ascii=False)


def run_program(path: Path, *arguments: str, cwd: Path | None = None, **options) -> Run:
    """Run one script in a fork of this process, as `torchsleuth run` does."""
    with tempfile.TemporaryDirectory() as folder:
        out, err, report = (Path(folder) / name for name in ("out", "err", "report.json"))
        request = (path, list(arguments), cwd, out, err, Options(json=str(report), **options))
        status = _ZYGOTE.run(request) if _ZYGOTE is not None else _forked(request)
        data = json.loads(report.read_text()) if report.exists() else None
        return Run(os.waitstatus_to_exitcode(status), out.read_text(), err.read_text(), data)


def _forked(request: tuple) -> int:
    child = os.fork()
    if child == 0:
        _child(*request)
    return os.waitpid(child, 0)[1]


class _Zygote:
    """A process forked before any test ran: a CUDA build of torch refuses backward in a fork of one that has run it."""

    def __init__(self) -> None:
        asked, self._ask = os.pipe()
        self._answer, answered = os.pipe()
        if os.fork() == 0:
            os.close(self._ask)
            with os.fdopen(asked, "rb") as requests:
                while True:
                    try:
                        request = pickle.load(requests)
                    except EOFError:
                        os._exit(0)
                    os.write(answered, _forked(request).to_bytes(8, "little"))
        os.close(asked)

    def run(self, request: tuple) -> int:
        os.write(self._ask, pickle.dumps(request))
        return int.from_bytes(os.read(self._answer, 8), "little")


def _child(path: Path, arguments: list[str], cwd: Path | None, out: Path, err: Path, options: Options) -> None:
    status = 70
    try:
        os.environ["TORCHSLEUTH_DEBUG"] = "1"
        for number, file in ((1, out), (2, err)):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
        sys.excepthook = sys.__excepthook__
        sys.settrace(None)
        os.chdir(cwd or path.parent)
        torch.set_num_threads(1)
        status = run_script(str(path), arguments, Watch(options))
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        os._exit(status)


def marked_culprits(path: Path) -> set[tuple[str, int]]:
    found = set()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for role in _MARK.findall(line):
            found.add((role, number))
    return found


def words_to_say(path: Path) -> list[str]:
    """Words after `# says:`; brackets keep their content together."""
    found = []
    for line in path.read_text().splitlines():
        if line.startswith("# says:"):
            found += re.findall(r"\[[^\]]*\]|\S+", line.removeprefix("# says:"))
    return found


_ZYGOTE = _Zygote() if torch.version.cuda is not None else None

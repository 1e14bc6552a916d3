"""Runs whole programs under torchsleuth in forked children (see `forks`) and reads their marks.

A fixture program says in comments what its report must name:

    h += 1  # culprit: mutate          this line is a culprit in this role
    # says: `h` [3]                    each of these words must stand in the report
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path

from forks import silenced, status_of_fork

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
    """Run one script in a child process, as `torchsleuth run` does."""
    with tempfile.TemporaryDirectory() as folder:
        out, err, report = (Path(folder) / name for name in ("out", "err", "report.json"))
        status = status_of_fork(_run, path, list(arguments), cwd, out, err, Options(json=str(report), **options))
        data = json.loads(report.read_text()) if report.exists() else None
        return Run(status, out.read_text(), err.read_text(), data)


def _run(path: Path, arguments: list[str], cwd: Path | None, out: Path, err: Path, options: Options) -> None:
    status = 70
    try:
        os.environ["TORCHSLEUTH_DEBUG"] = "1"
        silenced(out, err)
        os.chdir(cwd or path.parent)
        status = run_script(str(path), arguments, Watch(options))
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException:
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

"""`torchsleuth run` against plain `python`: same output, same exit status, same traceback, same lifetimes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"


def _both(arguments: list[str], cwd: Path, stdin: str = "") -> tuple[subprocess.CompletedProcess, subprocess.CompletedProcess]:
    def run(prefix: list[str]) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, *prefix, *arguments], cwd=cwd, input=stdin, capture_output=True, text=True, timeout=120)

    return run([]), run(["-m", "torchsleuth", "run"])


def test_nothing_that_a_program_can_see_is_different() -> None:
    plain, watched = _both(["quiet.py", "--epochs", "3"], PROGRAMS, "typed by the user")
    assert plain.returncode == 7, plain.stderr
    assert watched.stdout == plain.stdout
    assert watched.stderr == plain.stderr
    assert watched.returncode == plain.returncode


@pytest.mark.parametrize("how", ["value-error", "interrupt", "os-exit", "hook", "exit-message", "signal", "recursion"])
def test_it_dies_as_it_would(how: str) -> None:
    plain, watched = _both(["dies.py", how], PROGRAMS)
    assert watched.returncode == plain.returncode
    assert watched.stdout == plain.stdout
    assert watched.stderr.startswith(plain.stderr)
    if how != "hook":
        assert watched.stderr == plain.stderr


@pytest.mark.parametrize("how", ["delete", "chdir"])
def test_a_report_survives_what_the_program_does_to_its_files(how: str, tmp_path: Path) -> None:
    target = shutil.copy(PROGRAMS / "dies.py", tmp_path / "dies.py")
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "torchsleuth", "run", "--json", "report.json", "dies.py", how]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 1
    assert report.exists()
    assert '"inplace-on-leaf"' in report.read_text()
    assert '"file": "dies.py"' in report.read_text()
    assert "torch.ones(2, requires_grad=True).add_(1)" in run.stderr
    assert Path(target).exists() == (how != "delete")


def test_workers_and_child_processes_run_as_without_it() -> None:
    plain, watched = _both(["workers.py"], PROGRAMS)
    assert plain.returncode == 0, plain.stderr
    assert (watched.stdout, watched.stderr, watched.returncode) == (plain.stdout, plain.stderr, 0)


def test_a_module_is_run_as_python_m_does() -> None:
    plain, watched = _both(["-m", "package.train", "x", "--y"], PROGRAMS)
    assert plain.returncode == 0, plain.stderr
    assert (watched.stdout, watched.stderr) == (plain.stdout, plain.stderr)


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["missing.py"], 2, "can't open file 'missing.py'"),
        (["-m", "no_such_module_here"], 2, "No module named"),
        ([], 2, "run what?"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_line(arguments: list[str], status: int, says: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torchsleuth", "run", *arguments]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == status
    assert says in run.stderr
    assert "Traceback" not in run.stderr


def test_a_syntax_error_is_python_s_own(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("x = (1,\nprint(x\n")
    plain, watched = _both(["bad.py"], tmp_path)
    assert watched.returncode == plain.returncode == 1
    assert watched.stderr == plain.stderr

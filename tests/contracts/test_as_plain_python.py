"""`torchsleuth run` against plain `python`: same output, same exit status, same traceback, same lifetimes."""

from __future__ import annotations

import os
import py_compile
import shutil
import subprocess
import sys
import zipfile
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


LOOKS = """\
import atexit, sys, traceback
import sibling
print(sys.argv, __name__, __file__, __package__, __spec__ and __spec__.name, type(__loader__).__name__, sys.path[0], sibling.x)
print(sorted(globals()))
atexit.register(lambda: print("at the end", sibling.x))
traceback.print_stack(file=sys.stdout)
def deeper(n):
    try:
        return deeper(n + 1)
    except RecursionError:
        return n
print(abs(deeper(0) - 996) <= 3)
def fails():
    raise LookupError("mine")
fails()
"""


@pytest.mark.parametrize("how", ["file", "folder", "archive", "module", "stdin", "bytecode", "link", "safe path"])
def test_every_way_to_start_a_program_is_python_s(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "__main__.py").write_text(LOOKS)
    (tmp_path / "looks.py").write_text(LOOKS)
    for folder in (app, tmp_path):
        (folder / "sibling.py").write_text(f"x = {folder.name!r}\n")
    if how == "archive":
        with zipfile.ZipFile(tmp_path / "app.pyz", "w") as archive:
            archive.write(app / "__main__.py", "__main__.py")
            archive.write(app / "sibling.py", "sibling.py")
    elif how == "bytecode":
        py_compile.compile(str(tmp_path / "looks.py"), str(tmp_path / "looks.pyc"), doraise=True)
    elif how == "link":
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "looks.py").symlink_to(tmp_path / "looks.py")
    elif how == "safe path":
        monkeypatch.setenv("PYTHONSAFEPATH", "1")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    arguments = {
        "file": ["./looks.py", "x"], "folder": ["app", "x"], "archive": ["app.pyz", "x"], "module": ["-m", "looks", "x"], "stdin": ["-", "x"],
        "bytecode": ["looks.pyc"], "link": ["elsewhere/looks.py"], "safe path": ["looks.py"],
    }[how]  # fmt: skip
    plain, watched = _both(arguments, tmp_path, LOOKS if how == "stdin" else "")
    assert "LookupError: mine" in plain.stderr and "at the end" in plain.stdout
    assert (watched.stdout, watched.stderr, watched.returncode) == (plain.stdout, plain.stderr, plain.returncode)


ENDINGS = {
    "hook raises": "import sys\ndef hook(*given):\n    raise ValueError('in hook')\nsys.excepthook = hook\n1 / 0\n",
    "hook exits": "import sys\nsys.excepthook = lambda *given: sys.exit(9)\n1 / 0\n",
    "no hook": "import sys\ndel sys.excepthook\n1 / 0\n",
    "hook sees nothing handled": "import sys\nsys.excepthook = lambda *given: print(sys.exc_info(), sys.last_value)\n1 / 0\n",
    "words that raise": "class E(Exception):\n    def __str__(self):\n        return 1 / 0\nraise E\n",
    "cycle of causes": "a, b = ValueError('a'), KeyError('b')\na.__cause__, b.__cause__ = b, a\nraise a\n",
    "its folder is gone": "import os, shutil\nshutil.rmtree(os.getcwd())\nprint('gone')\n",
    "its folder is gone, and it fails": "import os, shutil\nshutil.rmtree(os.getcwd())\nraise ValueError('gone')\n",
    "comment in no encoding": b"# caf\xe9\nprint('x')\n",
    "null byte": b"x = 1\nprint('a\x00b')\n",
    "unknown encoding": b"# coding: nonsense\nprint(1)\n",
    "modules called like Python's": "import secrets, glob, rich\nprint(secrets.x, glob.x, rich.x)\n1 / 0\n",
}


@pytest.mark.parametrize("name", ENDINGS)
def test_it_ends_as_it_would(name: str, tmp_path: Path) -> None:
    outcomes = []
    for prefix in ([], ["-m", "torchsleuth", "run"]):
        folder = tmp_path / "same"
        folder.mkdir(exist_ok=True)
        text = ENDINGS[name]
        (folder / "main.py").write_bytes(text if isinstance(text, bytes) else text.encode())
        for module in ("secrets", "glob", "rich"):
            (folder / f"{module}.py").write_text(f"x = {module!r}\n")
        run = subprocess.run([sys.executable, *prefix, "main.py"], cwd=folder, capture_output=True, text=True, timeout=60)
        outcomes.append((run.returncode, run.stdout, run.stderr))
    assert outcomes[0] == outcomes[1]


def test_output_and_traceback_come_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print('before')\n1 / 0\n")
    seen = [
        subprocess.run([sys.executable, *prefix, "main.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        for prefix in ([], ["-m", "torchsleuth", "run"])
    ]
    assert seen[0].startswith("before")
    assert seen[1] == seen[0]


def test_what_a_program_makes_of_torch_s_own_hooks_is_not_disturbed() -> None:
    plain, watched = _both(["observant.py"], PROGRAMS)
    assert plain.returncode == 1 and "in backward" in plain.stderr, plain.stderr
    assert watched.stdout == plain.stdout
    assert watched.stderr.startswith(plain.stderr)


def test_a_syntax_error_is_python_s_own(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("x = (1,\nprint(x\n")
    plain, watched = _both(["bad.py"], tmp_path)
    assert watched.returncode == plain.returncode == 1
    assert watched.stderr == plain.stderr

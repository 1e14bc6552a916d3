"""Where the text of a program comes from: several files, archives, modules that are edited or loaded again while it runs."""

from __future__ import annotations

import textwrap
import zipfile
from pathlib import Path

import pytest
from programs import run_program

_MODULE = """
import torch

def f(w):
    y = w.sigmoid()
    y.neg_()
    return y
"""
_EDITING = """
import importlib
import pathlib
import torch
import helper

file = pathlib.Path(helper.__file__)
w = torch.ones(2, requires_grad=True)
helper.f(w)
file.write_text("# a new line at the top\\n" + file.read_text())
AGAIN
helper.f(w).sum().backward()
"""


def _write(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text).lstrip("\n"))
    return tmp_path / "program.py"


def _found(run) -> list[tuple[str, str, int, str]]:
    return [(c["role"], c["file"], c["line"], c["source"]) for d in run.diagnoses for c in d["culprits"]]


def test_a_module_that_is_edited_meanwhile_is_shown_as_it_ran(tmp_path: Path) -> None:
    run = run_program(_write(tmp_path, program=_EDITING.replace("AGAIN\n", ""), helper=_MODULE))
    assert _found(run) == [("mutate", "helper.py", 5, "y.neg_()"), ("save", "helper.py", 4, "w.sigmoid()")]
    assert run.report["notes"] == ["helper.py has been changed since it was loaded: its lines are shown as they ran."]
    assert all(not fix["diff"] for fix in run.diagnoses[0]["fixes"])


def test_a_module_that_is_loaded_again_is_shown_as_it_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    again = "importlib.invalidate_caches()\nimportlib.reload(helper)"
    run = run_program(_write(tmp_path, program="import sys\nsys.dont_write_bytecode = True\n" + _EDITING.replace("AGAIN", again), helper=_MODULE))
    assert _found(run) == [("mutate", "helper.py", 6, "y.neg_()"), ("save", "helper.py", 5, "w.sigmoid()")]
    assert run.report["notes"] == []


def test_a_module_in_an_archive_has_its_text(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("packed.py", "import torch\n\ndef head(x):\n    w = torch.ones(7, 2)\n    return x @ w\n")
    program = """
    import pathlib
    import sys
    sys.path.insert(0, str(pathlib.Path(__file__).parent / "archive.zip"))
    import torch
    from packed import head
    head(torch.ones(3, 6))
    """
    run = run_program(_write(tmp_path, program=program))
    assert ("operand", "archive.zip/packed.py", 5, "x @ w") in _found(run)


@pytest.mark.parametrize(("folder", "shown"), [("", "helper.py"), ("elsewhere", None)])
def test_lines_of_other_files_are_told_apart(tmp_path: Path, folder: str, shown: str | None) -> None:
    helper = """
    import torch

    def pad(x, n):
        return torch.cat([x, torch.zeros(x.size(0), n)], dim=1)
    """
    program = """
    import torch
    from helper import pad
    x = torch.ones(3, 5)
    y = pad(x, 2)
    x + y
    """
    path = _write(tmp_path, program=program, helper=helper)
    if folder:
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / ".." / "program.py"
    run = run_program(path, cwd=tmp_path / folder)
    assert {file for _, file, _, _ in _found(run)} == {"program.py", shown} if shown else {str(tmp_path / "program.py"), str(tmp_path / "helper.py")}
    said = [fact["text"] for fact in run.diagnoses[0]["facts"]]
    assert any("`torch.ones(3, 5)` (line 3)" in text for text in said)
    assert any(text.endswith("(line 4 of helper.py).") for text in said)

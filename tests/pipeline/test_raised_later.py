"""Exceptions that a program keeps, wraps or loses sight of: the report is of the one that failed, with the values of that moment."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from programs import run_program

_LOOP = """
import torch

first = None
for n in (3, 4, 5):
    a = torch.zeros(2, n)
    b = torch.zeros(n + 1, 2)
    try:
        c = a @ b
    except RuntimeError as error:
        first = first or error
LATER
"""


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(text).lstrip("\n"))
    return path


@pytest.mark.parametrize("later", ["raise first", "raise ValueError('no batch fits') from first", "raise ExceptionGroup('all', [first])"])
def test_the_values_are_those_of_the_round_that_failed(tmp_path: Path, later: str) -> None:
    run = run_program(_write(tmp_path, _LOOP.replace("LATER", later)))
    assert run.diagnoses[0]["title"] == "`a` [2, 3] and `b` [4, 2] cannot be multiplied: 3 against 4"
    assert run.culprits() == {("operand", 8), ("create", 5), ("create", 4), ("create", 6)}


def test_without_the_log_nothing_is_said_of_variables_that_are_others_by_now(tmp_path: Path) -> None:
    run = run_program(_write(tmp_path, _LOOP.replace("LATER", "raise first")), exact_seconds=0.0)
    assert "[2, 5]" not in run.words() and "[6, 2]" not in run.words()
    assert ("operand", 8) in run.culprits()


def test_the_call_that_failed_is_told_from_later_calls_of_the_same_line(tmp_path: Path) -> None:
    text = """
    import torch

    def load(n):
        t = torch.arange(n)
        return t.reshape(3, n // 3 + 1)

    failed = {}
    for n in (6, 9, 12):
        try:
            load(n)
        except RuntimeError as error:
            failed[n] = error
    raise failed[6]
    """
    run = run_program(_write(tmp_path, text))
    said = " ".join(fact["text"] for fact in run.diagnoses[0]["facts"])
    assert "[6]" in said and "[12]" not in said and "[9]" not in said


_HANDLED = """
import torch

settings = {}

def width(t):
    try:
        return t.view(4, -1)
    except RuntimeError as error:
        HANDLE

width(torch.zeros(2, 3))
"""


@pytest.mark.parametrize(
    ("handle", "says", "confidence"),
    [
        ("raise ValueError('no width') from error", "`ValueError: no width` was raised from this RuntimeError.", "certain"),
        ("raise ValueError('no width') from None", "`ValueError: no width` was raised while the program handled this RuntimeError.", "certain"),
        ("raise ValueError('no width')", "`ValueError: no width` was raised while the program handled this RuntimeError.", "certain"),
        ("return settings['width']", "`KeyError: 'width'` was raised while the program handled this RuntimeError.", "likely"),
    ],
)
def test_what_came_of_it_is_said(tmp_path: Path, handle: str, says: str, confidence: str) -> None:
    run = run_program(_write(tmp_path, _HANDLED.replace("HANDLE", handle)))
    (diagnosis,) = run.diagnoses
    assert diagnosis["rule"] == "view-size" and ("operand", 7) in run.culprits()
    assert says in [fact["text"] for fact in diagnosis["facts"]]
    assert diagnosis["confidence"] == confidence


def test_a_frame_that_only_cleans_up_keeps_its_values(tmp_path: Path) -> None:
    text = """
    import contextlib
    import torch

    @contextlib.contextmanager
    def timed():
        yield

    for n in (4, 5):
        x = torch.zeros(2, n)
        log = []
        try:
            with timed():
                y = x.view(3, n) if n == 5 else x
        finally:
            log = None
            done = True
    """
    run = run_program(_write(tmp_path, text))
    assert run.diagnoses[0]["title"] == "`x` has 10 elements; the shape [3, 5] does not hold them"

"""For every crash fixture: the exact culprits, the right rule, the promised words; silence on near-misses."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import marked_culprits, run_program, words_to_say

HERE = Path(__file__).parent
CRASHES = sorted(HERE.glob("backward/*/crash_*.py"))
NEAR_MISSES = sorted(HERE.glob("backward/*/ok_*.py"))


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", CRASHES, ids=_name)
def test_names_exactly_the_culprits(path: Path) -> None:
    run = run_program(path)
    assert run.status == 1, run.stderr
    assert run.diagnoses, run.stderr
    diagnosis = run.diagnoses[0]
    assert diagnosis["rule"] == path.parent.name.replace("_", "-"), diagnosis
    if marked_culprits(path):
        assert run.culprits() == marked_culprits(path), run.stderr
    for word in words_to_say(path):
        assert word in run.words(), f"{word!r} is missing in\n{run.stderr}"


@pytest.mark.parametrize("path", NEAR_MISSES, ids=_name)
def test_right_programs_get_silence(path: Path) -> None:
    run = run_program(path)
    assert run.status == 0, run.stderr
    assert run.stderr == ""
    assert run.report == {
        "schema": 1, "command": "run", "outcome": "ok", "exception": None, "diagnoses": [], "notes": [],
    }  # fmt: skip


# Without the operation log (a failure late in a long run) less is known; what is said must still be true.
LATE = [path for path in CRASHES if path.parent.name in ("inplace_saved_tensor", "freed_graph")]
UNTOLD_BY_LINES = {"crash_inside_a_view"}


@pytest.mark.parametrize("path", LATE, ids=_name)
def test_lines_alone_accuse_nobody_else(path: Path) -> None:
    if not marked_culprits(path):
        pytest.skip("the program has no file of its own to mark")
    run = run_program(path, exact_seconds=0)
    assert run.diagnoses, run.stderr
    assert run.culprits() <= marked_culprits(path), run.stderr
    roles = {role for role, _ in run.culprits()}
    if path.stem in UNTOLD_BY_LINES:  # what cannot be told from the lines is not guessed: the way to find out is said
        assert not roles and "--deep" in run.words(), run.stderr
    else:
        assert roles & {"mutate", "create", "call"}, run.stderr


def test_of_several_cuts_each_sentence_is_about_its_own() -> None:
    run = run_program(HERE / "backward/lost_gradient/crash_three_cuts.py")
    assert "`float(value)` passes on bare numbers" in run.diagnoses[0]["explanation"]

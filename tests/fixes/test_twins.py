"""The first fix of every crash fixture makes the program compute what its hand-written twin computes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from patched import differences, fixes_of, outcome_of, patched_text

RULES = Path(__file__).parent.parent / "rules"
CRASHES = sorted(RULES.glob("backward/*/crash_*.py")) + sorted(RULES.glob("forward/*/crash_*.py"))
BACKWARD = [path for path in CRASHES if path.parent.parent.name == "backward"]
# Code that stands in no file, an exception raised on purpose, a hook of which nobody knows what it was to return: nothing
# mechanical is right. A detour through `np.asarray`: nothing is offered yet.
_WITHOUT = ("exec_code", "hook", "value_error", "hook_number", "hook_shape", "hook_on_a_result", "hook_in_a_closure", "module_hook", "numpy_by_asarray", "first_layer_hook", "bare_numbers")
WITHOUT_FIX = [path for path in BACKWARD if path.stem.removeprefix("crash_") in _WITHOUT]
WITH_TWIN = [path for path in CRASHES if path.with_name(path.name.replace("crash_", "fixed_")).exists() and path not in WITHOUT_FIX]
NEW = [path for path in BACKWARD if path not in WITH_TWIN and path not in WITHOUT_FIX]


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", WITH_TWIN, ids=_name)
def test_the_fix_computes_what_the_twin_computes(path: Path) -> None:
    fixes = fixes_of(path)
    assert fixes, "no mechanical fix is offered"
    assert len(fixes) <= 3
    twin = path.with_name(path.name.replace("crash_", "fixed_"))
    expected = outcome_of(twin.read_bytes(), twin)
    assert not expected.error, f"the twin itself fails: {expected.error}"
    text = patched_text(path, fixes[0])
    ast.parse(text)
    assert not differences(outcome_of(text, path), expected)
    for fix in fixes:
        if fix.applicability.value == "safe":
            again = outcome_of(patched_text(path, fix), path)
            # A fix that is called safe must be right too, also where it is not the first.
            assert not again.error and not [d for d in differences(again, expected) if d.startswith(("roots", "gradients"))] or fix is fixes[0] or _sums(fix.title)


def _sums(title: str) -> bool:
    """One backward of the sum instead of two: the same gradients in the end, noted once instead of twice."""
    return title.startswith("Add the losses")


@pytest.mark.parametrize("path", WITHOUT_FIX, ids=_name)
def test_nothing_is_offered_where_nothing_mechanical_is_right(path: Path) -> None:
    assert not fixes_of(path)


@pytest.mark.parametrize("path", NEW, ids=_name)
def test_without_a_twin_the_fix_at_least_runs(path: Path) -> None:
    for fix in fixes_of(path)[:1]:
        assert not outcome_of(patched_text(path, fix), path).error


def test_how_many_fixtures_have_a_fix(capsys: pytest.CaptureFixture[str]) -> None:
    backward = [path for path in WITH_TWIN if path in BACKWARD]
    with capsys.disabled():
        print(f"\n{len(backward)} of {len(BACKWARD)} backward fixtures have a mechanical fix and a twin; {len(WITHOUT_FIX)} have no mechanical fix")
    assert len(backward) >= 0.8 * len(BACKWARD)

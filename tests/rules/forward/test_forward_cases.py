"""Every forward rule on programs of its family: exactly the marked lines, the right rule, and the facts."""

import importlib
from pathlib import Path

import pytest

from forward_harness import check, describe, run_program

MODULES = sorted(path.stem for path in Path(__file__).parent.glob("cases_*.py"))
CASES = [case for name in MODULES for case in importlib.import_module(name).CASES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{case.name}")
def test_observed(case):
    problems = check(case)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{case.name}")
def test_without_the_log(case):
    """A failure long after the log has ended: the same rule and failing line, and what syntax and frames still tell.

    `late` says how much that is: all marked lines (True), some of them (False), or just these lines.
    """
    result = run_program(case.program, log=False)
    assert result.diagnosis is not None, str(result.error)
    assert result.diagnosis.rule == case.rule, describe(result)
    marks = case.marks()
    failing = max(marks, key=lambda line: not any(role == "create" for role in marks[line]))
    assert result.diagnosis.culprits[0].span.line == failing, describe(result)
    if isinstance(case.late, tuple):
        assert result.lines == set(case.late), describe(result)
    else:
        assert result.lines <= set(marks), describe(result)
        assert not case.late or result.lines == set(marks), describe(result)

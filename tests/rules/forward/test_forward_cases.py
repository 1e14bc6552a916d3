"""Every forward rule on programs of its family: exactly the marked lines, the right rule, and the facts."""

import importlib
from pathlib import Path

import pytest

from forward_harness import check

MODULES = sorted(path.stem for path in Path(__file__).parent.glob("cases_*.py"))
CASES = [case for name in MODULES for case in importlib.import_module(name).CASES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{case.name}")
def test_observed(case):
    problems = check(case)
    assert not problems, "\n".join(problems)

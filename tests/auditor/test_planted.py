"""Every planted bug is found with its line, and every correct twin is clean."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import planted  # noqa: E402
import losses_zoo  # noqa: E402, F401
import sequences_zoo  # noqa: E402, F401
import steps_zoo  # noqa: E402, F401

import torchsleuth  # noqa: E402
from torchsleuth.model import Outcome  # noqa: E402


def audited(case: planted.Planted, bug: bool):
    torch.set_num_threads(1)
    torch.manual_seed(3)
    return torchsleuth.audit(**case.build(bug))


@pytest.mark.parametrize("case", planted.ALL, ids=str)
def test_bug_is_found_with_its_line(case):
    report = audited(case, True)
    found = [d for d in report.diagnoses if d.rule == case.rule]
    assert found, (case.rule, [(d.rule, d.title) for d in report.diagnoses], report.notes)
    if case.lines:
        lines = {c.span.line for d in found for c in d.culprits}
        assert lines & case.lines, (case.lines, found)
    assert {d.rule for d in report.diagnoses} == {case.rule}, [(d.rule, d.title) for d in report.diagnoses]


@pytest.mark.parametrize("case", planted.ALL, ids=str)
def test_twin_is_clean(case):
    report = audited(case, False)
    assert report.outcome is Outcome.OK, [(d.rule, d.title, d.facts) for d in report.diagnoses]


def test_there_are_enough():
    assert len(planted.ALL) >= 40 and len({case.name for case in planted.ALL}) == len(planted.ALL)

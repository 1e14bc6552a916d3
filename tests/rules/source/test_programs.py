"""Every lint rule names exactly the marked lines, and says nothing of near-misses. No rule goes without a program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from torchsleuth.linter.engine import lint_rules, linted
from torchsleuth.linter.source import source_from

PROGRAMS = sorted(Path(__file__).parent.glob("programs/*.py"))
MARK = re.compile(r"# culprit: ([a-z-]+)")


def marks(text: str) -> set[tuple[int, str]]:
    return {(number, rule) for number, line in enumerate(text.splitlines(), 1) for rule in MARK.findall(line)}


def findings(path: Path) -> set[tuple[int, str]]:
    rules = {rule.name: rule for rule in lint_rules()}
    outcome = linted(source_from(path.read_bytes(), path.name))
    return {(d.culprits[0].span.line, d.rule) for d in outcome.diagnoses if rules[d.rule].default}


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_exactly_the_marked_lines(path: Path) -> None:
    assert findings(path) == marks(path.read_text(encoding="utf-8"))


def test_every_rule_on_by_default_has_a_program() -> None:
    shown = {rule for path in PROGRAMS for _, rule in marks(path.read_text(encoding="utf-8"))}
    assert {rule.name for rule in lint_rules() if rule.default} - shown == {"loop-over-tensor"}  # tests/linter/test_loops.py


def test_an_argument_that_is_changed_is_found_when_asked_for() -> None:
    text = b"import torch\n\n\ndef shifted(x: torch.Tensor):\n    x += 1\n    return x\n\n\ndef scaled_(x: torch.Tensor):\n    x *= 2\n    return x\n"
    found = [(d.rule, d.culprits[0].span.line) for d in linted(source_from(text, "a.py")).diagnoses]
    assert found == [("argument-mutated", 5)]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda p: p.stem)
def test_every_finding_is_complete(path: Path) -> None:
    """A title, a reason, a label's worth of evidence and a way out, for every finding of every program."""
    source = source_from(path.read_bytes(), path.name)
    for diagnosis in linted(source).diagnoses:
        assert diagnosis.title and diagnosis.explanation and diagnosis.fixes, diagnosis.rule
        assert not diagnosis.title.endswith(".") and diagnosis.explanation.rstrip().endswith((".", '".')), diagnosis
        for culprit in diagnosis.culprits:
            assert culprit.source and culprit.excerpt is not None
            first = source.lines[culprit.span.line - 1]
            assert first[culprit.span.column - 1 :].startswith(culprit.source.splitlines()[0][:20])

"""The terminal report: plain in pipes, ASCII where asked for, underlines under the expression, one diff."""

from __future__ import annotations

import io

import pytest

from torchsleuth.model import (
    Applicability,
    Confidence,
    Culprit,
    Diagnosis,
    Excerpt,
    Fact,
    Fix,
    Known,
    Outcome,
    RaisedException,
    Report,
    Role,
    Span,
    from_plain,
    to_plain,
)
from torchsleuth.render import json, terminal


def _report(line: str, expression: str, label: str = "wrote into `h`") -> Report:
    column = line.index(expression) + 1
    culprit = Culprit(
        Role.MUTATE, Span("train.py", 7, column, 7, column + len(expression)), expression, Known.INFERRED, label, Excerpt(7, (line,)), "step"
    )
    fixes = (
        Fix("first", Applicability.SAFE, diff="--- a/train.py\n+++ b/train.py\n@@ -7 +7 @@\n-h += 1\n+h = h + 1\n"),
        Fix("second", Applicability.UNSAFE, diff="--- a/x\n+++ b/x\n@@ -1 +1 @@\n-other\n+change\n"),
    )
    diagnosis = Diagnosis("some-rule", "a title", Confidence.LIKELY, (culprit,), (Fact("a fact", Known.OBSERVED),), "because", fixes)
    return Report("run", Outcome.CRASH, RaisedException("RuntimeError", "boom"), (diagnosis,), ("a note",))


def _shown(report: Report, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    terminal.show(report, terminal.console_for(stream))
    stream.flush()
    return raw.getvalue().decode(encoding)


def test_a_pipe_gets_plain_text_with_the_expression_underlined() -> None:
    text = _shown(_report("        h += 1", "h += 1"))
    assert "\x1b" not in text
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if "h += 1" in line)
    assert lines[at + 1].index("^") == lines[at].index("h += 1")
    assert lines[at + 1].count("^") == len("h += 1")
    assert "train.py:7  in step (inferred)" in text
    assert "note: a note" in text


@pytest.mark.parametrize("length", [60, 95, 140, 400])
def test_a_long_line_is_cropped_around_the_expression(length: int) -> None:
    line = "    result = " + "a + " * (length // 4) + "h.add_(1)" + " + b" * (length // 4)
    lines = _shown(_report(line, "h.add_(1)")).splitlines()
    at = next(i for i, shown in enumerate(lines) if "h.add_(1)" in shown and "|" in shown.replace("│", "|"))
    assert lines[at + 1].index("^") == lines[at].index("h.add_(1)")
    assert len(lines[at]) <= terminal.PIPE_WIDTH + 3


def test_tabs_and_wide_letters_keep_the_underline_in_place() -> None:
    lines = _shown(_report("\tgröße = h.exp_()", "h.exp_()")).splitlines()
    at = next(i for i, line in enumerate(lines) if "h.exp_()" in line)
    assert lines[at + 1].index("^") == lines[at].index("h.exp_()")


def test_an_ascii_stream_gets_ascii() -> None:
    text = _shown(_report("    h += 1", "h += 1"), "ascii")
    assert text.isascii()
    assert "== torchsleuth == some-rule" in text


def test_only_the_best_fix_shows_its_diff() -> None:
    text = _shown(_report("    h += 1", "h += 1"))
    assert "+h = h + 1" in text
    assert "second" in text and "+change" not in text


def test_reports_survive_the_round_trip_and_json_keeps_the_contract() -> None:
    report = _report("    h += 1", "h += 1")
    assert from_plain(Report, to_plain(report)) == report
    data = json.as_data(report)
    assert set(data) == {"schema", "command", "outcome", "exception", "diagnoses", "notes"}
    (culprit,) = data["diagnoses"][0]["culprits"]
    assert culprit | {"role": "mutate", "line": 7, "column": 5, "end_column": 11, "evidence": "inferred"} == culprit
    assert data["diagnoses"][0]["fixes"][0]["verdict"]["status"] == "not-run"

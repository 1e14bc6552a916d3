"""The terminal report: plain in pipes, ASCII where asked for, underlines under the expression, one diff."""

from __future__ import annotations

import dataclasses
import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

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


@pytest.mark.parametrize("width", [60, 80])
def test_an_expression_wider_than_the_window_loses_its_middle(width: int) -> None:
    expression = "self.project(self.norm(x))" + ".view(x.size(0), x.size(1), self.heads, self.width)" * 3
    line = f"\tquery = {expression}.transpose(1, 2)"
    stream = io.StringIO()
    terminal.show(_report(line, expression), Console(file=stream, force_terminal=True, no_color=True, width=width, highlight=False))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()
    at = next(i for i, shown in enumerate(lines) if "self.project" in shown and "│" in shown)
    assert len(lines[at]) <= width and lines[at].endswith("...")
    shown = lines[at][lines[at + 1].index("^") : lines[at + 1].rindex("^") + 1]
    assert shown.startswith("self.project(") and "..." in shown and shown.endswith("self.width)")
    assert expression in _shown(_report(line, expression))  # a pipe has no window


def test_tabs_and_wide_letters_keep_the_underline_in_place() -> None:
    lines = _shown(_report("\tgröße = h.exp_()", "h.exp_()")).splitlines()
    at = next(i for i, line in enumerate(lines) if "h.exp_()" in line)
    assert lines[at + 1].index("^") == lines[at].index("h.exp_()")


@pytest.mark.parametrize(
    "line", ['    名前 = "日本語"; h.exp_()', "    s = 'e\u0301'; h.exp_()", "\tx =\t1; h.exp_()", "    s = '" + "長" * 90 + "'; h.exp_()  # " + "長" * 90]
)
def test_the_underline_is_counted_in_cells(line: str) -> None:
    """Letters two cells wide, accents of none, tabs inside the line, and a line of wide letters that is too long."""
    lines = _shown(_report(line, "h.exp_()", "written")).splitlines()
    at = next(i for i, shown in enumerate(lines) if "h.exp_()" in shown)
    assert cell_len(lines[at + 1][: lines[at + 1].index("^")]) == cell_len(lines[at][: lines[at].index("h.exp_()")])
    assert cell_len(lines[at]) <= terminal.PIPE_WIDTH


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp932"])
def test_letters_that_the_encoding_lacks_are_replaced_one_for_one(encoding: str) -> None:
    lines = _shown(_report("    名 = 'é'; h.exp_()", "h.exp_()", "in 名é"), encoding).splitlines()
    at = next(i for i, line in enumerate(lines) if "h.exp_()" in line)
    assert cell_len(lines[at + 1][: lines[at + 1].index("^")]) == cell_len(lines[at][: lines[at].index("h.exp_()")])


def test_source_does_not_steer_the_terminal() -> None:
    """An escape sequence, a form feed or a mark that turns the reading order is shown as one replaced letter."""
    text = _shown(_report("    s = '\x1b[2J\x1b]0;title\x07\x0c\u202e'; h.exp_()", "h.exp_()", "\x1b[31mred"))
    assert not set(text) & set("\x1b\x07\x0c\u202e")
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if "h.exp_()" in line)
    assert lines[at + 1].index("^") == lines[at].index("h.exp_()")


@pytest.mark.parametrize("width", [1, 8, 30])
def test_a_window_too_narrow_for_a_report_gets_one_all_the_same(width: int, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setenv("TERM", "xterm")
    terminal.show(_report("    result = " + "a + " * 40 + "h.add_(1)", "h.add_(1)"), terminal.console_for(stream))
    assert "h.add_(1)" in stream.getvalue() and "some-rule" in stream.getvalue()


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


def _two(line: str, first: str, second: str) -> str:
    """What is shown between the title and the reason for a write and a save on one line."""
    report = _report(line, first)
    (diagnosis,) = report.diagnoses
    column = line.index(second) + 1
    save = Culprit(
        Role.SAVE, Span("train.py", 7, column, 7, column + len(second)), second, Known.OBSERVED, "saved `h`", diagnosis.culprits[0].excerpt, "step"
    )
    text = _shown(dataclasses.replace(report, diagnoses=(dataclasses.replace(diagnosis, culprits=(*diagnosis.culprits, save, save)),)))
    return text[text.index("a title") : text.index("Why")]


def test_culprits_on_one_line_share_it_and_each_has_its_underline_and_label() -> None:
    line = "    h /= h.std() + 1e-5"
    lines = _two(line, "h /= h.std() + 1e-5", "h.std()").splitlines()
    assert [text.split()[0] for text in lines if "train.py:7" in text] == ["written", "saved"]
    (at,) = (i for i, text in enumerate(lines) if line in text)
    offset = lines[at].index(line)
    assert lines[at + 1][offset:] == "    ^^^^^^^^^^^^^^^^^^^ wrote into `h`"
    assert lines[at + 2][offset:] == "         ^^^^^^^ saved `h`"


def test_two_parts_of_one_expression_are_underlined_once() -> None:
    text = _two("    h = f(h)", "f(h)", "f(h)")
    assert text.count("^^^^") == 1
    assert text.count("wrote into `h`") == text.count("saved `h`") == 1


def test_culprits_that_no_crop_shows_together_are_shown_one_by_one() -> None:
    text = _two("    h.add_(1); " + "a = a + 1; " * 30 + "b = h.exp()", "h.add_(1)", "h.exp()")
    assert sum("train.py:7" in line for line in text.splitlines()) == 2
    assert text.index("h.add_(1)") < text.index("wrote into `h`") < text.index("h.exp()") < text.index("saved `h`")

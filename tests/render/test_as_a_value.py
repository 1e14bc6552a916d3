"""A report that a program or a notebook holds: `print(report)`, its one line in a list, and its page, which executes nothing."""

from __future__ import annotations

from torchsleuth.model import Confidence, Culprit, Diagnosis, Excerpt, Known, Outcome, Report, Role, Span, from_plain, to_plain

LINE = 'label = "<script>alert(1)</script>" + str(x[3])'


def _report() -> Report:
    at = LINE.index("x[3]") + 1
    culprit = Culprit(Role.INDEX, Span("a & b.py", 7, at, 7, at + 4), "x[3]", Known.OBSERVED, "<b>3</b> is out of range", Excerpt(7, (LINE,)), "step")
    return Report("audit", Outcome.FINDINGS, None, (Diagnosis("some-rule", "a title", Confidence.LIKELY, (culprit,)),))


def test_printed_it_is_what_the_terminal_shows() -> None:
    text = str(_report())
    assert "\x1b" not in text
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if LINE in line)
    assert lines[at + 1].index("^") == lines[at].index("x[3]")
    assert "torchsleuth: no findings." in str(Report("audit", Outcome.OK))


def test_its_repr_is_one_line_that_names_the_places() -> None:
    assert repr(_report()) == "<Report of audit: findings; some-rule at a & b.py:7>"
    assert repr(Report("check", Outcome.OK)) == "<Report of check: ok>"


def test_nothing_of_the_program_is_markup_in_a_notebook() -> None:
    page = _report()._repr_html_()
    assert "<script" not in page and "<b>3" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_it_is_still_plain_data() -> None:
    assert from_plain(Report, to_plain(_report())) == _report()

"""A report for a person at a terminal: what, where, why, what to do; one screen, then details.

Degrades to plain text in pipes and under NO_COLOR, and to ASCII where the encoding asks for it.
Source lines are never wrapped (the underline would lose its place): a line too long for the window
is cropped around the expression. What comes from a program goes through `shown` first.
"""

from __future__ import annotations

import sys
import typing

from rich.console import Console
from rich.text import Text

from torchsleuth.model import Confidence, Diagnosis, Fix, Outcome, Report, Status
from torchsleuth.render.lines import WIDEST, glyph, paragraph, print_line
from torchsleuth.render.places import KNOWN_MARKS, places, show_place
from torchsleuth.render.shown import shown

PIPE_WIDTH = 100
NARROWEST = 40  # below, nothing would fit beside the margin: the terminal wraps the lines, then

STATUS_STYLES = {Status.PASSED: "green", Status.SAME_FAILURE: "red", Status.NEW_FAILURE: "red", Status.NOT_RUN: "dim"}
CONFIDENCE_STYLES = {Confidence.CERTAIN: "green", Confidence.LIKELY: "yellow", Confidence.POSSIBLE: "magenta"}


def console_for(stream: typing.TextIO | None = None) -> Console:
    stream = sys.stderr if stream is None else stream
    console = Console(file=stream, highlight=False, soft_wrap=False)
    console.width = min(max(console.width, NARROWEST), WIDEST) if console.is_terminal else PIPE_WIDTH
    return console


def show(report: Report, console: Console | None = None) -> None:
    console = console or console_for()
    for position, diagnosis in enumerate(report.diagnoses):
        if position:
            console.print()
        _show_diagnosis(diagnosis, console)
    for note in report.notes:
        console.print(Text(shown(f"note: {note}", console.encoding), style="dim"))
    if report.outcome is Outcome.CRASH and not report.diagnoses:
        console.print(Text("torchsleuth: no rule explains this failure.", style="dim"))


def show_outcome(report: Report, console: Console) -> None:
    """`show`, for who asked: that there is nothing to show is said, too."""
    show(report, console)
    if report.ok and not report.diagnoses:
        console.print(Text("torchsleuth: no findings.", style="dim"))


def _show_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    _heading(diagnosis, console)
    for line in Text(shown(diagnosis.title, console.encoding), style="bold").wrap(console, console.width):
        line.rstrip()
        print_line(line, console)
    for place in places(diagnosis.culprits, console):
        console.print()
        show_place(place, console)
    if diagnosis.explanation:
        console.print()
        paragraph("Why", diagnosis.explanation, console)
    if diagnosis.facts:
        console.print()
        bullet = glyph(console, "•", "-")
        for position, fact in enumerate(diagnosis.facts):
            paragraph("Seen" if position == 0 else "", f"{bullet} {fact.text}{KNOWN_MARKS[fact.known]}", console)
    for position, fix in enumerate(diagnosis.fixes):
        console.print()
        _show_fix(fix, position, len(diagnosis.fixes), console)


def _heading(diagnosis: Diagnosis, console: Console) -> None:
    rule = glyph(console, "━", "=")
    left, right = f"{rule * 2} torchsleuth {rule * 2} {diagnosis.rule} ", f" {diagnosis.confidence.value} {rule * 2}"
    line = Text.assemble((left, "bold cyan"))
    line.append(rule * max(2, console.width - len(left) - len(right)), style="cyan")
    line.append(right, style=CONFIDENCE_STYLES[diagnosis.confidence])
    print_line(line, console)


def _show_fix(fix: Fix, position: int, count: int, console: Console) -> None:
    """The best fix with its diff; of the others what they would do. All diffs are in the JSON report."""
    verdict = fix.verdict
    paragraph("Fix" if count == 1 else f"Fix {position + 1}", fix.title, console)
    if fix.meaning:
        paragraph("", fix.meaning, console)
    if fix.diff and position == 0:
        _show_diff(fix.diff, console)
    if verdict.status is not Status.NOT_RUN:
        paragraph("", f"{verdict.status.value}: {verdict.text}", console, STATUS_STYLES[verdict.status])
    elif fix.diff and position == 0 and verdict.text:
        paragraph("", verdict.text, console, "dim")


_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def _show_diff(diff: str, console: Console) -> None:
    """Unwrapped and without padding, so that what is copied from a pipe applies."""
    for line in shown(diff, console.encoding).rstrip("\n").split("\n"):
        style = "bold" if line.startswith(("---", "+++")) else _DIFF_STYLES.get(line[:1], "")
        print_line(Text.assemble("      ", (line, style)), console)

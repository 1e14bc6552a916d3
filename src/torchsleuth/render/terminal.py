"""A report for a person at a terminal: what, where, why, what to do; one screen, then details.

Degrades to plain text in pipes and under NO_COLOR, and to ASCII where the encoding asks for it.
Source lines are never wrapped (the underline would lose its place): a line too long for the window
is cropped around the expression. What comes from a program goes through `shown` first.
"""

from __future__ import annotations

import sys
import typing

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from torchsleuth.model import Confidence, Culprit, Diagnosis, Fix, Known, Outcome, Report, Role, Status
from torchsleuth.render.cells import TAB, expanded, first_cells, fitted, last_cells
from torchsleuth.render.shown import shown

PIPE_WIDTH = 100
NARROWEST = 40  # below, nothing would fit beside the margin: the terminal wraps the lines, then
WIDEST = 110

ROLE_WORDS = {
    Role.SAVE: "saved here",
    Role.MUTATE: "written here",
    Role.INDEX: "bad index",
    Role.OPERAND: "operand",
    Role.CREATE: "comes from",
    Role.LOST_GRAD: "gradient lost",
    Role.RETURN_GRAD: "wrong gradient",
    Role.LOOP: "slow loop",
    Role.CALL: "your call",
}
ROLE_STYLES = {Role.MUTATE: "bold red", Role.INDEX: "bold red", Role.LOST_GRAD: "bold red", Role.RETURN_GRAD: "bold red",
               Role.OPERAND: "bold red", Role.SAVE: "bold yellow", Role.CREATE: "bold yellow", Role.LOOP: "bold yellow",
               Role.CALL: "bold cyan"}  # fmt: skip
STATUS_STYLES = {Status.PASSED: "green", Status.SAME_FAILURE: "red", Status.NEW_FAILURE: "red", Status.NOT_RUN: "dim"}
CONFIDENCE_STYLES = {Confidence.CERTAIN: "green", Confidence.LIKELY: "yellow", Confidence.POSSIBLE: "magenta"}
KNOWN_MARKS = {Known.OBSERVED: "", Known.RECOMPUTED: " (recomputed)", Known.INFERRED: " (inferred)"}


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
    console.print(Text(shown(diagnosis.title, console.encoding), style="bold"))
    for culprit in diagnosis.culprits:
        console.print()
        _show_culprit(culprit, console)
    if diagnosis.explanation:
        console.print()
        _paragraph("Why", diagnosis.explanation, console)
    if diagnosis.facts:
        console.print()
        bullet = _glyph(console, "•", "-")
        for position, fact in enumerate(diagnosis.facts):
            _paragraph("Seen" if position == 0 else "", f"{bullet} {fact.text}{KNOWN_MARKS[fact.known]}", console)
    for position, fix in enumerate(diagnosis.fixes):
        console.print()
        _show_fix(fix, position, len(diagnosis.fixes), console)


def _heading(diagnosis: Diagnosis, console: Console) -> None:
    rule = _glyph(console, "━", "=")
    left, right = f"{rule * 2} torchsleuth {rule * 2} {diagnosis.rule} ", f" {diagnosis.confidence.value} {rule * 2}"
    line = Text.assemble((left, "bold cyan"))
    line.append(rule * max(2, console.width - len(left) - len(right)), style="cyan")
    line.append(right, style=CONFIDENCE_STYLES[diagnosis.confidence])
    console.print(line, overflow="ignore", no_wrap=True, crop=False)


def _show_culprit(culprit: Culprit, console: Console) -> None:
    style = ROLE_STYLES[culprit.role]
    head = Text.assemble((f"{ROLE_WORDS[culprit.role]:<14} ", style))
    head.append(shown(f"{culprit.span.file}:{culprit.span.line}", console.encoding), style="bold")
    if culprit.function and culprit.function != "<module>":
        head.append(shown(f"  in {culprit.function}", console.encoding), style="dim")
    head.append(KNOWN_MARKS[culprit.known], style="dim")
    console.print(head, overflow="ignore", no_wrap=True, crop=False)
    if culprit.excerpt is None:
        if culprit.label:
            _paragraph("", culprit.label, console)
        return
    gutter = max(4, len(str(culprit.excerpt.first + len(culprit.excerpt.lines) - 1)) + 1)
    bar = _glyph(console, "│", "|")
    label_pending = shown(culprit.label, console.encoding)
    for number, line in enumerate(culprit.excerpt.lines, culprit.excerpt.first):
        before, inside, after = _cropped(shown(line, console.encoding), number, culprit, console.width - gutter - 4)
        text = Text.assemble((f"{number:>{gutter}} {bar} ", "dim"))
        text.append(before, style="none")
        text.append(inside, style=style if inside else "none")
        text.append(after, style="none")
        console.print(text, overflow="ignore", no_wrap=True, crop=False)
        if inside and number == culprit.span.end_line:
            start, width = cell_len(before), cell_len(inside)
            under = Text.assemble((f"{'':>{gutter}} {bar} " + " " * start, "dim"))
            under.append("^" * width, style=style)
            if label_pending and gutter + 3 + start + width + 1 + cell_len(label_pending) <= console.width:
                under.append(" " + label_pending, style=style)
                label_pending = ""
            console.print(under, overflow="ignore", no_wrap=True, crop=False)
    if label_pending:
        prefix = Text.assemble((f"{'':>{gutter}} {bar} ", "dim"))
        for line in Text(label_pending, style=style).wrap(console, console.width - gutter - 4):
            console.print(prefix + line, overflow="ignore", no_wrap=True, crop=False)


def _cropped(line: str, number: int, culprit: Culprit, room: int) -> tuple[str, str, str]:
    """The line as shown: what is before the culprit's expression, the expression (or nothing), and what is after it."""
    span = culprit.span
    if not span.line <= number <= span.end_line:
        return fitted(line.expandtabs(TAB), room), "", ""
    indent = len(line) - len(line.lstrip())
    start = span.column - 1 if number == span.line else indent
    end = span.end_column - 1 if number == span.end_line else len(line.rstrip())
    start, end = min(start, len(line)), min(max(end, start), len(line))
    before, inside, after = expanded(line, start, end)
    width = cell_len(inside)
    dots = "..."
    if cell_len(before) + width + cell_len(after) > room and len(before) > indent + len(dots):
        spare = max(room - width - len(dots) * (1 + bool(after)), 10)
        if cell_len(before) > spare:
            before = dots + last_cells(before, spare)
    rest = max(room - cell_len(before) - width, 0)
    if cell_len(after) > rest:
        after = first_cells(after, max(rest - len(dots), 0)) + dots
    return before, inside, after


def _paragraph(head: str, text: str, console: Console, style: str = "") -> None:
    """Prose with a short head in the margin, wrapped to a width that reads well."""
    margin = 6
    body = Text(shown(text, console.encoding), style=style)
    width = min(console.width, WIDEST) - margin
    for position, line in enumerate(body.wrap(console, width)):
        lead = Text.assemble((f"{head if position == 0 else '':<{margin}}", "bold"))
        line.rstrip()
        console.print(lead + line, no_wrap=True, overflow="ignore", crop=False)


def _show_fix(fix: Fix, position: int, count: int, console: Console) -> None:
    """The best fix with its diff; of the others what they would do. All diffs are in the JSON report."""
    verdict = fix.verdict
    _paragraph("Fix" if count == 1 else f"Fix {position + 1}", fix.title, console)
    if fix.meaning:
        _paragraph("", fix.meaning, console)
    if fix.diff and position == 0:
        _show_diff(fix.diff, console)
    if verdict.status is not Status.NOT_RUN:
        _paragraph("", f"{verdict.status.value}: {verdict.text}", console, STATUS_STYLES[verdict.status])
    elif fix.diff and position == 0 and verdict.text:
        _paragraph("", verdict.text, console, "dim")


_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def _show_diff(diff: str, console: Console) -> None:
    """Unwrapped and without padding, so that what is copied from a pipe applies."""
    for line in shown(diff, console.encoding).rstrip("\n").split("\n"):
        style = "bold" if line.startswith(("---", "+++")) else _DIFF_STYLES.get(line[:1], "")
        console.print(Text.assemble("      ", (line, style)), no_wrap=True, overflow="ignore", crop=False)


def _glyph(console: Console, wanted: str, ascii_only: str) -> str:
    try:
        wanted.encode(console.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ascii_only
    return wanted

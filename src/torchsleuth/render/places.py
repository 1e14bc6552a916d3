"""Culprits as a terminal shows them: those that stand on the same lines share one excerpt, with an underline for each expression."""

from __future__ import annotations

import typing

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from torchsleuth.model import Culprit, Known, Role, Span
from torchsleuth.render.cells import TAB, expanded, first_cells, fitted, last_cells
from torchsleuth.render.lines import glyph, paragraph, print_line
from torchsleuth.render.shown import shown

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
_LEAST_OF_AN_EXPRESSION = 16  # cells; below, its ends would tell nothing
KNOWN_MARKS = {Known.OBSERVED: "", Known.RECOMPUTED: " (recomputed)", Known.INFERRED: " (inferred)"}


def places(culprits: typing.Iterable[Culprit], console: Console) -> list[list[Culprit]]:
    """The culprits in their order; each goes to the first one on the same lines, if those are shown alike for both."""
    found: list[list[Culprit]] = []
    for culprit in culprits:
        known = next((place for place in found if _shown_alike(place[0], culprit, console)), None)
        if known is None:
            found.append([culprit])
        else:
            known.append(culprit)
    return found


def show_place(place: list[Culprit], console: Console) -> None:
    for said in dict.fromkeys(_head(culprit) for culprit in place):
        _show_head(*said, console)
    excerpt = place[0].excerpt
    if excerpt is None:
        for label in filter(None, (culprit.label for culprit in place)):
            paragraph("", label, console)
        return
    gutter = _gutter(place[0])
    margin = f"{'':>{gutter}} {glyph(console, '│', '|')} "
    for number, line in enumerate(excerpt.lines, excerpt.first):
        parts = [_cropped(shown(line, console.encoding), number, culprit, console.width - gutter - 4, console.is_terminal) for culprit in place]
        text = Text.assemble((f"{number:>{gutter}}" + margin[gutter:], "dim"), "".join(parts[0]))
        for culprit, (before, inside, _) in zip(reversed(place), reversed(parts), strict=True):
            start = len(margin) + len(before)
            text.stylize(ROLE_STYLES[culprit.role], start, start + len(inside))
        print_line(text, console)
        ending = [(c, before, inside) for c, (before, inside, _) in zip(place, parts, strict=True) if inside and number == c.span.end_line]
        for span in dict.fromkeys(culprit.span for culprit, _, _ in ending):
            same = [one for one in ending if one[0].span == span]
            _underline(margin, *same[0][1:], [(culprit.label, ROLE_STYLES[culprit.role]) for culprit, _, _ in same], console)


def _head(culprit: Culprit) -> tuple[Role, Span, str, Known]:
    return culprit.role, Span(culprit.span.file, culprit.span.line, 0, 0, 0), culprit.function, culprit.known


def _show_head(role: Role, span: Span, function: str, known: Known, console: Console) -> None:
    head = Text.assemble((f"{ROLE_WORDS[role]:<14} ", ROLE_STYLES[role]))
    head.append(shown(f"{span.file}:{span.line}", console.encoding), style="bold")
    if function and function != "<module>":
        head.append(shown(f"  in {function}", console.encoding), style="dim")
    head.append(KNOWN_MARKS[known], style="dim")
    print_line(head, console)


def _underline(margin: str, before: str, inside: str, labels: list[tuple[str, str]], console: Console) -> None:
    """Carets below an expression and the first label beside them if there is room; the others, and a long one, below."""
    start, width = cell_len(before), cell_len(inside)
    pending = list({shown(label, console.encoding): style for label, style in labels if label}.items())
    under = Text.assemble((margin + " " * start, "dim"), ("^" * width, labels[0][1]))
    if pending and len(margin) + start + width + 1 + cell_len(pending[0][0]) <= console.width:
        under.append(" " + pending[0][0], style=pending.pop(0)[1])
    print_line(under, console)
    for label, style in pending:
        for line in Text(label, style=style).wrap(console, console.width - len(margin) - 1):
            print_line(Text.assemble((margin, "dim")) + line, console)


def _shown_alike(one: Culprit, other: Culprit, console: Console) -> bool:
    """One excerpt can show both: they stand on the same lines, and a crop around the first shows all of the second."""
    if (one.span.file, one.span.line, one.span.end_line, one.excerpt) != (other.span.file, other.span.line, other.span.end_line, other.excerpt):
        return False
    room = console.width - _gutter(one) - 4
    lines = [] if one.excerpt is None else list(enumerate((shown(line, console.encoding) for line in one.excerpt.lines), one.excerpt.first))
    within = console.is_terminal
    return all("".join(_cropped(line, number, one, room, within)) == "".join(_cropped(line, number, other, room, within)) for number, line in lines)


def _gutter(culprit: Culprit) -> int:
    return 4 if culprit.excerpt is None else max(4, len(str(culprit.excerpt.first + len(culprit.excerpt.lines) - 1)) + 1)


def _cropped(line: str, number: int, culprit: Culprit, room: int, within: bool) -> tuple[str, str, str]:
    """The line as shown: what is before the culprit's expression, the expression (or nothing), and what is after it.

    `within`: an expression that is wider than the window loses its middle; in a pipe there is no window.
    """
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
    space = room - cell_len(before) - len(dots) * bool(after)
    if within and width > space >= _LEAST_OF_AN_EXPRESSION:
        head = (space - len(dots)) * 2 // 3
        inside = first_cells(inside, head) + dots + last_cells(inside, space - len(dots) - head)
        width = cell_len(inside)
    rest = max(room - cell_len(before) - width, 0)
    if cell_len(after) > rest:
        after = first_cells(after, max(rest - len(dots), 0)) + dots
    return before, inside, after

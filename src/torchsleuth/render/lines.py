"""Lines on a console: prose with a head in the margin, a line that is never wrapped, a glyph that the encoding has."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from torchsleuth.render.shown import shown

WIDEST = 110
_MARGIN = 6


def print_line(text: Text, console: Console) -> None:
    """As it is: wrapped, an underline would lose its place, and a diff would no longer apply."""
    console.print(text, overflow="ignore", no_wrap=True, crop=False)


def paragraph(head: str, text: str, console: Console, style: str = "") -> None:
    """Prose with a short head in the margin, wrapped to a width that reads well."""
    body = Text(shown(text, console.encoding), style=style)
    for position, line in enumerate(body.wrap(console, min(console.width, WIDEST) - _MARGIN)):
        line.rstrip()
        print_line(Text.assemble((f"{head if position == 0 else '':<{_MARGIN}}", "bold")) + line, console)


def glyph(console: Console, wanted: str, ascii_only: str) -> str:
    try:
        wanted.encode(console.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ascii_only
    return wanted

"""A report where it is a value: printed as text, and in a notebook as the page the terminal would show."""

from __future__ import annotations

import io

from rich.console import Console

from torchsleuth.model import Report
from torchsleuth.render.terminal import PIPE_WIDTH, show_outcome

_STYLE = "font-family:Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre;overflow-x:auto;line-height:1.3"


def text(report: Report) -> str:
    """What the terminal would show, without colours."""
    console = Console(file=io.StringIO(), width=PIPE_WIDTH, highlight=False, color_system=None, legacy_windows=False)
    show_outcome(report, console)
    return console.file.getvalue().rstrip("\n")  # type: ignore[attr-defined]


def html(report: Report) -> str:
    """The same with colours; every character of the program's source and values is escaped."""
    console = Console(
        file=io.StringIO(), record=True, width=PIPE_WIDTH, highlight=False, force_terminal=True, color_system="truecolor", legacy_windows=False
    )
    show_outcome(report, console)
    return console.export_html(inline_styles=True, code_format=f'<pre style="{_STYLE}">{{code}}</pre>')

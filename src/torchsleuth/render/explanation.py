"""Lays an `Explanation` out for a terminal or as plain text. Layout only; the wording is the explainer's."""

from __future__ import annotations

import re
import sys
import textwrap
import typing
from collections.abc import Iterator

from torchsleuth.model_explanation import Code, Explanation
from torchsleuth.render.shown import shown

PLAIN_WIDTH = 100
WIDEST = 110
_STYLES = {"title": "1", "rule": "1;36", "heading": "1;33", "code": "36", "claim": "3", "name": "36", "note": "2", "": ""}


def plain(explanation: Explanation, width: int = PLAIN_WIDTH) -> str:
    return "\n".join(line.rstrip() for _, line in _lines(explanation, width)) + "\n"


def show(explanation: Explanation, stream: typing.TextIO | None = None) -> None:
    """Writes to a stream, with colours where it is a terminal that wants them."""
    import os
    import shutil

    stream = stream or sys.stdout
    coloured = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = min(shutil.get_terminal_size().columns, WIDEST) if stream.isatty() else PLAIN_WIDTH
    for style, line in _lines(explanation, max(width, 40)):
        code = _STYLES[style] if coloured else ""
        text = shown(line.rstrip(), getattr(stream, "encoding", None) or "utf-8")
        stream.write(f"\x1b[{code}m{text}\x1b[0m\n" if code and text else text + "\n")


def _lines(explanation: Explanation, width: int) -> Iterator[tuple[str, str]]:
    """Styled lines; blank ones never twice in a row."""
    blank = True
    for style, line in _raw_lines(explanation, width):
        if line.strip() or not blank:
            yield style, line
        blank = not line.strip()


def _raw_lines(explanation: Explanation, width: int) -> Iterator[tuple[str, str]]:
    if explanation.rule:
        yield "rule", explanation.rule
    for line in _wrapped(_sentence(explanation.title), width, 0):
        yield "title", line
    for section in explanation.sections:
        yield "", ""
        yield "heading", section.heading
        previous: typing.Any = None
        for block in section.blocks:
            if isinstance(block, Code):
                yield "", ""
                yield from (("code", f"      {line}") for line in block.source.rstrip("\n").splitlines())
                yield "", ""
            else:
                if block.claim and previous is not None and not isinstance(previous, Code):
                    yield "", ""
                lead = f"{block.number}. " if block.number else ""
                for line in _wrapped(lead + block.text, width, 2, len(lead)):
                    yield ("claim" if block.claim else ""), line
            previous = block
    for heading, entries in explanation.entries:
        yield "", ""
        yield "heading", heading
        column = max(len(entry.name) for entry in entries) + 2
        for entry in entries:
            for number, line in enumerate(textwrap.wrap(entry.summary, max(width - column - 2, 30)) or [""]):
                yield ("" if number else "name"), f"  {entry.name if number == 0 else '':<{column}}{line}"
    if explanation.notes:
        yield "", ""
        for note in explanation.notes:
            yield from (("note", line) for line in _wrapped(note, width, 0))


def _sentence(title: str) -> str:
    """`torch.float32 where …` begins with a name, which keeps its small letter."""
    title = title[0].upper() + title[1:] if title[:1].isalpha() and "." not in title.split(" ", 1)[0].rstrip(".") else title
    return title if title.endswith((".", "?", "!")) else title + "."


def _wrapped(text: str, width: int, indent: int, hanging: int = 0) -> list[str]:
    # Short code stays on one line: textwrap does not break at a no-break space.
    kept = re.sub(r"`[^`]{1,40}`", lambda code: code[0].replace(" ", "\xa0"), text)
    lines = textwrap.wrap(
        kept, width, initial_indent=" " * indent, subsequent_indent=" " * (indent + hanging), break_long_words=False, break_on_hyphens=False
    )
    return [line.replace("\xa0", " ") for line in lines]

"""Standard output for verbs that print what stands in somebody's source: any character, in any encoding."""

from __future__ import annotations

import json
import sys
import typing


def take_any_character() -> None:
    """A character that the encoding lacks is written as an escape; a pipe on Windows, or `LC_ALL=C`, would raise."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def print_json(text: str, stream: typing.TextIO | None = None) -> None:
    """JSON has escapes of its own, and knows no others."""
    stream = stream or sys.stdout
    try:
        text.encode(stream.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        text = "".join(c if c.isascii() else json.dumps(c)[1:-1] for c in text)
    print(text, end="", file=stream)

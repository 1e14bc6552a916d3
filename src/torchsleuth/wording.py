"""Small pieces of wording that rules share, so that reports sound alike."""

from __future__ import annotations

import ast
import re

from torchsleuth.model import Span

_PATH_END = re.compile(r"[/\\]")


def short(text: str, most: int = 60) -> str:
    """Source or a message on one line, cut to a length that fits a sentence."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 3] + "..."


def upper_first(text: str) -> str:
    """A capital at the start of a sentence; names in backticks stay as they are."""
    return text[:1].upper() + text[1:]


def line_words(span: Span, home: Span | None = None) -> str:
    """`line 3`, with the file where it is another than the one that a report is about."""
    if home is not None and home.file == span.file:
        return f"line {span.line}"
    return f"line {span.line} of {_PATH_END.split(span.file)[-1]}"


def is_primary(text: str) -> bool:
    """An expression that can be indexed as it stands, without parentheses around it: `batch["ids"]`, `torch.tensor(ids)`."""
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return False
    return isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.List, ast.Tuple)) and text.isprintable()

"""Small pieces of wording that rules share, so that reports sound alike."""

from __future__ import annotations


def short(text: str, most: int = 60) -> str:
    """Source or a message on one line, cut to a length that fits a sentence."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 3] + "..."


def upper_first(text: str) -> str:
    """A capital at the start of a sentence; names in backticks stay as they are."""
    return text[:1].upper() + text[1:]

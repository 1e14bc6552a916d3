"""Somebody's text as a terminal may show it: nothing in it steers the terminal, and the encoding has a letter for all of it."""

from __future__ import annotations

_REORDERING = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)  # they show a line in another order than it is read in
_STEERING = {code: "\ufffd" for code in (*range(32), *range(127, 160), *_REORDERING) if chr(code) not in "\t\n"}
_PLAIN = str.maketrans({"“": '"', "”": '"', "…": "..."})


def shown(text: str, encoding: str | None) -> str:
    """A replacement stands for what a terminal would obey instead of showing it, and for what the encoding lacks."""
    text = text.translate(_STEERING)
    encoding = encoding or "ascii"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_PLAIN).encode(encoding, "replace").decode(encoding)
    except LookupError:
        text = text.translate(_PLAIN).encode("ascii", "replace").decode()
    return text

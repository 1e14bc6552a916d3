"""Source lines measured in the cells of a terminal: tabs, letters of two cells, and accents of none."""

from __future__ import annotations

from rich.cells import cell_len, get_character_cell_size

TAB = 4


def expanded(line: str, start: int, end: int) -> tuple[str, str, str]:
    """A line in three parts, before, from and after two positions, with spaces for its tabs."""
    before, inside, whole = (part.expandtabs(TAB) for part in (line[:start], line[:end], line))
    return before, inside[len(before) :], whole[len(inside) :]


def first_cells(text: str, room: int) -> str:
    """As much of the beginning as fits."""
    used = 0
    for position, letter in enumerate(text):
        used += get_character_cell_size(letter)
        if used > room:
            return text[:position]
    return text


def last_cells(text: str, room: int) -> str:
    """As much of the end as fits."""
    return first_cells(text[::-1], room)[::-1]


def fitted(line: str, room: int) -> str:
    return line if cell_len(line) <= room else first_cells(line, max(room - 3, 0)) + "..."

"""Text edits on a source: applied exactly, everything around them left as it is.

Edits are made for a hashed text and refused on any other. Replacement text uses `\\n`; it takes on the line
endings of the file it goes into.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from torchsleuth.linter.source import LINE_END, Unreadable, cell_text, decoded, digest_of
from torchsleuth.model import Edit, Span, unified_diff

CELL = re.compile(r"^(?P<file>.*\.ipynb):cell (?P<number>\d+)$")


def edited_text(text: str, edits: Iterable[Edit]) -> str:
    """The text after these edits; overlapping ones must have been removed (`without_overlaps`)."""
    starts = [0, *(match.end() for match in LINE_END.finditer(text))]
    ending = LINE_END.search(text)
    newline = ending[0] if ending else "\n"

    def offset(line: int, column: int) -> int:
        return starts[line - 1] + column - 1 if line <= len(starts) else len(text)

    for edit in sorted(edits, key=lambda e: (e.span.line, e.span.column), reverse=True):
        start, end = offset(edit.span.line, edit.span.column), offset(edit.span.end_line, edit.span.end_column)
        text = text[:start] + edit.replacement.replace("\n", newline) + text[end:]
    return text


def without_overlaps(groups: Iterable[tuple[Edit, ...]]) -> list[tuple[Edit, ...]]:
    """The groups of edits that can be applied together, the first come first served."""
    taken: list[tuple[str, tuple[int, int], tuple[int, int]]] = []
    kept = []
    for group in groups:
        ranges = [(e.span.file, (e.span.line, e.span.column), (e.span.end_line, e.span.end_column)) for e in group]
        if any(f == g and start < other_end and other_start < end for f, start, end in ranges for g, other_start, other_end in taken):
            continue
        taken += ranges
        kept.append(group)
    return kept


def edited_bytes(data: bytes, label: str, edits: Iterable[Edit]) -> bytes:
    """The file after the edits, in its own encoding and layout; raises `Unreadable` where that cannot be kept."""
    edits = list(edits)
    digest = digest_of(data)
    if any(edit.source_hash != digest for edit in edits):
        raise Unreadable("has changed since it was linted: not fixed")
    if label.endswith(".ipynb"):
        return _edited_notebook(data, edits)
    text = decoded(data)
    encoding = "utf-8-sig" if data.startswith(b"\xef\xbb\xbf") else _encoding(data)
    return edited_text(text, edits).encode(encoding)


def _encoding(data: bytes) -> str:
    import io
    import tokenize

    return tokenize.detect_encoding(io.BytesIO(data).readline)[0]


def _edited_notebook(data: bytes, edits: list[Edit]) -> bytes:
    text = data.decode("utf-8")
    notebook = json.loads(text)
    tail = text[len(text.rstrip()) :]
    for indent in (1, 2, 4, None):
        for ascii_only in (False, True):
            if json.dumps(notebook, indent=indent, ensure_ascii=ascii_only) + tail == text:
                break
        else:
            continue
        break
    else:
        raise Unreadable("is laid out in a way that a rewrite would not keep: not fixed")
    cells = [cell for cell in notebook["cells"] if cell.get("cell_type") == "code"]
    for number, cell in enumerate(cells, 1):
        mine = [e for e in edits if (m := CELL.match(e.span.file)) and int(m["number"]) == number]
        if mine:
            after = edited_text(cell_text(cell), mine)
            cell["source"] = after if isinstance(cell["source"], str) else after.splitlines(keepends=True)
    return (json.dumps(notebook, indent=indent, ensure_ascii=ascii_only) + tail).encode("utf-8")


def diff_of(label: str, text: str, edits: Iterable[Edit]) -> str:
    """The change as a unified diff. `text` and the edits' lines must agree (for a notebook: one cell)."""
    edits = list(edits)
    if not edits:
        return ""
    after = edited_text(text, edits)
    return unified_diff(label, LINE_END.sub("\n", text), LINE_END.sub("\n", after))


def whole(text: str, file: str) -> Span:
    lines = LINE_END.split(text)
    return Span(file, 1, 1, len(lines), len(lines[-1]) + 1)

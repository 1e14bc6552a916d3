"""One source to lint: its text exactly as it lies on disk, its syntax tree, its `noqa` comments.

Python files and notebooks both become a `Source`; a notebook's code cells are joined into one text, and
`place` says which cell a line belongs to.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import io
import json
import re
import tokenize
import warnings
from dataclasses import dataclass, field

from torchsleuth.frozen import frozen
from torchsleuth.model import Excerpt, Span

LINE_END = re.compile(r"\r\n|\n|\r")
NOQA = re.compile(r"#\s*noqa\b(?P<codes>\s*:\s*[^#]*)?", re.IGNORECASE)
OURS = re.compile(r"torchsleuth(?:\s*\[(?P<rules>[^\]]*)\])?", re.IGNORECASE)
# Larger files are data or generated code; parsing them costs minutes and says nothing.
BIGGEST = 3_000_000


class Unreadable(Exception):
    """This input cannot be linted; the message is the line shown for it."""


@frozen
class Cell:
    number: int  # as the notebook counts code cells, from 1
    first_line: int  # in the joined text
    position: int  # index in the notebook's list of cells
    lines: int


@dataclass
class Source:
    label: str  # how reports name it
    text: str
    digest: str
    tree: ast.Module
    cells: tuple[Cell, ...] = ()
    lines: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.lines = LINE_END.split(self.text)

    # Positions ------------------------------------------------------------------------------

    def column(self, line: int, offset: int) -> int:
        """1-based character column of a UTF-8 byte offset, which is what the parser counts."""
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        if text.isascii():
            return offset + 1
        return len(text.encode("utf-8")[:offset].decode("utf-8", "replace")) + 1

    def place(self, line: int) -> tuple[str, int]:
        """The file label and the line in it that a line of the joined text stands for."""
        for cell in self.cells:
            if cell.first_line <= line < cell.first_line + cell.lines:
                return f"{self.label}:cell {cell.number}", line - cell.first_line + 1
        return self.label, line

    def span(self, node: ast.AST) -> Span:
        return self.span_between(node, node)

    def span_between(self, first: ast.AST, last: ast.AST) -> Span:
        label, line = self.place(first.lineno)
        end_line = self.place(last.end_lineno)[1]
        return Span(
            label,
            line,
            self.column(first.lineno, first.col_offset),
            end_line,
            self.column(last.end_lineno, last.end_col_offset),
        )

    def segment(self, node: ast.AST) -> str:
        lines = self.lines[node.lineno - 1 : node.end_lineno]
        if not lines:
            return ""
        lines = list(lines)
        lines[-1] = lines[-1][: self.column(node.end_lineno, node.end_col_offset) - 1]
        lines[0] = lines[0][self.column(node.lineno, node.col_offset) - 1 :]
        return "\n".join(lines)

    def excerpt(self, first: int, last: int) -> Excerpt:
        """Lines `first` to `last` of the joined text, numbered as in their file or cell."""
        return Excerpt(self.place(first)[1], tuple(self.lines[first - 1 : last]))

    @functools.cached_property
    def noqa(self) -> dict[int, frozenset[str] | None]:
        """For each line with a `noqa` that concerns torchsleuth: the rules named there, None for all."""
        found: dict[int, frozenset[str] | None] = {}
        if "noqa" not in self.text.lower():
            return found
        for number, line in enumerate(self.lines, 1):
            match = NOQA.search(line)
            if match is None:
                continue
            codes = match["codes"]
            if codes is None:
                found[number] = None
                continue
            ours = OURS.search(codes)
            if ours:
                rules = ours["rules"]
                found[number] = None if rules is None else frozenset(r.strip().lower() for r in rules.split(","))
        return found

    def is_silenced(self, rule: str, lines: tuple[int, ...]) -> bool:
        for line in lines:
            rules = self.noqa.get(line, ())
            if rules is None or rule in rules:
                return True
        return False


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def decoded(data: bytes) -> str:
    """The text of a Python file in its declared encoding, line endings untouched."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except (SyntaxError, UnicodeDecodeError) as error:
        raise Unreadable(f"cannot tell its encoding: {error}") from None
    try:
        return data.decode(encoding)
    except (UnicodeDecodeError, LookupError) as error:
        raise Unreadable(f"is not valid {encoding}: {error}") from None


def source_from(data: bytes, label: str) -> Source:
    """The source in these bytes; raises `Unreadable` with a line for the user where there is none."""
    if len(data) > BIGGEST:
        raise Unreadable(f"is {len(data) / 1e6:.1f} MB, more than {BIGGEST / 1e6:.0f} MB: taken for data, not linted")
    if label.endswith(".ipynb"):
        return _notebook(data, label)
    if b"\0" in data:
        raise Unreadable("contains null bytes: not Python source")
    text = decoded(data)
    return Source(label, text, digest_of(data), parsed(text))


def parsed(text: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        where = f"line {error.lineno}" if error.lineno else "unknown line"
        raise Unreadable(f"syntax error at {where}: {error.msg}") from None
    except ValueError as error:
        raise Unreadable(f"cannot be parsed: {error}") from None
    except (RecursionError, MemoryError):
        raise Unreadable("is nested too deeply to be parsed") from None


def _notebook(data: bytes, label: str) -> Source:
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
        cells = notebook["cells"]
    except (ValueError, KeyError, TypeError, UnicodeDecodeError):
        raise Unreadable("is not a notebook of format 4: no list of cells in it") from None
    texts: list[str] = []
    found: list[Cell] = []
    line = 1
    for position, cell in enumerate(cells):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        text = LINE_END.sub("\n", cell_text(cell))
        count = text.count("\n") + 1
        texts.append(_without_magics(text))
        found.append(Cell(len(found) + 1, line, position, count))
        line += count
    joined = "\n".join(texts)
    return Source(label, joined, digest_of(data), parsed(joined), tuple(found))


def cell_text(cell: dict) -> str:
    lines = cell.get("source", "")
    return lines if isinstance(lines, str) else "".join(lines)


def _without_magics(text: str) -> str:
    """The cell with IPython's own lines replaced by comments of the same length, lines kept in place."""
    if text.lstrip().startswith("%%") and not text.lstrip().startswith(("%%time", "%%capture", "%%prun")):
        return "\n".join("#" + line[1:] for line in text.split("\n"))
    out = []
    for line in text.split("\n"):
        stripped = line.lstrip()
        if stripped.startswith(("%", "!", "?")) or (stripped.endswith("?") and "#" not in stripped):
            indent = line[: len(line) - len(stripped)]
            line = f"{indent}pass  #{stripped[6:]}" if indent else "#" + stripped[1:]
        out.append(line)
    text = "\n".join(out)
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        # One broken cell must not hide the others: it becomes comments.
        return "\n".join("#" + line[1:] for line in text.split("\n"))
    return text

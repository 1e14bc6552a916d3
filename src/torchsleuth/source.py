"""Source text: from a code object and an instruction to the exact expression, and from text to syntax.

Reads files through `linecache`, so notebook cells and the text of a script that has deleted itself are
found too. Where the text cannot be had or does not fit the bytecode, the answer is None, not a guess.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
import io
import linecache
import os
import sys
import tokenize
import types
from collections.abc import Iterable, Iterator

from torchsleuth.evidence import Place
from torchsleuth.model import Excerpt, Known, Span
from torchsleuth.origin import Origin, origin_of


def display_name(filename: str) -> str:
    """Relative to the working directory where it lies below it; notebook cells by their label."""
    cell = _cell_label(filename)
    if cell or filename.startswith("<"):
        return cell or filename
    try:
        relative = os.path.relpath(filename)
    except (ValueError, OSError):
        return filename
    if not relative.startswith(".."):
        return relative
    plain = os.path.normpath(filename)  # of `torchsleuth run ../train.py`, unless a link on the way leads elsewhere
    return plain if os.path.realpath(plain) == os.path.realpath(filename) else filename


def _cell_label(filename: str) -> str:
    """ipykernel runs cells from files named `ipykernel_…/123.py` that never exist, IPython from `<ipython-input-3-…>`.

    IPython knows which number a cell has on the screen; the others are hashes of its text.
    """
    shell = sys.modules["IPython"].get_ipython() if hasattr(sys.modules.get("IPython"), "get_ipython") else None
    numbers = getattr(getattr(shell, "compile", None), "_filename_map", None)
    if isinstance(numbers, dict) and filename in numbers:
        return f"<cell {numbers[filename]}>"
    if "ipykernel_" in filename and not os.path.exists(filename):
        return f"<cell {os.path.splitext(os.path.basename(filename))[0]}>"
    if filename.startswith("<ipython-input-"):
        return f"<cell {filename.split('-')[2]}>"
    return ""


_remembered: dict[str, bytes] = {}


_given: set[str] = set()  # of those: by whoever ran the text


def remember(filename: str, text: bytes) -> None:
    """Keep the text of a script as it was run: it may delete itself, or be edited meanwhile."""
    _given.add(filename)
    _remembered[filename] = text


def remember_file(filename: str) -> None:
    """The same for a module, as its file is now: while a long training runs, people edit it."""
    if filename in _given:
        return
    with contextlib.suppress(OSError, ValueError):
        text = _read(filename)
        if _remembered.get(filename, text) != text:
            forget()
        _remembered[filename] = text


def _read(filename: str) -> bytes:
    with io.open_code(os.path.abspath(filename)) as file:
        return file.read()


def is_remembered(filename: str) -> bool:
    return filename in _remembered


@functools.lru_cache(maxsize=512)
def lines_of(filename: str) -> tuple[str, ...]:
    if filename in _remembered:
        with contextlib.suppress(SyntaxError, UnicodeDecodeError, LookupError):
            return _decoded_lines(_remembered[filename])
    return tuple(line.rstrip("\r\n") for line in linecache.getlines(filename) or _lines_of_module(filename))


def _decoded_lines(text: bytes) -> tuple[str, ...]:
    encoding, _ = tokenize.detect_encoding(io.BytesIO(text).readline)
    return tuple(io.TextIOWrapper(io.BytesIO(text), encoding, newline=None).read().split("\n"))


def _lines_of_module(filename: str) -> list[str]:
    """The text of a module that lies in an archive: its loader has it."""
    owner = next((module for module in list(sys.modules.values()) if getattr(module, "__file__", None) == filename), None)
    if owner is None or not linecache.lazycache(filename, vars(owner)):
        return []
    return linecache.getlines(filename)


@functools.lru_cache(maxsize=256)
def tree_of(filename: str) -> ast.Module | None:
    lines = lines_of(filename)
    if not lines:
        return None
    try:
        return ast.parse("\n".join(lines) + "\n")
    except (SyntaxError, ValueError, RecursionError):
        return None


def forget() -> None:
    """Drop cached text, for a notebook whose cells change."""
    lines_of.cache_clear()
    tree_of.cache_clear()
    _statements.cache_clear()
    expression_at.cache_clear()
    _positions.cache_clear()
    _is_text_of.cache_clear()
    _is_unchanged.cache_clear()


@functools.lru_cache(maxsize=4096)
def _positions(code: types.CodeType) -> tuple[tuple[int | None, int | None, int | None, int | None], ...]:
    return tuple(code.co_positions())


def instruction_range(code: types.CodeType, lasti: int) -> tuple[int, int, int, int] | None:
    """(line, column, end_line, end_column) of the expression an instruction belongs to; 0-based character columns."""
    positions = _positions(code)
    index = lasti // 2
    if not 0 <= index < len(positions):
        return None
    line, end_line, column, end_column = positions[index]
    if line is None:
        return None
    if column is None or end_column is None or end_line is None:
        return _statement_range(code.co_filename, line)
    return (
        line,
        character_column(code.co_filename, line, column),
        end_line,
        character_column(code.co_filename, end_line, end_column),
    )


def character_column(filename: str, line: int, byte_column: int) -> int:
    lines = lines_of(filename)
    if not 0 < line <= len(lines) or lines[line - 1].isascii():
        return byte_column
    return len(lines[line - 1].encode()[:byte_column].decode(errors="ignore"))


def _statement_range(filename: str, line: int) -> tuple[int, int, int, int] | None:
    statement = statement_at(filename, line)
    if statement is None:
        lines = lines_of(filename)
        if not 0 < line <= len(lines):
            return None
        text = lines[line - 1]
        return line, len(text) - len(text.lstrip()), line, len(text.rstrip())
    return node_range(filename, statement)


def node_range(filename: str, node: ast.AST) -> tuple[int, int, int, int]:
    return (
        node.lineno,
        character_column(filename, node.lineno, node.col_offset),
        node.end_lineno,
        character_column(filename, node.end_lineno, node.end_col_offset),
    )


def statement_at(filename: str, line: int) -> ast.stmt | None:
    """The innermost statement that covers a line; of a compound statement only its head counts."""
    return _statements(filename).get(line)


def statements_at(filename: str, line: int) -> list[ast.stmt]:
    """All that stand on its line, in order: `optimizer.zero_grad(); loss.backward(); optimizer.step()`."""
    last = statement_at(filename, line)
    if last is None or hasattr(last, "body"):
        return [last] if last is not None else []
    return _simple_statements(filename).get(last.lineno, [last])


@functools.lru_cache(maxsize=256)
def _simple_statements(filename: str) -> dict[int, list[ast.stmt]]:
    tree = tree_of(filename)
    found: dict[int, list[ast.stmt]] = {}
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            found.setdefault(node.lineno, []).append(node)
    return {line: sorted(nodes, key=lambda node: node.col_offset) for line, nodes in found.items()}


@functools.lru_cache(maxsize=256)
def _statements(filename: str) -> dict[int, ast.stmt]:
    """Every line with its statement: one walk per file, since a report may ask for thousands of lines."""
    tree = tree_of(filename)
    found: dict[int, ast.stmt] = {}
    for node in ast.walk(tree) if tree is not None else ():  # breadth first: inner statements come later and win
        if isinstance(node, ast.stmt):
            first, last = node.lineno, node.end_lineno or node.lineno
            body = getattr(node, "body", None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                last = max(first, body[0].lineno - 1) if body[0].lineno > first else first
            for line in range(first, last + 1):
                if line not in found or first >= found[line].lineno:
                    found[line] = node
    return found


@functools.lru_cache(maxsize=2048)
def expression_at(filename: str, where: tuple[int, int, int, int]) -> ast.AST | None:
    """The outermost node that covers exactly this range."""
    tree = tree_of(filename)
    if tree is None:
        return None
    for node in _covering(tree, where):
        if hasattr(node, "lineno") and node_range(filename, node) == where:
            return node
    return None


def _covering(tree: ast.AST, where: tuple[int, int, int, int]) -> Iterator[ast.AST]:
    line, _, end_line, _ = where
    pending = [tree]
    while pending:
        node = pending.pop(0)
        yield node
        for child in ast.iter_child_nodes(node):
            first = getattr(child, "lineno", None)
            if first is None or (first <= line and (child.end_lineno or first) >= end_line):
                pending.append(child)
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and child.decorator_list:
                pending.extend(child.decorator_list)


def text_of(filename: str, where: tuple[int, int, int, int]) -> str:
    line, column, end_line, end_column = where
    lines = lines_of(filename)
    if not lines or not 0 < line <= end_line <= len(lines):
        return ""
    if line == end_line:
        return lines[line - 1][column:end_column]
    return "\n".join([lines[line - 1][column:], *lines[line : end_line - 1], lines[end_line - 1][:end_column]])


def place(
    code: types.CodeType, where: tuple[int, int, int, int] | None, known: Known = Known.OBSERVED, via: Place | None = None
) -> Place | None:
    """A place in this code's file, with the lines to show."""
    if where is None:
        return None
    filename = code.co_filename
    line, column, end_line, end_column = where
    believed = _is_text_of(filename, code)
    lines = lines_of(filename) if believed else ()
    excerpt = Excerpt(line, lines[line - 1 : min(end_line, line + 7)]) if 0 < line <= len(lines) else None
    return Place(
        Span(display_name(filename), line, column + 1, end_line, end_column + 1),
        text_of(filename, where) if believed else "",
        getattr(code, "co_qualname", code.co_name).replace("<locals>.", ""),
        excerpt,
        origin_of(code) is not Origin.USER,
        known,
        via,
    )


@functools.lru_cache(maxsize=2048)
def _is_text_of(filename: str, code: types.CodeType) -> bool:
    """Whether the text found under the code's file name is its own.

    Code compiled from a string under an invented name shares its globals with a module, and `linecache` may answer with
    that module's text (`traceback` asks its loader). Where there is no such file, the text must compile to this code.
    The same holds for a module whose file was written to since it was first seen: it may have been loaded again meanwhile.
    (The file name is an argument of its own: equal code from two files is equal, and would share a cache entry.)
    """
    if os.path.exists(filename) if filename not in _remembered else filename in _given or _is_unchanged(filename):
        return True
    text = "\n".join(lines_of(filename))
    try:
        pending: list[object] = [compile(text, filename, "exec", dont_inherit=True)] if text else []
    except (SyntaxError, ValueError):
        # A notebook cell may hold `await` or magics; its label and its place in the cache vouch for it.
        return bool(_cell_label(filename)) or filename.startswith("<")
    while pending:
        candidate = pending.pop()
        if isinstance(candidate, types.CodeType):
            if (candidate.co_name, candidate.co_firstlineno) == (code.co_name, code.co_firstlineno):
                if candidate.co_code == code.co_code:
                    return True
            pending.extend(candidate.co_consts)
    return bool(_cell_label(filename))


@functools.lru_cache(maxsize=256)
def _is_unchanged(filename: str) -> bool:
    try:
        return _read(filename) == _remembered[filename]
    except OSError:
        return False


def changed_since(labels: Iterable[str]) -> list[str]:
    """Of files, as they are displayed, those that no longer hold the text that ran."""
    wanted = set(labels)
    return sorted({name for file in list(_remembered) if os.path.exists(file) and (name := display_name(file)) in wanted and not _is_unchanged(file)})


def place_of_instruction(code: types.CodeType, lasti: int, known: Known = Known.OBSERVED, via: Place | None = None) -> Place | None:
    return place(code, instruction_range(code, lasti), known, via)


def place_of_node(code: types.CodeType, node: ast.AST, known: Known = Known.OBSERVED, via: Place | None = None) -> Place | None:
    return place(code, node_range(code.co_filename, node), known, via)


@functools.lru_cache(maxsize=512)
def instructions(code: types.CodeType) -> tuple[dis.Instruction, ...]:
    return tuple(dis.get_instructions(code))

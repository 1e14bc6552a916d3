"""From a running frame to the source expression it is evaluating: `Site`s for observations.

Only `(code, offset)` pairs are kept while the program runs; text is read when a finding needs it.
"""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
import types
import typing

from torch import nn

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.model import Excerpt, Span
from torchsleuth.origin import Origin, origin_of_file

AROUND = 1  # lines of context on each side
TRAMPOLINE = "torchsleuth_call"  # our one-line functions that carry the caller's file and line; see `trace.Trace.carried`


class Place(typing.NamedTuple):
    """Where a call was made: the innermost frame that is not torch's, and the innermost one of the user's."""

    code: types.CodeType | None
    offset: int
    user_code: types.CodeType | None
    user_offset: int
    frame_id: int = 0  # tells one invocation of the function from another
    direct: bool = True  # no function of torch's own stands between that frame and the call
    decorated: types.CodeType | None = None  # it was a decorator that did it, which stands on this function


NOWHERE = Place(None, -1, None, -1)
_MODULE_CALL = nn.Module._wrapped_call_impl.__code__


def place_here(depth: int = 1, within: Place | None = None) -> Place:
    """The place of the program's code that led here. `within`: where the module that is running was called, if that is known."""
    return place_of(sys._getframe(depth), within)


def place_of_module_call(depth: int = 1, within: Place | None = None) -> Place:
    """From a hook of a module's call: the place of that call."""
    frame: types.FrameType | None = sys._getframe(depth)
    while frame is not None and frame.f_code is not _MODULE_CALL:
        frame = frame.f_back
    return place_of(frame.f_back if frame is not None else sys._getframe(depth), within)


def place_of(frame: types.FrameType | None, within: Place | None = None) -> Place:
    code, offset, frame_id, direct = None, -1, 0, True
    while frame is not None:
        if within is not None and frame.f_code is _MODULE_CALL:  # the frames from here on have been walked before
            return within._replace(direct=False) if code is None else Place(code, offset, within.user_code, within.user_offset, frame_id, False)
        origin = origin_of_file(frame.f_code.co_filename)
        if origin is Origin.USER and frame.f_code.co_name != TRAMPOLINE:
            if code is None:
                code, offset, frame_id = frame.f_code, frame.f_lasti, id(frame)
            return Place(code, offset, frame.f_code, frame.f_lasti, frame_id, direct)
        if origin is Origin.LIBRARY and code is None and frame.f_code.co_name != TRAMPOLINE:
            code, offset, frame_id = frame.f_code, frame.f_lasti, id(frame)
        if origin is Origin.TORCH:
            direct = False
        frame = frame.f_back
    return Place(code, offset, None, -1, frame_id, direct)


def site_of(place: Place, module: str = "", module_type: str = "") -> Site | None:
    """The user's expression at `place`; where a library did the work, its name is kept beside the call."""
    if place.decorated is not None and (site := _decorator(place.decorated)) is not None:
        return site
    code, offset = (place.user_code, place.user_offset) if place.user_code else (place.code, place.offset)
    if code is None:
        return None
    span, source = expression(code, offset)
    if span is None:
        return None
    library = ""
    if place.code is not None and place.code is not place.user_code:
        library = library_name(place.code.co_filename)
    return Site(span, source, code.co_qualname, excerpt(code.co_filename, span), module, module_type, library)


def without_history(depth: int = 1) -> Site | None:
    """The innermost expression of the program, of those that led here, that stands in a block or function without gradients."""
    frame: types.FrameType | None = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        tree = syntax_of(code.co_filename) if origin_of_file(code.co_filename) is Origin.USER else None
        if tree is not None and any(node.lineno <= frame.f_lineno <= (node.end_lineno or 0) for node in _blocks(code.co_filename)):
            return site_of(Place(code, frame.f_lasti, code, frame.f_lasti))
        frame = frame.f_back
    return None


@functools.lru_cache(maxsize=64)
def _blocks(filename: str) -> tuple[ast.With | ast.FunctionDef, ...]:
    """`with torch.no_grad():` and functions under such a decorator."""
    found = []
    for node in ast.walk(syntax_of(filename) or ast.Module([], [])):
        said = [i.context_expr for i in node.items] if isinstance(node, ast.With) else node.decorator_list if isinstance(node, ast.FunctionDef) else []
        if any(word in ast.unparse(one) for one in said for word in ("no_grad", "inference_mode", "set_grad_enabled(False)")):
            found.append(node)
    return tuple(found)


def _decorator(code: types.CodeType) -> Site | None:
    """The decorator of this function that switches gradients off, if it is in the user's code and stands alone or can be told."""
    tree = syntax_of(code.co_filename) if origin_of_file(code.co_filename) is Origin.USER else None
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.decorator_list and node.name == code.co_name:
            if node.decorator_list[0].lineno <= code.co_firstlineno <= node.lineno:
                named = [d for d in node.decorator_list if "grad" in ast.unparse(d) or "inference" in ast.unparse(d)] or node.decorator_list
                return site_of_node(code.co_filename, named[0], code.co_qualname) if len(named) == 1 else None
    return None


def expression(code: types.CodeType, offset: int) -> tuple[Span | None, str]:
    """The source range of the instruction at `offset`, and its text."""
    return _expression(code.co_filename, code, offset)


@functools.lru_cache(maxsize=4096)
def _expression(filename: str, code: types.CodeType, offset: int) -> tuple[Span | None, str]:
    """The file is part of the key: code objects of equal content are equal, whichever file they come from."""
    positions = list(code.co_positions())
    at = offset // 2
    line, end_line, column, end_column = positions[at] if 0 <= at < len(positions) else (None,) * 4
    if line is None:
        return None, ""
    name = shown_file(filename)
    text = source_line(filename, line)
    if column is None or end_line is None or end_column is None:
        start = len(text) - len(text.lstrip())
        return Span(name, line, start + 1, line, len(text) + 1), text.strip()
    if end_line > line and text[column:].startswith("with ") and (entered := _entered(filename, line, column)) is not None:
        return entered.span, entered.source
    first = _characters(text, column)
    last = _characters(source_line(filename, end_line), end_column)
    span = Span(name, line, first + 1, end_line, last + 1)
    return span, span_text(filename, span)


def _entered(filename: str, line: int, column: int) -> Site | None:
    """What a `with` statement enters, where that is one thing: the interpreter gives the place of the whole block."""
    for node in ast.walk(syntax_of(filename) or ast.Module([], [])):
        if isinstance(node, ast.With) and (node.lineno, node.col_offset) == (line, column) and len(node.items) == 1:
            return site_of_node(filename, node.items[0].context_expr)
    return None


def span_text(filename: str, span: Span) -> str:
    if span.line == span.end_line:
        return source_line(filename, span.line)[span.column - 1 : span.end_column - 1]
    lines = [source_line(filename, n) for n in range(span.line, span.end_line + 1)]
    lines[0] = lines[0][span.column - 1 :]
    lines[-1] = lines[-1][: span.end_column - 1]
    return "\n".join(lines)


def source_line(filename: str, line: int) -> str:
    return linecache.getline(filename, line).rstrip("\n")


def _characters(text: str, byte_offset: int) -> int:
    """Bytecode columns count UTF-8 bytes; ours count characters."""
    return byte_offset if text.isascii() else len(text.encode()[:byte_offset].decode(errors="replace"))


def shown_file(filename: str) -> str:
    if filename.startswith("<"):
        return filename
    path = os.path.abspath(filename)
    below = os.path.relpath(path, os.getcwd()) if os.path.splitdrive(path)[0] == os.path.splitdrive(os.getcwd())[0] else path
    return path if below.startswith(os.pardir) else below


def excerpt(filename: str, span: Span) -> Excerpt | None:
    count = len(linecache.getlines(filename))
    if not count or span.line > count:
        return None
    first, last = max(1, span.line - AROUND), min(count, span.end_line + AROUND)
    return Excerpt(first, tuple(source_line(filename, n) for n in range(first, last + 1)))


def library_name(filename: str) -> str:
    for mark in ("site-packages", "dist-packages"):
        at = filename.rfind(mark + os.sep)
        if at >= 0:
            return filename[at + len(mark) + 1 :].split(os.sep, 1)[0]
    return ""


@functools.lru_cache(maxsize=64)
def syntax_of(filename: str) -> ast.Module | None:
    text = "".join(linecache.getlines(filename))
    try:
        return ast.parse(text) if text else None
    except SyntaxError:
        return None


def site_of_node(filename: str, node: ast.expr | ast.stmt, function: str = "", module: str = "", kind: str = "") -> Site:
    """A site for a syntax node: for things known only from the source."""
    first = _characters(source_line(filename, node.lineno), node.col_offset)
    end_line = node.end_lineno or node.lineno
    last = _characters(source_line(filename, end_line), node.end_col_offset or 0)
    span = Span(shown_file(filename), node.lineno, first + 1, end_line, last + 1)
    return Site(span, span_text(filename, span), function, excerpt(filename, span), module, kind)


def returned_by(function: typing.Any) -> Site | None:
    """The one `return` of a function of the program's."""
    code = getattr(function, "__code__", None)
    tree = syntax_of(code.co_filename) if isinstance(code, types.CodeType) and origin_of_file(code.co_filename) is Origin.USER else None
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name and code.co_firstlineno in range(node.lineno - len(node.decorator_list), node.lineno + 1):
            found = [inner for inner in ast.walk(node) if isinstance(inner, ast.Return)]
            return site_of_node(code.co_filename, found[0], code.co_qualname) if len(found) == 1 else None
    return None


def call_at(place: Place) -> ast.Call | None:
    """The call in the program's source."""
    code = place.user_code
    tree = syntax_of(code.co_filename) if isinstance(code, types.CodeType) else None
    span, _ = expression(code, place.user_offset) if code is not None else (None, "")
    if tree is None or span is None:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (node.lineno, node.end_lineno) == (span.line, span.end_line) and node.col_offset + 1 == span.column:
            if (node.end_col_offset or 0) + 1 == span.end_column:
                return node
    return None


def _targets(target: ast.expr) -> list[ast.expr]:
    """`h, c = …`"""
    return target.elts if isinstance(target, ast.Tuple) else [target]


def kept_in_loop(site: Site) -> Site | None:
    """The one assignment of the loop around this expression that gives a name which it reads its value for the next round."""
    filename = os.path.abspath(site.span.file)
    loops = [node for node in ast.walk(syntax_of(filename) or ast.Module([], []))
             if isinstance(node, (ast.For, ast.While)) and node.lineno < site.span.line <= (node.end_lineno or 0)]  # fmt: skip
    if not loops:
        return None
    inside = [node for node in ast.walk(loops[-1]) if hasattr(node, "lineno")]
    at = (site.span.line, site.span.end_line)
    read = {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and at[0] <= node.lineno <= at[1]}
    kept = [node for node in inside if isinstance(node, ast.Assign) and any(isinstance(one, ast.Name) and one.id in read for target in node.targets for one in _targets(target))]
    if len(kept) != 1 or kept[0].lineno <= at[1]:
        return None
    return site_of_node(filename, kept[0], site.function, site.module, site.module_type)


def begun_before_loop(site: Site) -> Site | None:
    """The one assignment before the loop that this expression belongs to which gives a name its first value that each round of the loop reads and gives to the next.

    What is only added to itself, or read by nothing but its own assignment, is collected there and is no such name.
    """
    filename = os.path.abspath(site.span.file)
    tree = syntax_of(filename) or ast.Module([], [])
    around = [node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.FunctionDef)) and node.lineno <= site.span.line <= (node.end_lineno or 0)]
    loop = next((node for node in reversed(around) if isinstance(node, ast.For)), None)
    scope = next((node for node in reversed(around) if isinstance(node, ast.FunctionDef)), tree)
    if loop is None or loop.lineno < getattr(scope, "lineno", 0):
        return None
    begun = []
    for first in (node for node in ast.walk(scope) if isinstance(node, ast.Assign) and node.lineno < loop.lineno):
        name = getattr(first.targets[0], "id", "")
        uses = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id == name]
        stored, read = ([node.lineno for node in uses if isinstance(node.ctx, kind) and loop.lineno < node.lineno <= (loop.end_lineno or 0)] for kind in (ast.Store, ast.Load))
        before = [node for node in uses if isinstance(node.ctx, ast.Store) and node.lineno < loop.lineno]
        if stored and read and len(before) == 1 and min(read) <= min(stored) and not _collected(loop, name):
            begun.append(first)
    return site_of_node(filename, begun[0], site.function, site.module, site.module_type) if len(begun) == 1 else None


def _collected(loop: ast.For, name: str) -> bool:
    """Nothing reads it but a statement that only puts more to it: `all = torch.cat([all, new])`, `total = total + loss`, `total += loss`."""
    for statement in (node for node in ast.walk(loop) if isinstance(node, ast.stmt) and not hasattr(node, "body")):
        if not any(isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) for node in ast.walk(statement)):
            continue
        own = isinstance(statement, ast.Assign) and [getattr(target, "id", "") for target in statement.targets] == [name]
        joins = own and isinstance(statement.value, ast.Call) and getattr(statement.value.func, "attr", "") in ("cat", "stack", "concat", "vstack", "hstack")
        adds = own and isinstance(statement.value, ast.BinOp) and name in (getattr(statement.value.left, "id", ""), getattr(statement.value.right, "id", ""))
        if not (joins or adds):
            return False
    return True

"""Errors that arrive as text: torch.compile, TorchScript and other processes put the original traceback into the message.

A forked child diagnoses its own errors (see `children`); what is read here comes from processes that were started anew.
"""

from __future__ import annotations

import ast
import re
import typing

from torchsleuth import source
from torchsleuth.capture.unlogged import stand_in
from torchsleuth.errors import message_of
from torchsleuth.evidence import Place
from torchsleuth.frozen import frozen
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of_file

_FRAME = re.compile(r'^\s*File "(?P<file>[^"\n]+)", line (?P<line>\d+)(?:, in (?P<function>[^\n]+))?', re.MULTILINE)
_LAST_LINE = re.compile(r"^(?:[\w.]*\.)?(?P<type>\w*(?:Error|Exception)): (?P<message>.*)\Z", re.MULTILINE | re.DOTALL)
_COMPILED = re.compile(r"got (?P<type>\w+)\((?P<quote>['\"])(?P<message>.*?)(?P=quote)\)\s*(?:\n|\Z)", re.DOTALL)

ANOTHER_PROCESS = "another process"
OTHER_PROCESSES = ("a DataLoader worker", ANOTHER_PROCESS)


@frozen
class Embedded:
    wrapper: str
    type: str
    message: str
    places: tuple[Place, ...]  # of the text's traceback, outermost first
    origins: tuple[Origin, ...]
    last_source: str = ""  # the innermost line as the text itself shows it


def embedded(error: BaseException) -> Embedded | None:
    text = message_of(error)
    if "DataLoader worker process" in text and "Original Traceback" in text:
        body = text.split("Original Traceback (most recent call last):", 1)[1]
        return _read("a DataLoader worker", body, _last_line(body))
    if "failed in the TorchScript interpreter" in text or "Traceback of TorchScript" in text:
        return _read("TorchScript", text, _last_line(text))
    if "from user code:" in text and type(error).__module__.startswith("torch._dynamo"):
        before, _, body = text.partition("from user code:")
        match = _COMPILED.search(before)
        inner = (match["type"], match["message"].replace("\\n", "\n")) if match else (type(error).__name__, before.strip())
        return _read("torch.compile", body, inner)
    if "in replica" in text and "Original Traceback" in text:  # DataParallel
        body = text.split("Original Traceback (most recent call last):", 1)[1]
        return _read("DataParallel", body, _last_line(body))
    if "terminated with the following error:" in text and type(error).__name__ == "ProcessRaisedException":  # torch.multiprocessing.spawn
        body = text.split("terminated with the following error:", 1)[1]
        return _read(ANOTHER_PROCESS, body, _last_line(body))
    if type(error.__cause__).__name__ in ("RemoteTraceback", "_RemoteTraceback"):  # pools
        return _read(ANOTHER_PROCESS, str(error.__cause__), (type(error).__name__, text))
    return None


def _last_line(text: str) -> tuple[str, str]:
    found = None
    for match in re.finditer(r"^(?:[\w.]*\.)?(?P<type>\w*(?:Error|Exception)): (?P<message>[^\n]*)", text, re.MULTILINE):
        found = match
    return (found["type"], found["message"]) if found else ("", "")


def _read(wrapper: str, body: str, inner: tuple[str, str]) -> Embedded | None:
    places: list[Place] = []
    origins: list[Origin] = []
    last_source = ""
    for match in _FRAME.finditer(body):
        following = body[match.end() :].lstrip("\n").split("\n", 1)[0]
        last_source = "" if following.lstrip().startswith("File ") else following.strip()
        function = (match["function"] or "").strip()
        place = _marked(match["file"], int(match["line"]), function, body[match.end() :]) or place_of_line(match["file"], int(match["line"]), function)
        if place is not None:
            places.append(place)
            origins.append(origin_of_file(match["file"]))
    return Embedded(wrapper, *inner, tuple(places), tuple(origins), last_source) if places else None


_CARETS = re.compile(r"\A\n(?P<indent> *)(?P<source>\S[^\n]*)\n(?P<before> *)(?P<marks>[~^]+)[ ]*(?:\n|\Z)")


def _marked(filename: str, line: int, function: str, following: str) -> Place | None:
    """The part of the line that the traceback underlines."""
    carets, lines = _CARETS.match(following), source.lines_of(filename)
    if carets is None or not 0 < line <= len(lines) or lines[line - 1].strip() != carets["source"].strip():
        return None
    moved = len(lines[line - 1]) - len(lines[line - 1].lstrip()) - len(carets["indent"])
    first = len(carets["before"]) + moved
    # torch.compile underlines to the end of the line, comments included: the expression that begins there is what is meant.
    tree, last = source.tree_of(filename), first + len(carets["marks"])
    ranges = [source.node_range(filename, node) for node in ast.walk(tree) if isinstance(node, ast.expr) and node.lineno == line] if tree is not None else []
    inside = [where for where in ranges if where[1] == first and where[2] == line and where[3] <= last]
    if inside:
        return source.place(stand_in(filename, function), max(inside, key=lambda where: where[3]), Known.OBSERVED)
    return source.place(stand_in(filename, function), (line, first, line, first + len(carets["marks"])), Known.OBSERVED)


def place_of_line(filename: str, line: int, function: str = "") -> Place | None:
    code = stand_in(filename, function)
    statement = source.statement_at(filename, line)
    if statement is not None:
        value = getattr(statement, "value", None)
        shown = value if value is not None and statement.lineno <= line else statement
        return source.place_of_node(code, shown, Known.OBSERVED)
    text = source.lines_of(filename)
    if 0 < line <= len(text):
        content = text[line - 1]
        return source.place(code, (line, len(content) - len(content.lstrip()), line, len(content.rstrip())), Known.OBSERVED)
    return None


def innermost(found: Embedded, wanted: typing.Callable[[Origin], bool]) -> Place | None:
    return next((p for p, o in zip(reversed(found.places), reversed(found.origins)) if wanted(o)), None)

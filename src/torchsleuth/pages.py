"""Reads the rules' pages from their source text, so that `explain` need not import a hundred modules and what they import.

A rule's docstring and its plain attributes (`name`, `messages`, `priority`) are all that is wanted; the parser sees only that head of each class. What is not written
there as a literal is got by importing that one module. A test compares the result with `all_rules()`.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import pathlib
import re
import typing
from collections.abc import Iterator

from torchsleuth.frozen import frozen
from torchsleuth.rule import Page, Rule, parsed_page

_CLASS = re.compile(r'^class (?P<name>\w+)\([^)]*\):\n(?:    #.*\n)*    r?"""', re.MULTILINE)
# The head of a class ends where its methods begin, or the class does.
_END = re.compile(r"^(?:    (?:def |async def |@|class )|[^\s#])", re.MULTILINE)


@frozen
class RulePage:
    """A rule as `explain` needs it."""

    name: str
    page: Page
    family: str  # the folder below rules/ it stands in
    module: str
    messages: tuple[str, ...] = ()  # of a crash rule: what nominates it
    priority: int = 0
    nominating: tuple[str, ...] = ()  # of `messages`, those of any failure of the GPU: the rule then looks at what was recorded

    @property
    def about_crashes(self) -> bool:
        return self.family in ("backward", "forward")

    def claims(self, text: str) -> bool:
        return any(re.search(pattern, text) for pattern in self.messages if pattern not in self.nominating)


@functools.cache
def all_pages() -> tuple[RulePage, ...]:
    """Every rule's page, in order of name; where two stages know the same offence, the crash's first."""
    root = pathlib.Path(__file__).parent / "rules"
    found = [page for path in sorted(root.rglob("*.py")) for page in _pages_in(path, root)]
    return tuple(sorted(found, key=lambda page: (page.name, not page.about_crashes)))


def _pages_in(path: pathlib.Path, root: pathlib.Path) -> Iterator[RulePage]:
    source = path.read_text(encoding="utf-8")
    parts = path.relative_to(root).with_suffix("").parts
    module = ".".join(("torchsleuth", "rules", *parts))
    for found in _CLASS.finditer(source):
        attributes = _attributes(source, found)
        if attributes is None:
            attributes = _imported(module, found["name"])
        if attributes.get("name"):
            name = attributes["name"]
            page = parsed_page(name, inspect.cleandoc(attributes["__doc__"]))
            yield RulePage(name, page, parts[0], module, tuple(attributes.get("messages", ())), attributes.get("priority", 0), attributes.get("nominating", ()))


def _attributes(source: str, found: re.Match[str]) -> dict[str, typing.Any] | None:
    """Docstring and attributes of one class, or None where they are not plain literals."""
    closing = source.find('"""', found.end())
    if closing < 0:
        return None
    end = _END.search(source, closing + 3)
    head = source[found.start() : end.start() if end else len(source)]
    try:
        (cls,) = ast.parse(head).body
    except (SyntaxError, ValueError):
        return None
    attributes: dict[str, typing.Any] = {"__doc__": ast.get_docstring(cls, clean=False) or ""}
    for statement in cls.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            target, value = statement.targets[0].id, statement.value
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            target, value = statement.target.id, statement.value
        else:
            continue
        if target in ("name", "messages", "priority") and value is not None:
            try:
                attributes[target] = ast.literal_eval(value)
            except (ValueError, SyntaxError):
                return None
    return attributes


def _imported(module: str, name: str) -> dict[str, typing.Any]:
    found = importlib.import_module(module)
    cls = getattr(found, name, None)
    if not (isinstance(cls, type) and issubclass(cls, Rule)):
        return {}
    return {
        "__doc__": inspect.getdoc(cls) or "",
        "name": cls.name,
        "messages": getattr(cls, "messages", ()),
        "nominating": getattr(found, "ON_THE_GPU", ()),
        "priority": getattr(cls, "priority", 0),
    }

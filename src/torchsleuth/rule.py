"""The author's contract: what a rule is, how rules are found, and the page each one carries.

A rule is one class in one file anywhere below `rules/`; nothing is registered. Its docstring is its
documentation page and what `torchsleuth explain` prints, in these sections:

    What happened
    Why
    Example
    Fix
    Common false explanations

Rules are pure: they get plain data and return `Diagnosis` values, and import neither torch nor a
stage. Which hook a rule has depends on the stage it serves; a family that can be seen in more than
one stage has more than one hook in its one file:

    diagnose(evidence)   a crash             (`CrashRule`, see `evidence.py`)
    others               lint, check, audit define their own base class beside their own evidence
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Iterator

from torchsleuth.frozen import frozen
from torchsleuth.model import Diagnosis

if typing.TYPE_CHECKING:
    from torchsleuth.evidence import Evidence

HEADINGS = ("What happened", "Why", "Example", "Fix", "Common false explanations")


class Rule:
    """Base of every rule. `name` is the offence, in kebab case, and never changes once released."""

    name: typing.ClassVar[str] = ""

    @classmethod
    def page(cls) -> Page:
        return parsed_page(cls.name, inspect.getdoc(cls) or "")


class CrashRule(Rule):
    """A rule about an exception. Its messages nominate it; only evidence convicts."""

    # Regular expressions searched in "Type: message". Empty: nominated for every torch error.
    messages: typing.ClassVar[tuple[str, ...]] = ()
    # The investigations (see `capture/`) whose findings this rule reads.
    needs: typing.ClassVar[tuple[str, ...]] = ()
    # Among nominated rules that convict, the higher one leads.
    priority: typing.ClassVar[int] = 0

    def nominated_by(self, type_name: str, message: str) -> bool:
        text = f"{type_name}: {message}"
        return not self.messages or any(re.search(pattern, text) for pattern in self.messages)

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        """The diagnosis, or None where the evidence does not bear this rule out."""
        raise NotImplementedError


@frozen
class Page:
    """A rule's documentation: the summary line and its sections in order."""

    name: str
    summary: str
    sections: tuple[tuple[str, str], ...]

    def section(self, heading: str) -> str:
        return next((text for title, text in self.sections if title == heading), "")


def parsed_page(name: str, text: str) -> Page:
    lines = text.splitlines()
    summary = lines[0] if lines else ""
    sections: list[tuple[str, list[str]]] = []
    for line in lines[1:]:
        if line.strip() in HEADINGS and not line.startswith(" "):
            sections.append((line.strip(), []))
        elif sections and not (set(line) == {"-"} and not sections[-1][1]):
            sections[-1][1].append(line)
    return Page(name, summary, tuple((title, "\n".join(body).strip("\n")) for title, body in sections))


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """One instance of every rule below `rules/`, in order of name."""
    return tuple(sorted((cls() for cls in _rule_classes()), key=lambda rule: rule.name))


def rules_of(base: type[Rule]) -> tuple[typing.Any, ...]:
    return tuple(rule for rule in all_rules() if isinstance(rule, base))


@functools.cache
def rules_below(folder: str) -> tuple[Rule, ...]:
    """The rules of one folder of `rules/`, in order of name; no other is imported for it."""
    return tuple(sorted((cls() for cls in _rule_classes(f".{folder}")), key=lambda rule: rule.name))


def _rule_classes(folder: str = "") -> Iterator[type[Rule]]:
    package = importlib.import_module(f"torchsleuth.rules{folder}")
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(found.name)
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Rule) and value.__module__ == module.__name__ and value.name:
                yield value

"""The contract of a fixer, and how fixers are found.

A fixer is one class in one file of this folder, for one rule. It is pure: from the diagnosis, the evidence and the
text of the user's files it derives text edits; it imports neither torch nor a stage that touches the program. It
offers what it can derive, best first, and nothing where the evidence does not single out an edit.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
import typing
from collections.abc import Iterator

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.script import Scripts
from torchsleuth.model import Diagnosis, Fix

MOST_SHOWN = 3
MOST_PROPOSED = 6  # verification may refute some; more than it would ever try are not kept


class Fixer:
    """Base of every fixer; `rule` is the name of the rule whose diagnoses it serves."""

    rule: typing.ClassVar[str] = ""

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        """Fixes with edits, best first; None entries are left out."""
        raise NotImplementedError


@functools.cache
def all_fixers() -> dict[str, Fixer]:
    return {cls.rule: cls() for cls in _fixer_classes()}


def _fixer_classes() -> Iterator[type[Fixer]]:
    package = importlib.import_module("torchsleuth.fixes")
    for found in pkgutil.walk_packages(package.__path__, "torchsleuth.fixes."):
        module = importlib.import_module(found.name)
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Fixer) and value.__module__ == module.__name__ and value.rule:
                yield value


def proposals(diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix]:
    """What can be applied mechanically, best first, each change once."""
    fixer = all_fixers().get(diagnosis.rule)
    if fixer is None:
        return []
    kept: list[Fix] = []
    for fix in fixer.propose(diagnosis, evidence, scripts):
        if fix is not None and fix.diff and all(fix.diff != other.diff for other in kept):
            kept.append(fix)
    return kept[:MOST_PROPOSED]


def with_fixes(diagnosis: Diagnosis, mechanical: list[Fix]) -> Diagnosis:
    """The diagnosis with these; the rule's own advice says the same in words and stays where there is nothing to apply."""
    if not mechanical:
        return diagnosis
    others = [fix for fix in diagnosis.fixes if fix.edits]
    return dataclasses.replace(diagnosis, fixes=tuple([*mechanical, *others][:MOST_SHOWN]))

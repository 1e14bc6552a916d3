"""The contract of a rule that reads source, and what it may ask about the file it reads.

A rule defines the hooks it needs; each returns nothing, one `Diagnosis` or several. `calls` names the
functions and methods whose calls `on_call` wants to see.
"""

from __future__ import annotations

import ast
import typing
from collections.abc import Iterable

from torchsleuth.linter.events import Call, ClassInfo, Frame, FunctionNode, Hazard, Write
from torchsleuth.linter.source import Source
from torchsleuth.model import Applicability, Confidence, Culprit, Diagnosis, Edit, Fact, Fix, Known, Role, Span, Status, Verdict
from torchsleuth.rule import Rule

Found = Diagnosis | Iterable[Diagnosis] | None
# An excerpt longer than this hides more than it shows.
TALLEST = 7


class View:
    """The file under lint, as rules see it."""

    def __init__(self, source: Source, interpreter: typing.Any) -> None:
        self.source = source
        self.interpreter = interpreter
        self.remarks: list[tuple[int, str]] = []  # (line, what was left alone and why), for --verbose
        self._words: dict[str, bool] = {}
        self.covered: dict[int, ast.AST] = {}  # parts of loops that a finding already speaks of
        self.callers: dict[str, list[tuple[ast.AST, bool]]] | None = None  # of each function, read when first asked for
        self.jobs: dict[tuple, typing.Any] = {}  # proofs that can be run, by (rule, span of the first culprit)

    def has(self, word: str) -> bool:
        """Whether the file contains this text at all: most rules are about words that most files do not have."""
        known = self._words.get(word)
        if known is None:
            known = self._words[word] = word in self.source.text
        return known

    def dotted(self, node: ast.AST) -> str:
        return self.interpreter.dotted(node)

    def text(self, node: ast.AST) -> str:
        return self.source.segment(node)

    def short(self, node: ast.AST, longest: int = 60) -> str:
        text = " ".join(self.text(node).split())
        return text if len(text) <= longest else text[: longest - 3] + "..."

    def culprit(self, role: Role, node: ast.AST, label: str = "", frame: Frame | None = None) -> Culprit:
        source = self.source
        first, last = node.lineno, min(node.end_lineno, node.lineno + TALLEST - 1)
        return Culprit(
            role,
            source.span(node),
            source.segment(node),
            Known.INFERRED,
            label,
            source.excerpt(first, last),
            frame.name if frame is not None else "",
        )

    def edit(self, node: ast.AST, replacement: str) -> Edit:
        return Edit(self.source.span(node), replacement, self.source.digest)

    def edit_between(self, span: Span, replacement: str) -> Edit:
        return Edit(span, replacement, self.source.digest)


class LintRule(Rule):
    default: typing.ClassVar[bool] = True  # off by default where 95 % precision is out of reach
    calls: typing.ClassVar[frozenset[str]] = frozenset()

    def on_call(self, call: Call, view: View) -> Found: ...
    def on_write(self, write: Write, view: View) -> Found: ...
    def on_hazard(self, hazard: Hazard, view: View) -> Found: ...
    def on_function(self, node: FunctionNode, frame: Frame, view: View) -> Found: ...
    def on_class(self, info: ClassInfo, view: View) -> Found: ...
    def on_loop(self, node: ast.AST, frame: Frame, body: list[ast.stmt], position: int, view: View) -> Found: ...
    def on_statement(self, node: ast.stmt, frame: Frame, view: View) -> Found: ...
    def on_module(self, tree: ast.Module, view: View) -> Found: ...

    def diagnosis(
        self, title: str, culprits: Iterable[Culprit], explanation: str, confidence: Confidence = Confidence.CERTAIN,
        facts: Iterable[str] = (), fixes: Iterable[Fix] = (),
    ) -> Diagnosis:  # fmt: skip
        return Diagnosis(
            self.name,
            title,
            confidence,
            tuple(culprits),
            tuple(Fact(text, Known.INFERRED) for text in facts),
            explanation,
            tuple(fixes),
        )


def advice(title: str, meaning: str = "") -> Fix:
    return Fix(title, Applicability.DISPLAY_ONLY, meaning=meaning)


def safe_fix(title: str, *edits: Edit, meaning: str = "") -> Fix:
    return Fix(title, Applicability.SAFE, edits, verdict=Verdict(Status.NOT_RUN, "safe by construction"), meaning=meaning)


def unsafe_fix(title: str, meaning: str, *edits: Edit) -> Fix:
    return Fix(title, Applicability.UNSAFE, edits, verdict=Verdict(Status.NOT_RUN, "not proven: only with --unsafe-fixes"), meaning=meaning)

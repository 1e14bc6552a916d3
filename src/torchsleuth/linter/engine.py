"""One file through all rules: parse once, read once, hand each event to the rules that asked for it."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
import typing
from dataclasses import dataclass, field

from torchsleuth.linter.edits import diff_of
from torchsleuth.linter.events import Call, ClassInfo, Frame, FunctionNode, Hazard, Write
from torchsleuth.linter.interpret import Interpreter
from torchsleuth.linter.lintrule import LintRule, View
from torchsleuth.linter.source import Source
from torchsleuth.model import Diagnosis, Fix

HOOKS = ("on_write", "on_hazard", "on_function", "on_class", "on_loop", "on_statement", "on_module")


@functools.cache
def lint_rules() -> tuple[LintRule, ...]:
    """One of every lint rule, by name. Only `rules/source` is imported: starting must stay cheap."""
    package = importlib.import_module("torchsleuth.rules.source")
    found = []
    for module_info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        module = importlib.import_module(module_info.name)
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, LintRule) and value.__module__ == module.__name__ and value.name:
                found.append(value())
    return tuple(sorted(found, key=lambda rule: rule.name))


@functools.cache
def _tables() -> tuple[dict[str, tuple[LintRule, ...]], dict[str, tuple[LintRule, ...]]]:
    hooks = {hook: tuple(r for r in lint_rules() if getattr(type(r), hook) is not getattr(LintRule, hook)) for hook in HOOKS}
    calls: dict[str, list[LintRule]] = {}
    for rule in lint_rules():
        for name in rule.calls:
            calls.setdefault(name, []).append(rule)
    return hooks, {name: tuple(rules) for name, rules in calls.items()}


@dataclass(slots=True)
class Outcome:
    """What lint has to say about one source."""

    diagnoses: list[Diagnosis] = field(default_factory=list)
    remarks: list[tuple[int, str]] = field(default_factory=list)
    jobs: dict[tuple, typing.Any] = field(default_factory=dict)


class _Dispatcher:
    """The interpreter's listener: each event goes to the rules that defined its hook."""

    def __init__(self, source: Source) -> None:
        self.hooks, self.calls = _tables()
        self.view = View(source, None)
        self.found: dict[tuple, Diagnosis] = {}

    def add(self, result) -> None:
        if result is None:
            return
        for diagnosis in (result,) if isinstance(result, Diagnosis) else result:
            span = diagnosis.culprits[0].span
            key = (diagnosis.rule, span)
            known = self.found.get(key)
            if known is None or ORDER[diagnosis.confidence] < ORDER[known.confidence]:
                self.found[key] = diagnosis

    def call(self, call: Call) -> None:
        for rule in self.calls.get(call.name, ()):
            self.add(rule.on_call(call, self.view))

    def write(self, write: Write) -> None:
        for rule in self.hooks["on_write"]:
            self.add(rule.on_write(write, self.view))

    def hazard(self, hazard: Hazard) -> None:
        for rule in self.hooks["on_hazard"]:
            self.add(rule.on_hazard(hazard, self.view))

    def function(self, node: FunctionNode, frame: Frame) -> None:
        for rule in self.hooks["on_function"]:
            self.add(rule.on_function(node, frame, self.view))

    def cls(self, info: ClassInfo) -> None:
        for rule in self.hooks["on_class"]:
            self.add(rule.on_class(info, self.view))

    def loop(self, node, frame: Frame, parent, position) -> None:
        for rule in self.hooks["on_loop"]:
            self.add(rule.on_loop(node, frame, parent, position, self.view))

    def statement(self, node, frame: Frame) -> None:
        for rule in self.hooks["on_statement"]:
            self.add(rule.on_statement(node, frame, self.view))


ORDER = {"certain": 0, "likely": 1, "possible": 2}


def linted(source: Source) -> Outcome:
    """Every finding in this source that no `noqa` silences, in order of place; default-off rules included."""
    if "torch" not in source.text:
        return Outcome()
    dispatcher = _Dispatcher(source)
    interpreter = Interpreter(source.tree, dispatcher)
    dispatcher.view.interpreter = interpreter
    interpreter.run()
    for rule in dispatcher.hooks["on_module"]:
        dispatcher.add(rule.on_module(source.tree, dispatcher.view))
    kept = [d for d in _said_once(_without_slow_where_wrong(list(dispatcher.found.values()))) if not _is_silenced(d, source)]
    kept.sort(key=lambda d: (_cell_order(d), d.culprits[0].span.line, d.culprits[0].span.column, d.rule))
    view = dispatcher.view
    return Outcome([_with_diffs(d, source) for d in kept], sorted(set(view.remarks)), view.jobs)


def _without_slow_where_wrong(found: list[Diagnosis]) -> list[Diagnosis]:
    """A loop that makes backward raise is said to be wrong, not slow: its rewrite would raise as well."""
    wrong = [c.span for d in found if d.rule == "inplace-over-saved" for c in d.culprits[:1]]

    def contains(d: Diagnosis) -> bool:
        loop = d.culprits[0].span
        return any(loop.file == w.file and loop.line <= w.line <= loop.end_line for w in wrong)

    return [d for d in found if d.rule != "loop-over-tensor" or not contains(d)]


def _said_once(found: list[Diagnosis]) -> list[Diagnosis]:
    """A copy at which a loss leaves the graph is spoken of by the rule that names the loss."""
    told = {d.culprits[0].span for d in found if d.rule == "loss-leaves-graph"}
    return [d for d in found if d.rule != "tensor-of-tensor" or d.culprits[0].span not in told]


def _cell_order(diagnosis: Diagnosis) -> int:
    tail = diagnosis.culprits[0].span.file.rpartition(":cell ")[2]
    return int(tail) if tail.isdigit() else 0


def _is_silenced(diagnosis: Diagnosis, source: Source) -> bool:
    if not source.noqa:
        return False
    span = diagnosis.culprits[0].span
    first = next((c.first_line - 1 for c in source.cells if f"{source.label}:cell {c.number}" == span.file), 0)
    return source.is_silenced(diagnosis.rule, (first + span.line, first + span.end_line))


def _with_diffs(diagnosis: Diagnosis, source: Source) -> Diagnosis:
    if not any(fix.edits and not fix.diff for fix in diagnosis.fixes):
        return diagnosis
    return dataclasses.replace(diagnosis, fixes=tuple(_with_diff(fix, source) for fix in diagnosis.fixes))


def _with_diff(fix: Fix, source: Source) -> Fix:
    if not fix.edits or fix.diff:
        return fix
    file = fix.edits[0].span.file
    text = source.text
    for cell in source.cells:
        if file == f"{source.label}:cell {cell.number}":
            text = "\n".join(source.lines[cell.first_line - 1 : cell.first_line - 1 + cell.lines])
    return dataclasses.replace(fix, diff=diff_of(file, text, fix.edits))

"""Findings of several gradients as one, where one slip explains them all."""

from __future__ import annotations

import ast
import dataclasses
import typing

from torchsleuth.checker import mechanics, slices, source
from torchsleuth.checker.bench import Evaluation
from torchsleuth.checker.origins import executed_lines
from torchsleuth.checker.relation import UNKNOWN
from torchsleuth.checker.trial import Finding, Relation

if typing.TYPE_CHECKING:
    from torchsleuth.checker.judgement import Judge


def located(judge: Judge, evaluation: Evaluation) -> list[Finding]:
    """The findings, with those of several gradients as one where one slip explains them all, and else nothing does.

    That is a change that mends them all, or the place that all of them come from and no right one does.
    """
    out = list(judge.findings)
    for mend in judge.mends:
        group = [f for f in out if f.kind == "values" and f.mend == mend and (f.relation is None or f.relation.kind != "other-input")]
        alike = len({_law(f.relation) for f in group}) == 1
        out = as_one(judge, out, group) if alike else as_one(judge, out, group, relation=UNKNOWN)
    open_ones = [f for f in out if f.kind == "values" and f.mend is None and _unexplained(f.relation)]
    out = as_one(judge, out, [f for f in out if f.relation is not None and f.relation.kind == "redrawn"])
    method = mechanics.methods(judge.bench)[1]
    unmended = [f for f in out if f.kind == "values" and f.mend is None]
    groups = [group for law in dict.fromkeys(map(_law, (f.relation for f in unmended))) if law != ("unknown",)
              and len(group := [f for f in unmended if _law(f.relation) == law]) > 1]  # fmt: skip
    if method is None or len(open_ones) < 2 and not groups:
        return out
    lines = executed_lines(judge.bench, evaluation, judge.subject.backward_code)
    count = len(evaluation.arguments.values)
    right = [k for k in evaluation.arguments.checked if k not in judge.bad and evaluation.settled.get(k) is not None]
    for group in groups:
        place = slices.common(method, [f.input for f in group], right, count, lines)
        if place is not None:
            out = as_one(judge, out, group, culprit=source.culprit_of(method, slices.made_of(place), ""))
    if len(open_ones) < 2:
        return out
    wrong = [f.input for f in out if f.kind == "values" and f.mend is None]
    place = slices.common(method, wrong, right, count, lines) or slices.common(method, [f.input for f in open_ones], right, count, lines)
    if place is None:
        return out
    culprit = source.culprit_of(method, slices.made_of(place), "all these gradients come through this")
    return as_one(judge, out, open_ones, culprit=culprit, detail=ast.unparse(slices.target_of(place)), relation=UNKNOWN)


def _unexplained(relation: Relation | None) -> bool:
    """At which indices a gradient is wrong, and that its values are elsewhere, tells less than what several wrong ones come through."""
    return relation is None or relation.kind in ("unknown", "permuted") or relation.kind == "condition" and relation.tensor.startswith("the index along")


def as_one(judge: Judge, findings: list[Finding], group: list[Finding], **changed: typing.Any) -> list[Finding]:
    if len(group) < 2:
        return findings
    names = tuple(judge.arguments.names[f.input] for f in group)
    culprit = changed.pop("culprit", group[0].culprit)
    if culprit is not None:
        culprit = dataclasses.replace(culprit, label="all these gradients come through this")
    whole = dataclasses.replace(group[0], names=names, culprit=culprit, **changed)
    return [whole if f is group[0] else f for f in findings if not any(f is other for other in group[1:])]


def _law(relation: Relation | None) -> tuple:
    """What several gradients may have in common: kinds that are worded for several of them, and how they are wrong."""
    if relation is not None and relation.kind == "missing-term" and relation.detail in ("missing", "only"):
        return relation.kind, relation.detail, relation.line, round(relation.factor, 9)
    if relation is None or relation.kind not in ("factor", "tensor-factor", "no-grad-output"):
        return ("unknown",)
    return relation.kind, round(relation.factor, 9), relation.tensor, relation.detail, relation.holds

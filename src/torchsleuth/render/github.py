"""Workflow commands that GitHub turns into annotations on a pull request, one line per finding."""

from __future__ import annotations

from torchsleuth.model import Confidence, Diagnosis, Report

LEVELS = {Confidence.CERTAIN: "error", Confidence.LIKELY: "warning", Confidence.POSSIBLE: "notice"}


def as_text(report: Report) -> str:
    return "".join(_annotation(diagnosis) + "\n" for diagnosis in report.diagnoses if diagnosis.culprits)


def _annotation(diagnosis: Diagnosis) -> str:
    span = diagnosis.culprits[0].span
    file, _, cell = span.file.partition(":cell ")
    properties = {"file": file, "title": f"torchsleuth ({diagnosis.rule})"}
    message = diagnosis.title if not cell else f"cell {cell}, line {span.line}: {diagnosis.title}"
    if not cell:
        properties |= {"line": str(span.line), "endLine": str(span.end_line)}
        if span.line == span.end_line:  # GitHub refuses columns on several lines
            properties |= {"col": str(span.column), "endColumn": str(span.end_column)}
    if diagnosis.fixes:
        message += f"\nFix: {diagnosis.fixes[0].title}"
    given = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{LEVELS[diagnosis.confidence]} {given}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")

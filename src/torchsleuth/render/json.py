"""The public JSON report, schema 1: the keys and words promised in the documentation, and no others lost."""

from __future__ import annotations

import json
from pathlib import Path

from torchsleuth.model import SCHEMA, Culprit, Diagnosis, Fix, Report


def as_data(report: Report) -> dict:
    exception = report.exception
    return {
        "schema": SCHEMA,
        "command": report.command,
        "outcome": report.outcome.value,
        "exception": {"type": exception.type, "message": exception.message} if exception else None,
        "diagnoses": [_diagnosis(diagnosis) for diagnosis in report.diagnoses],
        "notes": list(report.notes),
    }


def as_text(report: Report) -> str:
    return json.dumps(as_data(report), indent=1, ensure_ascii=False) + "\n"


def write(report: Report, path: str | Path) -> None:
    # A message may hold half of a surrogate pair (a file name that is no text, say), which UTF-8 has no bytes for: as in JSON, `\\udcff`.
    Path(path).write_text(as_text(report), encoding="utf-8", errors="backslashreplace")


def _diagnosis(diagnosis: Diagnosis) -> dict:
    return {
        "rule": diagnosis.rule,
        "title": diagnosis.title,
        "confidence": diagnosis.confidence.value,
        "culprits": [_culprit(culprit) for culprit in diagnosis.culprits],
        "facts": [{"text": fact.text, "evidence": fact.known.value} for fact in diagnosis.facts],
        "explanation": diagnosis.explanation,
        "fixes": [_fix(fix) for fix in diagnosis.fixes],
    }


def _culprit(culprit: Culprit) -> dict:
    span = culprit.span
    return {
        "role": culprit.role.value,
        "file": span.file,
        "line": span.line,
        "end_line": span.end_line,
        "column": span.column,
        "end_column": span.end_column,
        "source": culprit.source,
        "label": culprit.label,
        "function": culprit.function,
        "evidence": culprit.known.value,
    }


def _fix(fix: Fix) -> dict:
    return {
        "title": fix.title,
        "diff": fix.diff,
        "applicability": fix.applicability.value,
        "meaning": fix.meaning,
        "verdict": {"status": fix.verdict.status.value, "text": fix.verdict.text},
    }

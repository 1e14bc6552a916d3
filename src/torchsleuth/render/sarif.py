"""SARIF 2.1.0, as GitHub code scanning takes it: rules with their pages, results with fingerprints and fixes."""

from __future__ import annotations

import hashlib
import json
import urllib.parse
from collections import Counter
from collections.abc import Collection

from torchsleuth.model import Applicability, Confidence, Culprit, Diagnosis, Fix, Report, Span
from torchsleuth.rule import Page

LEVELS = {Confidence.CERTAIN: "error", Confidence.LIKELY: "warning", Confidence.POSSIBLE: "note"}
PRECISION = {Confidence.CERTAIN: "very-high", Confidence.LIKELY: "high", Confidence.POSSIBLE: "medium"}
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_data(report: Report, pages: dict[str, Page], version: str, problems: Collection[str] = (), succeeded: bool = True) -> dict:
    """`problems` are those of the report's notes that say what could not be linted."""
    names = sorted({diagnosis.rule for diagnosis in report.diagnoses})
    seen: Counter[str] = Counter()
    run = {
        "tool": {"driver": {"name": "torchsleuth", "version": version, "rules": [_rule(name, pages.get(name)) for name in names]}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(d, names, seen) for d in report.diagnoses if d.culprits],
        "invocations": [{
            "executionSuccessful": succeeded,
            "toolExecutionNotifications": [
                {"level": "error" if note in problems else "note", "message": {"text": note}} for note in report.notes
            ],
        }],
    }  # fmt: skip
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def as_text(report: Report, pages: dict[str, Page], version: str, problems: Collection[str] = (), succeeded: bool = True) -> str:
    return json.dumps(as_data(report, pages, version, problems, succeeded), indent=1, ensure_ascii=False) + "\n"


def _rule(name: str, page: Page | None) -> dict:
    rule: dict = {"id": name, "name": "".join(part.capitalize() for part in name.split("-"))}
    if page is not None and page.summary:
        body = "\n\n".join(f"## {title}\n\n{text}" for title, text in page.sections)
        rule["shortDescription"] = {"text": page.summary}
        rule["fullDescription"] = {"text": page.section("What happened") or page.summary}
        rule["help"] = {"text": body or page.summary, "markdown": body or page.summary}
    rule["properties"] = {"tags": ["pytorch"]}
    return rule


def _result(diagnosis: Diagnosis, names: list[str], seen: Counter[str]) -> dict:
    first, *others = diagnosis.culprits
    cell = _cell(first.span)
    message = (f"{cell}: " if cell else "") + diagnosis.title + (f"\n\n{diagnosis.explanation}" if diagnosis.explanation else "")
    result = {
        "ruleId": diagnosis.rule,
        "ruleIndex": names.index(diagnosis.rule),
        "level": LEVELS[diagnosis.confidence],
        "message": {"text": message},
        "locations": [_location(first)],
        "partialFingerprints": {"torchsleuth/v1": _fingerprint(diagnosis, first, seen)},
        "properties": {"confidence": diagnosis.confidence.value, "precision": PRECISION[diagnosis.confidence]},
    }
    if others:
        result["relatedLocations"] = [_location(other, number) for number, other in enumerate(others, 1)]
    fixes = [_fix(fix) for fix in diagnosis.fixes if _can_be_shown(fix)]
    if fixes:
        result["fixes"] = fixes
    return result


def _fingerprint(diagnosis: Diagnosis, first: Culprit, seen: Counter[str]) -> str:
    """Survives moved lines: made of the rule, the file and the text found, counted where it repeats."""
    text = f"{diagnosis.rule}|{first.span.file}|{' '.join(first.source.split())}"
    seen[text] += 1
    return f"{hashlib.sha256(text.encode()).hexdigest()[:32]}:{seen[text]}"


def _location(culprit: Culprit, number: int | None = None) -> dict:
    location: dict = {"physicalLocation": _physical(culprit.span)}
    cell = _cell(culprit.span)
    if number is not None:
        location["id"] = number
        location["message"] = {"text": culprit.label or culprit.role.value}
    if cell:
        location["logicalLocations"] = [{"name": cell}]
    return location


def _cell(span: Span) -> str:
    """The place inside a notebook; empty for other files."""
    _, _, cell = span.file.partition(":cell ")
    return f"cell {cell}, line {span.line}" if cell else ""


def _physical(span: Span) -> dict:
    file, _, cell = span.file.partition(":cell ")
    # Lines of a cell are not lines of the notebook's file. GitHub wants a line in any case, and the message names the cell.
    return {"artifactLocation": _artifact(file), "region": {"startLine": 1} if cell else _region(span)}


def _artifact(file: str) -> dict:
    path = file.replace("\\", "/")
    if path.startswith("/"):
        return {"uri": "file://" + urllib.parse.quote(path)}
    return {"uri": urllib.parse.quote(path), "uriBaseId": "%SRCROOT%"}


def _region(span: Span) -> dict:
    return {"startLine": span.line, "startColumn": span.column, "endLine": span.end_line, "endColumn": span.end_column}


def _can_be_shown(fix: Fix) -> bool:
    in_cells = any(":cell " in edit.span.file for edit in fix.edits)
    return bool(fix.edits) and not in_cells and fix.applicability is not Applicability.DISPLAY_ONLY


def _fix(fix: Fix) -> dict:
    by_file: dict[str, list] = {}
    for edit in fix.edits:
        by_file.setdefault(edit.span.file.partition(":cell ")[0], []).append(edit)
    return {
        "description": {"text": fix.title},
        "artifactChanges": [
            {
                "artifactLocation": _artifact(file),
                "replacements": [
                    {"deletedRegion": _region(e.span), "insertedContent": {"text": e.replacement}} for e in edits
                ],
            }
            for file, edits in by_file.items()
        ],
    }

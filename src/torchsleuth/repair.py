"""Fixes for diagnoses: reads the user's files, asks the fixers, has the fixes verified where that was asked for.

The stage between `diagnose` and `render`; `pipeline` calls it. Also keeps what `torchsleuth fix` applies.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import typing
from pathlib import Path

from torchsleuth import source
from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import proposals, with_fixes
from torchsleuth.fixes.script import Scripts
from torchsleuth.linter.source import LINE_END, Unreadable, decoded
from torchsleuth.model import Diagnosis, Fix, Report, from_plain, to_plain
from torchsleuth.origin import Origin, origin_of_file

LAST = os.path.join(".torchsleuth", "last.json")


def is_foreign(label: str) -> bool:
    """Not a file of the user's own: a library's, torch's, ours, or no file at all."""
    return label.startswith("<") or any(origin_of_file(path) is not Origin.USER for path in (os.path.abspath(label), os.path.realpath(label)))


def own_file(label: str) -> bytes | None:
    """The bytes of a file of the user's; None for a library's, for what is no file, and for one changed since it ran."""
    if is_foreign(label):
        return None
    path = os.path.abspath(label)
    try:
        data = Path(path).read_bytes()
        text = decoded(data)
    except (OSError, Unreadable):
        return None
    ran = source.lines_of(path)
    here = LINE_END.split(text)
    if ran and [line for line in _without_end(ran)] != _without_end(here):
        return None
    return data


def _without_end(lines: typing.Sequence[str]) -> list[str]:
    found = list(lines)
    while found and not found[-1]:
        found.pop()
    return found


def repaired(diagnoses: tuple[Diagnosis, ...], evidence: Evidence | None, verifier: typing.Any = None) -> tuple[Diagnosis, ...]:
    """The diagnoses with mechanical fixes in front of the rules' advice, verified where there is a verifier."""
    if evidence is None:
        return diagnoses
    found = []
    for diagnosis in diagnoses:
        try:
            fixes = proposals(diagnosis, evidence, Scripts(own_file))
            if verifier is not None:
                diagnosis, fixes = verifier.verified(diagnosis, fixes)
            found.append(with_fixes(diagnosis, fixes))
        except Exception:
            # Without a fix the diagnosis still stands.
            if os.environ.get("TORCHSLEUTH_DEBUG"):
                raise
            found.append(diagnosis)
    return tuple(found)


def verified(diagnoses: tuple[Diagnosis, ...], verifier: typing.Any) -> tuple[Diagnosis, ...]:
    """Diagnoses that have their fixes already, with these tried: for errors that the program handled itself."""
    found = []
    for diagnosis in diagnoses:
        fixes = [fix for fix in diagnosis.fixes if fix.edits]
        advice = [fix for fix in diagnosis.fixes if not fix.edits]
        diagnosis, fixes = verifier.verified(diagnosis, fixes)
        found.append(dataclasses.replace(diagnosis, fixes=(*fixes, *advice)))
    return tuple(found)


# -- what `torchsleuth fix` applies ---------------------------------------------------------------


def keep(report: Report) -> None:
    """Leave the applicable fixes of a report for `torchsleuth fix`; where nothing can be written, do without."""
    kept = [
        {"rule": diagnosis.rule, "title": diagnosis.title, "fixes": [to_plain(fix) for fix in diagnosis.fixes if fix.edits]}
        for diagnosis in report.diagnoses
        if any(fix.edits for fix in diagnosis.fixes)
    ]
    with contextlib.suppress(OSError):
        if not kept:
            if os.path.exists(LAST):
                os.unlink(LAST)  # an older run's fix must not pass for this one's
            return
        os.makedirs(os.path.dirname(LAST), exist_ok=True)
        partial = f"{LAST}.{os.getpid()}"
        Path(partial).write_text(json.dumps({"schema": 1, "diagnoses": kept}, indent=1), encoding="utf-8")
        os.replace(partial, LAST)


def kept() -> list[tuple[str, str, list[Fix]]]:
    """(rule, title, fixes) of the last report in this directory; empty where there is none."""
    try:
        data = json.loads(Path(LAST).read_text(encoding="utf-8"))
        return [(item["rule"], item["title"], [from_plain(Fix, fix) for fix in item["fixes"]]) for item in data["diagnoses"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []

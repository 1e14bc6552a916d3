"""Apply the fix that the last `torchsleuth run` in this directory showed.

Shows the change and asks first. Keeps the old file as FILE.orig (FILE.orig2 … if that is taken), and refuses
where a file is no longer the one the fix was made for.

exit status: 0 applied, 1 not applied, 2 nothing to apply or it cannot be applied
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from torchsleuth.cli._streams import take_any_character
from torchsleuth.errors import UsageError

SUMMARY = "apply the fix of the last report"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("number", nargs="?", type=int, default=1, metavar="N", help="which fix of the report (default: the first)")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--diff", action="store_true", help="show the change and change nothing")
    parser.add_argument("--no-backup", action="store_true", help="keep no copy of the old file")


def main(options: argparse.Namespace) -> int:
    from torchsleuth import repair
    from torchsleuth.linter.edits import edited_bytes
    from torchsleuth.linter.source import Unreadable, digest_of, source_from

    take_any_character()
    found = [(title, fix) for _, title, fixes in repair.kept() for fix in fixes]
    if not found:
        raise UsageError(
            "nothing to apply here: `torchsleuth run PROGRAM` leaves its fixes in the directory it was started in"
        )
    if not 1 <= options.number <= len(found):
        raise UsageError(f"the last report has {len(found)} fix(es) that can be applied; there is no number {options.number}")
    title, fix = found[options.number - 1]
    changes: dict[str, bytes] = {}
    for label in dict.fromkeys(edit.span.file for edit in fix.edits):
        edits = [edit for edit in fix.edits if edit.span.file == label]
        if repair.is_foreign(label):
            raise UsageError(f"{label} is not one of your own files: not changed")
        try:
            data = Path(label).read_bytes()
        except OSError as error:
            raise UsageError(f"cannot read {label}: {error.strerror}") from None
        if any(edit.source_hash != digest_of(data) for edit in edits):
            raise UsageError(f"{label} has changed since the fix was made: run `torchsleuth run` again")
        try:
            after = edited_bytes(data, label, edits)
            source_from(after, label)
        except (Unreadable, UnicodeEncodeError) as error:
            raise UsageError(f"{label}: {error}") from None
        changes[label] = after
    print(title)
    print(f"{fix.title}")
    if fix.meaning:
        print(f"Note: {fix.meaning}")
    print(fix.diff, end="")
    print(f"verified: {fix.verdict.status.value}: {fix.verdict.text}" if fix.verdict.status.value != "not-run" else "not verified: `torchsleuth run --verify` runs it first")
    if options.diff:
        return 0
    if not options.yes and not _agreed():
        print("Nothing was changed.")
        return 1
    for label, after in changes.items():
        backup = None if options.no_backup else _backup(label)
        _replace(label, after)
        print(f"changed {label}" + (f", the old one is {backup}" if backup else ""))
    return 0


def _agreed() -> bool:
    if not sys.stdin.isatty():
        print("torchsleuth: cannot ask here; --yes applies it", file=sys.stderr)
        return False
    try:
        return input("Apply this change? [y/N] ").strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        print()
        return False


def _backup(label: str) -> str:
    name, number = f"{label}.orig", 1
    while os.path.exists(name):
        number += 1
        name = f"{label}.orig{number}"
    shutil.copy2(label, name)
    return name


def _replace(label: str, data: bytes) -> None:
    """All of it or nothing, through links, with the permissions it had."""
    path = os.path.realpath(label)
    partial = f"{path}.torchsleuth-{os.getpid()}"
    try:
        Path(partial).write_bytes(data)
        shutil.copymode(path, partial)
        os.replace(partial, path)
    except OSError as error:
        if os.path.exists(partial):
            os.unlink(partial)
        raise UsageError(f"cannot write {label}: {error.strerror}") from None

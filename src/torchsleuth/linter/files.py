"""Which files a command line names: directories walked once, loops and exclusions left out, problems said."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from torchsleuth.linter.config import EXCLUDED, Config, matches

SUFFIXES = (".py", ".ipynb", ".pyw")


def files_below(paths: list[str], config: Config) -> tuple[list[str], list[str]]:
    """The files to lint, in order and each once, and a line for everything that could not be looked at."""
    found: dict[str, str] = {}
    problems: list[str] = []
    for path in paths:
        try:
            mode = os.stat(path).st_mode
        except OSError as error:
            problems.append(f"{path}: {_reason(error)}")
            continue
        if stat.S_ISDIR(mode):
            _walk(path, config, found, problems)
        elif stat.S_ISREG(mode):
            found.setdefault(os.path.realpath(path), path)
        else:
            problems.append(f"{path}: not a regular file")
    return list(found.values()), problems


def _walk(top: str, config: Config, found: dict[str, str], problems: list[str]) -> None:
    pending = [top]
    seen: set[tuple[int, int]] = set()
    while pending:
        folder = pending.pop()
        try:
            info = os.stat(folder)
            if (info.st_dev, info.st_ino) in seen:
                continue  # a symbolic link back to where we have been
            seen.add((info.st_dev, info.st_ino))
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            problems.append(f"{folder}: {_reason(error)}")
            continue
        below: list[str] = []
        for entry in entries:
            if entry.name in EXCLUDED or (config.exclude and _is_excluded(entry.path, config)):
                continue
            try:
                if entry.is_dir():
                    below.append(entry.path)
                elif entry.name.endswith(SUFFIXES):
                    if entry.is_symlink():
                        if not os.path.exists(entry.path):
                            problems.append(f"{entry.path}: a symbolic link to nothing")
                            continue
                        found.setdefault(os.path.realpath(entry.path), entry.path)
                    elif entry.is_file():
                        found.setdefault(os.path.abspath(entry.path), entry.path)
            except OSError as error:
                problems.append(f"{entry.path}: {_reason(error)}")
        pending.extend(reversed(below))


def _is_excluded(path: str, config: Config) -> bool:
    relative = os.path.relpath(os.path.abspath(path), config.root)
    return any(matches(relative, pattern) for pattern in config.exclude)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def label_of(path: str) -> str:
    """The path as reports show it: relative where it lies below the working directory."""
    try:
        relative = Path(path).resolve().relative_to(Path.cwd().resolve())
    except (ValueError, OSError):
        return path
    return relative.as_posix()

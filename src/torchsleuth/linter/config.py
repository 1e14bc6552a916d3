"""What the user asked for: `[tool.torchsleuth]` in `pyproject.toml`, with the command line on top of it."""

from __future__ import annotations

import fnmatch
import os
import tomllib
from dataclasses import field, replace
from pathlib import Path

from torchsleuth.errors import UsageError
from torchsleuth.frozen import frozen

EXCLUDED = (".git", ".hg", ".svn", ".venv", "venv", ".env", "__pycache__", "node_modules", ".tox", ".nox", ".eggs",
            ".mypy_cache", ".ruff_cache", ".pytest_cache", ".torchsleuth", ".ipynb_checkpoints", "build", "dist")  # fmt: skip
KEYS = {"select", "extend-select", "ignore", "exclude", "per-file-ignores"}


@frozen
class Config:
    root: Path = field(default_factory=Path.cwd)
    select: tuple[str, ...] | None = None  # None: the rules that are on by default
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def wants(self, rule: str, is_default: bool, file: str) -> bool:
        chosen = is_default if self.select is None else rule in self.select or "all" in self.select
        chosen = chosen or rule in self.extend_select or "all" in self.extend_select
        if not chosen or rule in self.ignore:
            return False
        return not any(matches(file, pattern) and (rule in rules or "all" in rules) for pattern, rules in self.per_file_ignores)


def matches(file: str, pattern: str) -> bool:
    """A glob on the whole path, on its end, or on one of its parts, as `exclude` of other linters has it."""
    pattern = pattern.strip("/").removeprefix("./")
    path = file.replace("\\", "/").removeprefix("./")
    if fnmatch.fnmatch(path, pattern) or fnmatch.fnmatch(path, f"*/{pattern}"):
        return True
    if fnmatch.fnmatch(path, f"{pattern}/*") or fnmatch.fnmatch(path, f"*/{pattern}/*"):
        return True
    return "/" not in pattern and any(fnmatch.fnmatch(part, pattern) for part in path.split("/"))


def found_config(start: Path, known_rules: frozenset[str]) -> Config:
    """The settings of the nearest `pyproject.toml` at or above `start` that has them."""
    start = start.resolve()
    for folder in [start, *start.parents] if os.path.isdir(start) else start.parents:
        file = folder / "pyproject.toml"
        if os.path.isfile(file):  # false, where Path.is_file raises, in a folder that may not be read
            table = _table(file)
            if table is not None:
                return _config(table, file, known_rules)
    return Config(root=Path.cwd())


def config_from(file: Path, known_rules: frozenset[str]) -> Config:
    if not os.path.isfile(file):
        raise UsageError(f"no such configuration file: {file}")
    return _config(_table(file) or {}, file, known_rules)


def _table(file: Path) -> dict | None:
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: not valid TOML: {error}") from None
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    tool = data.get("tool", {})
    return tool.get("torchsleuth") if isinstance(tool, dict) else None


def _config(table: dict, file: Path, known_rules: frozenset[str]) -> Config:
    where = f"{file}, [tool.torchsleuth]"
    if not isinstance(table, dict):
        raise UsageError(f"{where} is not a table")
    table = {**table, **table.get("lint", {})} if isinstance(table.get("lint"), dict) else dict(table)
    config = Config(root=file.parent.resolve())
    for key in ("select", "extend-select", "ignore"):
        if key in table:
            names = checked_rules(_strings(table[key], f"{where}: {key}"), known_rules, f"{where}: {key}")
            config = replace(config, **{key.replace("-", "_"): names})
    if "exclude" in table:
        config = replace(config, exclude=_strings(table["exclude"], f"{where}: exclude"))
    per_file = table.get("per-file-ignores", {})
    if not isinstance(per_file, dict):
        raise UsageError(f"{where}: per-file-ignores is not a table of patterns and rules")
    pairs = tuple(
        (pattern, checked_rules(_strings(rules, f"{where}: per-file-ignores"), known_rules, f"{where}: per-file-ignores"))
        for pattern, rules in per_file.items()
    )
    return replace(config, per_file_ignores=pairs)


def checked_rules(names: tuple[str, ...], known: frozenset[str], where: str) -> tuple[str, ...]:
    names = tuple("all" if name.lower() == "all" else name for name in names)
    for name in names:
        if name != "all" and name not in known:
            import difflib

            close = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {close[0]!r}?" if close else "; `torchsleuth lint --list-rules` lists them"
            raise UsageError(f"{where}: no rule is called {name!r}{hint}")
    return names


def _strings(value: object, where: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise UsageError(f"{where} must be a list of strings")

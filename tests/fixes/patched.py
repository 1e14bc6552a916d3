"""Takes fixes from real crashes and runs patched texts, all in forked children (see `forks`)."""

from __future__ import annotations

import json
import os
import sys
import typing
from dataclasses import dataclass
from pathlib import Path

import torch
from forks import in_fork
from programs import run_program  # noqa: F401  (tests import it from here)

from torchsleuth.linter.edits import edited_bytes
from torchsleuth.model import Diagnosis, Fix
from torchsleuth.options import Options
from torchsleuth.pipeline import Watch
from torchsleuth.program import run_script
from torchsleuth.verify.watching import Observer, number_of


def diagnosed(path: Path, cwd: Path | None = None) -> tuple[Diagnosis, ...]:
    """The diagnoses of a crashing program, with their edits."""
    return in_fork(_diagnosed, path, cwd)


def _diagnosed(path: Path, cwd: Path | None) -> tuple[Diagnosis, ...]:
    os.environ["TORCHSLEUTH_DEBUG"] = "1"
    os.chdir(cwd or path.parent)
    watch = Watch(Options(quiet=True))
    run_script(os.path.relpath(path), [], watch)
    return watch.delivered.diagnoses if watch.delivered else ()


def fixes_of(path: Path) -> list[Fix]:
    found = diagnosed(path)
    return [fix for fix in found[0].fixes if fix.edits] if found else []


@dataclass(frozen=True)
class Outcome:
    """What a program computed: numbers for what backward started from, its gradients, and the tensors it left behind."""

    error: str
    roots: list
    gradients: list
    tensors: dict


def outcome_of(text: bytes | str, path: Path) -> Outcome:
    return in_fork(_outcome, text, path)


def _outcome(text: bytes | str, path: Path) -> Outcome:
    os.chdir(path.parent)
    sys.path.insert(0, str(path.parent))
    torch.manual_seed(7)
    observer = Observer(lambda: None, lambda: None)
    observer.install()
    scope: dict[str, typing.Any] = {"__name__": "__main__", "__file__": str(path)}
    error = ""
    try:
        exec(compile(text, str(path), "exec"), scope)
    except BaseException as raised:
        error = f"{type(raised).__name__}: {raised}"
    tensors: dict[str, typing.Any] = {}
    for name, value in scope.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            tensors[name] = (list(value.shape), number_of(value))
        elif isinstance(value, torch.nn.Module):
            tensors |= {f"{name}.{inner}": (list(t.shape), number_of(t)) for inner, t in value.state_dict().items() if t.is_floating_point()}
    return Outcome(error, [list(b.roots) for b in observer.backwards], [list(map(list, b.gradients)) for b in observer.backwards], tensors)


def patched_text(path: Path, fix: Fix) -> bytes:
    files = {edit.span.file for edit in fix.edits}
    assert files == {path.name}, files
    return edited_bytes(path.read_bytes(), path.name, fix.edits)


def differences(one: Outcome, other: Outcome) -> list[str]:
    """What two runs do not agree in; variables are compared where both have one of that name."""
    found = []
    if one.error or other.error:
        found.append(f"errors: {one.error!r} and {other.error!r}")
    for name, left, right in (("roots", one.roots, other.roots), ("gradients", one.gradients, other.gradients)):
        if not _close(left, right):
            found.append(f"{name}: {left} and {right}")
    for name in sorted(set(one.tensors) & set(other.tensors)):
        if not _close(one.tensors[name], other.tensors[name]):
            found.append(f"`{name}`: {one.tensors[name]} and {other.tensors[name]}")
    return found


def _close(one: typing.Any, other: typing.Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or abs(one - other) <= 1e-5 * max(1.0, abs(one), abs(other))
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(_close(a, b) for a, b in zip(one, other, strict=True))
    return one == other


def compact(value: object) -> str:
    return json.dumps(value, default=str)[:400]

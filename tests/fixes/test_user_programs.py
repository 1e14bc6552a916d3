"""Programs as people write them: the first fix puts in exactly these lines, and the patched program runs and trains."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from patched import Outcome, diagnosed, outcome_of
from user_programs import PROGRAMS

from torchsleuth.linter.edits import edited_bytes
from torchsleuth.model import Fix

THOROUGH = bool(os.environ.get("TORCHSLEUTH_ALL"))  # also the other fixes, and the gradients against a reference
COPYING = "import torch\ntorch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t).__enter__()\n"


def _patched(folder: Path, fix: Fix) -> None:
    for label in {edit.span.file for edit in fix.edits}:
        path = folder / label
        path.write_bytes(edited_bytes(path.read_bytes(), label, [edit for edit in fix.edits if edit.span.file == label]))


def _outcome(folder: Path) -> Outcome:
    return outcome_of((folder / "main.py").read_text(), folder / "main.py")


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_fix(name: str, tmp_path: Path) -> None:
    lines, applicability, files = PROGRAMS[name]
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    diagnosis = diagnosed(tmp_path / "main.py")[0]
    fixes = [fix for fix in diagnosis.fixes if fix.edits]
    assert fixes, "no fix is offered"
    added = [line[1:] for line in fixes[0].diff.splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert added == lines
    assert fixes[0].applicability.value == applicability
    assert applicability == "safe" or fixes[0].meaning
    reference = None
    if THOROUGH and diagnosis.rule == "inplace-saved-tensor" and applicability == "safe":
        reference = outcome_of(COPYING + files["main.py"], tmp_path / "main.py")
    # What is called safe must hold wherever it stands in the list.
    for fix in [fixes[0], *(fix for fix in fixes[1:] if THOROUGH and fix.applicability.value == "safe")]:
        for file, text in files.items():
            (tmp_path / file).write_text(text)
        _patched(tmp_path, fix)
        outcome = _outcome(tmp_path)
        assert not outcome.error, fix.diff
        assert outcome.gradients and outcome.gradients[-1]
        if reference is not None:
            assert _close(outcome.gradients, reference.gradients), fix.diff


def _close(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-4 * max(1.0, abs(one), abs(other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_close(a, b) for a, b in zip(one, other, strict=True))
    return one == other

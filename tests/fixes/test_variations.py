"""Generated programs that overwrite a saved tensor: the fix gives the gradient of what the program computed."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest
from patched import differences, fixes_of, outcome_of, patched_text
from variations import held_programs, programs

ALL = programs()
# All of them take minutes; TORCHSLEUTH_ALL=1 runs them.
CHOSEN = ALL if os.environ.get("TORCHSLEUTH_ALL") else dict(list(ALL.items())[::6])
COPYING = "import torch\ntorch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t).__enter__()\n"


@pytest.mark.parametrize("name", CHOSEN)
def test_the_fix_gives_the_gradient_of_what_was_computed(name: str, tmp_path: Path) -> None:
    path = tmp_path / "prog.py"
    path.write_text(CHOSEN[name])
    plain = outcome_of(CHOSEN[name], path)
    if "modified by an inplace operation" not in plain.error:
        assert not plain.error
        return  # nothing saved what this one writes into: there is nothing to fix
    reference = outcome_of(COPYING + CHOSEN[name], path)
    fixes = fixes_of(path)
    assert fixes, "no fix is offered"
    for position, fix in enumerate(fixes):
        text = patched_text(path, fix)
        ast.parse(text)
        if position and fix.applicability.value != "safe":
            continue
        found = [d for d in differences(outcome_of(text, path), reference) if d.startswith(("errors", "roots", "gradients"))]
        assert not found, f"{fix.diff}\n{found}"


HELD = held_programs()
HELD_CHOSEN = HELD if os.environ.get("TORCHSLEUTH_ALL") else dict(list(HELD.items())[::4])


@pytest.mark.parametrize("name", HELD_CHOSEN)
def test_no_fix_called_safe_takes_the_change_from_others(name: str, tmp_path: Path) -> None:
    path = tmp_path / "prog.py"
    path.write_text(HELD_CHOSEN[name])
    fixes = fixes_of(path)
    assert fixes, "no fix is offered"
    reference = outcome_of(COPYING + HELD_CHOSEN[name], path)
    for fix in fixes:
        if fix.applicability.value == "safe":
            found = [d for d in differences(outcome_of(patched_text(path, fix), path), reference) if d.startswith(("errors", "roots", "gradients"))]
            assert not found, f"{fix.diff}\n{found}"
        else:
            assert fix.meaning

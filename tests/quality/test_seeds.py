"""The blocks of the five seed documents: what the report says of each agrees with what PyTorch does (shared/SEEDS.md)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from programs import Run, run_program

SEEDS = Path(__file__).parents[3] / "shared" / "seeds"
# (document, block): the rule and the culprit lines, by role; None where the block runs and nothing may be said.
EXPECTED = {
    ("000", 1): None,
    ("000", 2): None,
    ("000", 3): None,
    ("001", 1): None,
    ("001", 2): None,
    ("001", 3): None,
    ("001", 4): None,
    ("001", 5): None,
    ("001", 6): None,
    ("002", 1): None,
    ("002", 2): None,
    ("002", 3): None,
    ("003", 1): ("inplace-saved-tensor", {("mutate", 11), ("save", 7), ("save", 8)}),
    ("003", 2): None,
    ("003", 3): None,
    ("003", 4): None,
    ("004", 1): ("inplace-on-leaf", {("mutate", 13), ("create", 4)}),
    ("004", 2): ("inplace-on-leaf", {("mutate", 17), ("create", 4)}),
    ("004", 3): ("inplace-on-leaf", {("mutate", 16), ("create", 4)}),
}


def _block(document: str, number: int) -> str:
    (path,) = SEEDS.glob(f"{document}_*.txt")
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)[number - 1]


@pytest.mark.skipif(not SEEDS.exists(), reason="the seed documents lie beside the checkout, and are not here")
@pytest.mark.parametrize(("document", "number"), EXPECTED, ids=lambda value: str(value))
def test_the_report_agrees_with_what_pytorch_does(document: str, number: int, tmp_path: Path) -> None:
    program = tmp_path / f"seed_{document}_{number}.py"
    program.write_text(_block(document, number))
    run: Run = run_program(program, caught=True)
    expected = EXPECTED[document, number]
    if expected is None:
        assert run.status == 0, run.stderr
        assert run.diagnoses == []
        return
    rule, culprits = expected
    assert [diagnosis["rule"] for diagnosis in run.diagnoses] == [rule], run.stderr
    assert run.culprits() == culprits, run.stderr

"""A graph gone through twice after the operation log has ended: the backward calls since then are known by their lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import run_program

# Compiling something ends the log, after a few rounds that it has seen.
PROGRAM = """
import torch
from torch import nn

cell = nn.Linear(3, 3)
state = torch.zeros(2, 3)
for step in range(12):
    if step == 3:
        torch.jit.trace(torch.tanh, torch.zeros(2))
    state = torch.tanh(cell(state))
    state.sum().backward()
    if step != 9:
        state = state.detach()
"""


def test_the_backward_that_freed_it_is_not_looked_for_among_the_logged_ones_alone(tmp_path: Path) -> None:
    script = tmp_path / "late.py"
    script.write_text(PROGRAM)
    run = run_program(script)
    lines = PROGRAM.split("\n")
    carried = lines.index("    state = torch.tanh(cell(state))") + 1
    assert ("create", carried) in run.culprits(), run.stderr
    assert "backward had run 10 times before the one that failed" in run.words(), run.stderr


ON_ONE_LINE = """
import torch
from torch import nn

encoder = nn.Linear(3, 4)
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
bank = []
for step in range(12):
    z = encoder(torch.randn(2, 3)).tanh()
    if step == 3:
        torch.jit.trace(torch.tanh, torch.zeros(2))
    loss = (z @ torch.cat([z, *bank]).T).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    bank.append(z if step == 8 else z.detach())
"""


def test_a_backward_between_other_statements_of_its_line_counts(tmp_path: Path) -> None:
    script = tmp_path / "late.py"
    script.write_text(ON_ONE_LINE)
    run = run_program(script)
    made = ON_ONE_LINE.split("\n").index("    z = encoder(torch.randn(2, 3)).tanh()") + 1
    assert ("create", made) in run.culprits(), run.stderr
    assert "backward had run 9 times before the one that failed" in run.words(), run.stderr


HANDLERS = {
    "none": "    state.sum().backward()",
    "except": "    try:\n        state.sum().backward()\n    except RuntimeError:\n        print(step)\n        raise",
    "from": "    try:\n        state.sum().backward()\n    except RuntimeError as error:\n        raise RuntimeError(f'step {step}') from error",
    "finally": "    try:\n        state.sum().backward()\n    finally:\n        print(step)",
    "with": "    with torch.enable_grad():\n        state.sum().backward()",
}


@pytest.mark.parametrize("logged", [True, False], ids=["logged", "late"])
@pytest.mark.parametrize("handler", HANDLERS)
def test_the_one_that_failed_is_not_counted_where_a_handler_has_run_since(handler: str, logged: bool, tmp_path: Path) -> None:
    text = PROGRAM.replace("    state.sum().backward()", HANDLERS[handler])
    script = tmp_path / "handled.py"
    script.write_text(text.replace("step == 3", "step == 99") if logged else text)
    run = run_program(script)
    assert "backward had run 10 times before the one that failed" in run.words(), run.stderr

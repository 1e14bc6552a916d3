"""Errors that the program raises itself, in torch's own words, are not torch's."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import run_program

MESSAGES = (
    "a leaf Variable that requires grad is being used in an in-place operation.",
    "one of the variables needed for gradient computation has been modified by an inplace operation",
    "Trying to backward through the graph a second time",
    "element 0 of tensors does not require grad and does not have a grad_fn",
    "Output 0 of UnbindBackward0 is a view and is being modified inplace.",
    "Inference tensors cannot be saved for backward.",
    "grad can be implicitly created only for scalar outputs",
    "hook 'f' has changed the size of value",
)

PLAIN = """
import torch
w = torch.zeros(3, requires_grad=True)
def check(x):
    (x * 2).sum().backward()
    raise RuntimeError({message!r})
check(w)
"""

CHAINED = """
import torch
def load(path):
    try:
        return open(path).read()
    except OSError as error:
        raise RuntimeError({message!r}) from error
torch.zeros(3)
load("no such file")
"""


@pytest.mark.parametrize("text", [PLAIN, CHAINED], ids=["plain", "chained"])
@pytest.mark.parametrize("message", MESSAGES)
def test_the_programs_own_raise_is_left_alone(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "program.py"
    path.write_text(text.format(message=message))
    run = run_program(path)
    assert run.status == 1 and run.diagnoses == [], run.stderr


def test_running_out_of_stack_is_no_operations_fault(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text("import torch\ndef f(x):\n    return f(x * 1.0)\nf(torch.ones(1))\n")
    run = run_program(path)
    assert run.status == 1 and run.diagnoses == [], run.stderr


def test_a_torch_error_that_is_raised_again_stays_torchs(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "import torch\nw = torch.zeros(3, requires_grad=True)\ntry:\n    w.add_(1)\nexcept RuntimeError as error:\n"
        "    print('failed')\n    raise\n"
    )
    run = run_program(path)
    assert {("mutate", 4)} <= run.culprits(), run.stderr

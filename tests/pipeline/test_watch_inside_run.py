"""`with torchsleuth.watch():` in a program that `torchsleuth run` runs: two logs, and both name the program's own lines."""

from __future__ import annotations

from pathlib import Path

from programs import run_program

PROGRAM = """
import torch
import torchsleuth

def step():
    h = torch.ones(3, requires_grad=True).exp()
    h.sub_(1)
    h.sum().backward()

with torchsleuth.watch():
    step()
"""


def test_the_outer_log_sees_through_the_inner_one(tmp_path: Path) -> None:
    script = tmp_path / "nested.py"
    script.write_text(PROGRAM)
    run = run_program(script)
    assert run.culprits() == {("save", 6), ("mutate", 7)}, run.stderr
    assert {culprit["source"] for culprit in run.diagnoses[0]["culprits"]} == {"torch.ones(3, requires_grad=True).exp()", "h.sub_(1)"}
    assert run.stderr.count("━━ torchsleuth ━━") == 1, run.stderr  # printed once, by the inner one; the outer one writes the file

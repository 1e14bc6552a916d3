"""What `torch.compile` has made of a function runs under its first line: its nodes are found in its text, where that is possible."""

from __future__ import annotations

from pathlib import Path

from programs import run_program

HEAD = """\
import torch


def gated(x, w):
"""
TAIL = """\

w = torch.randn(3, requires_grad=True)
torch.compile(gated, backend="eager")(torch.ones(2, 3), w).backward()
"""
ONCE = """\
    h = torch.tanh(x * w)
    g = h.exp()
    h.mul_(2)
    return (g * h).sum()
"""
TWICE = """\
    h = torch.tanh(x * w)
    g = torch.tanh(h + 1)
    h.mul_(2)
    return (g * h).sum()
"""


def _run(tmp_path: Path, body: str):
    path = tmp_path / "compiled.py"
    path.write_text(HEAD + body + TAIL)
    return run_program(path)


def test_the_one_expression_that_makes_such_nodes(tmp_path: Path) -> None:
    run = _run(tmp_path, ONCE)
    assert run.diagnoses[0]["rule"] == "inplace-saved-tensor", run.stderr
    assert run.culprits() <= {("save", 5), ("mutate", 7)} and ("save", 5) in run.culprits(), run.stderr


def test_of_two_none_is_guessed(tmp_path: Path) -> None:
    run = _run(tmp_path, TWICE)
    assert run.diagnoses, run.stderr
    assert not {line for role, line in run.culprits() if role == "save"} & {5, 6}, run.stderr
    assert "def gated" not in run.words(), run.stderr

"""Two files with the same function at the same line: code objects are equal, and must not share what is known of them."""

from __future__ import annotations

from pathlib import Path

from programs import run_program

HELPER = "def shrink_(t):\n    return t.mul_({})\n"


def test_the_right_one_of_two_equal_functions_is_named(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / f"{name}.py").write_text(HELPER.format("0.5"))
    (tmp_path / "program.py").write_text(
        "import torch, first, second\n"
        "x = torch.ones(3, requires_grad=True)\n"
        "a, b = x.exp(), x.tanh()\n"
        "first.shrink_(x * 2)\n"
        "second.shrink_(b)\n"
        "(a.sum() + b.sum()).backward()\n"
    )
    run = run_program(tmp_path / "program.py")
    places = {(c["role"], c["file"], c["line"], c["source"]) for d in run.diagnoses for c in d["culprits"]}
    assert places == {("mutate", "second.py", 2, "t.mul_(0.5)"), ("save", "program.py", 3, "x.tanh()")}

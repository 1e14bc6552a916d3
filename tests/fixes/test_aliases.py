"""Who else sees a write: what shares the tensor's memory is named, what holds a copy is not."""

from __future__ import annotations

import ast

import pytest

from torchsleuth.fixes.aliases import is_seen_elsewhere
from torchsleuth.fixes.script import Script
from torchsleuth.linter.source import source_from


@pytest.mark.parametrize(
    "taken, shares",
    [
        ("x[0]", True),
        ("x[:, k]", True),
        ("x[count()]", True),  # may be a number
        ("x.view(-1)", True),
        ("x[torch.arange(len(best)), best]", False),
        ("x[scores.argmax(-1)]", False),
        ("x[mask > 0]", False),
        ("x[[0, 2]]", False),
        ("x * 2", False),
    ],
)
def test_what_shares_memory(taken: str, shares: bool) -> None:
    text = f"def f(n):\n    x = torch.zeros(n)\n    other = {taken}\n    x += 1\n    return x, other.sum()\n"
    script = Script(source_from(text.encode(), "prog.py"))
    write = next(node for node in ast.walk(script.tree) if isinstance(node, ast.AugAssign))
    assert is_seen_elsewhere(script, write, write.target) == ("`other`, which may share its memory" if shares else "")

"""Fixes of forward failures: the expected line, and the patched program runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from patched import fixes_of, outcome_of, patched_text

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
# program -> (the line as the first fix has it, safe or not)
PROGRAMS = {
    "x = torch.randn(2, 3, 4).permute(0, 2, 1)\ny = x.view(2, -1)": ("y = x.reshape(2, -1)", "safe"),
    "for n in (8, 8, 5):\n    x = torch.randn(n, 6)\n    y = x.view(8, 2, 3)": ("    y = x.view(x.size(0), 2, 3)", "safe"),
    "x = torch.rand(8, 5)\np = x / x.norm(dim=1)": ("p = x / x.norm(dim=1, keepdim=True)", "safe"),
    "x, weight = torch.rand(8, 5), torch.rand(8)\ny = x * weight": ("y = x * weight.unsqueeze(-1)", "unsafe"),
    "images = torch.rand(2, 16, 16, 3)\ny = nn.Conv2d(3, 4, 3)(images)": ("y = nn.Conv2d(3, 4, 3)(images.permute(0, 3, 1, 2))", "safe"),
    "x = torch.rand(4, 3).double()\ny = nn.Linear(3, 2)(x)": ("y = nn.Linear(3, 2)(x.float())", "safe"),
    "ids = torch.tensor([1.0, 2.0])\ny = nn.Embedding(4, 2)(ids)": ("y = nn.Embedding(4, 2)(ids.long())", "unsafe"),
    "scores, labels = torch.randn(4, 3), torch.tensor([0, 1, 2, 1])\ny = scores.gather(1, labels)": ("y = scores.gather(1, labels.unsqueeze(1))", "safe"),
    "logits, target = torch.randn(2, 7, 5), torch.zeros(2, 7, dtype=torch.long)\ny = F.cross_entropy(logits, target)": (
        "y = F.cross_entropy(logits.transpose(1, 2), target)", "safe"),
    "labels = torch.tensor([1, 2, 3, 1])\ny = F.cross_entropy(torch.randn(4, 3), labels)": ("y = F.cross_entropy(torch.randn(4, 3), labels - 1)", "unsafe"),
    "labels = torch.tensor([1, -1, 2, 0])\ny = F.cross_entropy(torch.randn(4, 3), labels)": (
        "y = F.cross_entropy(torch.randn(4, 3), labels, ignore_index=-1)", "unsafe"),
    "q = k = torch.randn(2, 7, 16)\ny = torch.bmm(q, k)": ("y = torch.bmm(q, k.transpose(-1, -2))", "unsafe"),
    "x = torch.arange(10)\nmiddle = len(x) / 2\ny = x[middle]": ("middle = len(x) // 2", "safe"),
    "rows, best = torch.randn(4, 9, 8), torch.zeros(4, 3, dtype=torch.long)\ny = rows.gather(1, best)": ("y = rows.gather(1, best[..., None].expand(-1, -1, 8))", "unsafe"),
    "norm, x = nn.LayerNorm(6), torch.randn(2, 6, 5)\ny = norm(x)": ("y = norm(x.transpose(1, -1)).transpose(1, -1)", "unsafe"),
    "norm, x = nn.BatchNorm1d(5), torch.randn(2, 6, 5)\ny = norm(x)": ("y = norm(x.transpose(1, 2)).transpose(1, 2)", "unsafe"),
    "mask = torch.rand(3) > 0.5\ny = 1 - mask": ("y = ~mask", "unsafe"),
    "rnn, x = nn.GRU(3, 4), torch.randn(2, 7, 3)\ny = rnn(x, torch.zeros(1, 2, 4))": ("rnn, x = nn.GRU(3, 4, batch_first=True), torch.randn(2, 7, 3)", "unsafe"),
    "head = nn.Linear(2 * 16, 3)\ny = head(torch.randn(4, 20))": ("head = nn.Linear(20, 3)", "unsafe"),
}  # fmt: skip


@pytest.mark.parametrize("body", PROGRAMS)
def test_the_first_fix(body: str, tmp_path: Path) -> None:
    line, applicability = PROGRAMS[body]
    path = tmp_path / "prog.py"
    path.write_text(f"{HEAD}{body}\n")
    fixes = fixes_of(path)
    assert fixes, "no fix is offered"
    text = patched_text(path, fixes[0]).decode()
    assert line in text.splitlines(), fixes[0].diff
    assert fixes[0].applicability.value == applicability
    assert applicability == "safe" or fixes[0].meaning
    assert not outcome_of(text, path).error


# Sizes that do not say which of the two is wrong, and values without a story: nothing is offered.
AMBIGUOUS = [
    "y = torch.randn(4, 5) @ torch.randn(6, 3)",
    "y = torch.randn(4, 5) + torch.randn(4, 6)",
    "x = torch.zeros(3, 4)\ny = x[1, 4]",
    "y = F.cross_entropy(torch.randn(6, 3), torch.zeros(5, dtype=torch.long))",
    "table = torch.randn(4, 2)\ny = table.index_select(0, torch.tensor([0, 9]))",
    "count = torch.zeros(3, dtype=torch.long)\ncount += torch.rand(3)",
]


@pytest.mark.parametrize("body", AMBIGUOUS)
def test_no_guess_where_the_evidence_does_not_single_out_an_edit(body: str, tmp_path: Path) -> None:
    path = tmp_path / "prog.py"
    path.write_text(f"{HEAD}{body}\n")
    assert not fixes_of(path)

"""A program that compiles its code is compiled as if nobody watched: no graph more, no break, no warning; and bugs are still found."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import torch
from torch import nn
torch.manual_seed(0)
way = sys.argv[1]

def activated(h):
    return torch.nn.functional.gelu(h) * 2

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.a, self.b = nn.Embedding(30, 16), nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, ids, mask):
        h = activated(self.a(self.emb(ids)))
        return self.b(h.mean(1))

if way == "function":
    activated = torch.compile(activated, backend="eager", fullgraph=True)
net = Net()
called = torch.compile(net, backend="eager", fullgraph=True) if way == "module" else net
if way == "in place":
    net.compile(backend="eager", fullgraph=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
mask = torch.arange(8)[None] < torch.tensor([8, 5, 3, 8])[:, None]
for _ in range(3):
    ids = torch.randint(1, 30, (4, 8)) * mask
    loss = nn.functional.cross_entropy(called(ids, mask=mask), torch.arange(4))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
from torch._dynamo.utils import counters
print(loss.item(), dict(counters["stats"]), dict(counters["graph_break"]))
"""


@pytest.mark.parametrize("way", ["module", "in place", "function"])
def test_compiled_as_if_nobody_watched(way, tmp_path):
    script = tmp_path / "main.py"
    script.write_text(PROGRAM)
    plain, watched = (
        subprocess.run([sys.executable, *command, str(script), way], capture_output=True, text=True, cwd=tmp_path)
        for command in ([], ["-m", "torchsleuth", "audit"])
    )
    assert plain.returncode == 0, plain.stderr[-2000:]
    assert watched.returncode == 0 and plain.stdout == watched.stdout, (plain.stdout, watched.stdout, watched.stderr[-2000:])
    assert not set(_warnings(watched.stderr)) - set(_warnings(plain.stderr))
    assert "padding leaks into the pooled output" in watched.stderr and "main.py:18" in watched.stderr, watched.stderr


def _warnings(text: str) -> list[str]:
    return [line for line in text.splitlines() if "Warning" in line or "Graph break" in line]

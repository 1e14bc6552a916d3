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

if way in ("function", "both"):
    activated = torch.compile(activated, backend="eager", fullgraph=True)
net = Net()
called = torch.compile(net, backend="eager", fullgraph=True) if way in ("module", "both") else net
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


@pytest.mark.parametrize("way", ["module", "in place", "function", "both"])
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


SECOND = """
import sys
import torch
from torch import nn
torch.manual_seed(0)

def trained(model, optimizer):
    for x in torch.randn(3, 8, 6):
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())

def doubled(x):
    return torch.nn.functional.gelu(x) * 2

plain = nn.Linear(6, 2)
trained(plain, torch.optim.SGD(plain.parameters(), lr=0.1))
net = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 1))
way = sys.argv[1]
called = torch.compile(net, backend="eager", fullgraph=True) if way == "module" else net
doubled = torch.compile(doubled, backend="eager", fullgraph=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
trained(called if way == "module" else lambda x: doubled(net(x)), optimizer)
from torch._dynamo.utils import counters
print(dict(counters["stats"]), dict(counters["graph_break"]))
"""


@pytest.mark.parametrize("way", ["module", "function"])
def test_compiled_after_another_model_was_trained(way, tmp_path):
    """The watch of the first model is through with its step: it must not begin with a second model that is compiled, nor go on once a function is."""
    script = tmp_path / "main.py"
    script.write_text(SECOND)
    plain, watched = (
        subprocess.run([sys.executable, *command, str(script), way], capture_output=True, text=True, cwd=tmp_path)
        for command in ([], ["-m", "torchsleuth", "audit"])
    )
    assert plain.returncode == watched.returncode == 0 and plain.stdout == watched.stdout, (plain.stdout, watched.stdout, watched.stderr[-2000:])
    assert not set(_warnings(watched.stderr)) - set(_warnings(plain.stderr))


LIBRARY = """
import torch

@torch.compile
def packed(x):
    return x * 2

@torch.jit.script
def unpacked(x):
    return x / 2
"""


def test_what_a_library_only_decorates_hides_nothing(tmp_path):
    """Functions that are wrapped while a library is imported, and never called: the step is traced all the same."""
    (tmp_path / "packing.py").write_text(LIBRARY)
    script = tmp_path / "main.py"
    script.write_text("import packing\n" + PROGRAM.replace("h.mean(1)", "h.detach().mean(1)"))
    run = subprocess.run([sys.executable, "-m", "torchsleuth", "audit", str(script), "none"], capture_output=True, text=True, cwd=tmp_path)
    assert "gradient-cut" in run.stderr and "main.py:19" in run.stderr, run.stderr
    assert "compiles" not in run.stderr, run.stderr


def test_half_a_step_is_no_evidence(tmp_path):
    """Compiled code that is called in the middle of the forward pass: what comes after it is not seen, and not missed."""
    script = tmp_path / "main.py"
    script.write_text(PROGRAM.replace("h.mean(1)", "(h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)"))
    run = subprocess.run([sys.executable, "-m", "torchsleuth", "audit", str(script), "function"], capture_output=True, text=True, cwd=tmp_path)
    assert "found nothing" in run.stderr and "compiles its code" in run.stderr, run.stderr


def _warnings(text: str) -> list[str]:
    return [line for line in text.splitlines() if "Warning" in line or "Graph break" in line]

"""How long an audit takes, in forward passes of the same model; what the first one of a process adds, and what watching adds to a program's first step."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import typing

import torch
import torch.nn.functional as F
from torch import nn

import torchsleuth
from torchsleuth.auditor.laboratory.runner import Runner
from torchsleuth.auditor.program.live import StepWatch


class Classifier(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.emb = nn.Embedding(1000, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(width, 5)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        h = self.enc(self.emb(ids), src_key_padding_mask=~mask)
        return self.out((h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))


def batch(size: int, length: int, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    ids = torch.randint(1, 1000, (size, length), device=device)
    mask = torch.arange(length, device=device)[None] < torch.randint(length // 2, length + 1, (size, 1), device=device)
    mask[0] = True
    return ids.masked_fill(~mask, 0), mask, torch.randint(0, 5, (size,), device=device)


# On a CPU its own time: a shared machine interrupts an audit more often than it does one short forward pass.
clock = time.perf_counter if torch.cuda.is_available() else time.process_time


def seconds(work, rounds: int = 1) -> float:
    times = []
    for _ in range(rounds):
        _wait()
        began = clock()
        work()
        _wait()
        times.append(clock() - began)
    return statistics.median(times)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def cases(device: str):
    mlp = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))
    yield "MLP 20-64-5, batch 16", mlp.to(device), (torch.randn(16, 20, device=device),), torch.randint(0, 5, (16,), device=device)
    conv = [nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.BatchNorm2d(64), nn.ReLU()]
    cnn = nn.Sequential(*conv, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 5))
    yield "CNN, batch 16 x 3 x 32 x 32", cnn.to(device), (torch.randn(16, 3, 32, 32, device=device),), torch.randint(0, 5, (16,), device=device)
    shapes = [(16, 1, 4, 8), (128, 2, 16, 64), (256, 4, 32, 128)]
    if device == "cuda":
        shapes += [(768, 12, 32, 128)]
    for width, layers, size, length in shapes:
        ids, mask, goal = batch(size, length, device)
        yield f"encoder {layers} x {width}, batch {size} x {length}", Classifier(width, layers).to(device), (ids, mask), goal


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)  # the clock counts the work of all threads
    torch.manual_seed(0)  # how much of a batch is padding decides how many experiments there are
    print(f"\naudit ({device}): time in forward passes of the same model, train mode, with a loss; ratios within rounds, median of 7")
    print(f"{'model':<38}{'forward':>10}{'audit':>10}{'ratio':>8}{'passes':>8}{'first step':>13}{'watched':>10}")
    for name, model, inputs, goal in cases(device):
        torch.manual_seed(0)

        def loss(out: torch.Tensor, goal: torch.Tensor = goal) -> torch.Tensor:
            return F.cross_entropy(out, goal)

        def audit(model=model, inputs=inputs, loss=loss) -> typing.Any:
            return torchsleuth.audit(model, inputs if len(inputs) > 1 else inputs[0], loss_fn=loss)

        for _ in range(3):  # the first ones also compile and import
            report = audit()
            loss(model(*inputs))
        assert not report.diagnoses, report
        rounds = [(seconds(lambda: loss(model(*inputs)), 5), seconds(audit)) for _ in range(7)]  # noqa: B023
        forward, audited = (statistics.median(r[i] for r in rounds) for i in (0, 1))
        ratio = statistics.median(b / a for a, b in rounds)
        steps = [(seconds(lambda: _step(model, inputs, goal)), seconds(lambda: _watched_step(model, inputs, goal))) for _ in range(7)]  # noqa: B023
        plain, watched = statistics.median(a for a, _ in steps), statistics.median(b / a for a, b in steps)
        print(f"{name:<38}{forward * 1e3:>8.2f}ms{audited * 1e3:>8.1f}ms{ratio:>8.1f}{_passes(audit):>8}{plain * 1e3:>11.1f}ms{watched:>9.2f}x")
    _first_in_a_process()


_FIRST = """
import time
began = time.process_time()
import torch
imported = time.process_time() - began
from torch import nn
import torchsleuth
model, x = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2), torch.randn(8, 16, 64)
for _ in range(20):
    model(x)
times = []
for _ in range(3):
    began = time.process_time()
    torchsleuth.audit(model, x)
    times.append(time.process_time() - began)
print(imported, *times)
"""


def _first_in_a_process() -> None:
    """In processes of their own: `import torch`, and an audit that imports what it needs beside those after it."""
    runs = [[float(n) for n in subprocess.run([sys.executable, "-c", _FIRST], capture_output=True, text=True, check=True).stdout.split()] for _ in range(5)]
    imported, first, second, third = (statistics.median(run[i] for run in runs) * 1e3 for i in range(4))
    print(f"first audit of a process: {first:.0f} ms ({first / imported:.2f} of `import torch`), the second {second:.0f} ms, the third {third:.0f} ms")


def _passes(audit: typing.Callable) -> int:
    """Forward passes that one audit makes."""
    counts, original = [0], Runner.run

    def counted(self, *args, **kwargs):
        counts[0] += 1
        return original(self, *args, **kwargs)

    Runner.run = counted
    try:
        audit()
    finally:
        Runner.run = original
    return counts[0]


def _step(model: nn.Module, inputs: tuple, goal: torch.Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    F.cross_entropy(model(*inputs), goal).backward()
    optimizer.step()
    optimizer.zero_grad()


def _watched_step(model: nn.Module, inputs: tuple, goal: torch.Tensor) -> None:
    watch = StepWatch()
    watch.start()
    _step(model, inputs, goal)
    watch.stop()


if __name__ == "__main__":
    main()

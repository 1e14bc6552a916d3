"""How long an audit takes, in forward passes of the same model; and what watching adds to a program's first step."""

from __future__ import annotations

import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

import torchsleuth
from torchsleuth.auditor.live import StepWatch


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


def seconds(work, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        _wait()
        began = time.perf_counter()
        work()
        _wait()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"\naudit ({device}): time in forward passes of the same model, train mode, with a loss")
    print(f"{'model':<38}{'forward':>10}{'audit':>10}{'ratio':>8}{'first step':>13}{'watched':>10}")
    for width, layers, size, length in ((16, 1, 4, 8), (128, 2, 16, 64), (256, 4, 32, 128)):
        torch.manual_seed(0)
        model = Classifier(width, layers).to(device)
        ids, mask, goal = batch(size, length, device)

        def loss(out: torch.Tensor, goal: torch.Tensor = goal) -> torch.Tensor:
            return F.cross_entropy(out, goal)

        forward = seconds(lambda: model(ids, mask), 9)  # noqa: B023
        report = torchsleuth.audit(model, (ids, mask), loss_fn=loss)  # the first one also compiles and imports
        assert not report.diagnoses, report
        audit = seconds(lambda: torchsleuth.audit(model, (ids, mask), loss_fn=loss), 3)  # noqa: B023
        plain = seconds(lambda: _step(model, ids, mask, goal), 5)  # noqa: B023
        watched = seconds(lambda: _watched_step(model, ids, mask, goal), 5)  # noqa: B023
        name = f"encoder {layers} x {width}, batch {size} x {length}"
        print(f"{name:<38}{forward * 1e3:>8.1f}ms{audit * 1e3:>8.0f}ms{audit / forward:>8.1f}{plain * 1e3:>11.1f}ms{watched / plain:>9.2f}x")


def _step(model: nn.Module, ids: torch.Tensor, mask: torch.Tensor, goal: torch.Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    F.cross_entropy(model(ids, mask), goal).backward()
    optimizer.step()
    optimizer.zero_grad()


def _watched_step(model: nn.Module, ids: torch.Tensor, mask: torch.Tensor, goal: torch.Tensor) -> None:
    watch = StepWatch()
    watch.start()
    _step(model, ids, mask, goal)
    watch.stop()


if __name__ == "__main__":
    main()

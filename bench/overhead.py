"""What recording costs a training step in its steady state, beside anomaly mode and a bare TorchFunctionMode.

python -m bench.overhead            a hand-written transformer bound by Python and dispatch
python -m bench.overhead --bert     BERT-base 128x256 on a GPU, if there is one
"""

from __future__ import annotations

import argparse
import contextlib
import math
import statistics
import sys
import time

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from torchsleuth.record.recorder import Recorder


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, self.heads, -1).transpose(1, 2)
        k = self.k(x).view(batch, length, self.heads, -1).transpose(1, 2)
        v = self.v(x).view(batch, length, self.heads, -1).transpose(1, 2)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
        weights = scores.softmax(-1)
        return self.o((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.before(x))
        hidden = torch.relu(self.up(self.between(x)))
        return x + self.down(hidden)


class Transformer(nn.Module):
    def __init__(self, width: int = 64, layers: int = 4, length: int = 16, words: int = 100) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.place = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.out = nn.Linear(width, words)

    def forward(self, x):
        hidden = self.embed(x) + self.place
        for block in self.blocks:
            hidden = block(hidden)
        return self.out(hidden)


def tiny_step():
    model = Transformer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randint(0, 100, (4, 16)), torch.randint(0, 100, (4, 16))

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()

    return step


def bert_step(batch: int, length: int):
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(BertConfig()).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x = torch.randint(0, 30000, (batch, length), device="cuda")

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=x, labels=x).loss
        loss.backward()
        optimizer.step()

    return step


@contextlib.contextmanager
def recorded(exact_seconds):
    recorder = Recorder(exact_seconds=exact_seconds)
    recorder.start()
    try:
        yield
    finally:
        recorder.stop()


class Bare(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


CONTEXTS = {
    "plain": contextlib.nullcontext,
    "torchsleuth, steady state": lambda: recorded(0),
    "torchsleuth, exact log (first seconds)": lambda: recorded(3600.0),
    "a bare TorchFunctionMode": Bare,
    "set_detect_anomaly": lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
}


def measure(step, steps: int, rounds: int) -> dict[str, float]:
    """Time of a step in each context (the fastest tenth, so that other work on the machine does not count);
    the contexts take turns, so that drift hits all alike."""
    synchronize = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    for _ in range(3):
        step()
    times: dict[str, list[float]] = {name: [] for name in CONTEXTS}
    for _ in range(rounds):
        for name, context in CONTEXTS.items():
            with context():
                step()
                synchronize()
                for _ in range(steps):
                    began = time.perf_counter()
                    step()
                    synchronize()
                    times[name].append(time.perf_counter() - began)
    return {name: statistics.quantiles(values, n=10)[0] for name, values in times.items()}


def table(title: str, result: dict[str, float]) -> None:
    print(f"\n{title}; Python {sys.version.split()[0]}, torch {torch.__version__}")
    plain = result["plain"]
    for name, seconds in result.items():
        print(f"  {name:<42} {seconds * 1e3:9.3f} ms  {seconds / plain:5.2f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bert", action="store_true")
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.bert:
        if not torch.cuda.is_available():
            raise SystemExit("no GPU here")
        for batch, length in ((32, 128), (128, 256)):
            table(f"BERT-base {batch}x{length}, {torch.cuda.get_device_name()}", measure(bert_step(batch, length), 6, options.rounds))
    else:
        torch.set_num_threads(1)
        table("hand-written transformer d=64 L=4 S=16 B=4, one CPU thread", measure(tiny_step(), 12, options.rounds))


if __name__ == "__main__":
    main()

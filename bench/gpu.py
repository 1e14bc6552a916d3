"""All GPU tests and what the black box costs, in one command on a machine with a GPU.

python -m bench.gpu             the tests of tests/device, then the tables
python -m bench.gpu --no-tests  the tables only

Contexts take turns round by round, because the clock of a GPU and the load of its host drift; a ratio is that of the lower
quartiles. `CUDA_LAUNCH_BLOCKING=1`, the usual advice, is read when CUDA starts:
it runs in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gc
import json
import os
import statistics
import subprocess
import sys
import time
import typing
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from bench.overhead import bert_step
from torchsleuth.record.blackbox.box import BlackBox
from torchsleuth.record.recorder import Recorder


class Recommender(nn.Module):
    """26 tables of categories and 13 numbers, as in the usual click-through models: bound by launches, not by the GPU."""

    def __init__(self, rows: int = 10_000, width: int = 16) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(26))
        self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width))
        self.top = nn.Sequential(nn.Linear(27 * width, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, numbers, categories):
        parts = [self.bottom(numbers)]
        for column, table in enumerate(self.tables):
            parts.append(table(categories[:, column]))
        return self.top(torch.cat(parts, 1))


def recommender_step(batch: int = 2048):
    model = Recommender().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = [
        tuple(tensor.pin_memory() for tensor in (torch.randn(batch, 13), torch.randint(0, 10_000, (batch, 26)), torch.rand(batch, 1)))
        for _ in range(8)
    ]
    turn = 0

    def step():
        nonlocal turn
        turn += 1
        numbers, categories, clicks = (tensor.cuda(non_blocking=True) for tensor in batches[turn % 8])
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(numbers, categories), clicks)
        loss.backward()
        optimizer.step()

    return step


@contextlib.contextmanager
def boxed():
    box = BlackBox()
    box.arm_with_cuda()
    assert not box.broken, box.broken
    try:
        yield
    finally:
        box.disarm()


@contextlib.contextmanager
def recorded():
    recorder = Recorder(exact_seconds=0)
    recorder.start()
    try:
        yield
    finally:
        recorder.stop()


@dataclass(frozen=True)
class Workload:
    make: typing.Callable[[], typing.Callable[[], None]]
    steps: int  # timed at a stretch
    rounds: int
    until_familiar: int  # steps after which the recorder leaves library functions alone: its steady state

    def short(self) -> typing.Callable[[], None]:
        step = self.make()
        for _ in range(5):
            step()
        gc.collect()
        gc.freeze()  # what is alive by now is not looked at again
        return step


# Library functions are left alone after a thousand calls, that is after some 90 steps of a model of 12 layers.
WORKLOADS = {
    "BERT-base 32x128": Workload(lambda: bert_step(32, 128), 5, 50, 90),
    "BERT-base 128x256": Workload(lambda: bert_step(128, 256), 3, 10, 2),
    "recommender, 26 tables": Workload(recommender_step, 20, 80, 3),
}
AGAIN, BOX, RUN, BLOCKING = "plain again (noise)", "the black box", "torchsleuth run, steady state", "CUDA_LAUNCH_BLOCKING=1"


def measured(step, contexts: dict, steps: int, rounds: int, before: int) -> dict[str, list[float]]:
    """Seconds per step, round by round. `before` steps come first in each, and what they left behind is collected:
    a program begins to record once, not sixty times."""
    times: dict[str, list[float]] = {name: [] for name in contexts}
    for turn in range(rounds):
        order = list(contexts.items())
        for name, context in order if turn % 2 else reversed(order):
            with context():
                for _ in range(before):
                    step()
                gc.collect()
                torch.cuda.synchronize()
                began = time.perf_counter()
                for _ in range(steps):
                    step()
                torch.cuda.synchronize()
                times[name].append((time.perf_counter() - began) / steps)
    return times


def usual(times: list[float]) -> float:
    """The lower quartile: what else the host does only ever adds to a time."""
    return statistics.quantiles(times, n=4)[0]


def ratio(times: dict[str, list[float]], name: str) -> float:
    return usual(times[name]) / usual(times["plain"])


def blocking(name: str) -> float:
    """Seconds a plain step takes with CUDA_LAUNCH_BLOCKING=1."""
    environment = {**os.environ, "CUDA_LAUNCH_BLOCKING": "1"}
    command = [sys.executable, "-m", "bench.gpu", "--one", name]
    return json.loads(subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout.splitlines()[-1])


def one(name: str) -> None:
    workload = WORKLOADS[name]
    times = measured(workload.short(), {"plain": contextlib.nullcontext}, workload.steps, 5, 1)
    print(json.dumps(usual(times["plain"])))


def tables() -> None:
    print(f"\n{datetime.date.today()}, {torch.cuda.get_device_name()}, Python {sys.version.split()[0]}, torch {torch.__version__}")
    print(f"{'a training step':<28}{'plain':>10}" + "".join(f"{name:>32}" for name in (AGAIN, BOX, RUN, BLOCKING)))
    plain = contextlib.nullcontext
    for name, workload in WORKLOADS.items():
        step = workload.short()
        boxes = measured(step, {"plain": plain, BOX: boxed, AGAIN: plain}, workload.steps, workload.rounds, 3)
        runs = measured(step, {"plain": plain, RUN: recorded}, 4 * workload.steps, 4, workload.until_familiar)
        plainly = usual(boxes["plain"])
        ratios = [ratio(boxes, AGAIN), ratio(boxes, BOX), ratio(runs, RUN), blocking(name) / plainly]
        print(f"{name:<28}{plainly * 1e3:>7.2f} ms" + "".join(f"{one:>31.3f}x" for one in ratios), flush=True)
        torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-tests", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("no GPU here")
    torch.manual_seed(0)
    if options.one:
        return one(options.one)
    status = 0
    if not options.no_tests:
        parallel = ["-n", "8"] if importlib_can("xdist") else []
        tests = Path(__file__).parent.parent / "tests" / "device"
        status = subprocess.run([sys.executable, "-m", "pytest", "-q", *parallel, str(tests)]).returncode
    tables()
    raise SystemExit(status)


def importlib_can(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


if __name__ == "__main__":
    main()

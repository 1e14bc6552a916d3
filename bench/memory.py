"""10,000 steps under the recorder: is memory flat? And how long does a report take on a graph of 20,000 nodes?"""

from __future__ import annotations

import resource
import sys
import time

import torch

from bench.overhead import tiny_step
from torchsleuth.capture.collect import collect
from torchsleuth.capture.crash import Crash
from torchsleuth.diagnose import diagnose
from torchsleuth.record.recorder import Recorder


def resident() -> float:
    """Resident memory in MiB, now (not at its peak)."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def flat_memory(steps: int = 10_000) -> None:
    step = tiny_step()
    recorder = Recorder()
    recorder.start()
    for _ in range(600):
        step()
    before = resident()
    for _ in range(steps):
        step()
    after = resident()
    ring = recorder.recording.ring
    recorder.stop()
    columns = (ring.sequences, ring.codes, ring.wheres, ring.threads)
    print(f"\n{steps} steps: resident {before:.0f} MiB -> {after:.0f} MiB; {ring.written} events, ring {sum(len(c) * 8 for c in columns) / 2**20:.0f} MiB")


def report_time(nodes: int = 20_000) -> None:
    for exact in (3600.0, 0):
        recorder = Recorder(exact_seconds=exact)
        recorder.start()
        x = torch.ones(4, requires_grad=True)
        h = x * 1
        saved = h.exp()
        for _ in range(nodes // 2):
            h = h + 1
            h = h * 1.0001
        saved += 1
        try:
            (h + saved).sum().backward()
        except RuntimeError as error:
            recorder.stop()
            began = time.perf_counter()
            crash = Crash(error, recorder.recording)
            (found,), _ = diagnose("RuntimeError", str(error), lambda needs, crash=crash: collect(crash, needs))
            seconds = time.perf_counter() - began
            print(f"graph of {len(crash.nodes)} nodes, {'operation log' if exact else 'ring only'}: report in {seconds:.2f} s ({found.title})")


def main() -> None:
    torch.set_num_threads(1)
    report_time()
    flat_memory(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)


if __name__ == "__main__":
    main()

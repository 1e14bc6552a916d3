"""What `torchsleuth run` adds to a program that does nothing but import torch, and to `--help` and `explain`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def seconds(command: list[str], rounds: int = 7) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run(command, check=False, capture_output=True)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "nothing.py"
        script.write_text("import torch\nprint(torch.ones(2))\n")
        plain = seconds([sys.executable, str(script)])
        watched = seconds([sys.executable, "-m", "torchsleuth", "run", str(script)])
    python = seconds([sys.executable, "-c", "pass"])
    explain = seconds([sys.executable, "-m", "torchsleuth", "explain", "inplace-saved-tensor"])
    print(f"\nimport torch: plain {plain:.2f} s, watched {watched:.2f} s: {watched - plain:+.2f} s")
    print(f"torchsleuth explain: {explain:.2f} s (python alone {python:.2f} s)")


if __name__ == "__main__":
    main()

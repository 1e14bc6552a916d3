"""How fast `lint` reads: against torchfix on the same files in the same run, and the whole transformers package cold and warm.

python -m bench.lint              needs transformers; torchfix is compared where it is installed
python -m bench.lint --files 60   fewer files for the comparison
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=200, help="how many files of transformers to compare on")
    options = parser.parse_args([] if arguments is None else arguments)
    found = importlib.util.find_spec("transformers")
    if found is None:
        print("bench.lint: transformers is not installed; nothing to read")
        return
    package = Path(found.origin).parent
    everything = sorted(package.rglob("*.py"))
    against_torchfix(random.Random(0).sample(everything, min(options.files, len(everything))))
    whole_package(package, everything)


def lines_of(files: list[Path]) -> int:
    return sum(file.read_bytes().count(b"\n") for file in files)


def seconds(command: list[str], **options) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    took = time.perf_counter() - began
    assert done.returncode in (0, 1), f"{command[:3]} ended with {done.returncode}"
    return took


def against_torchfix(files: list[Path]) -> None:
    """Both tools on a copy of the same files, each as a command, nothing cached."""
    torchfix = shutil.which("torchfix", path=os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", ""))
    with tempfile.TemporaryDirectory() as folder:
        for number, file in enumerate(files):
            shutil.copy(file, Path(folder) / f"m{number:04}_{file.name}")
        count = lines_of(files)
        print(f"\nlint: {len(files)} files of transformers, {count} lines, cold")
        ours = seconds([sys.executable, "-m", "torchsleuth", "lint", "--no-cache", "--format", "concise", folder])
        print(f"  torchsleuth lint   {ours:7.1f} s  {count / ours:8.0f} lines/s")
        if torchfix is None:
            print("  torchfix           not installed here")
            return
        theirs = seconds([torchfix, "--select=ALL", folder])
        print(f"  torchfix           {theirs:7.1f} s  {count / theirs:8.0f} lines/s")
        print(f"  ratio              {theirs / ours:7.1f} x")


def whole_package(package: Path, files: list[Path]) -> None:
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "torchsleuth", "lint", "--cache-dir", cache, "--format", "json", str(package)]
        cold, warm = seconds(command), seconds(command)
        report = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
        count = lines_of(files)
        print(f"\nlint: all of transformers, {len(files)} files, {count} lines, {len(report['diagnoses'])} findings")
        print(f"  cold cache         {cold:7.1f} s  {count / cold:8.0f} lines/s")
        print(f"  warm cache         {warm:7.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])

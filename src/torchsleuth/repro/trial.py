"""Runs candidate programs, each in a process of its own, and reports how each failed: `python -m torchsleuth.repro.trial JOB`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main(path: str) -> None:
    job = json.loads(Path(path).read_text())
    import torch

    torch.set_num_threads(1)
    for number, text in enumerate(job["programs"]):
        found = _outcome(text, os.path.join(job["folder"], f"{number}.py"))
        if found is not None and _matches(found, job):
            Path(job["answer"]).write_text(json.dumps({"chosen": number}))
            return
    Path(job["answer"]).write_text(json.dumps({"chosen": None}))


def _matches(found: dict, job: dict) -> bool:
    return found["type"] == job["type"] and found["rule"] == job["rule"] and loose_shape(found["message"]) == loose_shape(job["message"])


def loose_shape(message: str) -> str:
    """A message without its numbers, sizes, names of operations and addresses."""
    import re

    text = message.split(" Hint:")[0].splitlines()[0] if message else ""
    text = re.sub(r"\[[^\[\]]*\]", "#", text)
    text = re.sub(r"\[[^\[\]]*\]", "#", text)
    text = re.sub(r", which is output \d+ of [\w:]+,", "", text)
    text = re.sub(r"\(\d[\d, x]*\)|-?\d+(\.\d+)?", "#", text)
    text = re.sub(r"\b[Ff]unction \w+Backward\b", "function Backward", text)
    text = re.sub(r"#+([x, ]+#+)*", "#", text)
    return re.sub(r"[Oo]utput # of \w+", "output", text)


def _outcome(text: str, path: str) -> dict | None:
    """Type, message and rule of the failure of one program, from a fork of this process."""
    Path(path).write_text(text)
    answer = f"{path}.answer"
    child = os.fork()
    if child == 0:
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            from torchsleuth.options import Options
            from torchsleuth.pipeline import Watch
            from torchsleuth.program import run_script

            watch = Watch(Options(quiet=True))
            run_script(path, [], watch)
            report = watch.delivered
            if report is not None and report.exception is not None:
                data = {"type": report.exception.type, "message": report.exception.message, "rule": report.diagnoses[0].rule}
                Path(answer).write_text(json.dumps(data))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    try:
        return json.loads(Path(answer).read_text())
    except (OSError, ValueError):
        return None


if __name__ == "__main__":
    main(sys.argv[1])

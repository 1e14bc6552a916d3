"""Builds the candidates, has them run, and writes the first that fails as the user's program did."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from torchsleuth.evidence import Evidence
from torchsleuth.model import Diagnosis
from torchsleuth.repro import backward, forward, gradients

MOST_TRIED = 16
SECONDS = 90.0


def programs(diagnosis: Diagnosis, evidence: Evidence) -> list[str]:
    """Candidate reproductions as program texts, most faithful first."""
    lines = itertools.chain(backward.candidates(diagnosis.rule, evidence), gradients.candidates(diagnosis.rule, evidence), forward.candidates(evidence))
    texts = ["\n".join([*_head(diagnosis, evidence), "import torch", "", *body, ""]) for body in lines]
    return list(dict.fromkeys(texts))[:MOST_TRIED]


def _head(diagnosis: Diagnosis, evidence: Evidence) -> list[str]:
    exception = evidence.exception
    message = exception.message.split(" Hint:")[0].splitlines()[0][:110] if exception.message else ""
    return [f"# {exception.type}: {message}", f"# torchsleuth: {diagnosis.rule}"]


def reproduction(diagnosis: Diagnosis, evidence: Evidence) -> str | None:
    """A program that was run and failed in the same way, or None."""
    texts = programs(diagnosis, evidence)
    if not texts:
        return None
    with tempfile.TemporaryDirectory(prefix="torchsleuth-repro-") as folder:
        job, answer = os.path.join(folder, "job.json"), os.path.join(folder, "answer.json")
        data = {
            "programs": texts, "folder": folder, "answer": answer, "rule": diagnosis.rule,
            "type": evidence.exception.type, "message": evidence.exception.message,
        }  # fmt: skip
        Path(job).write_text(json.dumps(data))
        try:
            subprocess.run(
                [sys.executable, "-m", "torchsleuth.repro.trial", job], cwd=folder, timeout=SECONDS,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
            )  # fmt: skip
            chosen = json.loads(Path(answer).read_text())["chosen"]
        except (OSError, ValueError, KeyError, subprocess.TimeoutExpired):
            return None
    return texts[chosen] if chosen is not None else None


def write(diagnosis: Diagnosis, evidence: Evidence, path: str) -> str:
    """Write it where it was asked for; the line to tell the user."""
    text = reproduction(diagnosis, evidence)
    if text is None:
        return f"no reproduction was written: none that torchsleuth could make from the evidence failed as {evidence.exception.type} for this reason"
    try:
        Path(path).write_text(text)
    except OSError as error:
        return f"the reproduction could not be written to {path}: {error.strerror}"
    return f"{path}: {len(text.splitlines())} lines that raise the same error for the same reason (run and checked)"

"""Runs a loop and its rewrite against one another, in a process of its own, and says what that showed.

This process never imports torch: jobs go as lines of JSON to `prover.py`, started on the first job and kept for
the rest of the run. A job that hangs or kills the process costs only itself.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import torchsleuth
from torchsleuth.frozen import frozen
from torchsleuth.linter.vectorise.region import Job
from torchsleuth.model import Status

STARTING_S = 120
ONE_JOB_S = 60


@frozen
class Proof:
    status: Status
    text: str
    facts: tuple[str, ...] = ()


def proved(jobs: Iterable[Job | str]) -> list[Proof]:
    """A proof for each job, in order; a job that is a string is a reason why nothing can be run."""
    return [_PROVER.prove(job) if isinstance(job, Job) else Proof(Status.NOT_RUN, job) for job in jobs]


class _Prover:
    def __init__(self) -> None:
        self.process: subprocess.Popen | None = None
        self.broken = ""
        self.buffer = b""

    def prove(self, job: Job) -> Proof:
        if self.broken:
            return Proof(Status.NOT_RUN, self.broken)
        starting = self.process is None
        try:
            if starting:
                self._start()
            self.process.stdin.write(json.dumps(job.as_data()).encode() + b"\n")
            self.process.stdin.flush()
            line = self._line(STARTING_S if starting else ONE_JOB_S)
        except OSError:
            line = None
        if line is None:
            self.stop()
            return Proof(Status.NOT_RUN, "not proven: the loop or its rewrite did not come to an end")
        answer = json.loads(line)
        if answer.get("fatal"):
            self.broken = answer["fatal"]
            return Proof(Status.NOT_RUN, self.broken)
        return Proof(Status(answer["status"]), answer["text"], tuple(answer.get("facts", ())))

    def _start(self) -> None:
        root = str(Path(torchsleuth.__file__).parent.parent)
        program = f"import sys; sys.path.insert(0, {root!r}); from torchsleuth.linter.prover import main; main()"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "CUDA_VISIBLE_DEVICES": ""}
        environment.pop("PYTHONPATH", None)
        # -I: neither the user's directory nor the current one is importable in there.
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=environment, cwd=os.path.dirname(sys.executable) or "/",
        )  # fmt: skip
        self.buffer = b""
        atexit.register(self.stop)

    def _line(self, seconds: float) -> bytes | None:
        stream = self.process.stdout
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([stream], [], [], seconds)
            if not ready:
                return None
            piece = os.read(stream.fileno(), 65536)
            if not piece:
                return None
            self.buffer += piece
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process.stdout.close()
            self.process = None


_PROVER = _Prover()

"""Runs work in forked children of one clean process, in which torch and torchsleuth are imported and nothing has run.

A fork of the test process itself would inherit what earlier tests did. Worst of all, torch refuses `backward` in a fork
of a process that has run one where it has a GPU ("Unable to handle autograd's threading in combination with fork-based
multiprocessing"), and a test of a failing backward would then see that error instead of its own.

Work is a function of some module and its arguments, both of which can be pickled. The process is started at the first use:

    in_fork(outcome_of, text, path)      what it returned; an AssertionError or another exception is raised here
    status_of_fork(run, script)          how it ended, as os.waitstatus_to_exitcode tells it
"""

from __future__ import annotations

import functools
import importlib
import os
import pickle
import subprocess
import sys
import tempfile
import traceback
import typing
from pathlib import Path

_SIZE = 8  # bytes of a length on the pipes
_STAGES = ("pipeline", "program", "record.recorder", "capture.collect", "diagnose", "repair", "render.json", "render.terminal")


def in_fork(work: typing.Callable[..., typing.Any], *arguments: typing.Any) -> typing.Any:
    """The result of a call made in a child process; what it prints is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer"
        status = status_of_fork(_answer, answer, work, arguments)
        assert answer.exists(), f"the child died with status {status}"
        value = pickle.loads(answer.read_bytes())
    if isinstance(value, BaseException):
        raise value
    return value


def status_of_fork(work: typing.Callable[..., typing.Any], *arguments: typing.Any) -> int:
    """The exit status of a child process that makes this call."""
    return _zygote().run(work, arguments)


def silenced(out: str | Path = os.devnull, err: str | Path = os.devnull) -> None:
    """In a child: what it prints goes into these files, and no tracer is left."""
    for number, file in ((1, out), (2, err)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)
    sys.excepthook = sys.__excepthook__
    sys.settrace(None)


def _answer(answer: Path, work: typing.Callable[..., typing.Any], arguments: tuple) -> None:
    silenced()
    try:
        value = work(*arguments)
    except AssertionError as error:
        value = error
    except BaseException as error:
        value = RuntimeError("".join(traceback.format_exception(error)))
    answer.write_bytes(pickle.dumps(value))


class _Zygote:
    """The caller's end. Requests carry the search path, because what is asked for lies in the tests' folders."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment(), cwd=Path(__file__).parent
        )

    def run(self, work: typing.Callable[..., typing.Any], arguments: tuple) -> int:
        request = pickle.dumps((sys.path, _environment(), os.getcwd(), pickle.dumps((work, arguments))))
        ask, answer = self._process.stdin, self._process.stdout
        ask.write(len(request).to_bytes(_SIZE, "little") + request)
        ask.flush()
        status = answer.read(_SIZE)
        assert len(status) == _SIZE, "the process that forks died"
        return os.waitstatus_to_exitcode(int.from_bytes(status, "little"))


def _environment() -> dict[str, str]:
    """The clean process stands in another folder: `PYTHONPATH=src` has to mean the same there, or another checkout would be tested."""
    places = [os.path.abspath(place) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    return {**os.environ, "OMP_NUM_THREADS": "1", **({"PYTHONPATH": os.pathsep.join(places)} if places else {})}


@functools.cache
def _zygote() -> _Zygote:
    return _Zygote()


def _serve() -> None:
    """The clean process: forks for each request, and ends when the caller's end of the pipe does."""
    import torch

    for stage in _STAGES:
        importlib.import_module(f"torchsleuth.{stage}")
    sys.modules["torchsleuth.rule"].all_rules()
    torch.set_num_threads(1)
    sys.modules["forks"] = sys.modules["__main__"]  # requests name this module so
    # Not descriptors 0 and 1: a child must neither read requests nor print answers.
    requests, answers = os.fdopen(os.dup(0), "rb"), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    while size := requests.read(_SIZE):
        path, environment, folder, call = pickle.loads(requests.read(int.from_bytes(size, "little")))
        for entry in path:
            if entry not in sys.path:
                sys.path.append(entry)
        work, arguments = pickle.loads(call)  # here, so that what it imports is imported once
        child = os.fork()
        if child == 0:
            try:
                os.close(answers)
                os.environ.clear()
                os.environ.update(environment)
                os.chdir(folder)
                work(*arguments)
            except BaseException:
                traceback.print_exc()
                os._exit(70)
            os._exit(0)
        os.write(answers, os.waitpid(child, 0)[1].to_bytes(_SIZE, "little"))


if __name__ == "__main__":
    _serve()

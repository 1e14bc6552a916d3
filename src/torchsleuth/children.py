"""Failures in forked children (DataLoader workers, process pools): diagnosed there, where the tensors are, and told here.

Such a child turns its exception into text for its parent. In the child, and only there, what makes that text is stood in for by
a function that first diagnoses the exception and leaves the result in a file; the parent looks for it when the text arrives.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import glob
import json
import os
import secrets
import sys
import tempfile
import typing

from torchsleuth.errors import message_of
from torchsleuth.frozen import frozen
from torchsleuth.model import Diagnosis, Fact, Known, RaisedException, from_plain, to_plain


class Writer(typing.NamedTuple):
    """What makes text of an exception."""

    module: str
    name: str  # called there
    position: int | None = None  # of the exception among its arguments; None: the one being handled
    caller: str = ""  # if this function calls it; others may, for reasons of their own
    dies: bool = False  # the child does, and its parent hears nothing of it but a status


_WRITERS = (
    Writer("torch.utils.data._utils.worker", "ExceptionWrapper"),
    Writer("multiprocessing.pool", "ExceptionWithTraceback", 0),
    Writer("concurrent.futures.process", "_ExceptionWithTraceback", 0),
    Writer("traceback", "format_exc", caller="_wrap"),  # torch.multiprocessing.start_processes
    Writer("traceback", "print_exc", caller="_bootstrap", dies=True),  # multiprocessing.Process
)
Diagnoser = typing.Callable[[BaseException, typing.Any], tuple[Diagnosis, ...]]

_attending: dict[int, Children] = {}


@frozen
class Told:
    type: str
    message: str
    process: int
    worker: int | None  # of a DataLoader
    died: bool
    diagnoses: tuple[Diagnosis, ...]


class Children:
    """Those of one watched program, from `attend()` to `dismiss()`."""

    def __init__(self, record: typing.Callable[[], None], diagnose: Diagnoser) -> None:
        self._record = record  # anew, in the child
        self._diagnose = diagnose
        self._prefix = os.path.join(tempfile.gettempdir(), f"torchsleuth-{secrets.token_hex(12)}-")

    def attend(self) -> None:
        _attending[id(self)] = self
        self._process = os.getpid()
        atexit.register(self._dismiss_at_exit)

    def leave(self) -> None:
        """Those forked from now on are not attended to."""
        _attending.pop(id(self), None)

    def _dismiss_at_exit(self) -> None:
        if os.getpid() == self._process:  # a forked child may exit as its parent does
            self.dismiss()

    def dismiss(self) -> None:
        """No more are attended to, and what they left is cleared away."""
        self.leave()
        atexit.unregister(self._dismiss_at_exit)
        for path in glob.glob(glob.escape(self._prefix) + "*"):
            with contextlib.suppress(OSError):
                os.unlink(path)

    def told(self, error: BaseException) -> tuple[Diagnosis, ...]:
        """What a child said of the exception that this one repeats; () where none did."""
        text = message_of(error)
        for told in self._all():
            worker = "" if told.worker is None else f"DataLoader worker process {told.worker}."
            repeats = f"{told.type}: {told.message}" in text or (type(error).__name__ == told.type and told.message == text)
            if repeats and worker in text:
                return tuple(_from_a_child(diagnosis, told) for diagnosis in told.diagnoses)
        return ()

    def died(self) -> list[tuple[RaisedException, tuple[Diagnosis, ...]]]:
        """What those said of whom the program has heard nothing but that they ended."""
        found: dict[tuple, tuple[RaisedException, tuple[Diagnosis, ...]]] = {}
        for told in self._all():
            if told.died and told.diagnoses not in found:  # several may die of the same
                diagnoses = tuple(_from_a_child(diagnosis, told) for diagnosis in told.diagnoses)
                found[told.diagnoses] = RaisedException(told.type, told.message), diagnoses
        return list(found.values())

    def _all(self) -> typing.Iterator[Told]:
        for path in sorted(glob.glob(glob.escape(self._prefix) + "*")):
            # Others can write into this folder, too, under a name that they have seen there.
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError), open(path, encoding="utf-8") as file:
                if not hasattr(os, "getuid") or os.fstat(file.fileno()).st_uid == os.getuid():
                    yield from_plain(Told, json.load(file))

    def speak(self) -> None:
        """In the child: stand in for what turns exceptions into text.

        Workers of a DataLoader are not recorded: they compute no gradients, and their speed is what they are for.
        """
        target = _target_of_child()
        if target is not None and not (target.__module__ or "").startswith("torch.utils.data"):
            self._record()
        for writer in _WRITERS:
            module = sys.modules.get(writer.module)
            if module is not None and hasattr(module, writer.name):
                setattr(module, writer.name, self._telling(getattr(module, writer.name), writer))

    def _telling(self, write: typing.Callable, writer: Writer) -> typing.Callable:
        def telling(*args, **named):
            if not writer.caller or sys._getframe(1).f_code.co_name == writer.caller:
                with contextlib.suppress(Exception):
                    self._tell(sys.exc_info()[1] if writer.position is None else args[writer.position], writer.dies)
            return write(*args, **named)

        return telling

    def _tell(self, error: BaseException, dies: bool) -> None:
        first = error.__traceback__
        diagnoses = self._diagnose(error, first.tb_frame.f_back if first is not None else None)
        if not diagnoses:
            return
        data = sys.modules.get("torch.utils.data")
        info = data.get_worker_info() if data is not None else None
        told = Told(type(error).__name__, message_of(error), os.getpid(), info.id if info is not None else None, dies, diagnoses)
        descriptor, path = tempfile.mkstemp(prefix="torchsleuth-unfinished-")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(to_plain(told), file)
        os.replace(path, f"{self._prefix}{os.getpid()}-{secrets.token_hex(4)}")  # whole, or not at all


def _from_a_child(diagnosis: Diagnosis, told: Told) -> Diagnosis:
    who = f"DataLoader worker {told.worker}" if told.worker is not None else "a child process"
    text = "" if told.died else "; the traceback above repeats it as text"
    fact = Fact(f"It failed in {who} (process {told.process}), and was diagnosed there{text}.", Known.OBSERVED)
    return dataclasses.replace(diagnosis, facts=(*diagnosis.facts, fact))


def _target_of_child() -> typing.Callable | None:
    """What `multiprocessing` has forked this process for; None for a fork of the program's own making."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "_launch" and "process_obj" in frame.f_locals:
            return getattr(frame.f_locals["process_obj"], "_target", None)
        frame = frame.f_back
    return None


def _after_fork() -> None:
    attending = list(_attending.values())
    _attending.clear()  # a child's own children are nobody's
    for children in attending:
        with contextlib.suppress(Exception):
            children.speak()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

"""`Crash`: the exception with its live frames, graph and recording. It lives only inside `capture`."""

from __future__ import annotations

import functools
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.capture import assert_text
from torchsleuth.capture.moved_on import as_it_was
from torchsleuth.capture.timeline import Timeline
from torchsleuth.errors import message_of
from torchsleuth.evidence import Frame, Place
from torchsleuth.evidence_device import AssertText
from torchsleuth.model import Known, RaisedException
from torchsleuth.origin import Origin, origin_of
from torchsleuth.probe import graph
from torchsleuth.probe.names import Names, locals_of
from torchsleuth.record.recorder import Recording


class Crash:
    def __init__(self, error: BaseException, recording: Recording | None, outer: types.FrameType | None = None) -> None:
        self.error = error
        self.recording = recording
        self.entries: list[tuple[types.FrameType, int]] = []  # outermost first
        while outer is not None:  # callers of the frame that caught the exception
            self.entries.insert(0, (outer, outer.f_lasti))
            outer = outer.f_back
        traceback = error.__traceback__
        while traceback is not None:
            self.entries.append((as_it_was(traceback.tb_frame, traceback.tb_lasti), traceback.tb_lasti))
            traceback = traceback.tb_next
        self.timeline = Timeline(recording, self)
        self._holders: list[object] = [self.timeline]

    def will_release(self, holder: object) -> None:
        """What holds a frame of this crash, or what was read from one, lets go together with the crash."""
        self._holders.append(holder)

    def release(self) -> None:
        """Let go of frames, graph and tensors now: those who work on a crash refer to each other, and would wait for the
        garbage collector while a program that has caught its exception runs on."""
        for holder in self._holders:
            holder.__dict__.clear()
        self.__dict__.clear()

    @property
    def exception(self) -> RaisedException:
        return RaisedException(type(self.error).__name__, message_of(self.error))

    @property
    def message(self) -> str:
        return message_of(self.error)

    @functools.cached_property
    def names(self) -> Names:
        return Names(frame for frame, _ in self.entries)

    # -- frames ---------------------------------------------------------------------------------

    def frames(self) -> tuple[Frame, ...]:
        found = []
        for frame, lasti in self.entries:
            origin = origin_of(frame.f_code)
            if origin is Origin.OURS:
                continue
            place = source.place_of_instruction(frame.f_code, lasti)
            if place is not None:
                found.append(Frame(place, origin.value))
        return tuple(found)

    def program_entry(self) -> tuple[types.FrameType, int] | None:
        """The innermost frame of the program's (the user's or a library's)."""
        return next(((f, i) for f, i in reversed(self.entries) if origin_of(f.f_code).is_program), None)

    def user_entry(self) -> tuple[types.FrameType, int] | None:
        return next(((f, i) for f, i in reversed(self.entries) if origin_of(f.f_code) is Origin.USER), None)

    def is_the_programs_own(self) -> bool:
        """The program raised this itself, in words that may be torch's, or Python ran out of stack: no operation failed.

        A `backward` or a hook that raises is called by torch's engine, and it is worth saying for which node.
        """
        if isinstance(self.error, RecursionError):
            return True
        if not self.entries or any(f.f_code.co_name == "_engine_run_backward" for f, _ in self.entries):
            return False
        frame, lasti = self.entries[-1]
        if not origin_of(frame.f_code).is_program:
            return False
        instruction = next((i for i in source.instructions(frame.f_code) if i.offset == lasti), None)
        return instruction is not None and instruction.opname == "RAISE_VARARGS"

    def is_a_librarys_own(self) -> bool:
        """It was a library that raised it, and no code of the user's."""
        return bool(self.entries) and origin_of(self.entries[-1][0].f_code) is Origin.LIBRARY

    def place_of_failure(self) -> Place | None:
        """Where the program was when it failed: its innermost expression, with the user's own call behind it."""
        entry = self.program_entry()
        if entry is None:
            return None
        frame, lasti = entry
        via = None
        user = self.user_entry()
        if user is not None and user[0] is not frame:
            via = source.place_of_instruction(user[0].f_code, user[1])
        return source.place_of_instruction(frame.f_code, lasti, Known.OBSERVED, via)

    def local(self, function: str, name: str, file_end: str = "") -> typing.Any:
        """A local variable of torch's own frame in the traceback, or None."""
        for frame, _ in reversed(self.entries):
            code = frame.f_code
            if code.co_name == function and code.co_filename.endswith(file_end) and origin_of(code) is Origin.TORCH:
                scope = locals_of(frame)
                if name in scope:
                    return scope[name]
        return None

    # -- the GPU --------------------------------------------------------------------------------

    @functools.cached_property
    def assert_text(self) -> AssertText | None:
        return assert_text.of_this_process()

    @functools.cached_property
    def watched_calls(self) -> list[typing.Any]:
        """What the black box has recorded, judged, newest first."""
        from torchsleuth.capture.investigations import device

        return device.watched_calls(self)

    @functools.cached_property
    def culprit_call(self) -> typing.Any:
        from torchsleuth.capture.investigations import device

        return device.culprit_of(self, self.assert_text)

    # -- graph ----------------------------------------------------------------------------------

    @functools.cached_property
    def roots(self) -> tuple[torch.Tensor, ...]:
        """What backward was asked for: `_engine_run_backward` has it in `t_outputs`."""
        found = self.local("_engine_run_backward", "t_outputs")
        if found is None:
            found = self.local("backward", "tensors", "__init__.py")
        if found is None:
            found = self.local("grad", "outputs", "__init__.py")
        if isinstance(found, torch.Tensor):
            found = (found,)
        return tuple(item for item in found or () if isinstance(item, torch.Tensor))

    @functools.cached_property
    def nodes(self) -> list[typing.Any]:
        return list(graph.walk(root.grad_fn for root in self.roots))

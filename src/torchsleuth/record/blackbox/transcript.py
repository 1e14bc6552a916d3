"""Keeps a copy of what C code prints to its `stderr`: there, and nowhere else, the GPU's driver says which assertion failed.

The driver prints from a thread of its own while Python may be waiting for the driver, so no Python may run in between.
Instead C's variable `stderr` is made to write into a pipe, and `tee` passes on what comes to the true stream and to a
file in memory. Python's `sys.stderr`, C++'s `std::cerr` and file descriptor 2 stay as they are. `tee` belongs to nobody
(no child for the program to wait for), outlives an abort and ends with the last process that can write to it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import time
import typing

_MOST_READ = 1 << 18
_UNBUFFERED = 2  # C's _IONBF
_PATIENCE_SECONDS = 0.5
_PAUSE_SECONDS = 0.01


class Transcript:
    """One for the whole process: `stderr` may be in use by any thread at any time, so it is never closed again."""

    _kept: int | None = None  # the file in memory
    _ours: int | None = None  # the FILE that writes into the pipe
    _true: int | None = None

    def begin(self) -> None:
        """From now on a copy is kept. Where this system has not what it takes, none is."""
        try:
            libc = ctypes.CDLL(None)
            libc.gnu_get_libc_version  # noqa: B018  (other C libraries may keep this variable where nobody can write)
            variable = ctypes.c_void_p.in_dll(libc, "stderr")
            if self._ours is None:
                self._ours = self._piped()
            if self._ours is not None and variable.value != self._ours:
                self._true, variable.value = variable.value, self._ours
        except (OSError, ValueError, TypeError, AttributeError):
            pass

    def end(self) -> None:
        if self._true is not None:
            ctypes.c_void_p.in_dll(ctypes.CDLL(None), "stderr").value, self._true = self._true, None

    def text(self, until: typing.Callable[[str], typing.Any]) -> str:
        """What has been printed; waits a moment until the text is what `until` looks for, since it comes through a pipe."""
        if self._kept is None:
            return ""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            size = os.fstat(self._kept).st_size
            text = os.pread(self._kept, _MOST_READ, max(0, size - _MOST_READ)).decode("utf-8", "replace")
            if until(text) or time.monotonic() > deadline:
                return text
            time.sleep(_PAUSE_SECONDS)

    def _piped(self) -> int | None:
        tee, shell = shutil.which("tee"), shutil.which("sh")
        if not tee or not shell:
            return None
        libc = ctypes.CDLL(None)
        libc.fdopen.restype = ctypes.c_void_p
        kept = os.memfd_create("torchsleuth")
        reading, writing = os.pipe()
        # The shell ends at once and leaves `tee` behind: the program's own `os.wait()` must not meet it.
        command = f'exec 9<&0; "$0" -ai /dev/fd/{kept} <&9 9<&- &'
        try:
            subprocess.run([shell, "-c", command, tee], stdin=reading, stdout=2, stderr=2, pass_fds=(kept,), start_new_session=True, check=True)
        except (OSError, subprocess.SubprocessError):
            os.close(kept)
            os.close(writing)
            return None
        finally:
            os.close(reading)
        file = libc.fdopen(writing, b"w")
        libc.setvbuf(ctypes.c_void_p(file), None, _UNBUFFERED, ctypes.c_size_t(0))
        self._kept = kept
        return file


transcript = Transcript()

"""A GPU for machines without one: the CPU, whose kernels do not raise where they find a bad index but stop the "device".

What is queued later is never copied, and the program hears of it where it next waits: at `.item()`, as on a GPU.
The black box is the real one; only the copy engine and the place of the error are simulated.
"""

from __future__ import annotations

import ctypes
import json
import tempfile
import textwrap
from pathlib import Path

import torch
from forks import status_of_fork
from programs import Run, _run

from torchsleuth.options import Options
from torchsleuth.record import recorder
from torchsleuth.record.blackbox.box import BlackBox
from torchsleuth.record.blackbox.guard import Guard
from torchsleuth.record.blackbox.memory import HostCopier, Ring

_RING = 1 << 16


class PretendBox(BlackBox):
    def __init__(self) -> None:
        super().__init__("cpu")
        self.device = HostCopier()

    stops = True  # False: errors are raised where they occur, as for shapes and dtypes on a GPU, too
    both_copies = False  # the copy of a call after the one that stopped the device arrives, too

    def arm_with_cuda(self) -> None:
        memory = ctypes.create_string_buffer(_RING)
        self.arm(Ring(ctypes.addressof(memory), _RING, memory), self.device)
        if self.stops and self._entrance._tool is not None:  # seen at its entrance; otherwise as the `index_select` that it runs
            self._stops_at("embedding")
        self._stops_at("nll_loss_backward")
        self._raises_at_wait()

    def _redispatch(self, overload):
        hand_on = super()._redispatch(overload)
        if not self.stops:
            return hand_on

        def stopping(*args, **named):
            try:
                return hand_on(*args, **named)
            except (IndexError, RuntimeError):
                self.device.dead = True
                self.device.copies = self.both_copies
                given = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: torch.empty_like(t, device="meta"), (args[1:], named))
                result = overload(*given[0], **given[1])
                return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: torch.zeros(t.shape, dtype=t.dtype), result)

        return _torchs(stopping)

    def _stops_at(self, name: str) -> None:
        """An operator that is not watched, whose kernel checks all the same."""
        overload = getattr(torch.ops.aten, name).default
        hand_on = self._redispatch(overload)
        self._library.impl(name, _torchs(lambda keyset, *args, **named: hand_on(keyset & _BELOW, *args, **named)), "BackendSelect", with_keyset=True)

    def _raises_at_wait(self) -> None:
        overload = torch.ops.aten._local_scalar_dense.default
        kind = getattr(torch, "AcceleratorError", RuntimeError)

        def wait(keyset, tensor):
            if self.device.dead:
                raise kind("CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported")
            return overload._handle.redispatch_boxed(keyset & _BELOW, tensor)

        self._library.impl("_local_scalar_dense", _torchs(wait), "BackendSelect", with_keyset=True)


class PretendGuard(Guard):
    def __init__(self) -> None:
        super().__init__("cpu")

    def arm_with_cuda(self) -> None:
        self.compile_nothing()
        self.arm_guard()


_BELOW = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)


def _torchs(function):
    """Frames of the pretended device count as torch's own."""
    function.__code__ = function.__code__.replace(co_filename="<torch device>")
    return function


def run_on_pretend_device(program: str | Path, stderr: str = "", both_copies: bool = False, stops: bool = True, **options) -> Run:
    """Run a program (a path, or its text) whose GPU is pretended; `stderr`: what the device prints when it stops."""
    with tempfile.TemporaryDirectory() as folder:
        out, err, report = (Path(folder) / name for name in ("out", "err", "report.json"))
        path = program if isinstance(program, Path) else Path(folder) / "main.py"
        if not isinstance(program, Path):
            path.write_text(textwrap.dedent(program))
        status = status_of_fork(_pretending, path, out, err, Options(json=str(report), **options), stderr, both_copies, stops)
        data = json.loads(report.read_text()) if report.exists() else None
        return Run(status, out.read_text(), err.read_text(), data)


def _pretending(path: Path, out: Path, err: Path, options: Options, stderr: str, both_copies: bool, stops: bool) -> None:
    recorder.BlackBox, recorder._guard = PretendBox, PretendGuard
    PretendBox.both_copies, PretendBox.stops = both_copies, stops
    if stderr:
        from torchsleuth.capture import assert_text

        assert_text.of_this_process = lambda: assert_text.parsed(stderr)
    _run(path, [], None, out, err, options)

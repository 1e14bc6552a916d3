"""The slow sibling of the black box (`torchsleuth run --guard`): looks at every index before the kernel does.

It waits for the GPU at each watched operation and raises what the CPU would have raised, at the line itself, while
the GPU is still alive. Asked for where the recorded values do not explain an assert.
"""

from __future__ import annotations

import os
import sys
import types
import typing

import torch

from torchsleuth.probe.values import value_range
from torchsleuth.record.blackbox.box import BlackBox, indexed, overload_of
from torchsleuth.record.blackbox.operations import WATCHED, Allows, Legal, Watched, legal

_DISABLE = "TORCHDYNAMO_DISABLE"


class Guard(BlackBox):
    """Armed like the black box; records nothing."""

    _compiling: str | None = None

    def arm_with_cuda(self) -> None:
        self.compile_nothing()
        super().arm_with_cuda()

    def compile_nothing(self) -> None:
        """Compiled code would use its indices where nobody can look; `torch.compile` asks for this when it is called."""
        self._compiling = os.environ.get(_DISABLE)
        os.environ[_DISABLE] = "1"

    def disarm(self) -> None:
        super().disarm()
        if self._compiling is None:
            os.environ.pop(_DISABLE, None)
        else:
            os.environ[_DISABLE] = self._compiling

    def _arm_on_cuda(self) -> None:
        self.arm_guard()

    def arm_guard(self) -> None:
        library = torch.library.Library("aten", "IMPL")
        below = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
        for watched in WATCHED:
            overload = overload_of(watched)
            if overload is not None:
                library.impl(watched.operator, self._guarding(overload, watched, below), "BackendSelect", with_keyset=True)
        self._enlist(library)

    def _guarding(self, overload: typing.Any, watched: Watched, below: typing.Any) -> typing.Callable:
        redispatch, is_there = self._redispatch(overload), self._is_there
        capturing = torch._C._cuda_isCurrentStreamCapturing if self._device_type == "cuda" else lambda: False

        def kernel(keyset, *args, **named):
            refusal = None
            try:
                if capturing():  # waiting would spoil the capture
                    self.capturing = True
                else:
                    refusal = _refusal(watched, args, is_there, sys._getframe(1))
            except Exception:  # a tensor without memory, an engine's thread without frames
                pass
            try:
                if refusal is not None:
                    raise refusal
                return redispatch(keyset & below, *args, **named)
            except BaseException as error:
                BaseException.with_traceback(error, None)  # the traceback ends at the line that called the operation
                raise

        return kernel


def _refusal(watched: Watched, args: tuple, is_there: typing.Callable, frame: types.FrameType) -> Exception | None:
    """What the CPU raises for these values; None where they are in order."""
    at = watched.values[0]
    if watched.allows is Allows.INDEXED:
        given = [(axis, one) for axis, one in indexed(args[at])]
    else:
        given = [(None, args[position]) for position in watched.values]
    table = args[watched.table]
    dim = args[watched.dim] if watched.dim is not None else None
    number = args[watched.number] if watched.number is not None and watched.number < len(args) else None
    for axis, tensor in given:
        if not is_there(tensor) or tensor.numel() == 0:
            continue
        if watched.allows is Allows.TRUE:
            if not bool(tensor.cpu().all()):
                return RuntimeError("Expected Tensor with single nonzero value, but got zero")
            continue
        if watched.allows is Allows.AT_MOST_SOURCE:
            if int(tensor.cpu().sum()) > table.numel():
                return RuntimeError("Number of elements of source < number of ones in mask")
            continue
        allowed = legal(watched, tuple(table.shape), dim, number, axis)
        values = value_range(tensor.detach().cpu(), *allowed) if allowed is not None else None
        if values is not None and values.bad:
            return _error(watched, allowed, values.first[0].value, frame.f_code.co_name == "embedding")
    return None


def _error(watched: Watched, allowed: Legal, value: float, in_embedding: bool) -> Exception:
    allows, size = watched.allows, allowed.high + 1
    if allows is Allows.ROWS or in_embedding:
        return IndexError("index out of range in self")
    if allows is Allows.CLASSES:
        return IndexError(f"Target {value} is out of bounds.")
    if allows is Allows.ELEMENTS:
        return IndexError(f"out of range: tried to access index {value} on a tensor of {size} elements.")
    if allows is Allows.PROBABILITY:
        return RuntimeError("all elements of input should be between 0 and 1")
    if allows is Allows.WEIGHT:
        return RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if allows is Allows.OUTPUT_AREA:
        return RuntimeError(f"Found an invalid max index: {value} (output has {size} elements)")
    kind = IndexError if allows is Allows.INDEXED else RuntimeError
    return kind(f"index {value} is out of bounds for dimension {allowed.limit.split()[-1]} with size {size}")

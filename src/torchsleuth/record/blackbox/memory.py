"""A ring of page-locked host memory that the GPU's copy engine writes into: it outlives the GPU's context.

Each copy gets its own bytes. Before it is queued, the first and last words of its place are set to a mark; a mark
still there afterwards means that the GPU died before it came to that copy.
"""

from __future__ import annotations

import ctypes
import os
import typing

RING_BYTES = 1 << 24
MARK = 0x5EED_B1AC_B0C5_0B0E
_WORD = 8
_DEVICE_TO_HOST = 2


class Ring:
    """Bytes are taken in order and, once the ring is full, given to later copies."""

    def __init__(self, address: int, capacity: int, keep: object) -> None:
        self.address = address
        self.capacity = capacity
        self._keep = keep  # whatever owns the memory
        self.words = memoryview((ctypes.c_char * capacity).from_address(address)).cast("B").cast("q")
        self.head = 0  # counts all bytes ever taken; the place is `head % capacity`

    def take(self, size: int) -> int:
        """The position (counted from the beginning of time) of `size` fresh bytes, marked as not written."""
        size = (size + 7) & -8
        head = self.head
        offset = head % self.capacity
        if offset + size > self.capacity:
            head += self.capacity - offset
            offset = 0
        self.head = head + size
        words = self.words
        words[offset >> 3] = words[(offset + size >> 3) - 1] = MARK
        return head

    def read(self, position: int, size: int) -> bytes | None:
        """What was copied there; None where it never arrived or has been overwritten since."""
        if size == 0 or self.head - position > self.capacity:
            return None
        offset = position % self.capacity
        words = (size + _WORD - 1) // _WORD
        first = offset // _WORD
        if self.words[first] == MARK or self.words[first + words - 1] == MARK:
            return None
        return ctypes.string_at(self.address + offset, size)


class Copier(typing.Protocol):
    """How bytes get into the ring without waiting for them."""

    devices: int  # how many there are

    def copy(self, target: int, source: int, size: int, stream: int) -> None: ...
    def stream(self, device: int) -> int: ...
    def current_device(self) -> int: ...
    def exchange_device(self, device: int) -> int: ...


class CudaCopier:
    """`cudaMemcpyAsync` on the stream that the kernel will run on."""

    def __init__(self) -> None:
        import torch

        copy = cuda_runtime().cudaMemcpyAsync
        copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        copy.restype = ctypes.c_int
        self.copy = lambda target, source, size, stream: copy(target, source, size, _DEVICE_TO_HOST, stream)
        self.stream = torch._C._cuda_getCurrentRawStream
        self.devices = torch.cuda.device_count()
        self.current_device = torch._C._cuda_getDevice
        self.exchange_device = torch._C._cuda_exchangeDevice


class HostCopier:
    """For tests on machines without a GPU: the copy happens at once, until `dead` is set (unless `copies` is, too)."""

    dead = False
    copies = False
    devices = 1
    device = -1  # what a tensor on the CPU says of its own

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        if not self.dead or self.copies:
            ctypes.memmove(target, source, size)

    def stream(self, device: int) -> int:
        return 0

    def current_device(self) -> int:
        return self.device

    def exchange_device(self, device: int) -> int:
        self.device, before = device, self.device
        return before


def cuda_runtime() -> ctypes.CDLL:
    """The CUDA runtime library that torch itself has loaded: another copy would have another context."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if os.path.basename(path).startswith("libcudart"):
                return ctypes.CDLL("/" + path)
    raise OSError("libcudart is not loaded")

"""Hooks the watched operators in torch's dispatcher and notes, at each call, where it came from and what it was given.

A Python kernel under the dispatch key BackendSelect is called for these operators and no others, whoever calls them:
a script, `nn.Embedding` deep in a library, TorchScript, C++. That key lies below autograd, autocast, vmap and every
mode, so none of them can tell. The kernel queues a copy of the index tensor into pinned memory on the current stream
and hands the call on. It keeps numbers and code objects, never a tensor.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import os
import sys
import threading
import types
import typing
import warnings
import weakref

import torch

from torchsleuth.origin import Origin, origin_of_file
from torchsleuth.record.blackbox.entrance import Entrance
from torchsleuth.record.blackbox.memory import RING_BYTES, Copier, CudaCopier, Ring
from torchsleuth.record.blackbox.operations import EMBEDDING, WATCHED, Allows, Watched
from torchsleuth.record.blackbox.transcript import transcript
from torchsleuth.record.ring import taken
from torchsleuth.record.tracebacks import TRAMPOLINE_NAME

MOST_ENTRIES = 4096  # a power of two
MOST_BYTES = 1 << 18  # larger index tensors are reduced on the device to their extremes …
MOST_BASE_BYTES = 1 << 20  # … unless they are views of something of this size at most


class Part(typing.NamedTuple):
    """One watched tensor of a call."""

    argument: int  # position in the operator's arguments
    axis: int | None  # of the indexed tensor, for `x[i, j]`
    position: int  # in the ring
    size: int  # bytes there; 0 where nothing could be copied
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None  # where the bytes are those of a larger tensor that this one is a view of
    offset: int  # and where in it this one begins
    extremes: bool  # not the values themselves, but least value, greatest value and where these stand
    ident: int = 0  # id() of the tensor, at that time
    storage: int = 0


class Entry(typing.NamedTuple):
    """One call of a watched operator."""

    watched: Watched
    parts: tuple[Part, ...]
    table: int  # id() of the tensor that sets the range, at that time
    table_address: int
    table_shape: tuple[int, ...]
    table_dtype: torch.dtype | None  # None: not noted
    dim: int | None
    number: typing.Any
    program: tuple[types.CodeType, int]  # the program's frame that made the call
    user: tuple[types.CodeType, int]  # the nearest frame of the user's own
    within: str  # torch's own function between the program and the operator: "embedding", "cross_entropy"
    device: int
    stream: int
    thread: int


class BlackBox:
    """Armed when the GPU is first used; read after a crash."""

    def __init__(self, device_type: str = "cuda") -> None:
        self._device_type = device_type
        self._is_there = operator.attrgetter(f"is_{device_type}")
        self._library: torch.library.Library | None = None
        self._entrance = Entrance(self)
        self._wanted = False
        self._entries: list[tuple | None] = [None] * MOST_ENTRIES
        self._count = itertools.count()
        self.ring: Ring | None = None
        self.capturing = False  # some calls ran inside a CUDA graph capture, and were not noted
        self.broken = ""  # why it does not record, where it does not

    # -- on and off -------------------------------------------------------------------------------

    def arm_with_cuda(self) -> None:
        """Arm once the program has initialised CUDA; before that there is nothing to watch, and asking would initialise it."""
        if getattr(torch.version, "cuda", None) and not torch.cuda._is_in_bad_fork():
            self._wanted = True
            torch.cuda._lazy_call(self._on_first_use)

    def _on_first_use(self) -> None:
        if not self._wanted:  # the recording has ended meanwhile
            return
        try:
            transcript.begin()
            self._arm_on_cuda()
        except Exception as error:  # the program's first use of CUDA must not fail because of us
            self.broken = f"{type(error).__name__}: {error}"

    def _arm_on_cuda(self) -> None:
        pinned = torch.empty(RING_BYTES, dtype=torch.uint8, pin_memory=True, device="cpu")
        self.arm(Ring(pinned.data_ptr(), RING_BYTES, pinned), CudaCopier(), _cuda_summary(MOST_ENTRIES))

    def arm(self, ring: Ring, copier: Copier, summary: typing.Callable | None = None) -> None:
        self.ring = ring
        note, note_at = self._noter(ring, copier, summary)
        library = torch.library.Library("aten", "IMPL")
        entrance = self._entrance.open(note, note_at)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for watched in WATCHED:
                overload = overload_of(watched)
                # What torch's own kernels call among themselves lies below ADInplaceOrView, and must not be noted twice:
                # `aten::embedding` calls `index_select`, and that, on a GPU, calls its form with `out=`.
                within = watched.is_out or (entrance and watched.operator == "index_select")
                key = "ADInplaceOrView" if within else "BackendSelect"
                if overload is not None:
                    below = torch._C._dispatch_keyset_full_after(getattr(torch._C.DispatchKey, key))
                    library.impl(watched.operator, self._kernel(overload, watched, below, note), key, with_keyset=True)
        self._enlist(library)

    def _enlist(self, library: torch.library.Library) -> None:
        self._library = library
        _armed.add(self)

    def disarm(self) -> None:
        self._wanted = False
        transcript.end()
        _armed.discard(self)
        library, self._library = self._library, None
        if library is not None:
            library._destroy()
        self._entrance.close()

    # -- reading ----------------------------------------------------------------------------------

    @property
    def written(self) -> int:
        return taken(self._count)

    def newest_first(self) -> typing.Iterator[Entry]:
        written = self.written
        for index in range(written - 1, max(-1, written - 1 - MOST_ENTRIES), -1):
            entry = self._entries[index & (MOST_ENTRIES - 1)]
            if entry is not None:
                yield _entry(entry)

    def bytes_of(self, part: Part) -> bytes | None:
        return self.ring.read(part.position, part.size) if self.ring is not None else None

    # -- the hot path -----------------------------------------------------------------------------

    def _noter(self, ring: Ring, copier: Copier, summary: typing.Callable | None) -> tuple[typing.Callable, typing.Callable]:
        entries, mask, count = self._entries, MOST_ENTRIES - 1, self._count
        take, address, capacity, copy, stream_of = ring.take, ring.address, ring.capacity, copier.copy, copier.stream
        thread = threading.get_ident
        on_cuda = self._device_type == "cuda"
        capturing = torch._C._cuda_isCurrentStreamCapturing if on_cuda else lambda: False
        is_there = self._is_there
        storage_of, device_of = torch._C._storage_address, torch.Tensor.get_device
        fresh = capacity // 2
        bases: dict[int, tuple] = {}  # what was copied of which tensor, as long as that lives and is not written into
        last: tuple = (lambda: self,)  # the latest of them

        def copied(argument: int, axis: int | None, tensor: torch.Tensor, stream: int) -> tuple:
            nonlocal last
            base = tensor._base
            if base is not None and base.dtype is tensor.dtype and base.nbytes <= MOST_BASE_BYTES and base.is_contiguous():
                # Rows or columns of one batch, say: all of it is copied, once.
                known = bases.get(id(base))
                if known is None or known[0]() is not base or known[1] != base._version or ring.head - known[2] > fresh:
                    if len(bases) > 64:
                        bases.clear()
                    position = take(base.nbytes)
                    copy(address + position % capacity, base.data_ptr(), base.nbytes, stream)
                    known = bases[id(base)] = (
                        weakref.ref(base), base._version, position, base.nbytes, base.storage_offset(), stream, base.dtype, device_of(base), thread(),
                    )  # fmt: skip
                last = known
                return (
                    argument, axis, known[2], known[3], tensor.dtype, tensor.shape, tensor.stride(),
                    tensor.storage_offset() - known[4], False, id(tensor), storage_of(tensor),
                )  # fmt: skip
            size = tensor.nbytes
            if size <= MOST_BYTES and tensor.is_contiguous():
                if not size:
                    return (argument, axis, 0, 0, tensor.dtype, tensor.shape, None, 0, False, id(tensor), storage_of(tensor))
                position = take(size)
                copy(address + position % capacity, tensor.data_ptr(), size, stream)
                return (argument, axis, position, size, tensor.dtype, tensor.shape, None, 0, False, id(tensor), storage_of(tensor))
            if summary is None:
                return (argument, axis, 0, 0, tensor.dtype, tensor.shape, None, 0, True, id(tensor), storage_of(tensor))
            return (argument, axis, *summary(ring, copier, tensor), tensor.dtype, tensor.shape, None, 0, True, id(tensor), storage_of(tensor))

        def note(watched: Watched, index: torch.Tensor, args: tuple, frame: types.FrameType) -> None:
            program, within = None, ""
            while frame is not None:
                code = frame.f_code
                origin = _origins.get(code.co_filename) or _learn(code.co_filename)
                if origin is _TORCH:
                    if program is None and not within:
                        within = code.co_name
                elif origin is _USER:
                    if code.co_name != TRAMPOLINE_NAME:
                        break
                elif origin is _LIBRARY and program is None and code.co_name != TRAMPOLINE_NAME:
                    program = (code, frame.f_lasti)
                frame = frame.f_back
            if frame is not None:
                user = (code, frame.f_lasti)
                program = program or user
                frame = None
            elif program is not None:
                user = program
            else:  # torch or torchsleuth talking to itself
                return
            note_at(watched, index, args, program, user, within)

        def note_here(watched: Watched, index: torch.Tensor, args: tuple, program: tuple, user: tuple, within: str) -> None:
            if capturing():
                self.capturing = True
                return
            device = index.get_device()
            stream = stream_of(device)
            if watched.one:
                parts = (copied(watched.values[0], None, index, stream),)
            elif watched.allows is _INDEXED:
                at = watched.values[0]
                parts = [copied(at, axis, one, stream) for axis, one in indexed(args[at]) if is_there(one)]
            elif watched.allows is _COMPILED:
                parts = [copied(at, None, one, stream) for at, one in enumerate(args[:-1])]
            else:
                parts = [copied(at, None, args[at], stream) for at in watched.values if is_there(args[at])]
            table, dim, number = args[watched.table], watched.dim, watched.number
            entries[next(count) & mask] = (
                watched, parts, id(table), table.data_ptr(), table.shape, table.dtype, None if dim is None else args[dim],
                args[number] if number is not None and number < len(args) else None, program, user, within, device, stream, thread(),
            )  # fmt: skip

        def note_there(watched: Watched, index: torch.Tensor, *rest: typing.Any) -> None:
            # The number of a default stream means that of the current device, which need not be the index's.
            device, current = index.get_device(), copier.current_device()
            if device == current:
                return note_here(watched, index, *rest)
            copier.exchange_device(device)
            try:
                note_here(watched, index, *rest)
            finally:
                copier.exchange_device(current)

        note_at = note_there if copier.devices > 1 else note_here

        def announce(index: torch.Tensor, weight: torch.Tensor, code: types.CodeType, lasti: int) -> bool:
            """The short form for a table that is given a part of a batch which has been copied already."""
            base, known = index._base, last
            if known[0]() is not base or base is None or known[1] != base._version or ring.head - known[2] > fresh:
                return False
            entries[next(count) & mask] = (
                known, index.shape, index.stride(), index.storage_offset(), id(index), id(weight), weight.shape, code, lasti,
            )  # fmt: skip
            return True

        self.announce = announce
        return note, note_at

    def _redispatch(self, overload: typing.Any) -> typing.Callable:
        """What hands the call on to the operator's own kernel."""
        return overload._handle.redispatch_boxed

    def _kernel(self, overload: typing.Any, watched: Watched, below: typing.Any, note: typing.Callable) -> typing.Callable:
        redispatch = self._redispatch(overload)
        first, in_list, getframe = watched.values[0], watched.allows is Allows.INDEXED, sys._getframe
        is_there, modes = self._is_there, torch._C._len_torch_function_stack

        def quietly(watched, index, args, frame):
            # Reading an attribute of a tensor is a call that a mode or a subclass of the user's would see.
            if modes() or any(type(one) not in _PLAIN for one in args if isinstance(one, torch.Tensor)):
                with torch._C.DisableTorchFunction():
                    if is_there(index):
                        note(watched, index, args, frame)
            elif is_there(index):
                note(watched, index, args, frame)

        def kernel(keyset, *args, **named):
            try:
                index = args[first]
                if in_list:
                    index = next(one for one in index if one is not None)
                if type(index) in _PLAIN:
                    frame = getframe(1)  # without one the autograd engine calls, and forward has noted these indices
                    if frame.f_code is _EMBEDDING_CODE:  # `index_select` gets a flat index; the user's is here
                        given = frame.f_locals
                        quietly(EMBEDDING, given["input"], (given["weight"], given["input"]), frame)
                    else:
                        quietly(watched, index, args, frame)
                    del frame
            except Exception:  # never into the user's program; the call itself follows
                pass
            try:
                return redispatch(keyset & below, *args, **named)
            except BaseException as error:
                BaseException.with_traceback(error, None)  # a bare `raise` adds no entry for this frame: nobody sees that we were here
                raise

        return kernel


def _entry(raw: tuple) -> Entry:
    if isinstance(raw[0], Watched):
        return Entry(raw[0], tuple(map(Part._make, raw[1])), *raw[2:])
    known, shape, strides, offset, ident, table, table_shape, code, lasti = raw
    _, _, position, size, base_offset, stream, dtype, device, thread = known
    part = Part(1, None, position, size, dtype, shape, strides, offset - base_offset, False, ident)
    place = (code, lasti)
    return Entry(EMBEDDING, (part,), table, 0, table_shape, None, None, None, place, place, "embedding", device, stream, thread)


def overload_of(watched: Watched) -> typing.Any:
    """The overload, where this torch has it."""
    name, _, overload = watched.operator.partition(".")
    packet = getattr(torch.ops.aten, name, None)
    return getattr(packet, overload or "default", None) if packet is not None else None


def indexed(indices: typing.Sequence[typing.Any]) -> list[tuple[int, torch.Tensor]]:
    """(axis, tensor) for every index tensor of `x[i, :, j]`; a mask takes as many axes as it has dimensions."""
    found, axis = [], 0
    for one in indices:
        if one is None:
            axis += 1
        elif one.dtype is torch.bool or one.dtype is torch.uint8:
            axis += one.dim()
        else:
            found.append((axis, one))
            axis += 1
    return found


def _cuda_summary(slots: int) -> typing.Callable:
    """For tensors too large or too scattered to copy: least and greatest value and where they stand.

    The device reduces them into tensors made beforehand, slot by slot; two small copies bring them into the ring.
    """
    made: dict[tuple[int, torch.dtype], tuple[torch.Tensor, torch.Tensor]] = {}
    turn = 0

    def summary(ring: Ring, copier: Copier, tensor: torch.Tensor) -> tuple[int, int]:
        nonlocal turn
        turn = (turn + 1) % slots
        with _quietly(), torch.cuda.device(tensor.device):
            flat = tensor.detach().reshape(-1)
            flat = flat.view(torch.uint8) if flat.dtype is torch.bool else flat
            key = (tensor.get_device(), flat.dtype)
            if key not in made:
                values = torch.empty(slots, 2, dtype=flat.dtype, device=tensor.device)
                made[key] = values, torch.empty(slots, 2, dtype=torch.int64, device=tensor.device)
            values, wheres = made[key][0][turn], made[key][1][turn]
            torch.min(flat, 0, out=(values[0], wheres[0]))
            torch.max(flat, 0, out=(values[1], wheres[1]))
            position = ring.take(16 + values.nbytes)
            place, stream = ring.address + position % ring.capacity, copier.stream(tensor.get_device())
            copier.copy(place, wheres.data_ptr(), 16, stream)
            copier.copy(place + 16, values.data_ptr(), values.nbytes, stream)
        return position, 16 + values.nbytes

    return summary


@contextlib.contextmanager
def _quietly() -> typing.Iterator[None]:
    """Operations of our own: no autograd, no mode of the user's sees them."""
    with torch.no_grad(), torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        yield


def _learn(filename: str) -> Origin:
    origin = _origins[filename] = origin_of_file(filename)
    return origin


_PLAIN = (torch.Tensor, torch.nn.Parameter)  # wrappers of all kinds have no memory to copy
_EMBEDDING_CODE = torch.nn.functional.embedding.__code__
_INDEXED, _COMPILED = Allows.INDEXED, Allows.COMPILED
_USER, _LIBRARY, _TORCH = Origin.USER, Origin.LIBRARY, Origin.TORCH
_origins: dict[str, Origin] = {}
_armed: set[BlackBox] = set()


def _disarm_in_child() -> None:
    """A forked child cannot use the GPU, and runs as it would without us."""
    for box in list(_armed):
        box.disarm()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disarm_in_child)

"""What is known about a death on the GPU: frozen plain data, a section of `Evidence`."""

from __future__ import annotations

from torchsleuth.evidence_parts import Place
from torchsleuth.frozen import frozen


@frozen
class AssertText:
    """What the GPU itself printed: one line per thread that failed the check."""

    file: str  # the kernel's source file, without folders
    line: int
    kernel: str
    assertion: str
    threads: int  # how many said so, as far as was read


@frozen
class Watched:
    """One of the last calls of an operation whose kernel checks its indices."""

    operation: str
    place: Place
    verdict: str  # "bad": breaks the range; "fine"; "not reached": the GPU died first; "not copied"
    detail: str = ""  # what was found, in words


@frozen
class DeviceDeath:
    """The GPU stopped; the exception was raised wherever the program next waited for it."""

    kind: str  # "assert", "illegal access", "misaligned", "cublas", "cudnn", "other"
    noticed: Place | None  # where the exception was raised
    blocking: bool  # CUDA_LAUNCH_BLOCKING: then it was raised where it happened
    text: AssertText | None
    calls: tuple[Watched, ...]  # the last watched calls, newest first
    watching: str = ""  # why there was no watching, where there was none
    in_graphs: bool = False  # calls inside a CUDA graph capture were not watched
    compiled: bool = False  # the check that failed is one of torch.compile's own
    recovered: bool = False  # one recorded call breaks its range: `Evidence.operation` is that call
    behind: bool = False  # that call is not the line in the traceback


@frozen
class Holder:
    """Memory that something still holds."""

    what: str  # "saved for backward", "parameters", "gradients", "optimizer state", or a variable's name
    size: int  # bytes
    tensors: int
    place: Place | None = None  # the line that made it


@frozen
class FullMemory:
    """The GPU's memory ran out."""

    wanted: int  # bytes asked for, 0 where the message does not say
    capacity: int
    allocated: int  # by torch's tensors
    reserved: int  # by torch, and not in use
    place: Place | None  # the expression that asked for more
    saved: tuple[Holder, ...]  # kept for backward, by line, largest first
    held: tuple[Holder, ...]  # parameters, gradients, optimizer state, variables
    steps: int = 0  # graphs of so many steps are still alive
    steps_at: Place | None = None  # the loss that made them
    keeper: str = ""  # the variable that keeps them
    largest: tuple[Holder, ...] = ()  # single tensors
    keeper_made: Place | None = None  # the expression that made what the keeper holds last, or that put it there
    gathered: bool = False  # the keeper is a list, and has one result for each of them


@frozen
class DeviceState:
    """What the GPU says when asked after the error."""

    answers: bool
    free: int = 0
    total: int = 0

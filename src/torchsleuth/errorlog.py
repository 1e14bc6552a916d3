"""Reads what people paste: a message, a question, a traceback or a whole log, without running anything.

Finds the exceptions in it with their messages, the frames of the last traceback, and the machinery that merely passed an error
on (a DataLoader worker, torch.compile, TorchScript, a distributed launcher).
"""

from __future__ import annotations

import re

from torchsleuth.frozen import frozen

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# What launchers and loggers put before each line of a traceback.
_PREFIX = re.compile(r"^(?:E {2,}(?=\S)|\[rank\d+\]:? ?|\[\d+\]:? ?|[EWIC]\d{4} \d\d:\d\d:\d\d\.\d+ \d+ \S+\] (?:\[[\d/]+\] ?)?)")
_EXCEPTION = re.compile(r"^\s*(?:[\w.]+\.)?(?P<type>[A-Z_]\w*(?:Error|Exception|Interrupt|Failed|Failure|Exit)): ?(?P<message>.*)$")
_INLINE = re.compile(r"\b(?P<type>[A-Z]\w*(?:Error|Exception)): ?(?P<message>.*)", re.DOTALL)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
# IPython: `File ~/model.py:12, in Net.forward(self, x)`, `Cell In[3], line 5, in train(model)`; pytest: `model.py:12: in forward`.
_CELL = re.compile(
    r"^(?:File )?(?P<file>Cell In ?\[\d+\]|<ipython-input-[^>]+>|[~/\w.\-]+\.py)(?:, line |:)(?P<line>\d+)(?:,|:)?(?: in (?P<function>[\w.<>]+))?"
)
_ARROW = re.compile(r"^-+> *\d+ (?P<source>.*)|^> +(?P<tested>\S.*)")
_END = re.compile(r"^\s*$|^Traceback|^During handling|^The above exception|^Original Traceback|^\s*File \"")
_LIBRARY = re.compile(r"site-packages|dist-packages|[/\\]lib[/\\]python\d|[/\\]bin[/\\](?:torchrun|accelerate|deepspeed)\b|^<frozen|^<__array|[/\\]torch[/\\]")

_WARNING = re.compile(r"^.*\b[A-Z]\w*Warning: .*$", re.MULTILINE)

_WRAPPERS = (
    (re.compile(r"Caught (\w+) in DataLoader worker process (\d+)"),
     "A DataLoader worker (process {1}) raised it and the main process repeats it as text: the cause is in the dataset's `__getitem__` or the `collate_fn`. "
     "`num_workers=0` raises it in place."),
    (re.compile(r"Caught (\w+) in replica (\d+) on device (\d+)"), "DataParallel passes it on from replica {1} on device {2}; it is an ordinary error of the model."),
    (re.compile(r"TorchScript interpreter"), "TorchScript passes it on; the lines marked `<--- HERE` are your code."),
    (re.compile(r"torch\._dynamo\.exc\.(?!TorchRuntimeError)\w|BackendCompilerFailed|InternalTorchDynamoError|InductorError"),
     "torch.compile raised it while it translated the program; whether the program itself runs, a run without torch.compile shows (`TORCHDYNAMO_DISABLE=1`)."),
    (re.compile(r"TorchRuntimeError|Dynamo failed"),
     "torch.compile passes it on, found on fake tensors while compiling: the same call without torch.compile raises it at your own line."),
    (re.compile(r"ChildFailedError|torch\.multiprocessing\.spawn\.ProcessRaisedException|ProcessRaisedException"),
     "A launcher passes it on from a worker process; the first error of any rank is the cause, the others often only follow."),
)  # fmt: skip


@frozen
class Raised:
    """An exception as text."""

    type: str
    message: str


@frozen
class Frame:
    file: str
    line: int
    function: str
    source: str = ""

    @property
    def in_library(self) -> bool:
        return bool(_LIBRARY.search(self.file))


@frozen
class ErrorLog:
    text: str  # all of it, without colours and line prefixes
    raised: tuple[Raised, ...]  # in the order they stand
    frames: tuple[Frame, ...]  # of the last traceback, outermost first
    notes: tuple[str, ...]  # about what passed the error on

    @property
    def unread(self) -> str:
        """All of it in which a cause may stand: where something was raised, a warning is none."""
        return _WARNING.sub("", self.text) if self.raised else self.text

    @property
    def user_frame(self) -> Frame | None:
        """The innermost frame outside libraries."""
        return next((frame for frame in reversed(self.frames) if not frame.in_library), None)

    @property
    def during_backward(self) -> bool:
        if self.frames:
            return any(frame.in_library and frame.function in ("backward", "_engine_run_backward") for frame in self.frames)
        return bool(re.search(r"backward|autograd|gradient", self.text, re.IGNORECASE))

    @property
    def in_custom_backward(self) -> bool:
        """The innermost frame of the program stands below the engine: its own `backward` or a hook."""
        engine = [i for i, frame in enumerate(self.frames) if frame.in_library and frame.function == "_engine_run_backward"]
        return bool(engine) and any(not frame.in_library for frame in self.frames[engine[-1] :])


MOST = 25_000  # characters: an error stands at the end of a log


def read(text: str) -> ErrorLog:
    text = text[-MOST:]
    lines = [_PREFIX.sub("", _ANSI.sub("", line.rstrip())) for line in text.splitlines()]
    clean = "\n".join(lines)
    notes = []
    for pattern, said in _WRAPPERS:
        if match := pattern.search(clean):
            notes.append(said.format(*match.groups()))
    return ErrorLog(clean, tuple(_raised(lines, clean)), tuple(_frames(lines)), tuple(notes))


def _raised(lines: list[str], clean: str) -> list[Raised]:
    found = []
    for number, line in enumerate(lines):
        if not (match := _EXCEPTION.match(line)):
            continue
        message = [match["message"]]
        for after in lines[number + 1 :]:
            if _END.match(after) or _EXCEPTION.match(after):
                break
            message.append(after)
        found.append(Raised(match["type"], "\n".join(message).strip()))
    if not found and (match := _INLINE.search(clean)):
        found.append(Raised(match["type"], match["message"].strip()))
    return found


def _frames(lines: list[str]) -> list[Frame]:
    """The frames of the last traceback that has any of the program's; of the last one, if none has."""
    tracebacks: list[list[Frame]] = [[]]
    for number, line in enumerate(lines):
        if re.match(r"^\s*(?:Original )?Traceback(?: of TorchScript)? ?\(", line):
            if any(_FRAME.match(after) for after in lines[number + 1 : number + 3]):
                tracebacks.append([])
        elif match := _FRAME.match(line):
            source = lines[number + 1].strip() if number + 1 < len(lines) and not _FRAME.match(lines[number + 1]) else ""
            tracebacks[-1].append(Frame(match["file"], int(match["line"]), match["function"], source))
    own = (frames for frames in reversed(tracebacks) if not all(frame.in_library for frame in frames))
    return next(own, tracebacks[-1]) or _cells(lines)


def _cells(lines: list[str]) -> list[Frame]:
    """Frames as notebooks and pytest print them; pytest shows the source above the place, IPython below it."""
    frames: list[Frame] = []
    shown = ""
    for line in lines:
        if match := _CELL.match(line):
            # A cell without a function is the cell's own level; pytest's `net.py:12: RuntimeError` does not say.
            function = match["function"] or ("<module>" if match["file"].startswith(("Cell", "<ipython")) else "")
            frames.append(Frame(match["file"], int(match["line"]), function.rsplit(".", 1)[-1], shown))
            shown = ""
        elif match := _ARROW.match(line):
            if match["tested"]:
                shown = match["tested"].strip()
            elif frames and not frames[-1].source:
                frames[-1] = Frame(frames[-1].file, frames[-1].line, frames[-1].function, match["source"].strip())
    return frames

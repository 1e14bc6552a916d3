"""What a verification run is told and what it answers: plain data that crosses the process border as JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass

# How often the failing statement must be passed before the run is stopped.
PASSES = 3


@dataclass(frozen=True, slots=True)
class Launch:
    """How the program was started, so that it can be started again in the same way."""

    name: str
    arguments: tuple[str, ...]
    is_module: bool
    directory: str


@dataclass(frozen=True, slots=True)
class Job:
    launch: Launch
    overlay: dict[str, str]  # absolute file name -> the file that holds its patched text
    point_file: str  # the statement that failed, in the patched text
    point_line: int
    seed: int | None  # of torch's default generator when the program was started
    states: str  # file with the states of Python's and numpy's generators, "" where there is none
    copies_saved: bool  # the reference: nothing is patched, and every saved tensor is copied
    result: str  # the answer goes here


@dataclass(frozen=True, slots=True)
class Backward:
    """One call of backward in the run."""

    roots: tuple[float, ...]  # a number that stands for the values of each root
    gradients: tuple[tuple[str, float], ...]  # shape and number of each leaf's gradient, sorted
    missing: int  # leaves of the graph without a gradient afterwards
    infinite: int  # leaves whose gradient has NaN or infinite elements


@dataclass(frozen=True, slots=True)
class Result:
    passes: int  # how often the failing statement was passed
    ended: bool  # the program ran to its end
    type: str = ""  # of the exception that ended it
    message: str = ""
    line: int = 0
    file: str = ""
    backwards: tuple[Backward, ...] = ()
    backward_failed: bool = False  # a backward call was begun after the last one that succeeded and did not return
    reads_input: bool = False  # it asked for standard input, which a verification run has not


def message_shape(message: str) -> str:
    """An error message without its numbers and addresses: equal for the same failure with other sizes."""
    return re.sub(r"0x[0-9a-f]+|\d+", "#", message.split(" Hint:")[0])

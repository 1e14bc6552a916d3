"""What a verification run is told and what it answers: plain data that crosses the process border as JSON."""

from __future__ import annotations

import re

from torchsleuth.frozen import frozen

# How often the failing statement must be passed, once more than where it failed, before the run is stopped.
FURTHER = 2


@frozen
class Launch:
    """How the program was started, so that it can be started again in the same way."""

    name: str
    arguments: tuple[str, ...]
    is_module: bool
    directory: str


@frozen
class Job:
    launch: Launch
    overlay: dict[str, str]  # absolute file name -> the file that holds its patched text
    point_file: str  # the statement that failed, in the patched text
    point_line: int
    seed: int | None  # of torch's default generator when the program was started
    states: str  # file with the states of Python's and numpy's generators, "" where there is none
    copies_saved: bool  # the reference: nothing is patched, and every saved tensor is copied
    result: str  # the answer goes here
    visit: int = 1  # at which visit of the statement the program failed; 0 where that is not known
    point_column: int = 0
    seconds_for_differences: float = 0.0  # what comparing the gradients with finite differences of the step's loss may take


@frozen
class Backward:
    """One call of backward in the run."""

    roots: tuple[float, ...]  # a number that stands for the values of each root
    gradients: tuple[tuple[str, float], ...]  # shape and number of each leaf's gradient, sorted
    missing: int  # leaves of the graph without a gradient afterwards
    infinite: int  # leaves whose gradient has NaN or infinite elements
    number: int = 0  # counts the backward calls of the run, from 0
    untouched: int = 0  # parameters of the program's optimizers that have no gradient
    optimized: int = 0  # and how many there are


@frozen
class Difference:
    """The change of a step's loss along one direction: as its gradients say, and as two more forward passes show."""

    predicted: float
    measured: float
    scale: float  # what the two are to be compared with
    number: int  # of the backward call

    @property
    def agrees(self) -> bool:
        return abs(self.predicted - self.measured) <= 0.02 * self.scale


@frozen
class Result:
    passes: int  # how often the failing statement was passed
    begun: int  # how often it was begun; a visit that was begun and not passed raised
    ended: bool  # the program ran to its end
    type: str = ""  # of the exception that ended it
    message: str = ""
    line: int = 0
    file: str = ""
    backwards: tuple[Backward, ...] = ()
    backward_failed: bool = False  # a backward call was begun after the last one that succeeded and did not return
    reads_input: bool = False  # it asked for standard input, which a verification run has not
    seen: tuple[tuple[tuple[str, float], ...], ...] = ()  # the tensors in sight before the statement, of the visit that matters
    differences: tuple[Difference, ...] = ()
    without_differences: str = ""  # why there are none


def message_shape(message: str) -> str:
    """An error message without its numbers and addresses: equal for the same failure with other sizes."""
    return re.sub(r"0x[0-9a-f]+|\d+", "#", message.split(" Hint:")[0])

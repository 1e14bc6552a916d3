"""One frozen set of options for watching a program, filled by the command line or by `install()`/`watch()`."""

from __future__ import annotations

from torchsleuth.frozen import frozen
from torchsleuth.record.ring import DEFAULT_HISTORY

DEFAULT_EXACT_SECONDS = 2.0
DEFAULT_BUDGET_SECONDS = 120.0


@frozen
class Options:
    json: str | None = None  # write the report here
    quiet: bool = False  # no report on the terminal
    verbose: bool = False  # say which recorder and why
    caught: bool = False  # also report torch errors that the program caught itself
    deep: bool = False  # log every operation throughout
    exact_seconds: float = DEFAULT_EXACT_SECONDS  # otherwise, how much time the exact log of the start may add
    history: int = DEFAULT_HISTORY
    verify: bool = False  # run a patched copy of the program for each fix
    repro: str | None = None  # write a minimal reproduction here
    remember: bool = False  # leave the fixes for `torchsleuth fix` in the working directory
    guard: bool = False  # on a GPU: check every index on the host before its kernel runs
    audit: bool = False  # watch the first training step for silent bugs, and check custom Functions on their first inputs
    budget_s: float = DEFAULT_BUDGET_SECONDS  # time for the audit's experiments

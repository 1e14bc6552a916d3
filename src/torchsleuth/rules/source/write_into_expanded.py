"""A write into an expanded tensor, where many elements are one place in memory."""

from __future__ import annotations

from torchsleuth.linter.events import Write
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.linter.writes import RESHAPES
from torchsleuth.model import Confidence, Role


class WriteIntoExpanded(LintRule):
    """A tensor made by `expand` is written to, though many of its elements are one place in memory.

    What happened
    -------------
    `expand`, `expand_as` or `broadcast_to` repeats a tensor without copying it, and the result is written to.

    Why
    ---
    All repetitions share the same memory. torch refuses writes that touch the whole ("more than one element of
    the written-to tensor refers to a single memory location"), and a write to one row silently changes
    every row.

    Example
    -------
    This runs and prints 3.0: one row was written, all three changed.

        import torch
        row = torch.zeros(1, 2)
        table = row.expand(3, 2)
        table[0, 0] = 1.0
        print(table[:, 0].sum().item())

    Fix
    ---
    Copy before writing: `x.expand(...).clone()`, or `x.repeat(...)`.

    Common false explanations
    -------------------------
    "expand copies like repeat." It does not; that is why it is cheap.
    """

    name = "write-into-expanded"

    def on_write(self, write: Write, view: View) -> Found:
        if not write.target.expanded or write.how == "data":
            return None
        if write.how == "method" and (write.op in ("fill", "zero") or write.op in RESHAPES):
            return None  # one value for all elements is what comes out; or no element is written
        return self.diagnosis(
            f"`{write.text}` was expanded: its repeated elements are one place in memory, and it is written to",
            [view.culprit(Role.MUTATE, write.node, "writes to shared elements", write.frame)],
            "An expanded tensor repeats its elements without copying them. A write either raises (more than one element of the "
            "written-to tensor refers to a single memory location) or silently changes every repetition.",
            Confidence.CERTAIN,
            fixes=[advice("copy first: `.expand(...).clone()`, or use `.repeat(...)`")],
        )

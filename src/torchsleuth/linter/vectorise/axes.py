"""A loop as a dimension, and a list as what a loop gathers."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from torchsleuth.frozen import frozen
from torchsleuth.linter.vectorise.lifted import Lifted, SizeKey


@frozen
class Axis:
    """One loop: its variable runs from `start` to the size `stop` (a key and an offset)."""

    name: str
    start: int
    stop: tuple[SizeKey, int]
    stop_code: ast.expr

    @property
    def is_whole(self) -> bool:
        return self.start == 0 and self.stop[1] == 0


@dataclass
class Gathered:
    """A list that a loop appends to: one element per turn of `axis`."""

    axes: tuple[str, ...]
    element: Lifted | None

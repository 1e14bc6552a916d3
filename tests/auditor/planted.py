"""How a planted bug is written down: one function that builds the program with the bug, and its correct twin.

`@planted(name, rule)` on a function of one flag. The culprit's line carries `# culprit: name`.
"""

from __future__ import annotations

import inspect
import typing
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Planted:
    name: str
    rule: str
    build: typing.Callable[[bool], dict]
    file: str

    @property
    def lines(self) -> set[int]:
        text = Path(self.file).read_text().splitlines()
        return {number for number, line in enumerate(text, 1) if line.rstrip().endswith(f"# culprit: {self.name}")}

    def __str__(self) -> str:
        return self.name


ALL: list[Planted] = []


def planted(name: str, rule: str):
    def add(build):
        ALL.append(Planted(name, rule, build, inspect.getsourcefile(build)))
        return build

    return add

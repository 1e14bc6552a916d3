"""A number on its way back: how far a trail has come, the expression it ends at, and the one end that several ways agree on."""

from __future__ import annotations

import ast
import typing

from torchsleuth.capture.finished import Frame
from torchsleuth.capture.scopes import Selector

_MOST_STEPS = 40


class Invoked(str):
    """A selector: what a method of the object returns. As a text it is no name of an attribute or entry."""

    method: str
    call: ast.Call
    frame: Frame

    @classmethod
    def of(cls, call: ast.Call, frame: Frame, method: str = "__call__") -> Invoked:
        method = call.func.attr if isinstance(call.func, ast.Attribute) else method
        found = cls(f"{method}()")
        found.method, found.call, found.frame = method, call, frame
        return found


class Crossing(typing.NamedTuple):
    """A caller's expression that handed the number to a parameter."""

    filename: str
    node: ast.AST
    function: str
    chose: bool  # False: the caller only passed on a parameter of its own, under another name (`Head(width)`)


class Source(typing.NamedTuple):
    """An expression that holds the number, and the callers' expressions it came through, the nearest first."""

    filename: str
    node: ast.AST
    function: str
    crossed: tuple[Crossing, ...]
    axis: int | None = None  # for `batch, length = x.shape`: which of the sizes
    refuted: bool = False  # every way on from here leads to another number


ANOTHER = Source("", ast.Constant(None), "", (), refuted=True)  # the trail ended at a constant that is not the number


class At(typing.NamedTuple):
    """How far a trail has come: the frame, and what of the value at hand is meant (`.heads`, `[1]`, …)."""

    frame: Frame
    selectors: tuple[Selector, ...] = ()
    crossed: tuple[Crossing, ...] = ()
    left: int = _MOST_STEPS
    handed: bool = False  # the expression at hand is an argument

    def of(self, *selectors: Selector) -> At:
        return self._replace(selectors=selectors, left=self.left - 1, handed=False)

    def inside(self, frame: Frame, *selectors: Selector) -> At:
        return At(frame, selectors, self.crossed, self.left - 1)

    def end(self, node: ast.AST) -> Source | None:
        return Source(self.frame.filename, node, self.frame.name, self.crossed) if not self.selectors else None


def only(found: list[Source | None]) -> Source | None:
    """The one that ends in the number itself, or the only one there is that no constant refutes."""
    there = [result for result in found if result is not None and result is not ANOTHER]
    if not there:
        return ANOTHER if found and all(result is ANOTHER for result in found) else None
    sure = [result for result in there if isinstance(result.node, ast.Constant)]
    there = sure or [result for result in there if not result.refuted] or there
    return there[0] if len({(result.filename, id(result.node)) for result in there}) == 1 else None

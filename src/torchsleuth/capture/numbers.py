"""Where a number came from that a call was given: through parameters, defaults, loops and configurations to the
expression that made it.

By syntax, along the callers that were noted when the operation ran. The number itself is the check: a constant at the end
of the trail must be it, and an element of a list or a table is taken only where it alone can be it. Where the syntax leaves
two ways, or leads to another number, the trail ends before.
"""

from __future__ import annotations

import ast
import typing

from torchsleuth.capture.finished import Frame, frame_at
from torchsleuth.capture.number_sources import ANOTHER, At, Source, only
from torchsleuth.capture.number_trails import Trail
from torchsleuth.capture.scopes import constant_value, is_arithmetic, is_class_name

_MOST_NESTED = 3  # configurations in a configuration


class Numbers:
    """Follows numbers. `value_of` evaluates an expression in a file, where it stands in a live frame."""

    def __init__(self, files: typing.Iterable[str], value_of: typing.Callable[[str, ast.AST], typing.Any]) -> None:
        self.files = tuple(dict.fromkeys(files))
        self._value_of = value_of

    def given(self, frame: Frame, arguments: typing.Iterable[ast.AST], number: int, tensors: bool, read: typing.Container[str] | None = None) -> Source | None:
        """The one source of this number among the arguments of a call in `frame`; `tensors`: it was given tensors, too; `read`: the
        names in the library's code that made a tensor of it, where a library did."""
        found: list[Source] = []
        arguments = list(arguments)
        # Beside `planes * 4`, which may be the number, only a constant that is it convinces.
        opaque = any(isinstance(argument, (ast.BinOp, ast.Call, ast.IfExp)) and constant_value(argument) is None for argument in arguments)
        for argument in arguments:
            if isinstance(argument, ast.Constant):
                if argument.value == number and type(argument.value) is int:
                    return None  # the call names the number itself
                continue
            if isinstance(argument, (ast.Name, ast.Attribute, ast.Subscript, ast.Starred)):
                result = self.follow(frame, argument, number)
                if result is not None and is_class_name(result.node):
                    result = self.within(result, number, read)
                if result is not None and result.node is not argument and self._may_be(result, number, tensors):
                    found.append(result)
        return only([result for result in found if not opaque or isinstance(result.node, ast.Constant)])

    def follow(self, frame: Frame, node: ast.AST, number: int) -> Source | None:
        found = Trail(self.files, number).follow(At(frame), node)
        return found if found is not ANOTHER else None

    def _may_be(self, found: Source, number: int, tensors: bool) -> bool:
        """An expression at which the trail ends is believed where it is live and the number, or else can be nothing but one."""
        if isinstance(found.node, ast.Constant):
            return True
        value = self._value_of(found.filename, found.node)
        if found.axis is not None and isinstance(value, tuple):
            return found.axis < len(value) and value[found.axis] == number
        if type(value) is int:
            return value == number
        return not tensors or is_arithmetic(found.node)

    def within(self, found: Source, number: int, read: typing.Container[str] | None = None) -> Source | None:
        """A configuration was handed over as a whole: the one entry in its making that is this number.

        Another entry may be the same number by accident, and so may one that nobody can reckon any more: then nothing is said. Nor
        of an entry that the library did not `read`: the number is a default then, of an entry that the program leaves out.
        """
        possible = self._entries(found, number, read, _MOST_NESTED)
        return possible[0] if len(possible) == 1 and self._is(possible[0], number) else None

    def _entries(self, found: Source, number: int, read: typing.Container[str] | None, depth: int) -> list[Source]:
        """The ends of the arguments of a call that may be the number."""
        frame, call = frame_at(found.filename, found.node, found.function), found.node
        if frame is None or not isinstance(call, ast.Call) or depth == 0:
            return [found]
        possible: list[Source] = []
        for name, value in (*((None, argument) for argument in call.args), *((keyword.arg, keyword.value) for keyword in call.keywords)):
            ends = [Trail(self.files, number).follow(At(frame, inside), value) for inside in ((), (None,))]
            for end in [end for end in ends if end is not None] or [At(frame).end(value)]:
                if end is None or end is ANOTHER or end.refuted:
                    continue
                if is_class_name(end.node):
                    possible += self._entries(end, number, read, depth - 1)  # `Model(cfg)`, of a `cfg = Config(…)`
                elif self._is(end, number) is not False and (name is None or read is None or name in read):
                    possible.append(end)
        return possible

    def _is(self, end: Source, number: int) -> bool | None:
        """Whether this expression is the number; None where it holds it among others, or does not live any more."""
        if isinstance(end.node, ast.Constant):
            return end.node.value == number
        value = self._value_of(end.filename, end.node)
        if isinstance(value, (list, tuple, dict)):
            return None if number in (value.values() if isinstance(value, dict) else value) else False
        return value == number if type(value) is int else None if value is None else False

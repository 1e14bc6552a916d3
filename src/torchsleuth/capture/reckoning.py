"""The constants that a computed size was made of: `nn.Linear(channels * side * side, 10)`, `nn.Linear(state + action, 32)`, followed by syntax through names,
configurations and functions, and reckoned again.

The outcome is the check: unless the arithmetic on the constants found gives the very size, nothing is said.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
import typing
from collections import Counter

from torchsleuth.capture.finished import Frame
from torchsleuth.capture.number_sources import ANOTHER, At, Source
from torchsleuth.capture.number_trails import Trail
from torchsleuth.capture.scopes import constant_value

_OPERATORS: dict[type, typing.Callable[[typing.Any, typing.Any], typing.Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Div: operator.truediv,
    ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_CALLS: dict[str, typing.Callable[..., typing.Any]] = {"int": int, "round": round, "floor": math.floor, "ceil": math.ceil, "max": max, "min": min, "abs": abs}
_MOST_POWER = 8
_MOST_FACTORS = 8


class Worth(typing.NamedTuple):
    value: int | float
    constants: tuple[Source, ...]  # those that stand elsewhere than in the arithmetic itself
    factors: tuple[Worth, ...] = ()
    terms: tuple[Worth, ...] = ()


class Agreed(typing.NamedTuple):
    """The sizes of the other side, of which nobody needs to be told where they came from."""

    factors: tuple[int, ...] = ()  # it was flattened of these
    terms: tuple[int, ...] = ()  # it was joined of these
    size: int = 0  # all in all
    of_input: tuple[int, ...] = ()  # the sizes of what all of it was computed from


class Behind(typing.NamedTuple):
    """What a number was computed from."""

    constants: list[Source]  # without those of factors or terms that are agreed on
    not_counted: list[int]  # the terms agreed on that are not in the sum
    fitting: int | None = None  # the size of the input that in place of the one constant gives the size agreed on


def constants_behind(files: tuple[str, ...], frame: Frame, node: ast.AST, number: int, agreed: Agreed) -> Behind:
    worth = _Reckoner(files).worth(At(frame), node)
    if worth is None or worth.value != number:
        return Behind([], [])
    summed = len(worth.terms) > 1 and len(agreed.terms) > 1
    parts, left = worth.terms if summed else worth.factors, Counter(agreed.terms if summed else agreed.factors)
    rest = _unlike(list(parts), agreed.factors) if not summed else None
    if rest is None:
        rest = []
        for part in parts or (worth,):
            if len(parts) > 1 and isinstance(part.value, int) and left[part.value] > 0:
                left[part.value] -= 1
            else:
                rest.append(part)
    found = {(source.filename, id(source.node)): source for part in rest for source in part.constants}
    constants, fitting = list(found.values()), None
    if len(constants) == 1 and type(constant_value(constants[0].node)) is int:
        instead = ((size, _Reckoner(files, {id(constants[0].node): size}).worth(At(frame), node)) for size in sorted(set(agreed.of_input)))
        fitting = next((size for size, worth in instead if worth is not None and worth.value == agreed.size), None)
    return Behind(constants, list(left.elements()) if summed else [], fitting)


def _unlike(parts: list[Worth], agreed: tuple[int, ...]) -> list[Worth] | None:
    """Factors of which neighbours multiply to the sizes agreed on, one after the other, but those that do: of `2 * width * side * side`
    beside 8 × 7 × 7 the first two are the channels. None where no way to read it so has a size in common."""
    best: tuple[int, list[Worth]] | None = None
    for cuts in itertools.combinations(range(1, len(parts)), len(agreed) - 1) if 1 < len(agreed) <= len(parts) <= _MOST_FACTORS else ():
        groups = [parts[first:last] for first, last in itertools.pairwise((0, *cuts, len(parts)))]
        alike = [math.prod(part.value for part in group) == size for group, size in zip(groups, agreed)]
        if any(alike) and not all(alike) and (best is None or sum(alike) > best[0]):
            best = sum(alike), [part for group, same in zip(groups, alike) if not same for part in group]
    return best[1] if best is not None else None


class _Reckoner(Trail):
    """Follows names as a number's trail does, to whatever constants they lead."""

    def __init__(self, files: tuple[str, ...], instead: dict[int, int] | None = None) -> None:
        super().__init__(files, 0)
        self._instead = instead or {}  # of constants, by their nodes: as if these numbers stood there
        self._worths: dict[int, Worth] = {}  # of the expressions at which trails ended, by their nodes

    def worth(self, at: At, node: ast.AST) -> Worth | None:
        if at.left <= 0:
            return None
        if isinstance(node, ast.Constant):
            return Worth(self._instead.get(id(node), node.value), ()) if type(node.value) in (int, float) else None
        if isinstance(node, ast.BinOp):
            return self._combined(at, node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.worth(at.of(), node.operand)
            return Worth(-inner.value, inner.constants) if inner is not None else None
        if isinstance(node, ast.Call):
            called = self._computed(at, node)
            if called is not None:
                return called
        found = super().follow(at, node)
        if found is None or found is ANOTHER or found.node is node:
            return None
        worth = self._worths.get(id(found.node))
        return worth if worth is None or worth.constants else worth._replace(constants=(found._replace(crossed=()),))

    def _combined(self, at: At, node: ast.BinOp) -> Worth | None:
        left, right = self.worth(at.of(), node.left), self.worth(at.of(), node.right)
        operation = _OPERATORS.get(type(node.op))
        if left is None or right is None or operation is None or isinstance(node.op, ast.Pow) and not 0 <= right.value <= _MOST_POWER:
            return None
        try:
            value = operation(left.value, right.value)
        except ArithmeticError:
            return None
        factors: tuple[Worth, ...] = ()
        if isinstance(node.op, ast.Mult):
            factors = (*(left.factors or (left,)), *(right.factors or (right,)))
        elif isinstance(node.op, ast.Pow) and type(right.value) is int:
            factors = (left.factors or (left,)) * right.value
        terms = (*(left.terms or (left,)), *(right.terms or (right,))) if isinstance(node.op, ast.Add) else ()
        return Worth(value, (*left.constants, *right.constants), factors, terms)

    def _computed(self, at: At, node: ast.Call) -> Worth | None:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name == "len" and len(node.args) == 1:
            listed = super().follow(at.of(), node.args[0])
            elements = getattr(listed.node, "elts", None) if listed is not None and listed is not ANOTHER else None
            return Worth(len(elements), ()) if elements is not None and not any(isinstance(element, ast.Starred) for element in elements) else None
        if name not in _CALLS or not node.args or node.keywords:
            return None
        given = [self.worth(at.of(), argument) for argument in node.args]
        if any(one is None for one in given):
            return None
        worths = [one for one in given if one is not None]
        return Worth(_CALLS[name](*(one.value for one in worths)), tuple(source for one in worths for source in one.constants))

    # -- as a trail ---------------------------------------------------------------------------------

    def follow(self, at: At, node: ast.AST) -> Source | None:
        """An expression is an end where it can be reckoned, where it stands."""
        if not at.selectors and isinstance(node, (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Call)):
            worth = self.worth(at, node)
            if worth is None:
                return None
            before = self._worths.setdefault(id(node), worth)
            return at.end(node) if before.value == worth.value else None
        return super().follow(at, node)

    def _may_end(self, node: ast.AST) -> bool:
        return isinstance(node, (ast.List, ast.Tuple))  # for its length

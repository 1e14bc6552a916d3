"""What was meant by a `view` that cannot exchange axes: the axes taken apart, exchanged and put together again, as code."""

from __future__ import annotations

import ast
import itertools
import math
import typing

import torch

from torchsleuth.auditor.inputs.batch import Leaf
from torchsleuth.auditor.laboratory.compare import May, moved_flags
from torchsleuth.auditor.laboratory.firstmoved import Found, value_of
from torchsleuth.auditor.tracing.sites import call_at
from torchsleuth.auditor.tracing.trace import Op, Trace

MOST_AXES = 6
_ATOMS = (ast.Name, ast.Attribute, ast.Subscript, ast.Call)  # what a dot binds to as a whole
_Sizes = tuple[int, ...]


class Way(typing.NamedTuple):
    """An axis taken apart first, perhaps; then the axes in another order; then neighbouring ones merged."""

    parts: _Sizes
    order: tuple[int, ...]
    cost: int
    whole: bool  # no axis need be taken apart before they are exchanged


def ways(before: _Sizes, after: _Sizes) -> list[Way]:
    """All orders of the axes from which these sizes can be read off, the simplest first. Not the order that they are in."""
    if 1 in before or 1 in after or len(before) > MOST_AXES - 1 or math.prod(before) != math.prod(after):
        return []
    found: list[Way] = []
    for parts, cut in _apart(before, after):
        for order in itertools.permutations(range(len(parts))):
            if order == tuple(range(len(parts))) or not _merges(tuple(parts[axis] for axis in order), after):
                continue
            together = cut is None or order.index(cut + 1) == order.index(cut) + 1
            if together and cut is not None and tuple(sorted(order)) == order:
                continue
            turned = sum(order[a] > order[b] for a in range(len(order)) for b in range(a + 1, len(order)))
            found.append(Way(parts, order, 2 * turned + (cut is not None), together))
    found.sort(key=lambda way: way.cost)
    return found


def _apart(before: _Sizes, after: _Sizes) -> typing.Iterator[tuple[_Sizes, int | None]]:
    yield before, None
    for axis, size in enumerate(before):
        for part in sorted({n for n in after if 1 < n < size and size % n == 0} | {size // n for n in after if 1 < n < size and size % n == 0}):
            yield (*before[:axis], part, size // part, *before[axis + 1 :]), axis


def _merges(parts: _Sizes, after: _Sizes) -> bool:
    at = 0
    for size in after:
        product = 1
        while product < size and at < len(parts):
            product *= parts[at]
            at += 1
        if product != size:
            return False
    return at == len(parts)


def meant(op: Op, fits: typing.Callable[[Way], bool] | None = None) -> str:
    """The expression to write instead of this `view`, if there is one simplest that fits; "" if not."""
    if op.name not in ("view", "reshape") or not op.ins or not op.outs:
        return ""
    after = op.outs[0].size
    found = [way for way in ways(op.ins[0].size, after) if fits is None or fits(way)]
    if not found or (len(found) > 1 and found[1].cost == found[0].cost):
        return ""
    call = call_at(op.place)
    if call is None or not isinstance(call.func, ast.Attribute) or call.keywords:
        return ""
    base, given = call.func.value, call.args
    if isinstance(base, ast.Name) and base.id == "torch" and given:
        base, given = given[0], given[1:]
    if len(given) == 1 and isinstance(given[0], (ast.Tuple, ast.List)):
        given = given[0].elts
    texts = [ast.unparse(one) for one in given]
    if len(texts) != len(after) or any(isinstance(one, ast.Starred) for one in given):
        texts = [str(n) for n in after]
    return _code(ast.unparse(base) if isinstance(base, _ATOMS) else f"({ast.unparse(base)})", op.ins[0].size, after, found[0], texts)


def _code(base: str, before: _Sizes, after: _Sizes, way: Way, texts: list[str]) -> str:
    parts, order = way.parts, way.order
    if way.whole and len(parts) > len(before):  # what is taken apart stays together: the last step does it
        cut = next(axis for axis, (one, other) in enumerate(itertools.zip_longest(before, parts)) if one != other)
        order = tuple(axis - (axis > cut) for axis in order if axis != cut + 1)
        parts = before
    exact = tuple(parts[axis] for axis in order) == after
    code = base
    if len(parts) > len(before):
        # Sizes by the names that the program gives them, where each part is an axis of its own in the end.
        names = [texts[order.index(axis)] for axis in range(len(parts))] if exact else [str(n) for n in parts]
        code += f".reshape({', '.join(names)})"
    moved = [axis for axis, one in enumerate(order) if axis != one]
    code += f".transpose({moved[0]}, {moved[1]})" if len(moved) == 2 else f".permute({', '.join(map(str, order))})"
    return code if exact else f"{code}.reshape({', '.join(texts)})"


def keeps_samples_apart(found: Found, first: Trace, may: May, change: typing.Iterable[tuple[Leaf, torch.Tensor]]) -> typing.Callable[[Way], bool]:
    """Would only the changed sample have moved, had the axes been exchanged in this way?"""
    flags = next((where for leaf, where in change if first.known_key(leaf.tensor) == found.op.ins[0].key), None)
    if flags is None and found.again is not None and found.second is not None:
        one, two = value_of(first, found.op.ins[0]), value_of(found.second, found.again.ins[0])
        flags = moved_flags(one, two)[0] if one is not None and two is not None and one.shape == two.shape else None
    if flags is None or flags.shape != found.op.ins[0].size:
        return lambda way: False
    return lambda way: may.allows(flags.reshape(way.parts).permute(way.order).reshape(found.op.outs[0].size), plain=True)

"""A check that torch.compile wrote has failed: which argument of the last compiled calls breaks the range it names."""

from __future__ import annotations

import ast
import itertools
import re
import typing

import torch

from torchsleuth.capture.blackbox import Judged, tensor_of
from torchsleuth.evidence_device import AssertText
from torchsleuth.evidence_forward import ValueRange
from torchsleuth.probe.values import value_range
from torchsleuth.record.blackbox.box import BlackBox, Entry, Part
from torchsleuth.record.blackbox.compiled import Given
from torchsleuth.record.blackbox.operations import Allows, Legal

_CHECK = re.compile(r"index out of bounds: 0 <= \w+ < (\d+)")
_MOST_CALLS = 64


def checked_size(text: AssertText) -> int | None:
    """Indices of which size the failed check allows; None where that is not a plain number."""
    found = _CHECK.search(text.assertion)
    return int(found[1]) if found else None


def culprit(box: BlackBox, text: AssertText) -> Judged | None:
    """The argument that breaks the range, where one does and only one.

    It is one of the newest call whose copies arrived: those before it have run. And one that was beyond the range in a
    call that has run is no index of this check.
    """
    size = checked_size(text)
    if size is None:
        return None
    compiled = (entry for entry in box.newest_first() if entry.watched.allows is Allows.COMPILED)
    calls = list(itertools.islice((entry for entry in compiled if any(box.bytes_of(part) for part in entry.parts)), _MOST_CALLS))
    if not calls:
        return None
    # The generated code counts negative indices from the end before it checks them.
    legal = Legal(-size, size - 1, "compiled")
    last, *earlier = calls
    survived = {site for call in earlier for part, _, _ in _beyond(box, call, legal) for site in [_site(call, part)]}
    suspects = [one for one in _beyond(box, last, legal) if _site(last, one[0]) not in survived]
    if len(suspects) != 1:
        return None
    part, values, tensor = suspects[0]
    return Judged(last, "bad", part, legal, values, tensor)


def written_as(call: ast.AST | None, given: Given) -> tuple[ast.AST | None, int | str | None, str]:
    """(expression, key within it, name) of an argument, as far as the call shows it."""
    element = given.within[0] if len(given.within) == 1 else None
    name = f"{given.key}{''.join(f'[{key!r}]' for key in given.within)}" if isinstance(given.key, str) else ""
    if not isinstance(call, ast.Call) or len(given.within) > 1:
        return None, None, name
    if isinstance(given.key, str):
        node = next((keyword.value for keyword in call.keywords if keyword.arg == given.key), None)
        if node is None and not given.within:  # `model(**batch)`
            spread = [keyword.value for keyword in call.keywords if keyword.arg is None]
            return (spread[0], given.key, name) if len(spread) == 1 else (None, None, name)
        return node, element, name
    if any(isinstance(one, ast.Starred) for one in call.args):
        return None, None, name
    position = given.key - (given.positional - len(call.args))  # a method's `self` is not written among them
    return (call.args[position], element, name) if 0 <= position < len(call.args) else (None, None, name)


def given_of(found: Judged) -> Given:
    return found.entry.number[found.part.argument]


def _beyond(box: BlackBox, entry: Entry, legal: Legal) -> typing.Iterator[tuple[Part, ValueRange, torch.Tensor]]:
    for part in entry.parts:
        data = box.bytes_of(part) if part.size and not part.extremes else None
        if data is not None:
            tensor = tensor_of(part, data)
            values = value_range(tensor, *legal)
            if values is not None and values.bad:
                yield part, values, tensor


def _site(entry: Entry, part: Part) -> tuple:
    return entry.program, entry.number[part.argument]

"""Reads the black box after a death on the GPU: which recorded calls break their range, which do not, which never ran."""

from __future__ import annotations

import dataclasses
import itertools
import typing

import torch

from torchsleuth.evidence_forward import BadValue, ValueRange
from torchsleuth.frozen import frozen
from torchsleuth.probe.values import value_range
from torchsleuth.record.blackbox.box import BlackBox, Entry, Part
from torchsleuth.record.blackbox.operations import Allows, Legal, legal

_MOST_JUDGED = 512


@frozen
class Judged:
    """A recorded call, and what its recorded values say."""

    entry: Entry
    verdict: str  # as in `evidence_device.Watched`
    part: Part | None = None  # the one that breaks the range, or the first
    range: Legal | None = None
    values: ValueRange | None = None
    tensor: torch.Tensor | None = None  # the recovered values, on the CPU
    count: int | None = None  # for a mask: how many are True


def judged(box: BlackBox) -> list[Judged]:
    """The last calls, newest first; what compiled code is given has no range of its own (see `compiled`)."""
    calls = (entry for entry in box.newest_first() if entry.watched.allows is not Allows.COMPILED)
    return [_judged(box, entry) for entry in itertools.islice(calls, _MOST_JUDGED)]


def _judged(box: BlackBox, entry: Entry) -> Judged:
    found = Judged(entry, "not copied", entry.parts[0] if entry.parts else None)
    for part in entry.parts:
        if part.size == 0:
            continue
        data = box.bytes_of(part)
        if data is None:
            found = dataclasses.replace(found, verdict="not reached")
            continue
        found = _of_part(entry, part, data)
        if found.verdict == "bad":
            return found
    return found


def _of_part(entry: Entry, part: Part, data: bytes) -> Judged:
    allows = entry.watched.allows
    if part.extremes:
        return _of_extremes(entry, part, data)
    tensor = tensor_of(part, data)
    if allows is Allows.TRUE:
        return Judged(entry, "fine" if bool(tensor.all()) else "bad", part, None, None, tensor)
    if allows is Allows.AT_MOST_SOURCE:
        count, room = int(tensor.sum()), 1
        for size in entry.table_shape:
            room *= size
        return Judged(entry, "bad" if count > room else "fine", part, None, None, tensor, count)
    allowed = legal(entry.watched, tuple(entry.table_shape), entry.dim, entry.number, part.axis)
    if allowed is None:
        return Judged(entry, "not copied", part, None, None, tensor)
    values = value_range(tensor, *allowed)
    bad = values is not None and values.bad > 0
    return Judged(entry, "bad" if bad else "fine", part, allowed, values, tensor)


def _of_extremes(entry: Entry, part: Part, data: bytes) -> Judged:
    """Only least and greatest value are known: enough to convict, and to acquit unless a label to ignore hides the least."""
    allowed = legal(entry.watched, tuple(entry.table_shape), entry.dim, entry.number, part.axis)
    if allowed is None:
        return Judged(entry, "not copied", part)
    positions = torch.frombuffer(bytearray(data[:16]), dtype=torch.int64).tolist()
    least, greatest = torch.frombuffer(bytearray(data[16:]), dtype=part.dtype).tolist()
    shape = tuple(part.shape)
    bad = [
        BadValue(_unravelled(position, shape), value)
        for position, value in zip(positions, (least, greatest))
        if value != allowed.ignored and not allowed.low <= value <= allowed.high
    ]
    if least == greatest:
        bad = bad[:1]
    total = 1
    for size in shape:
        total *= size
    values = ValueRange(
        allowed.low, allowed.high, allowed.limit, total, len(bad), tuple(bad), least, greatest, allowed.ignored,
        tuple(item.value for item in bad), at_least=True,
    )  # fmt: skip
    return Judged(entry, "bad" if bad else "fine", part, allowed, values)


def tensor_of(part: Part, data: bytes) -> torch.Tensor:
    flat = torch.frombuffer(bytearray(data), dtype=part.dtype)
    if part.strides is not None:
        return flat.as_strided(tuple(part.shape), tuple(part.strides), part.offset).clone()
    return flat.reshape(tuple(part.shape))


def _unravelled(position: int, shape: typing.Sequence[int]) -> tuple[int, ...]:
    found = []
    for size in reversed(shape):
        found.append(position % size)
        position //= size
    return tuple(reversed(found))

"""The labels of the whole dataset, where a DataLoader or dataset of the program's still lives and holds them as plain numbers.

Only attributes are read, and nothing of the program is run: lists, arrays and tensors of whole numbers, and rows that hold one.
"""

from __future__ import annotations

import dataclasses
import typing

import torch

from torchsleuth.capture.failure import Failure
from torchsleuth.capture.samples import innermost
from torchsleuth.evidence_forward import ValueRange
from torchsleuth.origin import Origin
from torchsleuth.probe.names import locals_of

_MOST = 200_000  # numbers


def with_dataset(values: ValueRange | None, failure: Failure) -> ValueRange | None:
    """Adds what the dataset's labels say, where one batch alone does not tell from where they count."""
    if values is None or values.limit not in ("classes", "num_classes") or values.minimum < 1 or values.maximum != values.high + 1 or values.counts_from_one:
        return values
    found = {counted for dataset in _datasets(failure) for counted in _columns(dataset) if counted[0] <= values.minimum and counted[1] >= values.maximum}
    return dataclasses.replace(values, in_dataset=found.pop()) if len(found) == 1 else values


def _datasets(failure: Failure) -> list[typing.Any]:
    found: dict[int, typing.Any] = {}
    for entry in failure.entries:
        scope = locals_of(entry.frame) if entry.origin is Origin.USER else {}
        owner = scope.get("self")
        held = [*scope.values(), *(vars(owner).values() if hasattr(owner, "__dict__") else ())]
        for value in held:
            dataset = value.dataset if isinstance(value, torch.utils.data.DataLoader) else value
            if isinstance(dataset, torch.utils.data.Dataset):
                dataset = innermost(dataset)
                found[id(dataset)] = dataset
    return list(found.values())


def _columns(dataset: typing.Any) -> typing.Iterator[tuple[int, int, int]]:
    """The smallest, the largest and the number of different ones of each column of whole numbers."""
    attributes = list(vars(dataset).values()) if hasattr(dataset, "__dict__") else []
    tensors = [part for value in attributes if type(value) in (tuple, list) and len(value) < 10 for part in value if isinstance(part, torch.Tensor)]
    for value in (*attributes, *tensors):
        if isinstance(value, torch.Tensor):
            whole = value.device.type == "cpu" and value.dim() == 1 and value.dtype in (torch.int64, torch.int32, torch.uint8, torch.int16)
            value = value.tolist() if whole and 0 < value.numel() <= _MOST else None
        elif type(value).__module__ == "numpy" and getattr(value, "ndim", 0) == 1 and getattr(value, "size", 0) <= _MOST and value.dtype.kind in "iu":
            value = value.tolist()
        if type(value) in (list, tuple) and 1 < len(value) <= _MOST:
            yield from _numbers(value)


def _numbers(rows: typing.Sequence[typing.Any]) -> typing.Iterator[tuple[int, int, int]]:
    if type(rows[0]) is int:
        columns = [rows]
    elif type(rows[0]) in (tuple, list) and all(type(row) is type(rows[0]) and len(row) == len(rows[0]) for row in rows):
        columns = list(zip(*rows))
    elif type(rows[0]) is dict and all(type(row) is dict and row.keys() == rows[0].keys() for row in rows):
        columns = [[row[key] for row in rows] for key in rows[0]]
    else:
        columns = []
    for column in columns:
        if all(type(number) is int for number in column):
            yield min(column), max(column), len(set(column))

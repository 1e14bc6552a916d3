"""Which values an operation allows in its index, label or probability operand, and which of the given ones break that."""

from __future__ import annotations

import re
import sys
import typing

import torch

from torchsleuth.capture.operands import Raw
from torchsleuth.evidence_forward import Argument, IndexItem, ValueRange
from torchsleuth.probe.values import value_range

_ALONG_DIM = {
    "gather", "scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_", "index_select",
    "index_add", "index_add_", "index_copy", "index_copy_", "index_fill", "index_fill_", "take_along_dim", "index_reduce",
    "index_reduce_",
}  # fmt: skip
_CLASS_LOSSES = {"cross_entropy", "nll_loss", "cross_entropy_loss", "nll_loss_nd", "multi_margin_loss", "nll_loss2d", "nll_loss_nd"}


class Limits(typing.NamedTuple):
    position: int  # of the operand
    low: float | int
    high: float | int
    limit: str
    ignored: int | None = None


def limits(
    name: str, raws: list[Raw], arguments: typing.Sequence[Argument], items: typing.Sequence[IndexItem], message: str
) -> list[Limits]:
    """The legal range of every operand that this operation reads as indices, labels or probabilities."""
    if items and raws:
        return [
            Limits(item.operand, -item.size, item.size - 1, f"dimension {item.axis}")
            for item in items
            if item.kind == "tensor" and item.operand is not None and item.size is not None
        ]
    where = {raw.argument: position for position, raw in enumerate(raws)}

    def first(*names: str) -> int | None:
        return next((where[n] for n in names if n in where), None)

    if name in ("embedding", "embedding_bag"):
        table, index = first("weight"), first("input", "indices")
        if table is not None and index is not None:
            if raws[index].dtype is not None and raws[index].dtype.is_floating_point and not raws[table].dtype.is_floating_point:
                table, index = index, table
            return [Limits(index, 0, raws[table].shape[0] - 1, "rows")] if raws[table].shape else []
    if name in _ALONG_DIM:
        index, dim = first("index", "indices"), _number(arguments, "dim", "axis")
        base = first("self", "input")
        if index is not None and base is not None and dim is not None and -len(raws[base].shape) <= dim < len(raws[base].shape):
            size = raws[base].shape[dim]
            low = -size if name.startswith(("index_fill", "index_copy")) else 0
            return [Limits(index, low, size - 1, f"dimension {dim % len(raws[base].shape)}")]
        told = re.search(r"index -?\d+ is out of bounds for dimension (\d+) with size (\d+)", message)
        if index is not None and base is None and told and name in ("gather", "scatter", "scatter_", "scatter_add", "scatter_add_"):
            return [Limits(index, 0, int(told[2]) - 1, f"dimension {told[1]}")]
    if name in ("take", "put_"):
        index, base = first("index"), first("self", "input")
        if index is not None and base is not None:
            count = 1
            for size in raws[base].shape:
                count *= size
            return [Limits(index, -count, count - 1, "elements")]
    if name in _CLASS_LOSSES:
        scores, target = first("input", "self"), first("target")
        if scores is not None and target is not None and raws[scores].shape:
            shape = raws[scores].shape
            if raws[target].dtype is not None and not raws[target].dtype.is_floating_point:
                ignored = _number(arguments, "ignore_index")
                ignored = None if name == "multi_margin_loss" else -100 if ignored is None else ignored
                return [Limits(target, 0, shape[1 if len(shape) > 1 else 0] - 1, "classes", ignored)]
    if name == "one_hot":
        target, count = first("tensor", "self", "input"), _number(arguments, "num_classes")
        if target is not None:
            return [Limits(target, 0, count - 1 if count is not None and count > 0 else 2**62, "num_classes")]
    if name.startswith("binary_cross_entropy") and "between 0 and 1" in message:
        found = []
        for argument in ("input", "target"):
            position = first(argument)
            if position is not None and f"of {argument}" in message:
                found.append(Limits(position, 0, 1, "probability"))
        return found
    if name.strip("_") in ("multinomial", "bernoulli") and re.search("probability tensor|multinomial distribution|p_in", message):
        position = first("input", "self")
        return [Limits(position, 0, 1 if "p_in" in message else sys.float_info.max, "probability" if "p_in" in message else "weight")] if position is not None else []
    if name.strip("_") == "pack_padded_sequence":
        data, lengths = first("input"), first("lengths")
        if data is not None and lengths is not None and len(raws[data].shape) > 1:
            return [Limits(lengths, 1, max(raws[data].shape[:2]), "time steps")]
    if name == "ctc_loss":
        scores, lengths = first("log_probs"), first("input_lengths")
        if scores is not None and lengths is not None and "input_lengths" in message:
            return [Limits(lengths, 0, raws[scores].shape[0], "time steps")]
        target, lengths = first("targets"), first("target_lengths")
        if target is not None and lengths is not None and len(raws[target].shape) == 2:
            return [Limits(lengths, 0, raws[target].shape[1], "target columns")]
    constraint = re.search(r"Expected (?:parameter|value argument) ?(\w*) .*?\b\w*(Greater\w*|Interval)\(lower_bound=(-?[\d.]+)(?:, upper_bound=(-?[\d.]+))?\)", " ".join(message.split()))
    if constraint and (position := first(constraint[1] or "value")) is not None and "nan" not in message:
        low, high = float(constraint[3]), float(constraint[4]) if constraint[4] else sys.float_info.max
        low += max(abs(low) * 1.2e-7, 1.4e-45) if constraint[2] == "GreaterThan" else 0  # the next number, also in float32
        return [Limits(position, low, high, "constraint")]
    return []


def measured(raws: list[Raw], limit: Limits) -> ValueRange | None:
    tensor = raws[limit.position].tensor
    if tensor is None:
        return None
    if type(tensor) is torch.nn.Parameter:
        tensor = tensor.data
    return value_range(tensor, limit.low, limit.high, limit.limit, limit.ignored)


def _number(arguments: typing.Sequence[Argument], *names: str) -> int | None:
    for argument in arguments:
        if argument.name in names and len(argument.numbers) == 1:
            return argument.numbers[0]
    return None

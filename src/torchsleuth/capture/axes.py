"""From an axis of a result to the axis of an operand that its size comes from: one rule for each kind of operation."""

from __future__ import annotations

import math

import torch

from torchsleuth.record.oplog import Mark, Operation
from torchsleuth.sizes import broadcast_size

_MATMULS = {"matmul", "__matmul__", "mm", "bmm", "__rmatmul__"}
_REDUCTIONS = {
    "sum", "mean", "max", "min", "amax", "amin", "prod", "argmax", "argmin", "any", "all", "logsumexp", "norm", "std", "var",
    "median", "select", "squeeze", "unbind", "softmax",
}  # fmt: skip

# int64 by nature, whatever they are given: an int64 operand is not where the dtype came from.
COUNTS = frozenset({"one_hot", "argmax", "argmin", "argsort", "bincount", "searchsorted", "bucketize", "count_nonzero"})


def followed(operation: Operation, result: Mark, axis: int) -> tuple[Mark, int] | None:
    """The operand and axis from which a result has its size at `axis`; None where the size first appears here."""
    if not 0 <= axis < len(result.shape):
        return None
    size, name, operands = result.shape[axis], operation.name, operation.operands
    if not operands:
        return None
    rank = len(result.shape)
    for operand in operands:
        if operand.storage and operand.storage == result.storage and operand.strides:
            return _through_view(operand, result, axis)
    if name in _MATMULS and len(operands) == 2:
        return _through_product(operands, rank, axis, size)
    if name == "linear":
        if axis == rank - 1:
            return (operands[1], 0) if len(operands) > 1 else None
        return operands[0], axis
    if name == "embedding" and len(operands) > 1:
        index, table = (operands[0], operands[1]) if not operands[0].dtype.is_floating_point else (operands[1], operands[0])
        return (table, 1) if axis == rank - 1 else (index, axis)
    if name.startswith("conv") and len(operands) > 1 and name[4:5] in "123_":
        spatial = len(operands[1].shape) - 2
        channel = rank - spatial - 1
        if axis == channel:
            transposed = "transpose" in name
            weight_axis = 1 if transposed else 0
            return (operands[1], weight_axis) if operands[1].shape[weight_axis] == size else None
        kept = axis < len(operands[0].shape) and operands[0].shape[axis] == size  # padding made up for the kernel
        return (operands[0], axis) if axis < channel or kept else None
    if name in ("cat", "concat", "concatenate", "hstack", "vstack"):
        if all(len(operand.shape) == rank and operand.shape[axis] == size for operand in operands):
            return operands[0], axis
        return None
    if name in ("outer", "ger") and len(operands) == 2 and rank == 2:
        return operands[axis], 0
    if name == "stack":
        return _through_stack(operands, result, axis)
    if name in ("pad", "one_hot", "repeat", "tile", "repeat_interleave", "interpolate", "lstm", "gru", "rnn_tanh", "rnn_relu"):
        same = operands[0]
        if len(same.shape) == rank and same.shape[axis] == size and name in ("pad", "interpolate", "repeat", "tile", "repeat_interleave"):
            return same, axis
        if name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
            state = next((operand for operand in operands[1:3] if operand.shape == result.shape), None)
            if state is not None:  # the new state has the sizes of the old one
                return state, axis
        if name in ("lstm", "gru") and axis < 2 and len(same.shape) == rank and same.shape[axis] == size:
            return same, axis
        return (same, axis) if name == "one_hot" and axis < len(same.shape) else None
    if name in _REDUCTIONS and len(operands) == 1 and len(operands[0].shape) > rank:
        return _through_reduction(operands[0], result, axis)
    if name in ("__getitem__", "index") and operands:
        return _through_index(operands, result, axis)
    aligned = _through_broadcast(operands, result, axis)
    if aligned is not None:
        return aligned
    for operand in operands:
        if operand.shape == result.shape:
            return operand, axis
    return _only_candidate(operands, rank, axis, size)


def joined(operation: Operation, result: Mark, axis: int) -> list[tuple[Mark, int]]:
    """The operand's axes that `view`, `reshape` or `flatten` has made one axis of."""
    if operation.name not in ("view", "reshape", "flatten") or not operation.operands:
        return []
    operand = operation.operands[0]
    before, size = math.prod(result.shape[:axis]), result.shape[axis]
    for first in range(len(operand.shape)):
        if math.prod(operand.shape[:first]) == before:
            for last in range(first + 2, len(operand.shape) + 1):
                if math.prod(operand.shape[first:last]) == size:
                    return [(operand, k) for k in range(first, last)]
    return []


def added(operation: Operation, result: Mark, axis: int) -> list[tuple[Mark, int]]:
    """The operands that `cat` has joined along this axis, each with its axis."""
    real = [operand for operand in operation.operands if operand.shape != (0,)]
    if operation.name not in ("cat", "concat", "concatenate", "hstack") or len(real) < 2 or any(len(operand.shape) != len(result.shape) for operand in real):
        return []
    return [(operand, axis) for operand in real] if sum(operand.shape[axis] for operand in real) == result.shape[axis] else []


def _through_view(operand: Mark, result: Mark, axis: int) -> tuple[Mark, int] | None:
    size, stride = result.shape[axis], result.strides[axis]
    found = [k for k in range(len(operand.shape)) if operand.shape[k] == size and operand.strides[k] == stride]
    if not found:
        return None
    if axis in found:
        return operand, axis
    aligned = axis - len(result.shape) + len(operand.shape)
    return operand, (aligned if aligned in found else found[0])


def _through_product(operands: tuple[Mark, ...], rank: int, axis: int, size: int) -> tuple[Mark, int] | None:
    left, right = operands
    if len(right.shape) == 1:
        return left, axis if axis < len(left.shape) - 1 else len(left.shape) - 1
    if len(left.shape) == 1:
        return (right, len(right.shape) - 1) if axis == rank - 1 else (right, axis)
    if axis == rank - 1:
        return right, len(right.shape) - 1
    if axis == rank - 2:
        return left, len(left.shape) - 2
    for operand in operands:
        own = axis - rank + len(operand.shape)
        if own >= 0 and operand.shape[own] == size:
            return operand, own
    return None


def _through_stack(operands: tuple[Mark, ...], result: Mark, axis: int) -> tuple[Mark, int] | None:
    inner = operands[0].shape
    for new in range(len(result.shape)):
        if result.shape[new] == len(operands) and result.shape[:new] + result.shape[new + 1 :] == inner:
            return None if axis == new else (operands[0], axis if axis < new else axis - 1)
    return None


def _through_reduction(operand: Mark, result: Mark, axis: int) -> tuple[Mark, int] | None:
    """Which axes went: try every way to drop one; the answer counts only where all of them agree."""
    dropped = len(operand.shape) - len(result.shape)
    answers = set()
    for gone in range(len(operand.shape)):
        if dropped == 1 and operand.shape[:gone] + operand.shape[gone + 1 :] == result.shape:
            answers.add(axis if axis < gone else axis + 1)
    if len(answers) == 1:
        return operand, answers.pop()
    return _only_candidate((operand,), len(result.shape), axis, result.shape[axis])


def _through_index(operands: tuple[Mark, ...], result: Mark, axis: int) -> tuple[Mark, int] | None:
    """`x[idx]` copies: trailing axes are those of `x`, leading ones those of the index."""
    source_, rest = operands[0], operands[1:]
    from_end = len(result.shape) - axis
    if len(rest) == 1 and rest[0].dtype not in (torch.bool, torch.uint8) and axis < len(rest[0].shape):
        if rest[0].shape[axis] == result.shape[axis]:
            return rest[0], axis
    if rest and rest[0].dtype in (torch.bool, torch.uint8):
        kept = len(source_.shape) - len(rest[0].shape)
        return (source_, len(source_.shape) - from_end) if from_end <= kept else None
    own = len(source_.shape) - from_end
    return (source_, own) if own >= 0 and source_.shape[own] == result.shape[axis] else None


def _through_broadcast(operands: tuple[Mark, ...], result: Mark, axis: int) -> tuple[Mark, int] | None:
    if broadcast_size(*(operand.shape for operand in operands)) != result.shape:
        return None
    found = []
    for operand in operands:
        own = axis - len(result.shape) + len(operand.shape)
        if own >= 0 and operand.shape[own] == result.shape[axis]:
            found.append((operand, own))
    if not found:
        return None
    return next(((operand, own) for operand, own in found if not (operand.is_leaf and operand.requires_grad)), found[0])


def _only_candidate(operands: tuple[Mark, ...], rank: int, axis: int, size: int) -> tuple[Mark, int] | None:
    found = [(operand, k) for operand in operands for k, own in enumerate(operand.shape) if own == size]
    same_axis = [(operand, k) for operand, k in found if k == axis and len(operand.shape) == rank]
    if same_axis:
        return same_axis[0]
    if len(operands) == 1 and len(operands[0].shape) == rank:
        return None  # pooling, and the like: another dimension of that size is a coincidence
    return found[0] if len(found) == 1 and size != 1 else None

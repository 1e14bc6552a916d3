"""The same inputs in other memory: strides in another order, and repeats of one slice."""

from __future__ import annotations

import torch

from torchsleuth.checker.arguments import Arguments
from torchsleuth.checker.variants import tensors


def noncontiguous(value: torch.Tensor) -> torch.Tensor | None:
    """The same values in memory of another order, or None where every order is the same."""
    long = [dim for dim, n in enumerate(value.shape) if n > 1]
    if len(long) >= 2:
        a, b = long[0], long[-1]
        out = value.transpose(a, b).contiguous().transpose(a, b)
    elif long:
        out = torch.stack((value, value), dim=-1)[..., 0]
    else:
        return None
    return out


def with_noncontiguous(arguments: Arguments) -> Arguments | None:
    values, changed = list(arguments.values), False
    for k in tensors(arguments):
        other = noncontiguous(values[k])
        if other is not None:
            values[k], changed = other, True
    return arguments.with_values(values) if changed else None


def with_expanded(arguments: Arguments) -> Arguments | None:
    """The checked inputs with their first long dimension a repeat of its first slice (stride 0)."""
    values, changed = list(arguments.values), False
    for k in arguments.checked:
        value = values[k]
        dim = next((d for d, n in enumerate(value.shape) if n > 1), None)
        if dim is not None:
            values[k], changed = value.narrow(dim, 0, 1).expand(value.shape), True
    return arguments.with_values(values) if changed else None

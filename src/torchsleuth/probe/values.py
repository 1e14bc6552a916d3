"""The values of a live index or label tensor against a legal range: extremes, how many are bad, where the first ones stand."""

from __future__ import annotations

import torch

from torchsleuth.evidence_forward import BadValue, ValueRange

_MOST_SHOWN = 4
_MOST_ELEMENTS = 200_000_000


def value_range(
    tensor: torch.Tensor, low: float | int, high: float | int, limit: str, ignored: int | None = None
) -> ValueRange | None:
    """None where the values cannot be read (meta, wrapped by vmap, a dead device)."""
    try:
        with torch.no_grad():
            return _value_range(tensor.detach(), low, high, limit, ignored, tensor._base)
    except Exception:
        return None


def _value_range(
    tensor: torch.Tensor, low: float | int, high: float | int, limit: str, ignored: int | None, base: torch.Tensor | None
) -> ValueRange | None:
    if tensor.is_meta or tensor.numel() == 0 or tensor.numel() > _MOST_ELEMENTS or type(tensor) is not torch.Tensor:
        return None
    if tensor.dtype in (torch.bool, torch.complex64, torch.complex128):
        return None
    bad = (tensor < low) | (tensor > high) | tensor.isnan() if tensor.is_floating_point() else (tensor < low) | (tensor > high)
    if ignored is not None:
        bad &= tensor != ignored
    where = bad.nonzero()
    chosen = tensor[bad]
    first = tuple(
        BadValue(tuple(int(i) for i in position), value)
        for position, value in zip(where[:_MOST_SHOWN].tolist(), chosen[:_MOST_SHOWN].tolist(), strict=True)
    )
    distinct = chosen.unique().tolist() if chosen.numel() <= 1_000_000 and not tensor.is_floating_point() else []
    kinds = 0
    if not tensor.is_floating_point() and tensor.numel() <= 1_000_000:
        whole = base if base is not None else tensor
        # One row of `edges` may begin at 1 by chance; what the whole holds says how they count.
        from_one = whole.dtype != tensor.dtype or whole.numel() > 1_000_000 or int(whole.min()) >= min(1, int(tensor.min()))
        kinds = 0 if not from_one else int((tensor if ignored is None else tensor[tensor != ignored]).unique().numel())
    return ValueRange(
        low, high, limit, tensor.numel(), int(bad.sum()), first, tensor.min().item(), tensor.max().item(), ignored,
        tuple(distinct[:6]), kinds,
    )  # fmt: skip

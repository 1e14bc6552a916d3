"""One live tensor → a `TensorFact`, and how two tensors lie in memory. Reads metadata only, no values."""

from __future__ import annotations

import re

import torch

from torchsleuth.evidence import TensorFact


def storage_of(tensor: torch.Tensor) -> int:
    """The address of the storage, 0 where there is none to speak of (sparse, wrapped, fake)."""
    try:
        return torch._C._storage_address(tensor)
    except Exception:
        try:
            return tensor.untyped_storage()._cdata
        except Exception:
            return 0


def version_of(tensor: torch.Tensor) -> int | None:
    try:
        return None if tensor.is_inference() else tensor._version
    except Exception:
        return None


def shares_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    storage = storage_of(one)
    return storage != 0 and storage == storage_of(other)


def dtype_name(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def tensor_fact(tensor: torch.Tensor, name: str = "", kind: str = "", view_of: str = "") -> TensorFact:
    try:
        shape = tuple(int(size) for size in tensor.shape)
    except Exception:
        shape = ()
    return TensorFact(
        name,
        shape,
        dtype_name(tensor.dtype),
        str(tensor.device),
        bool(tensor.requires_grad),
        bool(tensor.is_leaf),
        kind,
        view_of,
    )


_SAID = re.compile(r"\[(torch(?:\.cuda)?)\.(\w+) \[([\d, ]*)\]\]")


def fact_from_message(message: str) -> TensorFact:
    """What torch says of a tensor that nobody can look at: `[torch.FloatTensor [4, 6]]`."""
    said = _SAID.search(message)
    if said is None:
        return TensorFact("", (), "unknown", "unknown", False, False)
    dtype = getattr(getattr(torch, said[2], None), "dtype", None)
    shape = tuple(int(size) for size in said[3].split(",") if size.strip())
    return TensorFact("", shape, dtype_name(dtype) if dtype is not None else said[2], "cuda" if "cuda" in said[1] else "cpu", False, False)


def may_overlap(
    one: tuple[tuple[int, ...], tuple[int, ...], int], other: tuple[tuple[int, ...], tuple[int, ...], int]
) -> bool | None:
    """Whether two (shape, strides, offset) views of one storage touch a common element; None if too large to tell."""
    cells = []
    for shape, strides, offset in (one, other):
        count = 1
        for size in shape:
            count *= size
        if count == 0:
            return False
        if count > 200_000 or len(shape) != len(strides):
            return None
        cells.append(_cells(shape, strides, offset))
    return not cells[0].isdisjoint(cells[1])


def _cells(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> set[int]:
    found = {offset}
    for size, stride in zip(shape, strides):
        found = {start + step * stride for start in found for step in range(size)} if stride or size > 1 else found
    return found

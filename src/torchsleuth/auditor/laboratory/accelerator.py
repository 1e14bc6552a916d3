"""Running again on a GPU: with exact arithmetic where that is possible, without asking for what would kill the device, and
with as little waiting for it as possible.

Disturbed inputs may lead to an index that no table has (a position past the longest). On a CPU that raises, and the
experiment is given up; on a GPU it ends in a device-side assert that the whole program would not survive.
"""

from __future__ import annotations

import contextlib
import typing
import weakref
from collections.abc import Iterator

import torch
from torch.overrides import TorchFunctionMode

SMALL = 1 << 18  # elements


def in_use() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_initialized()


def at_hand(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in the host's memory, if it is small: then one copy is waited for, and not each question about its values."""
    return tensor.detach().cpu() if tensor.is_cuda and tensor.numel() <= SMALL else tensor


@contextlib.contextmanager
def exact() -> Iterator[None]:
    """Neither TensorFloat-32 nor algorithms chosen by the clock: two runs are to differ by what was changed only.

    Convolutions use TensorFloat-32 by default, which keeps 11 bits; other sizes pick other kernels that round elsewhere.
    """
    if not in_use():
        yield
        return
    changed: list[tuple[typing.Any, str, typing.Any]] = []

    def put(module: typing.Any, name: str, value: typing.Any) -> bool:
        try:
            before = getattr(module, name)
            if before != value:
                setattr(module, name, value)
                changed.append((module, name, before))
        except Exception:  # not known to this torch, or said in both of torch's ways, which then refuses to answer
            return False
        return True

    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    try:
        put(cudnn, "benchmark", False)
        put(cudnn, "deterministic", True)
        if not put(cudnn, "allow_tf32", False):
            put(getattr(cudnn, "conv", None), "fp32_precision", "ieee")
            put(getattr(cudnn, "rnn", None), "fp32_precision", "ieee")
        if not put(matmul, "allow_tf32", False):
            put(matmul, "fp32_precision", "ieee")
        yield
    finally:
        for module, name, before in reversed(changed):
            with contextlib.suppress(Exception):
                setattr(module, name, before)


class Surviving(TorchFunctionMode):
    """Raises what the CPU would raise, before an index out of range reaches the device."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        check = _CHECKS.get(getattr(func, "__name__", ""))
        if check is not None:
            bad = None
            try:
                bad = check(args, kwargs)
            except Exception:  # a call in a form that is not known here is the call's own affair
                pass
            if bad is not None:
                raise IndexError(bad)
        return func(*args, **kwargs)


def _outside(index: typing.Any, low: int, high: int, ignored: int | None = None) -> str | None:
    if not isinstance(index, torch.Tensor) or not index.is_cuda or index.numel() == 0 or index.is_floating_point() or index.dtype is torch.bool:
        return None
    least, most = _range(index, ignored)
    if least < low or most >= high:
        return f"index out of range: {most if most >= high else least} is not in {low}…{high - 1}"
    return None


_ranges: dict[int, tuple[weakref.ref, int, int | None, tuple[int, int]]] = {}  # of indices that were looked at, by identity


def _range(index: torch.Tensor, ignored: int | None) -> tuple[int, int]:
    """The least and the greatest index. The program's own inputs come again in every run: they are waited for once."""
    version = index._version if not index.is_inference() else 0
    known = _ranges.get(id(index))
    if known is not None and known[0]() is index and known[1:3] == (version, ignored) and not index.is_inference():
        return known[3]
    with torch._C.DisableTorchFunction():
        values = index[index != ignored] if ignored is not None else index
        found = tuple(torch.stack(values.aminmax()).tolist()) if values.numel() else (0, -1)
        key = id(index)
        _ranges[key] = (weakref.ref(index, lambda _: _ranges.pop(key, None)), version, ignored, found)
    return found  # type: ignore[return-value]


def _of(args: tuple, kwargs: dict, position: int, name: str) -> typing.Any:
    return args[position] if len(args) > position else kwargs.get(name)


def _embedding(args: tuple, kwargs: dict) -> str | None:
    return _outside(_of(args, kwargs, 0, "input"), 0, _of(args, kwargs, 1, "weight").shape[0])


def _along(args: tuple, kwargs: dict) -> str | None:
    tensor, dim = args[0], _of(args, kwargs, 1, "dim")
    return _outside(_of(args, kwargs, 2, "index"), 0, tensor.shape[dim])


def _take(args: tuple, kwargs: dict) -> str | None:
    return _outside(_of(args, kwargs, 1, "index"), -args[0].numel(), args[0].numel())


def _items(args: tuple, kwargs: dict) -> str | None:
    tensor, index = args[0], args[1]
    axis = 0
    for part in index if isinstance(index, tuple) else (index,):
        if part is Ellipsis:
            return None
        if part is None or isinstance(part, bool):
            continue
        if isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8):
            axis += part.dim()
            continue
        bad = _outside(part, -tensor.shape[axis], tensor.shape[axis])
        if bad is not None:
            return bad
        axis += 1
    return None


def _labels(args: tuple, kwargs: dict) -> str | None:
    given, target = _of(args, kwargs, 0, "input"), _of(args, kwargs, 1, "target")
    ignored = kwargs.get("ignore_index", -100)
    return _outside(target, 0, given.shape[1] if given.dim() > 1 else given.shape[0], ignored)


def _one_hot(args: tuple, kwargs: dict) -> str | None:
    classes = _of(args, kwargs, 1, "num_classes")
    return _outside(args[0], 0, classes) if isinstance(classes, int) and classes > 0 else None


_CHECKS: dict[str, typing.Callable[[tuple, dict], str | None]] = {
    "embedding": _embedding, "embedding_bag": _embedding, "gather": _along, "index_select": _along, "take": _take,
    "__getitem__": _items, "__setitem__": _items, "cross_entropy": _labels, "nll_loss": _labels, "one_hot": _one_hot,
    **dict.fromkeys(("scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_"), _along),
    **dict.fromkeys(("index_add", "index_add_", "index_copy", "index_copy_", "index_fill", "index_fill_"), _along),
}  # fmt: skip

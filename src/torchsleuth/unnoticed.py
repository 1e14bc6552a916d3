"""Modes of ours that only look on, and must not change how torch computes: `begin(mode)`, `end(mode)`.

`nn.TransformerEncoderLayer` and `nn.MultiheadAttention` ask `torch.overrides.has_torch_function` before they take their fast
path (eval mode, no gradients). It says yes as soon as any function mode is on, and they would then compute the same in
another way: other rounding, other values at padded positions, no warning about nested tensors. While a mode of ours is on,
the question is answered as if it were not.
"""

from __future__ import annotations

import typing

import torch
import torch.overrides

_ours: list[typing.Any] = []
_original: typing.Any = None


def begin(mode: typing.Any) -> None:
    global _original
    if not _ours:
        _original = torch.overrides.has_torch_function
        torch.overrides.has_torch_function = _has_torch_function
    _ours.append(mode)


def end(mode: typing.Any) -> None:
    _ours[:] = [other for other in _ours if other is not mode]
    if not _ours and torch.overrides.has_torch_function is _has_torch_function:
        torch.overrides.has_torch_function = _original


def _has_torch_function(relevant_args: typing.Iterable[typing.Any]) -> bool:
    if not _original(relevant_args):
        return False
    stack = [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]
    others = [mode for mode in stack if not any(mode is ours for ours in _ours)]
    try:
        for mode in reversed(others):
            torch._C._push_on_torch_function_stack(mode)
        return bool(_original(relevant_args))
    finally:
        for _ in range(torch._C._len_torch_function_stack()):
            torch._C._pop_torch_function_stack()
        for mode in reversed(stack):
            torch._C._push_on_torch_function_stack(mode)

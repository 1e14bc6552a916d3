"""Finds what a compiled function is given (Python >= 3.12): inside it nothing can be watched, but its inputs can be copied.

`torch.compile` wraps a function or module into one of torch's own. The start of that wrapper is an event on one code
object, and its arguments are the user's.
"""

from __future__ import annotations

import types
import typing

import torch

from torchsleuth import env

_MOST = 32  # tensors of one call
_DEEPEST = 3

COMPILE_CODE = torch.compile.__code__


class Given(typing.NamedTuple):
    """Where in the call a tensor stands."""

    positional: int  # how many positional arguments the wrapper got: a method's `self` is one of them
    key: int | str  # of the argument
    within: tuple[int | str, ...] = ()  # `batch["ids"]`: ("ids",)


def wrapper_codes() -> list[types.CodeType]:
    """The wrappers that `torch.compile` makes; it is about to import what defines them."""
    from torch._dynamo import eval_frame

    makers = [kind.__call__ for kind in (eval_frame._TorchDynamoContext, eval_frame.OptimizeContext)]
    found = {
        constant
        for maker in makers
        for constant in maker.__code__.co_consts
        if isinstance(constant, types.CodeType) and constant.co_name in env.COMPILED_WRAPPERS
    }
    return list(found)


def indices_in(args: tuple, named: dict, is_there: typing.Callable) -> list[tuple[Given, torch.Tensor]]:
    """Every tensor of whole numbers on the device, in containers too."""
    found: list[tuple[Given, torch.Tensor]] = []

    def look(value: typing.Any, at: Given, depth: int) -> None:
        if len(found) == _MOST:
            return
        if type(value) is torch.Tensor:
            if value.dtype in _WHOLE and is_there(value):
                found.append((at, value))
        elif depth < _DEEPEST:
            if isinstance(value, (list, tuple)):
                for position, one in enumerate(value[:_MOST]):
                    look(one, at._replace(within=(*at.within, position)), depth + 1)
            elif isinstance(value, dict):
                for key, one in list(value.items())[:_MOST]:
                    if isinstance(key, (str, int)):
                        look(one, at._replace(within=(*at.within, key)), depth + 1)

    for position, value in enumerate(args):
        look(value, Given(len(args), position), 0)
    for key, value in named.items():
        look(value, Given(len(args), key), 0)
    return found


_WHOLE = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8)

"""Inputs from their description on the command line: `--shapes 1,32,100 4,7:int64<50 =0.5`."""

from __future__ import annotations

import ast
import re
import typing

import torch

from torchsleuth.errors import UsageError


def inputs_from(texts: typing.Sequence[str], dtype: str, device: str, seed: int | None) -> tuple:
    """The inputs that `--shapes` describes."""
    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        raise UsageError(f"--dtype {dtype} is not a floating-point type of torch")
    generator = torch.Generator().manual_seed(0 if seed is None else seed)
    try:
        return tuple(_input(text, kind, device, generator) for text in texts)
    except RuntimeError as error:
        raise UsageError(f"--device {device}: {str(error).splitlines()[0]}") from None


def _input(text: str, dtype: torch.dtype, device: str, generator: torch.Generator) -> typing.Any:
    if text.startswith("="):
        try:
            return ast.literal_eval(text[1:])
        except (ValueError, SyntaxError):
            raise UsageError(f"--shapes {text}: what follows = must be a Python number, string, tuple, True, False or None") from None
    found = re.fullmatch(r"(\(\)|\[?\d*(?:[,x]\d+)*,?\]?)(?::(\w+)(?:<(\d+))?)?", text.replace(" ", ""))
    if not found:
        raise UsageError(f"--shapes {text}: expected a shape such as 1,32,100, a shape with a type such as 4,7:int64<50, or =VALUE")
    shape = tuple(int(n) for n in re.findall(r"\d+", found[1]))
    kind = getattr(torch, found[2], None) if found[2] else dtype
    if not isinstance(kind, torch.dtype):
        raise UsageError(f"--shapes {text}: torch has no type {found[2]}")
    if kind is torch.bool:
        return torch.randint(0, 2, shape, generator=generator, device="cpu").bool().to(device)
    if kind in (torch.complex64, torch.complex128):
        return torch.randn(shape, generator=generator, dtype=kind, device="cpu").to(device)
    if kind.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu").to(kind).to(device)
    return torch.randint(0, int(found[3] or 2), shape, generator=generator, device="cpu").to(kind).to(device)

"""Lines of a reproduction: tensors in the shapes, dtypes and with the names of the user's. Pure text."""

from __future__ import annotations

import keyword
import re

from torchsleuth.evidence import TensorFact

_RESERVED = {"torch", "F", "nn", "step", "range", "loss"}


def identifier(name: str, fallback: str) -> str:
    """A variable for what the user calls `model.encoder.weight` or `hs[0]`: the last part that can be one."""
    parts = [part for part in re.split(r"[^\w]+", name) if part.isidentifier() and not keyword.iskeyword(part)]
    parts = [part for part in parts if part != "self"]
    return parts[-1] if parts and parts[-1] not in _RESERVED else fallback


def sizes(shape: tuple[int, ...]) -> str:
    return ", ".join(str(size) for size in shape) if shape else "()"


def tensor(shape: tuple[int, ...], dtype: str = "float32", requires_grad: bool = False) -> str:
    """An expression that makes such a tensor."""
    grad = ", requires_grad=True" if requires_grad else ""
    if dtype.startswith(("float", "bfloat", "complex")):
        kind = "" if dtype == "float32" else f", dtype=torch.{dtype}"
        return f"torch.randn({sizes(shape)}{kind}{grad})"
    return f"torch.zeros({sizes(shape)}, dtype=torch.{dtype})"


def with_history(fact: TensorFact) -> str:
    """A tensor of this kind that is the result of an operation, so that it may be written in place."""
    if not fact.dtype.startswith(("float", "bfloat", "complex")):
        return tensor(fact.shape, fact.dtype)
    return f"{tensor(fact.shape, fact.dtype, True)}.clone()"


def function(body: list[str], indent: str = "    ") -> list[str]:
    return [f"{indent}{line}" for line in body]

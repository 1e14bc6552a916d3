"""What a value is that stands where a tensor is wanted, in words; and whether something of tensors was asked of one."""

from __future__ import annotations

import re
import typing

import torch

from torchsleuth.errors import message_of

ATTRIBUTE = re.compile(r"'([\w.]+)' object has no attribute '(\w+)'")
# Asked of None, these say that a tensor was expected: nothing else has them.
_TENSORS_ALONE = frozenset({
    "backward", "unsqueeze", "permute", "detach", "requires_grad_", "grad_fn", "contiguous", "softmax", "log_softmax", "sigmoid", "relu", "dim",
    "long", "float", "half", "cpu", "cuda", "masked_fill", "matmul",
})  # fmt: skip


def asked_of_no_tensor(error: BaseException) -> bool:
    """`out.size(0)` where `out` is a tuple of tensors: an attribute that tensors have, asked of something that holds or replaces one."""
    if not isinstance(error, AttributeError) or not ATTRIBUTE.search(message_of(error)):
        return False
    thing, name = error.obj, error.name or ""
    if not hasattr(torch.Tensor, name):
        return False
    return name in _TENSORS_ALONE if thing is None else _is_array(thing) or type(thing) in (tuple, list, dict) and _holds(thing)


def kind_of(value: typing.Any) -> str:
    """As torch's messages name a type: its own name, with the package for what is not built in."""
    cls = type(value)
    name = cls.__qualname__
    return f"{cls.__module__}.{name}" if cls.__module__ == "numpy" or cls.__module__.startswith("torch.return_types") else name


def _is_array(value: typing.Any) -> bool:
    return type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"


def _holds(value: typing.Any, depth: int = 2) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    values = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return depth > 0 and any(_holds(item, depth - 1) for item in list(values)[:64])


def parts_of(value: typing.Any) -> tuple[str, ...]:
    """The names under which the parts of a result can be had."""
    if isinstance(value, dict):
        return tuple(str(key) for key in list(value)[:8])
    return tuple(name for name in ("values", "indices") if type(value).__module__.startswith("torch.return_types") and hasattr(value, name))


def described(value: typing.Any) -> tuple[str, str]:
    """A kind, and what it is in words."""
    if value is None:
        return "None", "None"
    if isinstance(value, torch.Tensor):
        return "tensor", _item(value)
    if _is_array(value):
        return "array", f"a numpy array of shape {list(value.shape)}, {value.dtype}"
    if isinstance(value, dict):
        keys = ", ".join(f"`{key}`" for key in list(value)[:6])
        word = "dict" if type(value) is dict else type(value).__name__
        return "dict", f"a {word} with {keys}" if keys else f"an empty {word}"
    if isinstance(value, (list, tuple)):
        return ("tuple" if isinstance(value, tuple) else "list"), _sequence(value)
    if isinstance(value, (bool, int, float, complex)):
        return "number", f"the number {value!r}"
    if isinstance(value, str):
        return "text", "a text"
    return "object", f"a {type(value).__name__}"


def _sequence(value: list | tuple) -> str:
    word = "tuple" if isinstance(value, tuple) else "list"
    if type(value).__module__.startswith("torch.return_types"):
        return f"a pair of {' and '.join(parts_of(value)) or 'results'}"
    if value and all(isinstance(item, torch.Tensor) for item in value):
        shapes = {tuple(item.shape) for item in value}
        if len(value) == 1:
            return f"a {word} of one tensor {list(value[0].shape)}"
        return f"a {word} of {len(value)} tensors" + (f", each {list(value[0].shape)}" if len(shapes) == 1 else f": {', '.join(str(list(item.shape)) for item in value[:4])}{', …' if len(value) > 4 else ''}")
    if len(value) > 4 or not _holds(value):
        inner = {type(item).__name__ for item in value}
        return f"a {word} of {len(value)}" + (f" ({inner.pop()})" if len(inner) == 1 else "")
    return f"a {word} of {len(value)}: {' and '.join(_item(item) for item in value)}"


def _item(value: typing.Any) -> str:
    return f"a tensor {list(value.shape)}" if isinstance(value, torch.Tensor) else described(value)[1]

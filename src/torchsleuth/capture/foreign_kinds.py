"""What a value is that stands where a tensor is wanted, in words; and whether something of tensors was asked of one."""

from __future__ import annotations

import ast
import dataclasses
import re
import typing

import torch

from torchsleuth.errors import message_of

_MOST_PARTS = 8
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
    if thing is None:
        return name in _TENSORS_ALONE or name.endswith("_") and not name.startswith("_")
    return _is_array(thing) or (type(thing) in (tuple, list, dict) or hasattr(thing, "_fields") or dataclasses.is_dataclass(thing)) and _holds(thing)


_PLAIN_OPERATION = re.compile(r"unsupported operand type\(s\) for \S+: '\w+' and '\w+'|can't multiply sequence by non-int of type 'float'")


def plain_operand(error: BaseException, node: ast.AST | None, value_of: typing.Callable[[ast.AST], typing.Any]) -> tuple[ast.expr, typing.Any] | None:
    """The side of `0.1 * w.grad`, or of `0.9 * q.max(1)`, that should be a tensor where the other is a plain number: Python names no tensor then."""
    if not isinstance(error, TypeError) or not isinstance(node, ast.BinOp) or not _PLAIN_OPERATION.search(message_of(error)):
        return None
    sides = [(side, value_of(side)) for side in (node.left, node.right)]
    if any(isinstance(value, torch.Tensor) for _, value in sides):
        return None
    odd = [(side, value) for side, value in sides if isinstance(value, (tuple, list, dict)) and _holds(value)]
    if "'NoneType'" in message_of(error):  # reading `.grad` of a result warns, so only its tensor is looked at
        odd = [(side, None) for side, _ in sides if isinstance(side, ast.Attribute) and side.attr == "grad" and isinstance(value_of(side.value), torch.Tensor)]
    return odd[0] if len(odd) == 1 else None


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
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        values = [vars(value).get(name) for name in parts_of(value)] if hasattr(value, "__dict__") else []
    return depth > 0 and any(_holds(item, depth - 1) for item in list(values)[:64])


def parts_of(value: typing.Any) -> tuple[str, ...]:
    """The names under which the parts of a result can be had."""
    if isinstance(value, dict):
        return tuple(str(key) for key in list(value)[:_MOST_PARTS])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple(map(str, value._fields[:_MOST_PARTS]))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return tuple(field.name for field in dataclasses.fields(value)[:_MOST_PARTS] if hasattr(value, field.name))
    return tuple(name for name in ("values", "indices") if type(value).__module__.startswith("torch.return_types") and hasattr(value, name))


def shapes_of(value: typing.Any) -> tuple[tuple[int, ...] | None, ...]:
    """Of the parts of a result, in the order of `parts_of` where they have names."""
    if isinstance(value, dict):
        items = list(value.values())
    elif isinstance(value, (list, tuple)):
        items = list(value)
    else:
        items = [vars(value).get(name) for name in parts_of(value)] if hasattr(value, "__dict__") else []
    return tuple(tuple(item.shape) if isinstance(item, torch.Tensor) else None for item in items[:_MOST_PARTS])


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
        kind = "object" if dataclasses.is_dataclass(value) else "dict"  # what transformers returns is both
        return kind, f"a {word} with {keys}" if keys else f"an empty {word}"
    if isinstance(value, (list, tuple)):
        return ("tuple" if isinstance(value, tuple) else "list"), _sequence(value)
    if isinstance(value, (bool, int, float, complex)):
        return "number", f"the number {value!r}"
    if isinstance(value, str):
        return "text", "a text"
    names = ", ".join(f"`{name}`" for name in parts_of(value)[:6])
    return "object", f"{'an' if type(value).__name__[0] in 'AEIOU' else 'a'} {type(value).__name__}{f' with {names}' if names else ''}"


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

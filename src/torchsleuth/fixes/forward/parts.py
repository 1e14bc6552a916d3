"""Which part of a result is the tensor that is meant: by what it is used for, by its shape, by its name.

Each question leaves fewer of them; where more than one is left after all, nothing can be said.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from torchsleuth.evidence_forward import FailedOperation, Foreign
from torchsleuth.fixes.script import Scripts, path_of
from torchsleuth.frozen import frozen

# What people call the one tensor of a result that the others only accompany.
_MAIN = ("logits", "output", "outputs", "out", "pred", "preds", "prediction", "predictions", "scores", "recon", "reconstruction", "y_hat", "values", "last_hidden_state")
_LOSSES = ("loss", "total_loss")


@frozen
class Part:
    """One part of a result: how it is reached, what the program calls it, and its shape (None: no tensor)."""

    position: int
    access: str  # `[0]`, `["logits"]`, `.logits`
    name: str
    shape: tuple[int, ...] | None


def parts(given: Foreign, scripts: Scripts) -> list[Part]:
    names = list(given.parts) or _names_returned(given, scripts)
    if given.kind == "dict":
        texts = [(name, shape) for name, shape in zip(given.parts, given.shapes, strict=False) if re.fullmatch(r"[A-Za-z_][\w .-]*", name)]
        return [Part(k, f'["{name}"]', name, shape) for k, (name, shape) in enumerate(texts)]
    if given.kind == "tuple":
        named = bool(given.parts)
        return [Part(k, f".{names[k]}" if named else f"[{k}]", names[k] if k < len(names) else "", shape) for k, shape in enumerate(given.shapes)]
    return [Part(k, f".{name}", name, shape) for k, (name, shape) in enumerate(zip(given.parts, given.shapes, strict=False))]


def meant(found: list[Part], operation: FailedOperation, given: Foreign, variable: str) -> Part | None:
    """The one part that fits; None where there are several, or none."""
    tensors = [part for part in found if part.shape is not None]
    if re.search(r"has no attribute 'backward'", operation.message) or operation.name == "backward":
        return _one([part for part in tensors if part.shape == ()]) or _one([part for part in tensors if part.shape == () and part.name in _LOSSES])
    left = [part for part in tensors if part.shape]
    for fits in (_size_fits(operation), lambda part: _same_name(part.name, variable), lambda part: part.name in _MAIN):
        narrowed = [part for part in left if fits(part)]
        left = narrowed or left
        if len(left) == 1:
            return left[0]
    # By convention the result comes first, and what accompanies it has another shape: two of a kind (`return q1, q2`) are equals.
    first = found[0] if found and given.kind == "tuple" and found[0] in left else None
    return first if first is not None and all(part.shape != first.shape for part in tensors if part is not first) else None


def _one(found: list[Part]) -> Part | None:
    return found[0] if len(found) == 1 else None


def _size_fits(operation: FailedOperation) -> Callable[[Part], bool]:
    """What a layer's weight, or a loss's target, demands of the shape."""
    weight, target = operation.operand("weight"), operation.operand("target", "targets")
    shapes = {operand.shape for operand in operation.operands if operand.argument in ("target", "targets", "other")}
    if operation.name == "linear" and weight is not None and len(weight.shape) == 2:
        return lambda part: part.shape[-1] == weight.shape[1]
    if target is not None and operation.name in ("cross_entropy", "cross_entropy_loss", "nll_loss") and target.tensor.dtype == "int64":
        return lambda part: (part.shape[0], *part.shape[2:]) == target.shape
    return lambda part: part.shape in shapes


def _same_name(name: str, variable: str) -> bool:
    one, other = name.lower(), variable.lower().split(".")[-1]
    short, long = sorted((one, other), key=len)
    return len(short) >= 4 and long.startswith(short) or bool(one) and one == other


def _names_returned(given: Foreign, scripts: Scripts) -> list[str]:
    """`return recon, mu, logvar`: what the function itself calls them."""
    found = scripts.node_at(given.layer_made.place) if given.story == "returns" and given.layer_made is not None else None
    return [path_of(item) for item in found[1].elts] if found is not None and isinstance(found[1], ast.Tuple) else []

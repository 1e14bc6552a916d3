"""Shapes as broadcasting lays them over each other."""

from __future__ import annotations

from torchsleuth.evidence_forward import Operand, shortened


def aligned(operands: list[Operand], leading: bool = False) -> str:
    """Shapes one under the other, aligned at the right as broadcasting does, with the clashing dimension marked; `leading`: as in
    `clashing_axes`."""
    rank = max(len(operand.shape) for operand in operands)
    columns, own = [], clashing_axes(operands, leading)
    for axis in range(-rank, 0):
        sizes = [str(operand.shape[axis]) if -axis <= len(operand.shape) else "" for operand in operands]
        columns.append((max(len(size) for size in sizes), sizes))
    names = [shortened(operand.source or operand.tensor.name or operand.argument, 32) for operand in operands]
    widest = max(len(name) for name in names)
    rows = []
    for position, name in enumerate(names):
        cells = "  ".join(f"{sizes[position]:>{width}}" for width, sizes in columns)
        rows.append(f"{name:<{widest}}  {cells}")
    marks = "  ".join(f"{'^' * width if axis in own else ' ' * width}" for axis, (width, _) in zip(range(-rank, 0), columns))
    return "\n".join([*rows, f"{'':<{widest}}  {marks}".rstrip()])


def clashes(sizes: list[str]) -> bool:
    real = {size for size in sizes if size not in ("", "1")}
    return len(real) > 1


def clashing_axes(operands: list[Operand], leading: bool = False) -> list[int]:
    """Negative axes at which the shapes cannot be broadcast; `leading`: not the last two, which a product of matrices multiplies."""
    rank = max((len(operand.shape) for operand in operands), default=0)
    found = []
    for axis in range(-rank, -2 if leading else 0):
        if clashes([str(operand.shape[axis]) if -axis <= len(operand.shape) else "" for operand in operands]):
            found.append(axis)
    return found

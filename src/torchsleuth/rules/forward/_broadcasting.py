"""Shapes as broadcasting lays them over each other."""

from __future__ import annotations

from torchsleuth.evidence_forward import Operand, shortened


def aligned(operands: list[Operand]) -> str:
    """Shapes one under the other, aligned at the right as broadcasting does, with the clashing dimension marked."""
    rank = max(len(operand.shape) for operand in operands)
    columns = []
    for axis in range(-rank, 0):
        sizes = [str(operand.shape[axis]) if -axis <= len(operand.shape) else "" for operand in operands]
        columns.append((max(len(size) for size in sizes), sizes))
    names = [shortened(operand.source or operand.tensor.name or operand.argument, 32) for operand in operands]
    widest = max(len(name) for name in names)
    rows = []
    for position, name in enumerate(names):
        cells = "  ".join(f"{sizes[position]:>{width}}" for width, sizes in columns)
        rows.append(f"{name:<{widest}}  {cells}")
    marks = "  ".join(f"{'^' * width if clashes(sizes) else ' ' * width}" for width, sizes in columns)
    return "\n".join([*rows, f"{'':<{widest}}  {marks}".rstrip()])


def clashes(sizes: list[str]) -> bool:
    real = {size for size in sizes if size not in ("", "1")}
    return len(real) > 1


def clashing_axes(operands: list[Operand]) -> list[int]:
    """Negative axes at which the shapes cannot be broadcast."""
    rank = max((len(operand.shape) for operand in operands), default=0)
    found = []
    for axis in range(-rank, 0):
        if clashes([str(operand.shape[axis]) if -axis <= len(operand.shape) else "" for operand in operands]):
            found.append(axis)
    return found

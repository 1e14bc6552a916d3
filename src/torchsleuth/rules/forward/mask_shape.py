"""A boolean mask that is not shaped like what it selects from."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.model import Diagnosis, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import of_axis
from torchsleuth.rules.forward._report import report
from torchsleuth.rules.forward._words import expr, failed, inferred, line_of, seen, shape


class MaskShape(CrashRule):
    """A mask selects from a tensor and does not have the sizes of the dimensions it covers.

    What happened
    -------------
    `x[mask]` picks the elements where `mask` is true. The mask must have exactly the sizes of the dimensions it covers,
    starting at the dimension where it stands: masks are not broadcast. A uint8 tensor counts as a mask, too.

    Why
    ---
    The mask was made for another length or another dimension, or a uint8 tensor that holds positions is taken for a
    mask.

    Example
    -------
    This raises "The shape of the mask [4] at index 0 does not match the shape of the indexed tensor [3, 4] at index 0":

        import torch

        x = torch.zeros(3, 4)
        mask = torch.tensor([True, False, True, True])     # meant for the columns
        x[mask]

    Fix
    ---
    Put the mask where its dimension is (`x[:, mask]`), or make it of the right length; for positions use `.long()`.

    Common false explanations
    -------------------------
    "Masks broadcast." They do in `x * mask` and `torch.where`, not in `x[mask]`. This prints a shape:

        import torch

        x, mask = torch.zeros(3, 4), torch.tensor([True, False, True, True])
        print(x[:, mask].shape)
    """

    name = "mask-shape"
    messages = (r"The shape of the mask \[", r"only supports boolean masks", r"expected condition to be a boolean tensor", r"expected BoolTensor|expected self dtype.*mask|mask.* must be (bool|Bool)")
    needs = ("operation",)
    priority = 12

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        message = line_of(operation.message)
        said = re.search(r"mask \[([\d, ]*)\] at index (\d+) does not match the shape of the indexed tensor \[([\d, ]*)\] at index (\d+)", message)
        if not said:
            mask = operation.operand("mask", "condition")
            return report(
                self.name, operation, title=f"{mask.called if mask else 'The mask'} is no boolean mask{f': dtype {mask.tensor.dtype}' if mask else ''}",
                label="a mask must be bool", lead=mask, why=f"torch says: {message}",
                creates=[(mask.dtype_made, f"{mask.called} gets its dtype {mask.tensor.dtype} here")] if mask else [],
                fixes=[f"`{expr(mask, 'mask')}.bool()`, or a comparison such as `== 0` where it is made." if mask else "`mask.bool()`."],
            )  # fmt: skip
        sizes = tuple(int(size) for size in said[1].split(",") if size.strip())
        item = next((i for i in operation.index if i.kind == "mask" and i.shape == sizes), None)
        mask = operation.operands[item.operand] if item is not None and item.operand is not None and item.operand < len(operation.operands) else None
        base = operation.operands[0] if operation.operands else None
        within, at = int(said[2]), int(said[4])
        start = item.axis if item is not None and item.axis is not None else 0
        within = at - start if 0 <= at - start < len(sizes) else within
        have = base.shape[at] if base is not None and at < len(base.shape) else None
        called = mask.called if mask is not None else "the mask"
        facts, fixes = [], []
        if mask is not None and mask.tensor.dtype == "uint8":
            facts.append(seen(f"{called} has dtype uint8: as an index that is a mask, not a list of positions."))
            fixes.append(f"For positions: `{mask.source or mask.tensor.name}.long()`.")
        if base is not None and len(sizes) == 1 and sizes[0] in base.shape and base.shape.index(sizes[0]) != at:
            axis = base.shape.index(sizes[0])
            facts.append(inferred(f"Dimension {axis} of {base.called} has size {sizes[0]}: the mask may be meant for that one."))
            fixes.append(f"Put it there: `{expr(base, 'x')}[{':, ' * axis}{mask.source if mask else 'mask'}]`.")
        if not fixes:
            fixes.append("Make the mask with the sizes of the dimensions it selects from.")
        creates = [of_axis(mask, within), of_axis(base, at)]
        return report(
            self.name, operation, title=f"{called} {shape(sizes)} does not fit {base.called if base else 'the tensor'} {f'[{said[3]}]'}",
            label=f"the mask has {sizes[within] if within < len(sizes) else sizes} where the tensor has {have}", role=Role.INDEX, lead=mask,
            why=f"A mask in `x[...]` must have exactly the sizes of the dimensions it covers, from dimension {start} on: "
            f"at dimension {at} the tensor has {have}, the mask {sizes[within] if within < len(sizes) else '?'}.",
            creates=creates, facts=facts, fixes=fixes,
        )  # fmt: skip

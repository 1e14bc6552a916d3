"""Indices of a dtype that cannot be indices."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import Operand
from torchsleuth.model import Diagnosis, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._report import report
from torchsleuth.rules.forward._words import code, expr, failed, line_of, seen, shape


class IndexDtype(CrashRule):
    """A tensor used as an index has a dtype that cannot be one.

    What happened
    -------------
    Indices are whole numbers: int64 (or int32 where the operation says so). Floating point tensors are refused, even
    if they hold whole numbers. bool and uint8 tensors are not indices but *masks*: `x[mask]` picks where it is true.

    Why
    ---
    Division (`/`), `mean`, `torch.tensor([1.0, 2.0])`, `float()` and numpy's default float64 all make floats; images
    and byte data make uint8.

    Example
    -------
    This raises "tensors used as indices must be long, int, byte or bool tensors":

        import torch

        x = torch.arange(5)
        i = torch.tensor([4, 2]) / 2
        x[i]

    Fix
    ---
    `i.long()`, or integer division (`//`) where the index is made. For a uint8 mask `mask.bool()`; for uint8 numbers
    that are meant as indices `i.long()`.

    Common false explanations
    -------------------------
    "uint8 is an integer type, so it can index." In `x[i]` it is a mask. This prints two different results:

        import torch

        x, i = torch.tensor([10, 20]), torch.tensor([1, 0], dtype=torch.uint8)
        print(x[i.bool()], x[i.long()])
    """

    name = "index-dtype"
    messages = (
        r"tensors used as indices must be",
        r"Expected tensor for argument #\d 'indices' to have one of the following scalar types",
        r"Expected dtype int\S* (or int64 )?for index",
        r"only integers, slices",
        r"one_hot is only applicable to index tensor",
        r"index.* (must be|to be) (an? )?(int|long|Long|integer)",
        r"expected .*(Int|Long).* for index",
        r"new\(\): invalid data type",
    )
    needs = ("operation",)
    priority = 12

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        message = line_of(operation.message)
        bad = _index(operation.operands, operation.name)
        item = next((item for item in operation.index if item.kind in ("float", "str", "other")), None)
        if bad is None and item is not None:
            title = f"`{item.source}` cannot be an index: it is a {item.kind}" if item.kind != "other" else f"`{item.source}` cannot be an index"
            return report(self.name, operation, title=title, label=f"{item.source} is no integer", role=Role.INDEX, why=f"torch says: {message}",
                          creates=[(item.made, f"{item.source} comes from here")], fixes=[f"Use an integer: `int({item.source})`, or `//` where it is computed."])  # fmt: skip
        if bad is None:
            if "new(): invalid data type" in message and not operation.index:
                return None
            return report(self.name, operation, title=f"An index in {code(operation.place.source)} has the wrong type", label="no integer index",
                          role=Role.INDEX, why=f"torch says: {message}")  # fmt: skip
        dtype = bad.tensor.dtype
        name = expr(bad, "index")
        return report(
            self.name, operation,
            title=f"{bad.called} is used as an index and has dtype {dtype}",
            label=f"dtype {dtype}; indices must be int64",
            role=Role.INDEX, lead=bad,
            why=f"Indices are positions, so they must be whole numbers: int64. {bad.called} has dtype {dtype}.",
            creates=[(bad.dtype_made, f"{bad.called} gets its dtype {dtype} here")],
            facts=[seen(f"{bad.called} has shape {shape(bad.shape)}, dtype {dtype}.")],
            fixes=[f"`{name}.long()`, or integer arithmetic (`//` instead of `/`) where it is made."],
        )  # fmt: skip


def _index(operands: tuple[Operand, ...], name: str) -> Operand | None:
    for operand in operands:
        if re.match(r"index|indices|input$|tensor$", operand.argument) and not re.match(r"(u?int(8|16|32|64)|bool)$", operand.tensor.dtype):
            if operand.argument == "input" and any(o.argument in ("index", "indices") for o in operands):
                continue
            return operand
    for operand in operands:
        if re.match(r"index|indices", operand.argument) and operand.tensor.dtype != "int64":
            return operand
    return next((operand for operand in operands if operand.argument in ("self", "tensor", "input") and name == "one_hot"), None)

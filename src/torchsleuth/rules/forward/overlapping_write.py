"""An in-place write into memory that several elements share, or that is read at the same time."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import FailedOperation, Made, Operand
from torchsleuth.model import Diagnosis, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import of_tensor
from torchsleuth.rules.forward._report import report
from torchsleuth.rules.forward._words import code, expr, failed, shape

_SHARED = r"more than one element of the written-to tensor refers to a single memory location"
_READ = r"some elements of the input tensor and the written-to tensor refer to a single memory location"
STRETCHED = ("expand", "expand_as", "broadcast_to", "broadcast_tensors", "meshgrid")


class OverlappingWrite(CrashRule):
    """A write in place into a tensor whose elements share memory, or into memory that the same operation reads.

    What happened
    -------------
    `expand` repeats a tensor without copying: its rows are all the same memory. A write in place would have to put different
    values into one place. Or two slices of one tensor overlap, and one is written while the other is read:
    `x[1:] += x[:-1]`.

    Why
    ---
    In which order the elements are written is not defined, so the result would not be either. torch refuses where it can tell.

    Example
    -------
    This raises "more than one element of the written-to tensor refers to a single memory location":

        import torch

        noise = torch.zeros(1, 3).expand(4, 3)
        noise += torch.randn(4, 3)

    Fix
    ---
    Give the result memory of its own: `x = x + y` instead of `x += y`, or `.clone()` after `expand` (or `repeat` in its place).
    This runs:

        import torch

        noise = torch.zeros(1, 3).expand(4, 3).clone()
        noise += torch.randn(4, 3)

    Common false explanations
    -------------------------
    "The shapes do not fit." They do. This prints torch.Size([4, 3]):

        import torch

        print((torch.zeros(1, 3).expand(4, 3) + torch.randn(4, 3)).shape)
    """

    name = "overlapping-write"
    messages = (_SHARED, _READ)
    needs = ("operation",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        target = written(operation) if operation is not None else None
        if operation is None or target is None:
            return None
        if re.search(_SHARED, operation.message):
            made = stretched(operation)
            words = f"this repeats it to {shape(target.shape)} without a copy"
            return report(
                self.name, operation, title=f"{code(operation.place.source)} writes into {target.called}, whose elements share memory", label=f"writes into {target.called}, in place",
                role=Role.MUTATE, lead=target if target.place is not None else None, creates=[(made, words) if made is not None else of_tensor(target)],
                why=f"Several elements of {target.called} {shape(target.shape)} are one place in memory, which cannot hold a value for each of them. torch refuses such writes.",
                fixes=[f"Give it memory of its own first: `.clone()`, or compute out of place: `{expr(target)} = {expr(target)} + ...`."],
            )  # fmt: skip
        others = [operand for operand in operation.operands if operand is not target]
        source = others[0] if len(others) == 1 else None
        read = source.called if source is not None else "what it reads"
        return report(
            self.name, operation, title=f"{code(operation.place.source)} writes into memory that it reads at the same time", label=f"{target.called} and {read} overlap in memory",
            role=Role.MUTATE, why="Whether an element is read before it is overwritten, or after, is not defined. torch refuses such writes.",
            fixes=[f"Read from a copy: `{expr(source) if source is not None else 'source'}.clone()`."],
        )  # fmt: skip


def written(operation: FailedOperation) -> Operand | None:
    return operation.operand("out") or (operation.operands[0] if operation.operands else None)


def stretched(operation: FailedOperation) -> Made | None:
    """The call that repeated the written tensor without a copy."""
    target = written(operation)
    steps = (target.formed, target.made, *target.chain) if target is not None else ()
    return next((made for made in steps if made is not None and made.operation in STRETCHED), None)

"""Shapes that cannot be broadcast together."""

from __future__ import annotations

import itertools
import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import FailedOperation, Operand
from torchsleuth.model import Confidence, Diagnosis, Fact, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._broadcasting import aligned, clashing_axes
from torchsleuth.rules.forward._culprits import Culprits, is_at_failure, of_rests, size_creates
from torchsleuth.rules.forward._report import advice
from torchsleuth.rules.forward._words import (
    TRUNCATE,
    code,
    config_facts,
    expr,
    failed,
    fully,
    is_about_positions,
    made_words,
    operand_facts,
    other_facts,
    setting_facts,
    shape,
)  # fmt: skip

_SIZES = re.compile(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension (\d+)")
_OUTPUT = re.compile(r"output with shape \[([\d, ]*)\] doesn't match the broadcast shape \[([\d, ]*)\]")


class Broadcast(CrashRule):
    """Two tensors of different shapes meet in an element-wise operation and cannot be broadcast.

    What happened
    -------------
    Element-wise operations line shapes up at the right. Two sizes fit where they are equal or one of them is 1 (or
    missing on the left). Somewhere they differ and neither is 1.

    Why
    ---
    Typical: a mask made for a sequence with one token more or less; a per-sample vector [B] against [B, C], which is
    lined up with C instead of B; batch and sequence swapped; two branches of a skip connection whose sizes went apart
    at an odd number.

    Example
    -------
    This raises "The size of tensor a (5) must match the size of tensor b (6) at non-singleton dimension 1":

        import torch

        scores = torch.randn(4, 5)
        mask = torch.ones(4, 6)
        scores * mask

    Fix
    ---
    Make the sizes agree where the wrong one is made. For a vector that belongs to the first dimension, add the missing
    one on the right: `weights.unsqueeze(-1)`. For swapped dimensions, `transpose`.

    Common false explanations
    -------------------------
    "The dtype of the mask is the problem." It is not: types are promoted. This prints the same sums twice:

        import torch

        x, mask = torch.ones(2, 3), torch.tensor([[1, 1, 0], [1, 0, 0]])
        print((x * mask).sum().item(), (x * mask.float()).sum().item())

    "A wrong mask shape gives an IndexError." In a product it gives a RuntimeError; only `x[mask]` gives an IndexError. This
    raises "must match the size of tensor b":

        import torch

        torch.ones(2, 3) * torch.ones(2, 4)
    """

    name = "broadcast-mismatch"
    messages = (
        r"must match the size of tensor b",
        r"doesn't match the broadcast shape",
        r"objects cannot be broadcast to a single shape",
        r"Attempting to broadcast a dimension of length",
    )
    needs = ("operation",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        pair = _clashing_pair(operation)
        culprits = Culprits()
        sizes = _SIZES.search(operation.message)
        if pair is None:
            return self._without_operands(operation, culprits, sizes)
        one, other = pair
        product = operation.name in _PRODUCTS
        axes = clashing_axes([one, other], product)
        axis = axes[-1]
        if sizes and len(axes) > 1:  # the message is about the last that clashes among several
            named = [a for a in axes if {one.shape[a], other.shape[a]} == {int(sizes[1]), int(sizes[2])}]
            axis = named[-1] if named else axis
        first, second = one.shape[axis], other.shape[axis]
        culprits.lead(operation, Role.OPERAND, f"{shape(one.shape)} against {shape(other.shape)}: {first} and {second} do not fit")
        short = _misplaced(one, other) if not product else None
        if short is not None:  # every size is right, and none of them is to be changed: only their places are wrong
            made = short.made if not is_at_failure(short.made, operation) else short.formed
            culprits.create(made, f"{short.called} {shape(short.shape)} comes from here")
        for clash in [axis, *(a for a in axes if a != axis)][:3] if short is None else ():
            for operand in (one, other):
                size_creates(culprits, operand, clash)
        divided, rests = of_rests(one, other, axis) if len(one.shape) == len(other.shape) else ([], [])
        for made, label in divided:
            culprits.create(made, label)
        if len(one.shape) == len(other.shape) == 4 and axis >= -2 and one.input_made is not None and one.input_made == other.input_made:
            culprits.create(one.input_for(axis), "both sizes are computed from this input")
        facts = [
            Fact(f"{fully(operand)} has shape {shape(operand.shape)}, dtype {operand.tensor.dtype}; its {operand.shape[axis]} at "
                 f"dimension {axis % len(operand.shape)}{_from(operand, axis, operation)}.", operand.known)
            for operand in (one, other)
        ]  # fmt: skip
        facts += rests + other_facts(operation, one, other)
        facts += config_facts(operation, first, second) + setting_facts(operation)
        explanation = f"Broadcasting lines shapes up at the right; sizes fit where they are equal or one of them is 1:\n{aligned([one, other], product)}"
        if product:
            explanation = f"A product multiplies the last two dimensions; those before them are broadcast, and fit where they are equal or one of them is 1:\n{aligned([one, other], True)}"
        story, fixes = _story(one, other, axis, operation) if not product else ("", _repeated(one, other, axis, operation))
        if operation.place.in_library and is_about_positions(operation, one.source, other.source):
            story, fixes = f"The sequence has {max(first, second)} tokens; the model has {min(first, second)} positions.", [TRUNCATE]
        if story:
            facts.append(Fact(story, Known.INFERRED))
        title = f"{one.called} {shape(one.shape)} and {other.called} {shape(other.shape)} cannot be broadcast: {first} against {second}"
        return Diagnosis(self.name, title, Confidence.CERTAIN, culprits.done(), tuple(facts), explanation, advice(*fixes))

    def _without_operands(self, operation: FailedOperation, culprits: Culprits, sizes: re.Match | None) -> Diagnosis:
        output = _OUTPUT.search(operation.message)
        if output and operation.operands:
            return self._output(operation, culprits, output)
        words = f"sizes {sizes[1]} and {sizes[2]} at dimension {sizes[3]} do not fit" if sizes else "shapes do not fit"
        culprits.lead(operation, Role.OPERAND, words)
        if sizes:
            for size in (int(sizes[1]), int(sizes[2])):
                for operand in operation.operands:
                    at = [k for k, own in enumerate(operand.shape) if own == size]
                    if len(at) == 1:
                        size_creates(culprits, operand, at[0])
        facts = operand_facts(operation) + setting_facts(operation)
        title = f"Shapes cannot be broadcast in {code(operation.place.source)}: {words}"
        why = "Element-wise operations line shapes up at the right; sizes fit where they are equal or one of them is 1."
        return Diagnosis(self.name, title, Confidence.CERTAIN, culprits.done(), tuple(facts), why)

    def _output(self, operation: FailedOperation, culprits: Culprits, output: re.Match) -> Diagnosis:
        """In place: the result would be larger than the tensor it must go into."""
        have, need = (f"[{text}]" for text in (output[1], output[2]))
        target = operation.operands[0]
        other = operation.operands[1] if len(operation.operands) > 1 else None
        culprits.lead(operation, Role.OPERAND, f"the result has shape {need}, and must go into {have}")
        if other is not None:
            culprits.create(other.made, f"{other.called} {shape(other.shape)} comes from here")
        culprits.create(target.made, f"{target.called} {shape(target.shape)} comes from here")
        title = f"{code(operation.place.source)} would make {target.called} larger: {have} cannot hold {need}"
        why = f"An in-place operation writes its result into its left operand, which has shape {have} and cannot grow; the two shapes together broadcast to {need}."
        facts = operand_facts(operation) + setting_facts(operation)
        return Diagnosis(
            self.name, title, Confidence.CERTAIN, culprits.done(), tuple(facts), why,
            advice("Write `x = x + y` instead of `x += y` if the larger shape is meant, or bring the right operand to the shape of the left."),
        )  # fmt: skip


_PRODUCTS = frozenset({"matmul", "__matmul__", "__rmatmul__", "rmatmul"})


def _repeated(one: Operand, other: Operand, axis: int, operation: FailedOperation) -> list[str]:
    """Fewer heads on one side than on the other, each of them for several."""
    small, large = sorted((one, other), key=lambda operand: operand.shape[axis])
    least, most = small.shape[axis], large.shape[axis]
    at = axis % len(small.shape)
    if least > 1 and most % least == 0:
        return [f"If each of the {least} is for {most // least} of the {most}: `{expr(small, 'x')}.repeat_interleave({most // least}, dim={at})`."]
    return [_agree(one, other, axis, operation)]


def _agree(one: Operand, other: Operand, axis: int, operation: FailedOperation) -> str:
    """Both places, with their numbers, for whoever knows which one is meant."""
    places = [f"the {operand.shape[axis]} of {operand.called}{_from(operand, axis, operation).replace(' comes from', ' in')}" for operand in (one, other)]
    return f"One of the two sizes has to change, {places[0]} or {places[1]}; or be 1 at dimension {axis % len(one.shape)}, to be used for all."


def _clashing_pair(operation: FailedOperation) -> tuple[Operand, Operand] | None:
    operands = [operand for operand in operation.operands if operand.shape]
    leading = operation.name in _PRODUCTS
    for one, other in itertools.combinations(operands, 2):
        if clashing_axes([one, other], leading):
            sizes = _SIZES.search(operation.message)
            if not sizes:
                return one, other
            wanted = {int(sizes[1]), int(sizes[2])}
            if any({one.shape[a], other.shape[a]} == wanted for a in clashing_axes([one, other], leading)):
                return one, other
    return None


def _from(operand: Operand, axis: int, operation: FailedOperation) -> str:
    words = made_words(operand.origin_of(axis), operation)
    return f" comes from {words}" if words else ""


def _misplaced(one: Operand, other: Operand) -> Operand | None:
    """The one with fewer dimensions, where they are the first of the other's."""
    small, large = sorted((one, other), key=lambda operand: len(operand.shape))
    return small if len(small.shape) < len(large.shape) and small.shape == large.shape[: len(small.shape)] else None


def _story(one: Operand, other: Operand, axis: int, operation: FailedOperation) -> tuple[str, list[str]]:
    small, large = sorted((one, other), key=lambda operand: len(operand.shape))
    rank = len(small.shape)
    if _misplaced(one, other) is not None:
        missing = len(large.shape) - rank
        name = (expr(small, "x")).strip()
        added = f"{name}[...{', None' * missing}]" if missing > 1 else f"{name}.unsqueeze(-1)"
        return (
            f"{small.called} fits the first {'dimension' if rank == 1 else f'{rank} dimensions'} of {large.called}, but is lined up with the last.",
            [f"Add the missing {'dimension' if missing == 1 else 'dimensions'} on the right: `{added}`."],
        )
    if len(one.shape) == len(other.shape) and one.shape != other.shape:
        for a, b in itertools.combinations(range(len(one.shape)), 2):
            swapped = list(other.shape)
            swapped[a], swapped[b] = swapped[b], swapped[a]
            if tuple(swapped) == one.shape:
                return (
                    f"With dimensions {a} and {b} swapped, {other.called} has the shape of {one.called}: batch and sequence (or rows and columns) may be swapped.",
                    [f"`{expr(other, 'x')}.transpose({a}, {b})`, if that is what the dimensions mean."],
                )
    difference = abs(one.shape[axis] - other.shape[axis])
    if difference == 1:
        return (
            "The sizes differ by one: one of the two counts an element more (a start or [CLS] token, a boundary, an odd size halved).",
            ["Make both from the same length, where the sizes come from."],
        )
    return "", [_agree(one, other, axis, operation)]

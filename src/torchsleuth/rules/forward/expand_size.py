"""An expand, or an assignment, to a size that the tensor cannot be stretched to."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import FailedOperation
from torchsleuth.model import Diagnosis
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import length_create, of_axis, of_tensor
from torchsleuth.rules.forward._report import report
from torchsleuth.rules.forward._words import TRUNCATE, argument_fact, code, config_facts, expr, failed, inferred, is_about_positions, line_of, seen

_SIZES = re.compile(
    r"expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\) at non-singleton dimension (\d+)\.\s+"
    r"Target sizes: \[([-\d, ]*)\]\.\s+Tensor sizes: \[([\d, ]*)\]"
)


class ExpandSize(CrashRule):
    """A tensor is stretched to a size that it cannot take.

    What happened
    -------------
    `expand` repeats a tensor along dimensions of size 1 without copying; all other sizes must stay. The same holds for
    values that are assigned to a part of a tensor (`x[0] = v`) or copied into one.

    Why
    ---
    The dimension that should be stretched is not of size 1: it needs an `unsqueeze` first, or the sizes are meant for
    another tensor. `repeat` and `tile` copy, and take how often instead of how large.

    Example
    -------
    This raises "The expanded size of the tensor (4) must match the existing size (3) at non-singleton dimension 1":

        import torch

        torch.zeros(2, 3).expand(2, 4)

    Fix
    ---
    `x.unsqueeze(1).expand(-1, n, -1)` for a new dimension; -1 keeps a size. For an assignment make the values as large
    as the part they go to.

    Common false explanations
    -------------------------
    "`expand` copies the data." It does not: all rows share one memory. This prints a stride of 0:

        import torch

        print(torch.zeros(1, 3).expand(5, 3).stride())
    """

    name = "expand-size"
    messages = (r"expanded size of the tensor", r"number of sizes provided \(\d+\) must be greater or equal", r"repeat dims can not be smaller")
    needs = ("operation",)
    priority = 9

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        message = line_of(operation.message)
        said = _SIZES.search(operation.message)
        if not said:
            tensor = operation.operands[0] if operation.operands else None
            sizes = operation.argument("size", "sizes", "repeats")
            if operation.name in ("__setitem__", "copy_", "setitem"):
                return _too_deep(self.name, operation)
            repeats = "repeat" in message
            return report(
                self.name, operation, title=f"{code(operation.place.source)} names fewer sizes than {tensor.called if tensor else 'the tensor'} has dimensions",
                label="too few sizes", why=f"torch says: {message}.", creates=[of_tensor(tensor)],
                facts=[seen(f"{argument_fact(sizes)}.")] if sizes is not None and sizes.value else [],
                fixes=["Say for every dimension how often, new ones first; 1 keeps a dimension as it is." if repeats else "Name a size (or -1) for every dimension, new ones first."],
            )  # fmt: skip
        want, have, axis = int(said[1]), int(said[2]), int(said[3])
        target = [int(size) for size in said[4].split(",") if size.strip()]
        existing = tuple(int(size) for size in said[5].split(",") if size.strip())
        tensor = next((o for o in reversed(operation.operands) if o.shape == existing), operation.operands[0] if len(operation.operands) == 1 else None)
        own = axis - len(target) + len(existing)
        creates = [of_axis(tensor, own)] if tensor is not None else []
        storing = operation.name in ("__setitem__", "copy_", "fill_", "setitem")
        receiver = operation.operands[0] if storing and operation.operands else None
        if receiver is not None and receiver is not tensor:
            at = axis - len(target) + len(receiver.shape)
            if 0 <= at < len(receiver.shape) and receiver.shape[at] == want:
                creates.append(of_axis(receiver, at))
        other = next((o for o in operation.operands if o is not tensor and o is not receiver and want in o.shape), None)
        if other is not None and not storing:
            creates.append(of_axis(other, other.shape.index(want)))
        facts = config_facts(operation, have, want)
        if operation.place.in_library:
            creates.insert(0, length_create(operation, want))
        argument = operation.argument("size", "sizes")
        element = operation.argument(f"size[{axis}]") if argument is not None else None
        if argument is not None and argument.value:
            facts.append(seen(f"{argument_fact(argument)}."))
        if element is not None:
            creates.append((element.made, f"{element.source} = {element.value} comes from here"))
        called = tensor.called if tensor is not None else "the tensor"
        title = f"{called} [{said[5]}] cannot be stretched to [{said[4]}]: {have} against {want}"
        if storing:
            title = f"{called} [{said[5]}] does not fit into {code(operation.place.source)}, which has shape [{said[4]}]"
        fixes = [f"Only dimensions of size 1 can be stretched. Add one with `unsqueeze`, or make the {have} a {want} where it comes from."]
        cut = next((item for item in operation.index if item.kind == "slice" and item.size is not None and item.axis is not None and item.size > want), None)
        if storing and cut is not None and receiver is not None and have > want and re.search(r":.*\+", cut.source):
            # `queue[at : at + n] = keys`, and the end of the queue is nearer than that
            creates.append(of_axis(receiver, cut.axis))
            facts.append(inferred(f"{receiver.called} has {cut.size} at dimension {cut.axis}: the slice `{cut.source}` seems to reach beyond the end, where it is cut off; {want} of {have} are left."))
            fixes = [f"Write only what fits, `{called.strip('`')}[:{want}]`, and the rest from the beginning on (`index = (torch.arange({have}) + start) % {cut.size}`), or let {have} divide {cut.size}."]
        elif storing:
            fixes = [f"Make the {have} of {called} a {want}, or select {have} places on the left side."]
        if operation.place.in_library and is_about_positions(operation, tensor.source if tensor else ""):
            facts.append(inferred(f"The sequence has {want} tokens; the model has {have} positions."))
            fixes = [TRUNCATE]
        return report(self.name, operation, title=title, label=f"has {have} at dimension {own}; {want} is needed", lead=tensor if not storing else None,
                      why=f"A tensor can be stretched only where its size is 1 (or the dimension is missing on the left); here it has {have}, and {want} is asked for.",
                      creates=creates, facts=facts, fixes=fixes)  # fmt: skip


def _too_deep(rule: str, operation: FailedOperation) -> Diagnosis:
    """`x[:, 0] = column`: what is written has more dimensions than the place it goes to."""
    said = re.search(r"\{\[([\d, ]*)\]\}, size=\[([\d, ]*)\]", operation.message)
    value = operation.operand("value", "src", "source", "other") or (operation.operands[-1] if operation.operands else None)
    have, want = (f"[{said[1]}]", f"[{said[2]}]") if said else ("what is written", "the place it goes to")
    called = value.called if value is not None else "the value"
    ones = value is not None and said is not None and tuple(size for size in value.shape if size != 1) == tuple(int(n) for n in said[2].split(",") if n.strip() and n.strip() != "1")
    fix = f"Drop the dimensions of size 1: `{expr(value)}.reshape({want})`." if ones and value is not None else "Write a value of the shape of the place, or select a larger place on the left side."
    return report(
        rule, operation, title=f"{called} {have} has more dimensions than {code(operation.place.source)}, which has shape {want}",
        label=f"shape {want}, for a value {have}", why="What is written is broadcast to the place it goes to: dimensions can be added to it at the front, none can be dropped.",
        creates=[of_tensor(value)], fixes=[fix],
    )  # fmt: skip

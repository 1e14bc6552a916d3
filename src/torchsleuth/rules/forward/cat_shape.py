"""Tensors that cannot be concatenated or stacked."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import FailedOperation, Operand
from torchsleuth.model import Diagnosis, Fact
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import of_axis, of_rests, of_tensor, squeezed, squeezer
from torchsleuth.rules.forward._report import report
from torchsleuth.rules.forward._words import argument_fact, code, expr, failed, inferred, line_of, seen, shape

_SHARED = "Trying to resize storage that is not resizable"  # what a DataLoader's worker says where `stack` would say more

class CatShape(CrashRule):
    """Tensors of different shapes are concatenated or stacked.

    What happened
    -------------
    `cat` joins along one dimension: all other sizes must be equal. `stack` makes a new dimension: all shapes must be
    equal. One tensor of the list differs.

    Why
    ---
    Typical: sequences of different lengths in a batch that nobody padded; the wrong `dim`; a sample of the dataset
    with an odd size; two branches of a network whose sizes went apart.

    Example
    -------
    This raises "stack expects each tensor to be equal size, but got [3] at entry 0 and [4] at entry 1":

        import torch

        torch.stack([torch.zeros(3), torch.zeros(4)])

    Fix
    ---
    Pad to one length (`torch.nn.utils.rnn.pad_sequence`), crop or resize where the odd one is made, or concatenate along
    the dimension that differs. In a DataLoader give a `collate_fn` that pads.

    Common false explanations
    -------------------------
    "The batch size is too large." The number of tensors does not matter. This prints a shape:

        import torch

        print(torch.stack([torch.zeros(3)] * 100).shape)
    """

    name = "cat-shape"
    messages = (
        r"Sizes of tensors must match except in dimension",
        r"Tensors must have same number of dimensions",
        r"stack expects each tensor to be equal size",
        r"zero-dimensional tensor \(at position \d+\) cannot be concatenated",
        r"expected a non-empty list of Tensors",
        r"stack expects a non-empty TensorList",
        _SHARED,
        r"expected Tensor as element \d+ in argument \d+, but got \w+",
    )
    needs = ("operation",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        message = line_of(operation.message)
        if operation.sample:  # what torch's own code calls `batch` is none of the program's variables
            named = (o if o.source else dataclasses.replace(o, argument=re.sub(r"^batch\[", "tensors[", o.argument)) for o in operation.operands)
            operation = dataclasses.replace(operation, operands=tuple(named))
        tensors = [operand for operand in operation.operands if operand.argument != "out"]  # a worker stacks into memory it shares
        operation = dataclasses.replace(operation, operands=tuple(tensors))
        if "non-empty" in message:
            argument = operation.argument("tensors")
            return report(
                self.name, operation, title=f"{code(operation.place.source)} was given an empty list", label="an empty list", why="There is nothing to join.",
                creates=[(argument.made, "the list comes from here")] if argument is not None else [], fixes=["Check why nothing was collected, or skip the join then."],
            )  # fmt: skip
        other = re.search(r"expected Tensor as element (\d+) in argument \d+, but got (\w+)", message)
        if other:
            return _no_tensors(self.name, operation, int(other[1]), other[2])
        if "zero-dimensional" in message and tensors and all(tensor.shape == () for tensor in tensors):
            return report(
                self.name, operation, title=f"The tensors in {code(operation.place.source)} are single numbers, with no dimension to join along",
                label="single numbers (shape [])", why="`cat` joins along a dimension that the tensors have; a single number has none. `stack` adds one.",
                creates=[of_tensor(tensors[0])], fixes=["Use `torch.stack`: it makes one tensor of the numbers."], shown=4,
            )  # fmt: skip
        entries = re.search(r"got \[([\d, ]*)\] at entry (\d+) and \[([\d, ]*)\] at entry (\d+)", message)
        number = re.search(r"Expected size (\d+) but got size (\d+) for tensor number (\d+)", message)
        if entries:
            odd, want, got = int(entries[4]), f"[{entries[1]}]", f"[{entries[3]}]"
        elif number:
            odd, want, got = int(number[3]), number[1], number[2]
        elif _SHARED in message:
            odd = next((k for k, tensor in enumerate(tensors) if tensor.shape != tensors[0].shape), None)
            want, got = (shape(tensors[0].shape), shape(tensors[odd].shape)) if odd is not None else ("", "")
        else:
            odd, want, got = _odd_rank(tensors), "", ""
        one = tensors[odd] if odd is not None and odd < len(tensors) else None
        first = tensors[0] if tensors and one is not tensors[0] else None
        dim = re.search(r"except in dimension (\d+)", message)
        usual = _usual(tensors)
        facts = []
        if len(tensors) > 4:
            counts = Counter(tensor.shape for tensor in tensors)
            facts.append(seen("Shapes in the list: " + ", ".join(f"{count} × {shape(sizes)}" for sizes, count in counts.most_common(4)) + "."))
        creates = _creates(one, first, dim)
        if not want and one is not None and first is not None:  # numbers of dimensions: the lower one lacks something
            one = min(one, first, key=lambda operand: len(operand.shape))
            creates = [(one.formed or one.made, f"{one.called} {shape(one.shape)} comes from here")]
            facts += squeezed(one)
        if one is not None and usual is not None and len(tensors) > 2 and one.shape == usual and first is not None and first.shape != usual:
            # the first one is the odd one out, though the message blames the second
            one, odd, got, want = first, 0, want, got
            creates = creates[::-1]
            facts.append(inferred(f"Most tensors have shape {shape(usual)}: the odd one is number 0, {first.called}."))
        images, rests = _image(tensors, dim)
        creates += images
        facts += rests
        if not any(made is not None for made, *_ in creates):
            creates.append((operation.sample_made, "the dataset's samples have their tensor from here"))
        cut = operation.cut_short
        if cut is not None:
            creates.append((cut.promised, "the dataset says here how many samples there are"))
            facts.append(inferred(f"Sample {cut.sample} ends at {cut.stop}, and `{cut.base}` has {cut.size}: its slice {code(cut.place.source)} is cut off there."))
        called = one.called if one is not None else "a tensor"
        if want:
            others = _others(tensors, odd)
            title = f"Tensor number {odd} of the list, {called}, has {got} where {others} {want}" if one is not None else (
                f"Tensor number {odd} of the list has {got} where {want} is needed")  # fmt: skip
        elif _SHARED in message:
            title = "The samples of one batch have tensors of different sizes"
        else:
            title = f"The tensors in {code(operation.place.source)} have different numbers of dimensions"
        why = (
            "A worker of the DataLoader stacks the samples in memory that it shares with the program; samples of one batch must have one shape."
            if _SHARED in message
            else "`stack` puts tensors of one shape on top of one another." if operation.name == "stack" or "stack" in message
            else f"`cat` joins along dimension {dim[1]}: in every other dimension all tensors must have the same size." if dim
            else "`cat` joins tensors with the same number of dimensions."
        )  # fmt: skip
        fixes = ["Pad to one length: `torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True)`, or make the shapes equal where they are made."]
        own = re.search(r"\b(stack|cat|concat|vstack|hstack)\(", operation.place.source)
        if not own and (operation.sample or "collate" in operation.place.source):
            fixes = ["Give the DataLoader a `collate_fn` that pads, or make `__getitem__` return one shape."]
            if cut is not None:
                fixes = ["Let `__len__` promise only samples whose slice ends within the tensor."]
        elif not want and len(tensors) == 2 and _pooled(tensors) is not None:
            fixes = [f"Drop the dimensions of size 1: `{expr(_pooled(tensors), 'x')}.flatten(1)`."]
        elif not want and one is not None and squeezer(one) is not None:
            fixes = ["Name the dimension that is to go, e.g. `squeeze(-1)`, or leave the `squeeze()` out."]
        elif not want and one is not None:
            fixes = [f"Give {called} the missing dimension: `{expr(one, 'x')}.unsqueeze(-1)` or `.unsqueeze(0)`, whichever it lacks."]
        elif one is not None and len(one.shape) >= 4:
            fixes = ["Crop, pad or resize one to the other (`F.pad`, `F.interpolate(a, size=b.shape[2:])`), or use sizes that halve without a rest."]
        elif dim and one is not None and first is not None and len(one.shape) == len(first.shape):
            differing = [k for k, (a, b) in enumerate(zip(one.shape, first.shape)) if a != b]
            if len(differing) == 1 and differing[0] != int(dim[1]):
                fixes = [f"If they are to be joined where they differ: `dim={differing[0]}`. Otherwise make the sizes equal where they are made."]
        return report(self.name, operation, title=title, label=f"{got} against {want}" if want else "different sizes" if _SHARED in message else "different numbers of dimensions",
                      lead=None, why=why, creates=creates, facts=facts, fixes=fixes, shown=4 if len(tensors) > 4 else 6)  # fmt: skip


def _no_tensors(rule: str, operation: FailedOperation, position: int, kind: str) -> Diagnosis:
    """A list of Python numbers, or of something else that is no tensor."""
    argument = operation.argument("tensors")
    called = code(argument.source) if argument is not None and argument.source else "the list"
    numbers = kind in ("int", "float", "bool")
    facts = [seen(f"{argument_fact(argument)}.")] if argument is not None and argument.value else []
    name = argument.source if argument is not None and argument.source else "values"
    return report(
        rule, operation, title=f"Element {position} of {called} is of type {kind}, not a tensor", label=f"element {position} is of type {kind}",
        why=f"`{operation.name or 'stack'}` joins tensors. A list of Python numbers becomes a tensor with `torch.tensor`." if numbers else f"`{operation.name or 'stack'}` joins tensors.",
        creates=[(argument.made, "the list comes from here")] if argument is not None else [], facts=facts,
        fixes=[f"`torch.tensor({name})`." if numbers else "Collect tensors only, or make tensors of the others first."],
    )  # fmt: skip


def _creates(one: Operand | None, first: Operand | None, dim: re.Match | None) -> list:
    creates = []
    for operand, other in ((one, first), (first, one)):
        if operand is None or other is None:
            continue
        axis = next((k for k, (a, b) in enumerate(zip(operand.shape, other.shape)) if a != b and (dim is None or k != int(dim[1]))), None)
        creates.append(of_axis(operand, axis) if axis is not None and len(operand.shape) == len(other.shape) else of_tensor(operand))
    return creates


def _image(tensors: list[Operand], dim: re.Match | None) -> tuple[list, list[Fact]]:
    """Feature maps whose sizes went apart in one network: the input that both were computed from."""
    ends = [tensor.input_made for tensor in tensors if len(tensor.shape) >= 4 and tensor.input_made is not None]
    if len(tensors) != 2 or len(ends) != 2 or ends[0].place.span != ends[1].place.span:
        return [], []
    axes = (k for k, (a, b) in enumerate(zip(tensors[0].shape, tensors[1].shape)) if a != b and (dim is None or k != int(dim[1])))
    axis = next(axes, -1)
    creates, rests = of_rests(tensors[0], tensors[1], axis)
    return [*creates, (tensors[0].input_for(axis), "both sizes are computed from this input")], rests


def _pooled(tensors: list[Operand]) -> Operand | None:
    """`[batch, channels, 1, 1]` beside `[batch, features]`."""
    short, long = sorted(tensors, key=lambda tensor: len(tensor.shape))
    return long if len(short.shape) == 2 and len(long.shape) > 2 and set(long.shape[2:]) == {1} and long.shape[0] == short.shape[0] else None


def _others(tensors: list[Operand], odd: int) -> str:
    if len(tensors) == 2:
        return "the other has"
    alike = len({tensor.shape for k, tensor in enumerate(tensors) if k != odd}) == 1
    return "the others have" if alike else f"number {0 if odd else 1} has"


def _odd_rank(tensors: list[Operand]) -> int | None:
    if not tensors:
        return None
    rank = len(tensors[0].shape)
    return next((k for k, tensor in enumerate(tensors) if len(tensor.shape) != rank), 0)


def _usual(tensors: list[Operand]) -> tuple[int, ...] | None:
    counts = Counter(tensor.shape for tensor in tensors).most_common(2)
    return counts[0][0] if counts and counts[0][1] > 1 and (len(counts) == 1 or counts[0][1] > counts[1][1]) else None

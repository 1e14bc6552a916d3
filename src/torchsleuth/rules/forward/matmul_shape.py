"""Matrices whose inner sizes differ."""

from __future__ import annotations

import math
import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import FailedOperation, Operand
from torchsleuth.model import Confidence, Diagnosis, Fact, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import Culprits, size_creates
from torchsleuth.rules.forward._report import advice, for_the_input
from torchsleuth.rules.forward._words import code, expr, failed, fully, made_words, operand_facts, setting_facts, shape

_MOST_NUMBERS = 3


class MatmulShape(CrashRule):
    """A matrix product, or a linear layer, of tensors whose inner sizes differ.

    What happened
    -------------
    `a @ b` needs the last size of `a` to equal the second-last of `b`. A linear layer with `in_features=n` needs
    inputs whose last dimension has size n.

    Why
    ---
    The layer was built for another number of features: the input was not flattened, or flattened with the batch; the
    images have another size than the layer behind the convolutions was computed for; one matrix is transposed; a
    concatenation added features.

    Example
    -------
    This raises "mat1 and mat2 shapes cannot be multiplied (4x5 and 6x3)":

        import torch

        layer = torch.nn.Linear(6, 3)
        layer(torch.randn(4, 5))

    Fix
    ---
    Give the layer the number of features that arrive (`nn.Linear(5, 3)`), or bring the input to the expected form
    before it. `nn.LazyLinear(3)` takes the number from the first input.

    Common false explanations
    -------------------------
    "The batch size is wrong." The batch size does not matter here, only the last dimension. This prints two shapes:

        import torch

        layer = torch.nn.Linear(6, 3)
        print(layer(torch.randn(4, 6)).shape, layer(torch.randn(7, 2, 6)).shape)
    """

    name = "matmul-shape"
    messages = (
        r"mat1 and mat2 shapes cannot be multiplied",
        r"size mismatch, got input",
        r"Expected size for first two dimensions of batch2 tensor",
        r"inconsistent tensor size, expected tensor",
        r"einsum\(\):",
        r"a and b must have same reduction dim",
        r"1D tensors expected, but got",
        r"(batch1|batch2|self|mat2|mat1|input) must be a (3D tensor|matrix)",
        r"(vector \+ )?matrix @ (matrix|vector) expected",
        r"X1 and X2 must have the same number of columns",
        r"bilinear\(\): input\d size does not match",
        r"both arguments to (linear|matmul) need to be at least 1D",
        r"mat\d? ?(and|,).*(dimension|shape)",
    )
    needs = ("operation",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        if "einsum()" in operation.message:
            return _einsum(self.name, operation)
        if "must have the same number of columns" in operation.message and len(operation.operands) == 2:
            return _columns(self.name, operation, *operation.operands)
        pair = _factors(operation)
        culprits = Culprits()
        if pair is None:
            culprits.lead(operation, Role.OPERAND, "the sizes of this product do not fit")
            facts = operand_facts(operation) + setting_facts(operation)
            return Diagnosis(
                self.name, f"The sizes of a matrix product do not fit in {code(operation.place.source)}", Confidence.CERTAIN,
                culprits.done(), tuple(facts), operation.message.splitlines()[0],
            )  # fmt: skip
        left, right, left_axis, right_axis = pair
        if left_axis is None or right_axis is None:
            return self._ranks(operation, left, right, culprits)
        linear = operation.name in ("linear", "bilinear") or operation.module_type in ("Linear", "Bilinear")
        linear = linear or right.argument == "weight" and right_axis == -1
        maker = right.origin_of(right_axis) or right.made
        if linear and operation.module_made is not None and (maker is None or right.tensor.kind != "parameter"):
            maker = operation.made_for(right.shape[right_axis])  # a part of a layer's packed weight
        have, want = left.shape[left_axis], right.shape[right_axis]
        unnamed = f"the {operation.module_type} layer" if operation.module_type else right.called  # `nn.Linear(4, 4)(x)`
        layer = f"`{operation.module}`" if operation.module else unnamed
        called = left.called if left.source or left.tensor.name or not linear else f"the input of {layer}"
        label = f"last size {have}, the layer takes {want}" if linear else f"{shape(left.shape)} @ {shape(right.shape)}: {have} against {want}"
        culprits.lead(operation, Role.OPERAND, label, left if linear else None)
        size_creates(culprits, left, left_axis)
        made = left.origin_of(left_axis % len(left.shape))
        if linear and made is not None and made.operation in ("flatten", "view", "reshape") and left.input_made is not None:
            culprits.create(left.input_made, f"the {have} features are computed from this input")
        terms = left.terms_of(left_axis)
        for term in operation.not_counted[:2] if linear else ():
            culprits.create(term.made, f"{called} has the {term.size} in its {have} from here")
        if linear:
            culprits.create(maker, f"the layer is made for {want} features here")
            for part in operation.computed_from[:_MOST_NUMBERS]:
                culprits.create(part, f"the {want} is computed from this")
        else:
            size_creates(culprits, right, right_axis)
        both = linear and operation.both_directions and have == 2 * want
        facts = [Fact(f"{called if linear else fully(left)} has shape {shape(left.shape)}, dtype {left.tensor.dtype}; its {have} at dimension "
                      f"{left_axis % len(left.shape)}{_from(left, left_axis, operation)}.", left.known)]  # fmt: skip
        if linear:
            made = made_words(maker if right.tensor.kind != "parameter" else right.made, operation)
            facts.append(Fact(f"{layer} takes {want} features: its weight has shape {shape(right.shape)}{f', made by {made}' if made else ''}.", right.known))
            parts = left.parts_of(left_axis)
            if len(parts) > 1:
                facts.append(Fact(f"The {have} features are {' × '.join(str(part.size) for part in parts)}.", Known.OBSERVED))
            if terms:
                facts.append(Fact(f"The {have} features are {' + '.join(str(term.size) for term in terms)}, joined by {made_words(left.origin_of(left_axis), operation)}.", Known.OBSERVED))
            if both:
                facts.append(Fact(f"{made_words(left.origin_of(left_axis % len(left.shape)), operation)} is a bidirectional layer's and returns both directions: 2 × {want} = {have} features.", Known.OBSERVED))
        else:
            facts.append(Fact(f"{fully(right)} has shape {shape(right.shape)}, dtype {right.tensor.dtype}; its {want} at dimension "
                              f"{right_axis % len(right.shape)}{_from(right, right_axis, operation)}.", right.known))  # fmt: skip
        facts += setting_facts(operation)
        story, fixes = _story(left, right, left_axis, right_axis, linear)
        if linear and right.tensor.kind != "parameter" and operation.module_type not in ("", "Linear") and not story:
            fixes = [f"Build the {operation.module_type} for {have} features, or make the input {want} wide where it is made."]
        if len(right.shape) == 3 and linear:
            story, fixes = "", [f"Build the layer with `in{right_axis}_features={have}`, or make that input {want} wide where it is made."]
        if story:
            facts.append(Fact(story, Known.INFERRED))
        if linear:
            title = f"{called} has {have} features; {layer} takes {want}"
            why = f"A linear layer multiplies the last dimension of its input with its weight: that dimension must have size {want}, and has {have}."
        else:
            title = f"{left.called} {shape(left.shape)} and {right.called} {shape(right.shape)} cannot be multiplied: {have} against {want}"
            why = "In a matrix product the last size of the left factor must equal the second-last of the right one (the last, for a vector)."
        return Diagnosis(self.name, title, Confidence.CERTAIN, culprits.done(), tuple(facts), why, advice(*for_the_input(operation, fixes)))

    def _ranks(self, operation: FailedOperation, left: Operand, right: Operand, culprits: Culprits) -> Diagnosis:
        culprits.lead(operation, Role.OPERAND, f"{shape(left.shape)} and {shape(right.shape)}: wrong number of dimensions")
        for operand in (left, right):
            culprits.create(operand.made, f"{operand.called} {shape(operand.shape)} comes from here")
        facts = operand_facts(operation) + setting_facts(operation)
        title = f"`{operation.name}` does not take {len(left.shape)}-D and {len(right.shape)}-D tensors"
        why = f"{operation.message.splitlines()[0]}. `torch.matmul` (or `@`) takes any number of dimensions."
        fix = "Use `a @ b`, which broadcasts over leading dimensions."
        if operation.name in ("dot", "vdot", "inner") and left.shape == right.shape:
            fix = "For one number of all elements: `(a * b).sum()`; for one of each row: `(a * b).sum(-1)`."
        return Diagnosis(self.name, title, Confidence.CERTAIN, culprits.done(), tuple(facts), why, advice(fix))


def _from(operand: Operand, axis: int, operation: FailedOperation) -> str:
    words = made_words(operand.origin_of(axis % len(operand.shape)), operation)
    return f" comes from {words}" if words else ""


def _factors(operation: FailedOperation) -> tuple[Operand, Operand, int | None, int | None] | None:
    """(left, right, axis of left, axis of right) of the two inner sizes that differ; the axes None where ranks are wrong."""
    operands = [operand for operand in operation.operands]
    said = re.search(r"bilinear\(\): input(\d) size does not match", operation.message)
    if said:
        left, right = operation.operand(f"input{said[1]}"), operation.operand("weight")
        return (left, right, -1, int(said[1])) if left is not None and right is not None and left.shape and len(right.shape) == 3 else None
    if operation.name in ("linear",) or operation.operand("weight") is not None:
        left, right = operation.operand("input"), operation.operand("weight")
        if left is None and right is not None:  # one of torch's layers made of several products: `linear(k, w_k)`
            left = next((operand for operand in operands if operand.argument not in ("weight", "bias")), None)
            if left is not None and left.shape and len(right.shape) == 2 and left.shape[-1] == right.shape[-1]:
                left = None
        if left is not None and right is not None and left.shape and len(right.shape) == 2:
            return left, right, -1, -1
    if operation.name in ("addmm", "baddbmm", "addmv", "addbmm") and len(operands) >= 3:
        operands = operands[1:]
    if len(operands) < 2:
        return None
    left, right = operands[0], operands[1]
    if not left.shape or not right.shape:
        return left, right, None, None
    if operation.name in ("mm", "bmm", "dot", "mv") and "must be" in operation.message or "1D tensors expected" in operation.message:
        return left, right, None, None
    right_axis = -1 if len(right.shape) == 1 else -2
    if left.shape[-1] != right.shape[right_axis]:
        return left, right, -1, right_axis
    if len(left.shape) == 3 and len(right.shape) == 3 and left.shape[0] != right.shape[0]:
        return left, right, 0, 0
    return None


def _story(left: Operand, right: Operand, left_axis: int, right_axis: int, linear: bool) -> tuple[str, list[str]]:
    have, want = left.shape[left_axis], right.shape[right_axis]
    sizes = left.shape
    name = expr(left, "x")
    if left_axis == 0:
        return "The batch sizes differ.", ["Give both the same batch size; `@` broadcasts only a batch of 1."]
    if linear and len(sizes) >= 3 and want == math.prod(sizes[1:]):
        return f"All of {shape(sizes[1:])} together are {want}: the input was not flattened.", [f"Flatten first: `{name}.flatten(1)`."]
    for start in range(2, len(sizes) - 1):
        if linear and want == math.prod(sizes[start:]):
            return f"The last {len(sizes) - start} dimensions together are {want}.", [f"Flatten them first: `{name}.flatten({start})`."]
    if not linear and len(right.shape) >= 2 and right.shape[-1] == have:
        own = expr(right, "b")
        turned = f"{own}.T" if len(right.shape) == 2 else f"{own}.transpose(-1, -2)"
        return f"The last size of {right.called} is {have}: it may have to be transposed.", [f"`{expr(left, 'a')} @ {turned}`, if that is what is meant."]
    if want in sizes[:-1]:
        axis = sizes.index(want)
        return (
            f"Dimension {axis} of {left.called} has size {want}: the dimensions may be in another order than meant.",
            [f"`{name}.transpose({axis}, -1)`, if dimension {axis} holds the features."],
        )
    if linear:
        made = left.origin_of(len(sizes) - 1)
        if made is not None and made.operation in ("flatten", "view", "reshape"):
            return (
                f"The {have} features were made by flattening: the layer was computed for inputs of another size.",
                [f"Build the layer for {have} features (`nn.Linear({have}, ...)`, or `nn.LazyLinear`), or bring the inputs to the size it was computed for."],
            )
        return "", [f"Build the layer for {have} features (`nn.Linear({have}, ...)`), or make the input {want} wide where it is made."]
    return "", ["Make the inner sizes agree where they come from, or transpose one factor."]


def _columns(rule: str, operation: FailedOperation, left: Operand, right: Operand) -> Diagnosis | None:
    """`cdist`: the rows of one are compared with the rows of the other."""
    if not left.shape or not right.shape:
        return None
    culprits = Culprits()
    have, want = left.shape[-1], right.shape[-1]
    culprits.lead(operation, Role.OPERAND, f"{shape(left.shape)} and {shape(right.shape)}: rows of {have} and of {want}")
    size_creates(culprits, left, -1)
    size_creates(culprits, right, -1)
    title = f"{left.called} {shape(left.shape)} and {right.called} {shape(right.shape)} have rows of different lengths: {have} against {want}"
    why = f"`{operation.name}` takes the distance of each row of the one to each row of the other: rows must be of one length, the last size."
    facts = operand_facts(operation) + setting_facts(operation)
    return Diagnosis(rule, title, Confidence.CERTAIN, culprits.done(), tuple(facts), why, advice("Make the last sizes agree where they come from."))


def _einsum(rule: str, operation: FailedOperation) -> Diagnosis:
    message = operation.message.splitlines()[0]
    culprits = Culprits()
    equation = operation.argument("equation")
    found = re.search(r"subscript (\w+) has size (\d+) for operand (\d+) which does not broadcast with previously seen size (\d+)", message)
    ranks = re.search(r"number of subscripts in the equation \((\d+)\).*number of dimensions \((\d+)\) for operand (\d+)", message)
    tensors = operation.operands
    facts: list[Fact] = []
    text = (equation.value if equation is not None else "").strip("'\"")
    terms = [term.strip() for term in text.split("->")[0].split(",")] if text else []
    title = f"The equation {equation.value if equation is not None else 'of einsum'} does not fit its operands"
    label = "the equation and the shapes do not fit"
    if found and int(found[3]) < len(tensors):
        letter, size, seen = found[1], int(found[2]), int(found[4])
        odd = tensors[int(found[3])]
        label = f"`{letter}` is {seen} in one operand and {size} in another"
        culprits.lead(operation, Role.OPERAND, label)
        title = f"In einsum, `{letter}` has size {seen} and size {size}"
        for position, term in enumerate(terms):
            if letter in term and "." not in term and position < len(tensors) and len(term) == len(tensors[position].shape):
                size_creates(culprits, tensors[position], term.index(letter))
                facts.append(Fact(f"`{term}`: {tensors[position].called} has shape {shape(tensors[position].shape)}, so `{letter}` = "
                                  f"{tensors[position].shape[term.index(letter)]}.", tensors[position].known))  # fmt: skip
        if not facts:
            culprits.create(odd.made, f"{odd.called} {shape(odd.shape)} comes from here")
    elif ranks and int(ranks[3]) < len(tensors):
        odd = tensors[int(ranks[3])]
        label = f"{ranks[1]} letters for {ranks[2]} dimensions"
        culprits.lead(operation, Role.OPERAND, label, odd)
        culprits.create(odd.made, f"{odd.called} {shape(odd.shape)} comes from here")
        title = f"einsum: {odd.called} has {ranks[2]} dimensions, the equation gives it {ranks[1]} letters"
    else:
        culprits.lead(operation, Role.OPERAND, label)
    if equation is not None and equation.value:
        facts.insert(0, Fact(f"The equation is {equation.value}.", Known.OBSERVED))
    facts += operand_facts(operation) if len(facts) < 2 else []
    facts += setting_facts(operation)
    why = f"In einsum every letter stands for one dimension, and for the same size wherever it occurs. torch says: {message}"
    return Diagnosis(rule, title, Confidence.CERTAIN, culprits.done(), tuple(facts), why)

"""A view or reshape to a size that the tensor does not have."""

from __future__ import annotations

import math
import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import Argument, FailedOperation, Operand
from torchsleuth.model import Confidence, Diagnosis, Fact, Known, Role
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import Culprits, size_creates
from torchsleuth.rules.forward._report import advice
from torchsleuth.rules.forward._words import argument_fact, code, expr, failed, made_words, operand_facts, other_facts, setting_facts, shape
from torchsleuth.wording import line_words, upper_first

_TURNING = ("transpose", "permute", "t", "T", "mT", "H", "mH", "expand", "expand_as", "swapaxes", "swapdims", "movedim", "moveaxis", "unfold")


class ViewSize(CrashRule):
    """A tensor is given a shape that does not hold its number of elements, or that its memory layout does not allow.

    What happened
    -------------
    `view` and `reshape` only rearrange: the new sizes must multiply to the number of elements there are. One -1 stands
    for whatever is left. `view` in addition needs a memory layout that the new shape can describe without copying.

    Why
    ---
    Typical: a hard-coded batch size meets the last, smaller batch of an epoch; a flattened size computed for another
    image size; `view` after `transpose` or `permute`.

    Example
    -------
    This raises "shape '[32, -1]' is invalid for input of size 70":

        import torch

        batch = torch.randn(7, 10)       # the last batch of an epoch
        batch.view(32, -1)

    Fix
    ---
    Take the size from the tensor (`x.view(x.size(0), -1)`), or drop the last batch (`DataLoader(..., drop_last=True)`).
    After `transpose` or `permute` use `reshape`, which copies where it must.

    Common false explanations
    -------------------------
    "`contiguous()` fixes it." Only the error about size and stride; the number of elements stays what it is. This
    prints 70 twice:

        import torch

        x = torch.randn(7, 10)
        print(x.numel(), x.t().contiguous().numel())
    """

    name = "view-size"
    messages = (
        r"is invalid for input of size",
        r"view size is not compatible with input tensor",
        r"only one dimension can be inferred",
        r"invalid shape dimension",
        r"unflatten: Provided sizes",
        r"split_with_sizes expects split_sizes to sum exactly",
        r"number of dimensions in the tensor input does not match the length of the desired ordering",
        r"duplicate dims are not allowed",
        r"cannot reshape tensor of 0 elements",
    )
    needs = ("operation",)
    priority = 10

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        message = operation.message
        tensor = operation.operand("self", "input") or (operation.operands[0] if operation.operands else None)
        if "view size is not compatible" in message:
            return self._layout(operation, tensor)
        asked = re.search(r"shape '\[([^\]]*)\]' is invalid for input of size (\d+)", message)
        if asked:
            sizes = [int(size) for size in asked[1].split(",") if size.strip()]
            return self._count(operation, tensor, sizes, int(asked[2]))
        return self._other(operation, tensor)

    def _count(self, operation: FailedOperation, tensor: Operand | None, sizes: list[int], count: int) -> Diagnosis:
        culprits = Culprits()
        called = tensor.called if tensor is not None else "the tensor"
        elements = [operation.argument(f"{name}[{k}]") for k in range(len(sizes)) for name in ("size", "shape") if operation.argument(f"{name}[{k}]")]
        kept = _with_rows_kept(sizes, tensor.shape) if tensor is not None else sizes
        odd = _odd_size(kept, tensor.shape) if tensor is not None else None
        argument = elements[odd] if odd is not None and len(elements) == len(sizes) else None
        product = math.prod(size for size in sizes if size >= 0)
        rest = " (times whatever -1 stands for)" if -1 in sizes else ""
        label = f"asks for {shape(sizes)}: {product}{rest} elements; there are {count}"
        culprits.lead(operation, Role.OPERAND, label)
        facts = [Fact(f"{called} has shape {shape(tensor.shape)}, dtype {tensor.tensor.dtype}: {count} elements." if tensor is not None else f"The tensor has {count} elements.", Known.OBSERVED)]
        whole = operation.argument("size", "shape")
        facts.append(Fact(f"`{whole.name if whole is not None else 'shape'}` = {shape(sizes)} asks for {product}{rest}.", Known.OBSERVED))
        story, fixes = "", []
        if odd is not None and tensor is not None and tensor.shape:
            size, have = sizes[odd], tensor.shape[0]
            if odd == 0 and _explains(sizes, odd, have, count):
                story = f"This batch has {have} rows; the shape asks for {size}"
                story += _written(operation, argument) if argument is not None else ""
                facts.append(Fact(story + ". With the batch's own size it fits.", Known.INFERRED))
                name = expr(tensor, "x")
                fixes.append(f"Take the size from the tensor: `{name}.{operation.name}({', '.join([f'{name}.size(0)', *map(str, sizes[1:])])})`.")
                if have < size:
                    fixes.append("Or drop the last, smaller batch: `DataLoader(..., drop_last=True)`.")
            if argument is not None:
                culprits.create(argument.made, f"{argument.source} = {argument.value} comes from here")
                if argument.source != argument.value:
                    facts.append(Fact(f"{argument_fact(argument)}.", Known.OBSERVED))
        if tensor is not None and odd is not None and odd == 0 and story and tensor.shape:
            size_creates(culprits, tensor, 0)
        elif tensor is not None:
            for axis in _unexplained(kept, tensor.shape):
                size_creates(culprits, tensor, axis)
        # Of a tensor that is gone only the number of its elements is known: a size that divides it may well be right.
        loose = _too_many(kept, tensor.shape) or _unmatched(kept, tensor.shape) if tensor is not None else [k for k, size in enumerate(sizes) if size > 0 and count % size]
        for k, element in enumerate(elements):
            if element is not None and element is not argument and not story and len(elements) == len(sizes) and k in loose:
                culprits.create(element.made, f"{element.source} = {element.value} comes from here")
        parts = _split(kept, tensor.shape if tensor is not None else ())
        for whole_size, factors, position in parts if not story else ():
            text = f"Dimension {position} of {called} has size {whole_size}; it is to be split into {' × '.join(map(str, factors))} = {math.prod(factors)}"
            loose = [factor for factor in factors if factor and whole_size % factor]
            facts.append(Fact(text + (f"; {whole_size} is not divisible by {loose[0]}." if loose else "."), Known.INFERRED))
            others = math.prod(factors) // loose[0] if loose else 0
            if loose and others == whole_size:
                fixes = fixes or [f"Make dimension {position} of {called} {math.prod(factors)} wide, where its {whole_size} comes from, or leave the {loose[0]} out."]
            elif loose and not fixes and others and whole_size % others == 0:
                fixes = [f"Take sizes that multiply to {whole_size}: with {whole_size // others} instead of {loose[0]} they do."]
            elif loose and not fixes:
                fixes = [f"Take sizes that multiply to {whole_size}: a divisor of {whole_size} instead of {loose[0]}, or a size that {loose[0]} divides."]
            elif not fixes and whole_size % math.prod(factors[1:]) == 0:
                fixes = [f"Take sizes that multiply to {whole_size}: with {whole_size // math.prod(factors[1:])} instead of {factors[0]} they do."]
        if not fixes:
            fixes = ["Use -1 for one dimension and let it be computed, or compute the sizes from `x.shape`."] if -1 not in sizes else [
                f"The fixed sizes must divide {count}; take them from `x.shape`."]  # fmt: skip
        facts += other_facts(operation, tensor) + setting_facts(operation)
        title = f"{called} has {count} elements; the shape {shape(sizes)} does not hold them"
        why = f"`{operation.name}` only rearranges: the sizes must multiply to {count}" + (
            f". {count} is not divisible by {product}." if -1 in sizes else f", not to {product}.")  # fmt: skip
        return Diagnosis(self.name, title, Confidence.CERTAIN, culprits.done(), tuple(facts), why, advice(*fixes))

    def _layout(self, operation: FailedOperation, tensor: Operand | None) -> Diagnosis:
        culprits = Culprits()
        called = tensor.called if tensor is not None else "the tensor"
        culprits.lead(operation, Role.OPERAND, f"`view` cannot describe this layout; {called.strip('`')} is not contiguous")
        turned = tensor.turned if tensor is not None else None
        if turned is None and tensor is not None and tensor.made is not None and tensor.made.operation in _TURNING:
            turned = tensor.made
        culprits.create(turned, "this changed the order in memory")
        facts = operand_facts(operation) + setting_facts(operation)
        if tensor is not None:
            facts.insert(0, Fact(f"{called} is {'' if tensor.contiguous else 'not '}contiguous.", Known.OBSERVED))
        sizes = operation.argument("size", "shape")
        if sizes is not None and sizes.value:
            facts.append(Fact(f"{argument_fact(sizes)}.", Known.OBSERVED))
        words = upper_first(made_words(turned, operation))
        why = (
            "`view` never copies, so the new shape must be readable from the memory as it lies. "
            + (f"{words} only changed the order in which the same memory is read; " if words else "")
            + "`reshape` copies where it must."
        )
        title = f"`view` cannot be taken of {called}: its memory is not in order"
        name = tensor.source if tensor is not None and tensor.source else "x"
        return Diagnosis(self.name, title, Confidence.CERTAIN, culprits.done(), tuple(facts), why, advice(f"`{name}.reshape(...)`, or `{name}.contiguous().view(...)`."))

    def _other(self, operation: FailedOperation, tensor: Operand | None) -> Diagnosis:
        culprits = Culprits()
        ordered = operation.name == "permute"
        culprits.lead(operation, Role.OPERAND, "this order does not fit" if ordered else "these sizes do not fit")
        split = re.search(r"sum exactly to (\d+) \(input tensor's size at dimension (-?\d+)\), but got split_sizes=\[([^\]]*)\]", operation.message)
        facts = operand_facts(operation)
        for argument in operation.arguments:
            if argument.value and "[" not in argument.name and argument.value not in ("None", "False", "True"):
                facts.append(Fact(f"{argument_fact(argument)}.", Known.OBSERVED))
                culprits.create(argument.made, f"{argument.source} = {argument.value} comes from here")
        if split and tensor is not None and tensor.shape:
            size_creates(culprits, tensor, int(split[2]))
            total = sum(int(size) for size in split[3].split(","))
            facts.insert(0, Fact(f"The parts sum to {total}; dimension {split[2]} has size {split[1]}.", Known.OBSERVED))
        elif tensor is not None and tensor.made is not None:
            culprits.create(tensor.made, f"{tensor.called} {shape(tensor.shape)} comes from here")
        facts += setting_facts(operation)
        called = tensor.called if tensor is not None else "the tensor"
        title = f"{code(operation.place.source)} asks for sizes that {called} does not have"
        if "only one dimension can be inferred" in operation.message:
            title = f"{code(operation.place.source)} leaves more than one size open: -1 can stand for one alone"
        elif ordered:
            title = f"{code(operation.place.source)} does not name each of the {len(tensor.shape) if tensor is not None else ''} dimensions of {called} once".replace("  ", " ")
        return Diagnosis(self.name, title, Confidence.CERTAIN, culprits.done(), tuple(facts), operation.message.splitlines()[0])


def _odd_size(sizes: list[int], have: tuple[int, ...]) -> int | None:
    """Which asked-for size is the one that does not fit: of those left over the one too many, or the first."""
    there = [k for k in _unmatched(sizes, have) if sizes[k] >= 0]
    return next(iter(_too_many(sizes, have) or there), None)


def _too_many(sizes: list[int], have: tuple[int, ...]) -> list[int]:
    """The size without which the others multiply to what the tensor has: the 3 of `[8, 8, 3]` for 64."""
    asked, own = _unmatched(sizes, have), [have[k] for k in _unmatched(list(have), tuple(sizes))]
    if len(asked) < 2 or asked.start == 0 or any(sizes[k] < 1 for k in asked):
        return []
    return [k for k in asked if sizes[k] > 1 and math.prod(sizes[j] for j in asked) == sizes[k] * math.prod(own)][-1:]


def _split(sizes: list[int], have: tuple[int, ...]) -> list[tuple[int, list[int], int]]:
    """The dimensions that are each to be split into several (heads × features), all others being kept."""
    asked, own = _unmatched(sizes, have), _unmatched(list(have), tuple(sizes))
    if not own or len(asked) < 2 * len(own) or len(asked) % len(own) or any(sizes[k] < 1 for k in asked):
        return []
    each = len(asked) // len(own)
    parts = [(have[k], [sizes[j] for j in asked[n * each : (n + 1) * each]], k) for n, k in enumerate(own)]
    # Of several, only what rounding has made smaller shows which sizes belong to which dimension.
    return parts if len(own) == 1 or all(_rounded(whole, factors) for whole, factors, _ in parts) else []


def _rounded(whole: int, factors: list[int]) -> bool:
    product = math.prod(factors)
    return product == whole or any(whole // factor * factor == product for factor in factors)


def _explains(sizes: list[int], odd: int, have: int, count: int) -> bool:
    """With the tensor's own first size in its place, the shape would fit."""
    corrected = [have if position == odd else size for position, size in enumerate(sizes)]
    product = math.prod(size for size in corrected if size >= 0)
    return (product == count) if -1 not in sizes else product > 0 and count % product == 0


def _unmatched(sizes: list[int], have: tuple[int, ...]) -> range:
    """The asked-for sizes between those that are the tensor's own from the left, and from the right: one by one, or several for one."""
    left = _matched(sizes, list(have))
    right = _matched(sizes[left[0] :][::-1], list(have[left[1] :])[::-1])
    return range(left[0], len(sizes) - right[0])


def _matched(one: list[int], other: list[int]) -> tuple[int, int]:
    """How many sizes at the beginning of both are the same; where one of them is split on the other side, all its parts are.

    What is left over of one side belongs to the size before it, `[16, 64]` to `[4, 4, 8, 8, 3]`: that one is the one to be told of then.
    """
    counts = [(0, 0)]
    while counts[-1][0] < len(one) and counts[-1][1] < len(other):
        i, j = counts[-1]
        whole = [(k, 1) for k in range(1, len(one) - i + 1) if math.prod(one[i : i + k]) == other[j]]
        whole += [(1, k) for k in range(2, len(other) - j + 1) if math.prod(other[j : j + k]) == one[i]]
        if min(one[i], other[j]) < 1 or not whole:
            break
        counts.append((i + whole[0][0], j + whole[0][1]))
    done = counts[-1]
    if len(counts) > 1 and (done[0] == len(one)) != (done[1] == len(other)) and any(n != 1 for n in (*one[done[0] :], *other[done[1] :])):
        counts.pop()
    return counts[-1]


def _with_rows_kept(sizes: list[int], have: tuple[int, ...]) -> list[int]:
    """`view(-1, 128, 4, 4)` of several rows that are not of that size: it is not their number that is wrong."""
    return [have[0], *sizes[1:]] if sizes[:1] == [-1] and len(have) > 1 and -1 not in sizes[1:] else sizes


def _unexplained(sizes: list[int], have: tuple[int, ...]) -> list[int]:
    return list(_unmatched(list(have), tuple(sizes)))[:2]


def _written(operation: FailedOperation, argument: Argument) -> str:
    """Where the number stands in the source; one that is computed is hard-coded nowhere."""
    place = argument.made.place if argument.made is not None else argument.place
    if (place.source if place is not None else argument.source).strip().isdigit():
        return f", hard-coded in {line_words(place.span, operation.place.span) if place is not None else code(operation.place.source)}"
    return f", which is {code(argument.source)}" if argument.source else ""

"""Tensors joined or stretched to one another: along another dimension, with one more, with one repeated, padded to one length."""

from __future__ import annotations

import ast
import re

from torchsleuth.evidence import Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.forward.counting import whole_slices
from torchsleuth.fixes.forward.operands import Failed, one_squeezed, text_of, truncated
from torchsleuth.fixes.forward.padding import padded_batches, padded_list
from torchsleuth.fixes.script import Scripts, called
from torchsleuth.model import Diagnosis, Fix


class CatShapeFixer(Fixer):
    rule = "cat-shape"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        operation, script, call = failed.operation, failed.script, failed.call
        numbers = re.search(r"expected Tensor as element \d+ in argument \d+, but got (int|float|bool)", failed.message)
        if numbers and script is not None and isinstance(call, ast.Call) and called(call) == "stack" and len(call.args) == 1 and not call.keywords:
            return [scripts.fix("`tensor` makes a tensor of Python numbers; `stack` joins tensors.", failed.renamed(call, "tensor"))]
        if operation is not None and operation.name == "stack":
            return [whole_slices(failed) or padded_list(failed) or padded_batches(failed)]
        if operation is None or script is None or not isinstance(call, ast.Call) or operation.name not in ("cat", "concat", "concatenate"):
            return []
        shapes = [operand.shape for operand in operation.operands]
        if shapes and all(shape == () for shape in shapes) and len(call.args) == 1 and not call.keywords:
            return [scripts.fix("`stack` makes one tensor of single numbers; `cat` joins along a dimension that is there.", failed.renamed(call, "stack"))]
        if len(shapes) < 2 or len({len(shape) for shape in shapes}) != 1:
            lower = min(operation.operands, key=lambda operand: len(operand.shape), default=None)
            bare = one_squeezed(failed, lower) if lower is not None and lower.shape == () else None
            if bare is not None:
                return [bare]
            return [_one_more_row(failed), _without_ones(failed), _for_each_step(failed)]
        axes = [axis for axis in range(len(shapes[0])) if len({shape[axis] for shape in shapes}) > 1]
        fix = _as_large(failed) or _for_each_sample(failed)
        if fix is not None:
            return [fix]
        if len(axes) != 1 or _is_one_odd([shape[axes[0]] for shape in shapes]):
            return []
        given = next((k.value for k in call.keywords if k.arg in ("dim", "axis")), call.args[1] if len(call.args) > 1 else None)
        if given is not None:
            edits = [script.replace(given, str(axes[0]))]
        else:
            edits = [script.insert(script.end(call.args[0]), f", dim={axes[0]}")] if len(call.args) == 1 else []
        meaning = f"They are then joined along dimension {axes[0]}, the only one in which they differ."
        return [scripts.fix(f"Join along dimension {axes[0]}: `dim={axes[0]}`.", edits, meaning, safe=False)]


def _along(failed: Failed, rank: int) -> int | None:
    """The dimension along which they are joined; counted from the first."""
    call = failed.call
    given = next((k.value for k in call.keywords if k.arg in ("dim", "axis")), call.args[1] if len(call.args) > 1 else ast.Constant(0))
    dim = failed.operation.argument("dim")
    try:
        number = dim.numbers[0] if dim is not None and len(dim.numbers) == 1 else ast.literal_eval(given)
    except ValueError:
        return None
    return number % rank if type(number) is int and rank else None


def _is_one_odd(sizes: list[int]) -> bool:
    """One among several that agree, or one grey image beside a coloured one: the dimension is right, that tensor is not."""
    usual = max(set(sizes), key=sizes.count)
    return len(sizes) > 2 and sizes.count(usual) == len(sizes) - 1 or 1 in sizes and len(set(sizes)) == 2


def _as_large(failed: Failed) -> Fix | None:
    """Two feature maps that went apart where one was halved and doubled again: the smaller one resized to the larger."""
    operands, script = failed.operation.operands, failed.script
    torch = script.module_name("torch")
    if len(operands) != 2 or torch is None or failed.in_library or not 3 <= len(operands[0].shape) <= 5:
        return None
    small, large = sorted(operands, key=lambda operand: operand.shape[2:])
    places = [small.shape[0] == large.shape[0], all(0 <= b - a < 4 and a > 1 for a, b in zip(small.shape[2:], large.shape[2:], strict=True))]
    along = _along(failed, len(small.shape))
    found = failed.node_of(small)
    if not all(places) or along != 1 or small.shape[2:] == large.shape[2:] or found is None or not text_of(large):
        return None
    text = f"{torch}.nn.functional.interpolate({script.segment(found[1])}, size={text_of(large)}.shape[2:])"
    meaning = f"{small.called} {list(small.shape)} is then resized by its nearest neighbours; images whose sizes halve without a rest would need none of it."
    return failed.scripts.fix(f"Resize {small.called} to the size of {large.called}.", [script.replace(found[1], text)], meaning, safe=False)


def _without_ones(failed: Failed) -> Fix | None:
    """`[batch, channels, 1, 1]` beside `[batch, features]`: what pooling to one pixel leaves, flattened."""
    operands = failed.operation.operands
    if len(operands) != 2 or len({len(operand.shape) for operand in operands}) != 2:
        return None
    short, long = sorted(operands, key=lambda operand: len(operand.shape))
    if len(short.shape) != 2 or long.shape[0] != short.shape[0] or set(long.shape[2:]) != {1}:
        return None
    return failed.suffixed(long, ".flatten(1)", f"Drop the dimensions of size 1: `.flatten(1)` on {long.called}.")


def _one_more_row(failed: Failed) -> Fix | None:
    """`torch.cat((rows, row))`: the odd one gets the dimension along which they are joined."""
    operands = failed.operation.operands
    rank = max((len(operand.shape) for operand in operands), default=0)
    odd = [operand for operand in operands if len(operand.shape) == rank - 1]
    axis = _along(failed, rank)
    # Of rank 0, nothing is known of the tensors.
    if rank == 0 or len(odd) != 1 or len(odd) + sum(len(operand.shape) == rank for operand in operands) != len(operands) or axis is None:
        return None
    others = {operand.shape[:axis] + operand.shape[axis + 1 :] for operand in operands if len(operand.shape) == rank}
    if others != {odd[0].shape}:
        return None
    meaning = f"{odd[0].called} is then one more entry along dimension {axis}."
    return failed.suffixed(odd[0], f".unsqueeze({axis})", f"Add the dimension they are joined along: `.unsqueeze({axis})`.", meaning, safe=False)


def _for_each_step(failed: Failed) -> Fix | None:
    """`[batch, features]` beside `[batch, time, features]`, joined along the features: the same for every step."""
    operands = failed.operation.operands
    low, high = ([operand for operand in operands if len(operand.shape) == rank] for rank in (2, 3))
    if len(low) != 1 or not high or len(low) + len(high) != len(operands) or _along(failed, 3) != 2 or not text_of(high[0]):
        return None
    if len({operand.shape[:2] for operand in high}) != 1 or low[0].shape[0] != high[0].shape[0]:
        return None
    suffix = f".unsqueeze(1).expand(-1, {text_of(high[0])}.size(1), -1)"
    meaning = f"Each of the {high[0].shape[1]} entries along dimension 1 of {high[0].called} then gets the same {low[0].shape[1]} values."
    return failed.suffixed(low[0], suffix, f"Repeat {low[0].called} for each of them: `{suffix}`.", meaning, safe=False)


def _for_each_sample(failed: Failed) -> Fix | None:
    """A class token `[1, 1, dim]` beside `[batch, patches, dim]`: the same for every sample, or for every step."""
    operands = failed.operation.operands
    rank, along = len(operands[0].shape), _along(failed, len(operands[0].shape))
    odd = [operand for operand in operands if any(operand.shape[k] == 1 != other.shape[k] for other in operands for k in range(rank) if k != along)]
    rest = [operand for operand in operands if all(operand is not other for other in odd)]
    if len(odd) != 1 or not rest or along is None or rank < 2:
        return None
    axes = [k for k in range(rank) if k != along and odd[0].shape[k] == 1 != rest[0].shape[k]]
    equal = all(odd[0].shape[k] == rest[0].shape[k] for k in range(rank) if k != along and k not in axes)
    alike = len({operand.shape[:along] + operand.shape[along + 1 :] for operand in rest}) == 1
    # One channel beside three is another matter: only samples, and the steps of a sequence, share a value.
    if not equal or not alike or axes not in ([0], [1]) or axes == [1] and rank != 3 or not text_of(rest[0]):
        return None
    sizes = ", ".join(f"{text_of(rest[0])}.size({k})" if k in axes else "-1" for k in range(rank))
    many = f"{rest[0].shape[axes[0]]} {'samples' if axes == [0] else 'entries along dimension 1'}"
    trained = odd[0].tensor.kind in ("parameter", "buffer") and axes == [0]
    meaning = "" if trained else f"All {many} of {rest[0].called} then get the same {odd[0].called}."
    return failed.suffixed(odd[0], f".expand({sizes})", f"The same {odd[0].called} for each of the {many}: `.expand({sizes})`.", meaning, safe=trained)


class ExpandSizeFixer(Fixer):
    rule = "expand-size"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        return [truncated(failed), _stretched(failed)]


def _stretched(failed: Failed) -> Fix | None:
    """`h.expand(-1, steps, -1)` → `h.unsqueeze(1).expand(-1, steps, -1)`: the one place for the dimension that is to be stretched."""
    operation = failed.operation
    tensor, asked = failed.operand("self", "input"), operation.argument("size", "sizes") if operation is not None else None
    if tensor is None or asked is None or failed.in_library or operation.name != "expand" or len(asked.numbers) != len(tensor.shape) + 1:
        return None
    axes = [axis for axis in range(1, len(asked.numbers)) if _is_expandable((*tensor.shape[:axis], 1, *tensor.shape[axis:]), asked.numbers)]
    if len(axes) != 1:
        return None
    meaning = f"{tensor.called} is then repeated along the new dimension {axes[0]}; its sizes fit in no other way."
    return failed.suffixed(tensor, f".unsqueeze({axes[0]})", f"Add the dimension that is stretched: `.unsqueeze({axes[0]})`.", meaning, safe=False)


def _is_expandable(shape: tuple[int, ...], asked: tuple[int, ...]) -> bool:
    return all(want in (-1, have) or have == 1 for have, want in zip(shape, asked, strict=True))

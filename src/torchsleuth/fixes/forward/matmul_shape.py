"""Products whose sizes do not meet: a factor transposed, a linear layer's input flattened or turned, the layer rebuilt, letters reordered."""

from __future__ import annotations

import ast
import itertools

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import Operand
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.forward.layers import flatten_between, other_width
from torchsleuth.fixes.forward.operands import Failed, one_sample, product
from torchsleuth.fixes.forward.resizing import recomputed, resized
from torchsleuth.fixes.script import Scripts, called
from torchsleuth.model import Diagnosis, Fix


class MatmulShapeFixer(Fixer):
    rule = "matmul-shape"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        failed = Failed(evidence, scripts)
        operation = failed.operation
        if operation is None or failed.in_library:
            return []
        if operation.name == "einsum":
            return [_reordered(failed)]
        weight = operation.operand("weight")
        if operation.module_type == "MultiheadAttention":
            return [other_width(failed)]
        if weight is not None:
            return _linear(failed, weight)
        return _factors(failed, *operation.operands) if len(operation.operands) == 2 else []


def _linear(failed: Failed, weight: Operand) -> list[Fix | None]:
    data, given = failed.operand("input", "self"), failed.operation.operand("input", "self")
    features = weight.shape[-1] if weight.shape else 0
    if given is None or len(weight.shape) != 2 or not given.shape or given.shape[-1] == features:
        return []
    sizes = given.shape
    start = next((k for k in range(1, len(sizes) - 1) if product(sizes[k:]) == features), None)
    if start is not None and data is not None:
        what = "each sample" if start == 1 else f"the last {len(sizes) - start} dimensions"
        fix = failed.suffixed(data, f".flatten({start})", f"Flatten {what} to {'its' if start == 1 else 'their'} {features} numbers: `.flatten({start})`.")
        return [fix or flatten_between(failed, start, features)]
    entered = failed.operation.entered
    if entered is not None and len(entered.shape) == 3 and len(sizes) == 2 and product(sizes) == features:
        # A picture without its batch: `flatten(1)` has kept the channels apart.
        return [one_sample(failed)]
    reckoned = recomputed(failed, sizes[-1], "features", given)
    rebuilt = [reckoned] if reckoned is not None else resized(failed, ("Linear",), 0, "in_features", features, sizes[-1], "features", given, -1, weight.origin_of(1))
    # A batch may have as many rows as the layer takes features: dimension 0 says nothing.
    axes = [axis for axis in range(1, len(sizes) - 1) if sizes[axis] == features]
    if len(axes) != 1 or data is None:
        return rebuilt
    suffix = f".transpose({axes[0]}, -1)"
    meaning = f"Right if dimension {axes[0]} of {data.called}, the only one of size {features}, holds the features; it is then the last of the result."
    return [failed.suffixed(data, suffix, f"Bring the features to the end: `{suffix}`.", meaning, safe=False), *rebuilt]


def _as_matrices(failed: Failed, one: Operand, other: Operand) -> Fix | None:
    """`bmm(weights, values)` of [batch, steps] and [batch, steps, dim]: each row of weights a matrix of one row; or a vector as a column."""
    if len(one.shape) == 2 and len(other.shape) == 3 and one.shape == other.shape[:2]:
        return failed.suffixed(one, ".unsqueeze(1)", f"Make each row of {one.called} a matrix: `.unsqueeze(1)`.", f"The result is then {[one.shape[0], 1, other.shape[2]]}.", safe=False)
    if len(one.shape) == 3 and len(other.shape) == 2 and other.shape == (one.shape[0], one.shape[2]):
        return failed.suffixed(other, ".unsqueeze(-1)", f"Make each row of {other.called} a column: `.unsqueeze(-1)`.", f"The result is then {[*one.shape[:2], 1]}.", safe=False)
    return None


def _factors(failed: Failed, one: Operand, other: Operand) -> list[Fix | None]:
    if failed.operation.name == "bmm" and {len(one.shape), len(other.shape)} == {2, 3}:
        return [_as_matrices(failed, one, other)]
    if failed.operation.name in ("dot", "vdot") or len(one.shape) < 2 or len(other.shape) < 2 or one.shape[-1] == other.shape[-2]:
        return []
    if len(other.shape) > 2 and one.shape[:-2] != other.shape[:-2]:
        return []
    rows, last = one.shape[-2] == other.shape[-2], one.shape[-1] == other.shape[-1]
    if last and (not rows or one.shape == other.shape):
        # Where both would do and the two differ, which one is meant cannot be told.
        meaning = f"The result is then {[*one.shape[:-1], other.shape[-2]]}: each row of {one.called} with each row of {other.called}."
        return [failed.suffixed(other, ".transpose(-1, -2)", f"Transpose {other.called}: `.transpose(-1, -2)`.", meaning, safe=False), _made_turned(failed, other)]
    if rows and not last and len(one.shape) == len(other.shape):
        meaning = f"The result is then {[*one.shape[:-2], one.shape[-1], other.shape[-1]]}: a sum over the {one.shape[-2]} rows that both have."
        return [failed.suffixed(one, ".transpose(-1, -2)", f"Transpose {one.called}: `.transpose(-1, -2)`.", meaning, safe=False)]
    return []


def _made_turned(failed: Failed, factor: Operand) -> Fix | None:
    """`torch.randn(out, inp)` → `torch.randn(inp, out)`, for a weight that its maker gave the wrong way round."""
    origins = [factor.origin_of(axis) for axis in range(2)] if len(factor.shape) == 2 else []
    if len(origins) != 2 or origins[0] is None or origins[1] is None or origins[0].place.span != origins[1].place.span or not factor.tensor.is_leaf:
        return None
    found = failed.scripts.node_at(origins[0].place)
    call = found[1] if found is not None else None
    if found is None or not isinstance(call, ast.Call) or called(call) not in ("randn", "rand", "zeros", "ones", "empty") or not call.args:
        return None
    sizes = call.args[0].elts if isinstance(call.args[0], ast.Tuple) else call.args
    if len(sizes) != 2 or any(isinstance(size, ast.Starred) for size in sizes):
        return None
    script = found[0]
    edits = [script.replace(sizes[0], script.segment(sizes[1])), script.replace(sizes[1], script.segment(sizes[0]))]
    title = f"Make {factor.called} the other way round: `{script.segment(sizes[1])}, {script.segment(sizes[0])}`."
    return failed.scripts.fix(title, edits, "Every factor that is made there is then turned.", safe=False)


def _reordered(failed: Failed) -> Fix | None:
    """`"bqd,bdk->bqk"` → `"bqd,bkd->bqk"`: the letters of one operand in the one other order in which all sizes fit."""
    script, call, operands = failed.script, failed.call, failed.operation.operands
    equation = call.args[0] if isinstance(call, ast.Call) and called(call) == "einsum" and call.args else None
    if script is None or not isinstance(equation, ast.Constant) or not isinstance(equation.value, str):
        return None
    inputs, arrow, output = equation.value.partition("->")
    terms = inputs.split(",")
    letters = [term.strip() for term in terms]
    if len(letters) != len(operands) or any(not term.isalpha() or len(term) != len(o.shape) for term, o in zip(letters, operands, strict=True)):
        return None
    found = []
    for number, term in enumerate(letters):
        for order in itertools.islice(itertools.permutations(term), 120):
            changed = [*letters[:number], "".join(order), *letters[number + 1 :]]
            if changed != letters and changed not in found and _is_one_size(changed, operands):
                found.append(changed)
    if len(found) != 1:
        return None
    new = f"{','.join(found[0])}{' -> ' if ' -> ' in equation.value else arrow}{output.strip()}"
    text = script.segment(equation)
    if text[1:-1] != equation.value:
        return None
    number = next(k for k, term in enumerate(letters) if term != found[0][k])
    meaning = f"{operands[number].called} {list(operands[number].shape)} is then read as `{found[0][number]}`, the only other order of its letters in which all sizes fit."
    return failed.scripts.fix(f"Name the dimensions in their order: `{new}`.", [script.replace(equation, f"{text[0]}{new}{text[-1]}")], meaning, safe=False)


def _is_one_size(terms: list[str], operands: tuple[Operand, ...]) -> bool:
    sizes: dict[str, set[int]] = {}
    for term, operand in zip(terms, operands, strict=True):
        for letter, size in zip(term, operand.shape, strict=True):
            sizes.setdefault(letter, set()).add(size)
    return all(len(each - {1}) <= 1 for each in sizes.values())

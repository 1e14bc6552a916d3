"""What a constant factor is: a dimension's size, a number of elements, an argument, or just a number.

A size is told from a coincidence by changing it: the same Function is tried with every size changed
in turn, and what the factor is said to be must still be its value there.
"""

from __future__ import annotations

import dataclasses
import itertools
import typing

import torch

from torchsleuth.checker import plainvalues, variants
from torchsleuth.checker.arguments import Arguments
from torchsleuth.checker.bench import Bench, Evaluation, is_float
from torchsleuth.checker.trial import Relation, Size
from torchsleuth.checker.truth import differing

POWERS = (1.0, -1.0, 0.5, -0.5, 2.0, -2.0)


def sizes_of_factor(bench: Bench, evaluation: Evaluation, k: int, factor: float) -> tuple[tuple[Size, ...], bool]:
    """The simplest reading of |factor| that holds in all cases that could be tried, and whether what it names was changed in some of them."""
    measured = [(evaluation.arguments, evaluation.run.outputs, factor), *_measured(bench, evaluation, k)]
    constant = all(_close(found, factor) for _, _, found in measured)
    unchanged: tuple[Size, ...] = ()
    for sizes in _readings(evaluation, k):
        values = [_value(sizes, arguments, outputs) for arguments, outputs, _ in measured]
        if not all(_close(abs(found), value) for (_, _, found), value in zip(measured, values, strict=True)):
            continue
        if any(not _close(value, values[0]) for value in values[1:]):
            return sizes, True
        if len(sizes) == 1 and sizes[0].kind in ("dimension", "elements", "argument") and abs(sizes[0].power) == 1:
            unchanged = sizes if not unchanged or sizes[0].kind == "argument" != unchanged[0].kind else unchanged
    if constant and (not unchanged or abs(factor) in (2.0, 0.5) and unchanged[0].kind != "argument"):
        return (Size("number", "", abs(factor)),), len(measured) > 1
    return unchanged, False


def _close(a: float, b: float | None) -> bool:
    return b is not None and abs(a - b) <= 1e-6 * abs(b) + 1e-12


def _measured(bench: Bench, evaluation: Evaluation, k: int) -> list[tuple[Arguments, tuple, float]]:
    """The factor with every size, and every float argument, changed in turn."""
    from torchsleuth.checker.relation import pairs_for, proportion
    from torchsleuth.checker.truth import true_gradient

    arguments = evaluation.arguments
    sizes = sorted({n for j in variants.tensors(arguments) for n in arguments.values[j].shape if n > 0})
    others = [variants.with_sizes(arguments, {n: n + 2}, bench.generator) for n in sizes[:4]]
    others += [*variants.told_apart(arguments, bench.generator, bench.takes), variants.doubled(arguments, bench.generator)]
    others += [other for _, other in plainvalues.other_constants(arguments)]
    others += [other for other in plainvalues.other_integers(arguments) if bench.takes(other)]
    out = []
    for other in others:
        if other is None or variants.elements(other) > 16 * variants.LARGE:
            continue
        try:
            again = bench.evaluate(other)
            if again.settled.get(k) is None:
                continue
            truth, _ = true_gradient(bench, again, k)
        except Exception:
            continue
        if truth is None:
            continue
        factor = proportion(pairs_for(bench, again, k, truth.gradient)[:1])
        if factor is not None and abs(factor) > 1e-9:
            out.append((other, again.run.outputs, factor))
    return out


def _readings(evaluation: Evaluation, k: int) -> typing.Iterator[tuple[Size, ...]]:
    """Simplest first: one dimension of this input, of others, of the output; counts; pairs; arguments."""
    arguments = evaluation.arguments
    names = arguments.names
    order = [k, *(j for j in arguments.checked if j != k), *(j for j in variants.tensors(arguments) if j not in arguments.checked)]
    tensors = [(names[j], arguments.values[j]) for j in order]
    tensors += [(output_name(evaluation, o), out) for o, out in enumerate(evaluation.run.outputs) if is_float(out)]
    seen: list[tuple[str, torch.Tensor]] = tensors
    for power in POWERS:
        for name, tensor in seen:
            for dim, n in enumerate(tensor.shape):
                if n > 1:
                    yield (Size("dimension", name, float(n), power, (dim,)),)
    for power in POWERS[:4]:
        for name, tensor in seen:
            if tensor.ndim > 1:
                yield (Size("elements", name, float(tensor.numel()), power),)
    for power in POWERS[:2]:
        for name, tensor in seen:
            for dims in itertools.combinations(range(tensor.ndim), 2):
                if all(tensor.shape[d] > 1 for d in dims):
                    yield (Size("dimension", name, float(tensor.shape[dims[0]] * tensor.shape[dims[1]]), power, dims),)
    for power in POWERS:
        for j, value in enumerate(arguments.values):
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value not in (0, 1, -1):
                yield (Size("argument", names[j], abs(float(value)), power),)
            if isinstance(value, float) and abs(value) != 1:
                yield (Size("one-minus", names[j], abs(1 - value), power),)
                yield (Size("one-plus", names[j], abs(1 + value), power),)
    for j, value in enumerate(arguments.values):
        if isinstance(value, float) and value not in (0.0,):
            yield (Size("argument", names[j], abs(value), 1.0), Size("number", "", 2.0))
    sides = [(name, dim, float(n)) for name, tensor in seen for dim, n in enumerate(tensor.shape) if n > 1]
    for power, ((a, i, m), (b, j, n)) in itertools.product((1.0, 0.5), itertools.islice(itertools.permutations(sides, 2), 200)):
        yield (Size("dimension", a, m, power, (i,)), Size("dimension", b, n, -power, (j,)))


def output_name(evaluation: Evaluation, position: int) -> str:
    return "the output" if len(evaluation.run.outputs) == 1 else f"output {position}"


def _value(sizes: tuple[Size, ...], arguments: Arguments, outputs: tuple) -> float | None:
    """What a reading comes to for other inputs."""
    out = 1.0
    for size in sizes:
        if size.kind == "number":
            out *= size.value
            continue
        if size.name in arguments.names:
            holder = arguments.values[arguments.names.index(size.name)]
        else:
            holder = outputs[0 if size.name == "the output" else int(size.name.rsplit(" ", 1)[1])]
        if size.kind == "argument":
            value = abs(float(holder))
        elif size.kind in ("one-minus", "one-plus"):
            value = abs(1 - float(holder)) if size.kind == "one-minus" else abs(1 + float(holder))
        elif size.kind == "elements":
            value = float(holder.numel())
        else:
            value = 1.0
            for dim in size.dims:
                if dim >= holder.ndim:
                    return None
                value *= holder.shape[dim]
        if value == 0:
            return None
        out *= value**size.power
    return out


def of_sizes(relation: Relation, evaluation: Evaluation, returned: torch.Tensor, true: torch.Tensor) -> tuple[Relation, bool]:
    """A relation that was found on a copy of another size, with its numbers for these inputs; False where they are still the copy's."""
    if relation.kind == "factor":
        square = float((true * true).sum())
        factor = float((returned * true).sum()) / square if square else relation.factor
        if bool(differing(returned, factor * true).any()):
            return relation, False
        arguments, outputs = evaluation.arguments, evaluation.run.outputs
        sizes = tuple(dataclasses.replace(s, value=_value((dataclasses.replace(s, power=1.0),), arguments, outputs) or s.value) for s in relation.sizes)
        return dataclasses.replace(relation, factor=factor, sizes=sizes), True
    sized = relation.kind in ("condition", "missing-term", "scaled-part", "rearranged") and (
        relation.tensor.startswith("the index along") or relation.detail in ("scaled", "only", "shifted") or relation.kind == "scaled-part"
    )
    return relation, not sized

"""How a wrong gradient relates to the true one, found by comparing the two over several experiments.

Every relation is tested on at least two independent grad_outputs, so that a coincidence of one set of
numbers is not taken for a law. The first relation that holds everywhere is the answer.
"""

from __future__ import annotations

import ast
import itertools
import typing

import torch

from torchsleuth.checker import origins, paths, terms, variants
from torchsleuth.checker.arguments import Arguments, dtype_name
from torchsleuth.checker.bench import Bench, Evaluation, expands_to, finite
from torchsleuth.checker.factors import sizes_of_factor
from torchsleuth.checker.mechanics import methods
from torchsleuth.checker.source import own_nodes
from torchsleuth.checker.trial import Relation
from torchsleuth.checker.truth import differing, through_forward, true_gradient

UNKNOWN = Relation("unknown")


class Pair(typing.NamedTuple):
    """A returned gradient beside the true one, and the pass that gave it."""

    evaluation: Evaluation
    returned: torch.Tensor
    true: torch.Tensor


def same(a: torch.Tensor, b: torch.Tensor, tolerance: float | None = None) -> bool:
    return a.shape == b.shape and not bool(differing(a, b, tolerance).any())


def pairs_for(bench: Bench, evaluation: Evaluation, k: int, true: torch.Tensor) -> list[Pair]:
    """The pass at hand, one with other random grad_outputs, one with grad_outputs of ones, and ones at other values and other indices."""
    raw = evaluation.raw[k] if k < len(evaluation.raw) else None
    returned = evaluation.settled.get(k)
    returned = raw if returned is None else returned
    out = [Pair(evaluation, returned.to(torch.float64), true)]
    ones = tuple(None if g is None else torch.ones_like(g) for g in evaluation.grads)
    passes = [(evaluation.arguments, bench.random_grads(evaluation.run)), (evaluation.arguments, ones)]
    others = (variants.redrawn(evaluation.arguments, bench.generator), variants.moved(evaluation.arguments, bench.generator))
    for elsewhere in (_elsewhere(bench, evaluation, others), _elsewhere(bench, evaluation, variants.other_indices(evaluation.arguments))):
        if elsewhere is not None:
            passes.append((elsewhere, bench.random_grads(evaluation.run)))
    for arguments, grads in passes:
        other = bench.evaluate(arguments, grads)
        found, _ = true_gradient(bench, other, k)
        raw = other.raw[k] if k < len(other.raw) else None
        grad = other.settled.get(k)
        grad = raw if grad is None else grad
        if isinstance(grad, torch.Tensor) and found is not None:
            out.append(Pair(other, grad.to(torch.float64), found.gradient))
    return out


def _elsewhere(bench: Bench, evaluation: Evaluation, others: typing.Iterable[Arguments]) -> Arguments | None:
    """The same inputs with other values, at which a law has to hold as well."""
    for other in others:
        try:
            run = bench.forward(other)
        except Exception:
            continue
        if finite(run) and all(
            not isinstance(a, torch.Tensor) or a.shape == b.shape for a, b in zip(run.outputs, evaluation.run.outputs, strict=True)
        ):
            return other
    return None


def relation_of_shape(bench: Bench, evaluation: Evaluation, k: int) -> Relation:
    """For a gradient of a wrong shape: what it would be the right gradient of, if anything."""
    found, _ = true_gradient(bench, evaluation, k)
    if found is None:
        return UNKNOWN
    pairs = pairs_for(bench, evaluation, k, found.gradient)
    for test in (_other_input, _transposed, _reduction_of_shape, _grad_output_itself, _same_elements, _collapsed):
        relation = test(bench, pairs, k)
        if relation is not None:
            return relation
    return UNKNOWN


def relation_of_values(bench: Bench, evaluation: Evaluation, k: int, true: torch.Tensor) -> Relation:
    pairs = pairs_for(bench, evaluation, k, true)
    for test in (
        _not_finite, _zero, _no_grad_output, _swapped, _factor, _other_input, _transposed, _summed_by_engine, _reduction, _rearranged, _inverted, _condition,
        _adjoint, _permuted, terms.tensor_factor, _not_linear, paths.lost_output, paths.missing_path, terms.other_tensor, terms.missing_sum, terms.wrong_axis, _precision, _passed_on,
    ):  # fmt: skip
        try:
            relation = test(bench, pairs, k)
        except (RuntimeError, ValueError, IndexError):
            relation = None
        if relation is not None:
            return relation
    return UNKNOWN


# -- single tests -------------------------------------------------------------------------------


def _not_finite(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    odd = ~torch.isfinite(pairs[0].returned) & torch.isfinite(pairs[0].true)
    if bool(odd.any()):
        operation, kind, line = origins.first_not_finite(bench, pairs[0].evaluation)
        return Relation("not-finite", share=float(odd.double().mean()), tensor=operation, detail=kind, line=line)
    return None


def _zero(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    if all(not bool((p.returned != 0).any()) for p in pairs):
        return Relation("zero")
    if all(float(p.returned.abs().max()) <= 1e-12 * float(p.true.abs().max()) for p in pairs if bool((p.true != 0).any())):
        return Relation("zero", detail="cancelled")
    return None


def _no_grad_output(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    if len(pairs) < 3 or same(pairs[0].true, pairs[1].true) or not same(pairs[0].returned, pairs[1].returned):
        return None
    return Relation("no-grad-output", holds=same(pairs[2].returned, pairs[2].true))


def _not_linear(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    """A part of the gradient does not scale with grad_output: it lacks that factor, or has it twice."""
    evaluation = pairs[0].evaluation
    nothing = tuple(None if g is None else torch.zeros_like(g) for g in evaluation.grads)
    double = tuple(None if g is None else 2 * g for g in evaluation.grads)
    rest, twice = (bench.evaluate(evaluation.arguments, grads).settled.get(k) for grads in (nothing, double))
    if rest is None or twice is None:
        return None
    if bool((rest != 0).any()) and bool(torch.isfinite(rest).all()):
        return Relation("not-linear", detail="offset")
    if not same(twice, 2 * pairs[0].returned):
        return Relation("not-linear", detail="power")
    return None


def proportion(pairs: list[Pair]) -> float | None:
    """The one number c with returned = c * true in every pair."""
    factor = None
    largest = max((float(p.true.abs().max()) for p in pairs if p.true.numel()), default=0.0)
    for pair in pairs:
        square = float((pair.true * pair.true).sum())
        # Gradients of ones may cancel, all but the rounding: that has no factor.
        if not square > 0 or max(float(pair.true.abs().max()), float(pair.returned.abs().max())) <= 1e-12 * largest:
            continue
        here = float((pair.returned * pair.true).sum()) / square
        if not same(pair.returned, here * pair.true) or (factor is not None and abs(here - factor) > 1e-6 * abs(factor)):
            return None
        factor = here if factor is None else factor
    return factor


def _factor(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    factor = proportion(pairs)
    if factor is None or abs(factor) < 1e-9:
        return None
    sizes, varied = sizes_of_factor(bench, pairs[0].evaluation, k, factor)
    return Relation("factor", factor=factor, sizes=sizes, holds=varied)


def _true_of(bench: Bench, evaluation: Evaluation) -> dict[int, torch.Tensor]:
    return {j: f[0].gradient for j in evaluation.arguments.checked if (f := true_gradient(bench, evaluation, j))[0] is not None}


def _raw(evaluation: Evaluation, k: int) -> torch.Tensor | None:
    grad = evaluation.raw[k] if k < len(evaluation.raw) else None
    return grad.to(torch.float64) if isinstance(grad, torch.Tensor) else None


def _other_input(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    truths = [_true_of(bench, p.evaluation) for p in pairs[:2]]
    for j in pairs[0].evaluation.arguments.checked:
        if j == k or any(j not in t for t in truths):
            continue
        mine = [_raw(p.evaluation, k) for p in pairs[:2]]
        if all(g is not None and same(g, t[j]) for g, t in zip(mine, truths, strict=True)):
            others = [_raw(p.evaluation, j) for p in pairs[:2]]
            swapped = all(g is not None and k in t and same(g, t[k]) for g, t in zip(others, truths, strict=True))
            return Relation("other-input", other=j, swapped=swapped)
    return None


def _swapped(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    """Two gradients in each other's place, though each may be a multiple of the other."""
    found = _other_input(bench, pairs, k)
    return found if found is not None and found.swapped else None


def _transposed(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    dims = pairs[0].true.ndim
    for a, b in itertools.combinations(range(dims), 2):
        if all(same(p.returned, p.true.transpose(a, b)) for p in pairs):
            return Relation("transposed", dims=(a, b))
    return None


def _broadcast_dims(shape: typing.Sequence[int], wide: typing.Sequence[int]) -> tuple[int, ...]:
    lead = len(wide) - len(shape)
    return tuple(range(lead)) + tuple(d + lead for d, n in enumerate(shape) if n == 1 and wide[d + lead] != 1)


def unreduced(bench: Bench, pair: Pair, k: int) -> tuple[torch.Tensor, tuple[int, ...]] | None:
    """The gradient before the sum over the dimensions that input k was broadcast over, and those dimensions."""
    arguments = pair.evaluation.arguments
    value = arguments.values[k]
    outputs = [out for out, g in zip(pair.evaluation.run.outputs, pair.evaluation.grads, strict=True) if g is not None]
    if len(outputs) != 1 or outputs[0].shape == value.shape or not expands_to(value.shape, outputs[0].shape):
        return None
    wide = arguments.with_values(
        v.expand(outputs[0].shape).contiguous() if j == k else v for j, v in enumerate(arguments.values)
    )
    try:
        found = through_forward(bench, pair.evaluation._replace(arguments=wide)).get(k)
    except Exception:
        return None
    dims = _broadcast_dims(value.shape, outputs[0].shape)
    if found is None or not dims or not same(found.sum_to_size(value.shape), pair.true):
        return None
    return found, dims


def _summed_by_engine(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    """backward left the sum to the engine, which sums leading dimensions and dimensions of size 1, and others were meant."""
    raws = [_raw(p.evaluation, k) for p in pairs]
    if any(raw is None or raw.ndim > 8 or raw.shape == p.true.shape for raw, p in zip(raws, pairs, strict=True)):
        return None
    for count in range(1, raws[0].ndim + 1):
        for dims in itertools.combinations(range(raws[0].ndim), count):
            if all(_same_but_for_ones(raw.sum(dims), p.true) for raw, p in zip(raws, pairs, strict=True)):
                return Relation("reduction", dims=dims, detail="engine:" + ",".join(map(str, raws[0].shape)))
    return None


def _reduction(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    parts = [unreduced(bench, p, k) for p in pairs]
    if any(part is None for part in parts):
        return None
    dims = parts[0][1]
    for detail, reduced in (
        ("first", lambda wide: wide[tuple(slice(0, 1) if d in dims else slice(None) for d in range(wide.ndim))]),
        ("last", lambda wide: wide[tuple(slice(-1, None) if d in dims else slice(None) for d in range(wide.ndim))]),
        ("max", lambda wide: wide.amax(dims, keepdim=True)),
    ):
        if all(same(p.returned, reduced(part[0]).sum_to_size(p.true.shape)) for p, part in zip(pairs, parts, strict=True)):
            return Relation("reduction", dims=dims, detail=detail)
    return _reduction_of_shape(bench, pairs, k)


def _reduction_of_shape(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    parts = [unreduced(bench, p, k) for p in pairs]
    if any(part is None for part in parts):
        return None
    wide, dims = parts[0]
    for count in range(wide.ndim + 1):
        for other in itertools.combinations(range(wide.ndim), count):
            if other == dims:
                continue
            if all(
                _same_but_for_ones(p.returned, part[0].sum(other) if other else part[0])
                for p, part in zip(pairs, parts, strict=True)
            ):
                return Relation("reduction", dims=dims, detail="none" if not other else "other:" + ",".join(map(str, other)))
    return None


def _same_but_for_ones(a: torch.Tensor, b: torch.Tensor) -> bool:
    return [n for n in a.shape if n != 1] == [n for n in b.shape if n != 1] and same(a.reshape(-1), b.reshape(-1))


def _grad_output_itself(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    for position, grad in enumerate(pairs[0].evaluation.grads):
        if grad is not None and all(same(p.returned, p.evaluation.grads[position]) for p in pairs):
            return Relation("grad-output-itself", other=position)
    return None


def _passed_on(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    found = _grad_output_itself(bench, pairs, k)
    return None if found is None else Relation("passed-on", other=found.other)


def _collapsed(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    """The true gradient summed or averaged over dimensions that the input has."""
    dims = range(pairs[0].true.ndim)
    for count in range(1, len(dims) + 1):
        for chosen in itertools.combinations(dims, count):
            for detail, reduced in (("sum", torch.sum), ("mean", torch.mean)):
                if all(_same_but_for_ones(p.returned, reduced(p.true, chosen)) for p in pairs):
                    return Relation("collapsed", dims=chosen, detail=detail)
    return None


def _same_elements(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    if all(p.returned.numel() == p.true.numel() and same(p.returned.reshape(-1), p.true.reshape(-1)) for p in pairs):
        return Relation("reshaped")
    return None


def _rearranged(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    for dim in range(pairs[0].true.ndim):
        if pairs[0].true.shape[dim] < 2:
            continue
        if all(same(p.returned, p.true.flip(dim)) for p in pairs):
            return Relation("rearranged", dims=(dim,), detail="flipped")
        n = pairs[0].true.shape[dim]
        for shift in sorted(range(1, n), key=lambda s: min(s, n - s))[:32]:
            if all(same(p.returned, p.true.roll(shift, dim)) for p in pairs):
                halves = 2 * shift == n and not _rolls(bench)  # a roll by half of a small size is by less of another one
                return Relation("rearranged", dims=(dim,), detail="halves" if halves else "shifted", factor=min(shift, n - shift))
    return None


def _rolls(bench: Bench) -> bool:
    found = (node for method in methods(bench) if method is not None for node in own_nodes(method.tree))
    return any(isinstance(node, ast.Attribute) and node.attr == "roll" for node in found)


def _adjoint(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    """returned = J grad_output, where J^T grad_output was wanted."""
    for p in pairs[:2]:
        live = [o for o, g in enumerate(p.evaluation.grads) if g is not None]
        if len(live) != 1 or p.evaluation.run.outputs[live[0]].shape != p.true.shape:
            return None
        moved = bench.changes(p.evaluation.arguments, {k: p.evaluation.grads[live[0]]}, 1e-5)[live[0]]
        if not same(p.returned, moved, 1e-5):
            return None
    return Relation("adjoint")


def _permuted(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    """The elements of the true gradient in another order."""
    for p in (*pairs[:2], *pairs[3:]):  # the third has grad_outputs of ones, and so elements that are all alike
        if p.true.numel() < 4 or p.true.reshape(-1).unique().numel() < p.true.numel() // 2:
            return None
        if not same(p.returned.reshape(-1).sort().values, p.true.reshape(-1).sort().values):
            return None
    return Relation("permuted")


def _inverted(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    """Something exactly where the true gradient is zero, and zero where it is something."""
    share = float((pairs[0].true != 0).double().mean())
    if 0 < share < 1 and all(bool(((p.returned != 0) == (p.true == 0)).all()) for p in [*pairs[:2], *pairs[3:]]):
        return Relation("inverted", share=share)
    return None


def _condition(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    """Right where some condition on the elements holds, wrong elsewhere; and right there in more than zeros."""
    if all(not bool((~differing(p.returned, p.true) & (p.true != 0)).any()) for p in pairs[:2]):
        return None
    pairs = [*pairs[:2], *pairs[3:]]  # the third has grad_outputs of ones, which hide much; after it come other values
    wrong = [differing(p.returned, p.true) for p in pairs]
    share = float(wrong[0].double().mean())
    if not 0.02 < share < 0.98 and wrong[0].sum() < 3 or share in (0.0, 1.0):
        return None
    names, numbers = terms.backward_names(bench), terms.written_numbers(bench)
    for name, tensors in terms.conditions(pairs, names, numbers):
        if all(t.shape == w.shape and bool((t == ~w).all()) for t, w in zip(tensors, wrong, strict=True)):
            return Relation("condition", tensor=name, share=share, factor=_inside(pairs, wrong))
    relevant = [w & (p.true.abs() + p.returned.abs() > 1e-12) for p, w in zip(pairs, wrong, strict=True)]
    for name, tensors in terms.conditions(pairs, names, numbers):
        # Where both gradients are zero nothing can be seen to be wrong.
        if all(
            t.shape == w.shape and int((t & (p.true != 0)).sum()) > 2 and not bool((t & w).any()) and not bool((~t & ~w & (p.true != 0)).any())
            for p, t, w in zip(pairs, tensors, relevant, strict=True)
        ):
            return Relation("condition", tensor=name, share=share, factor=_inside(pairs, wrong), detail="some")
    return None


def _inside(pairs: list[Pair], wrong: list[torch.Tensor]) -> float:
    """The factor that the wrong elements are off by in every pass, or 0 where there is none."""
    factors = []
    for pair, mask in zip(pairs, wrong, strict=True):
        true, returned = pair.true[mask], pair.returned[mask]
        square = float((true * true).sum())
        factor = float((true * returned).sum()) / square if square else 0.0
        if not factor or not same(returned, factor * true) or (factors and abs(factor - factors[0]) > 1e-6 * abs(factors[0])):
            return 0.0
        factors.append(factor)
    return factors[0] if factors else 0.0


def _precision(bench: Bench, pairs: list[Pair], k: int) -> Relation | None:
    errors = [float((p.returned - p.true).norm()) / max(float(p.true.norm()), 1e-300) for p in pairs]
    if not max(errors) < 1e-3:
        return None
    raw = pairs[0].evaluation.raw[k]
    shorter = raw.is_floating_point() and torch.finfo(raw.dtype).bits < torch.finfo(pairs[0].evaluation.arguments.values[k].dtype).bits
    return Relation("precision", factor=max(errors), detail=dtype_name(raw.dtype) if shorter else "")

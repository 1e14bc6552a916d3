"""The experiments that a changed method has to pass: inputs, grad_outputs and the true gradients, over other values and sizes."""

from __future__ import annotations

import itertools
import typing

import torch

from torchsleuth.checker import plainvalues, variants
from torchsleuth.checker.arguments import Arguments
from torchsleuth.checker.bench import Bench, Evaluation, finite, settle
from torchsleuth.checker.mechanics import same_values
from torchsleuth.checker.source import Method
from torchsleuth.checker.subject import Run
from torchsleuth.checker.truth import differing, through_forward, true_gradient


class Given:
    """What backward may read and not write, with its values: a change may make an accumulator of a saved tensor. Cases share tensors."""

    def __init__(self, values: typing.Iterable):
        self.tensors = [(t, t.clone()) for t in values if isinstance(t, torch.Tensor)]

    def versions(self) -> list[int]:
        return [t._version for t, _ in self.tensors]

    def restored(self, before: list[int]) -> bool:
        """Whether any was written to since it had the version `before`; those have their values back."""
        written = [pair for pair, version in zip(self.tensors, before, strict=True) if pair[0]._version != version]
        for tensor, copy in written:
            tensor.copy_(copy)
        return bool(written)

    def written(self) -> bool:
        """By value, as NumPy would."""
        return any(not same_values(t, copy) for t, copy in self.tensors)


class Case(typing.NamedTuple):
    """One experiment to pass: inputs, grads, and the true gradients by input."""

    arguments: Arguments
    run: Run
    grads: tuple
    true: dict[int, torch.Tensor]
    given: Given


def experiments(bench: Bench, method: Method, evaluation: Evaluation) -> list[Case]:
    """What a changed method is tried on; nothing where that could do harm, or cannot be done twice."""
    arguments = evaluation.arguments
    if any(v.device.type != "cpu" for v in arguments.values if isinstance(v, torch.Tensor)):
        return []  # a changed index on a GPU may end the CUDA context
    if bench.experiments is None or bench.experiments[0] is not evaluation:
        try:
            cases = _cases(bench, evaluation)
        except Exception:
            cases = []
        bench.experiments = evaluation, cases if cases and not _writes(bench, cases[0]) else []
    return bench.experiments[1]


def _cases(bench: Bench, evaluation: Evaluation) -> list[Case]:
    arguments = evaluation.arguments
    others = [arguments, arguments, variants.redrawn(arguments, bench.generator), variants.moved(arguments, bench.generator)]
    sizes = sorted({n for j in variants.tensors(arguments) for n in arguments.values[j].shape if n > 0})
    others += [variants.with_sizes(arguments, {n: n + 1}, bench.generator) for n in sizes[:4]]
    others += [other for _, other in plainvalues.other_constants(arguments)]
    # Others that forward takes may still be none that the Function is for: what backward refuses proves nothing.
    more = [*itertools.islice(variants.told_apart(arguments, bench.generator, bench.takes), 4), variants.doubled(arguments, bench.generator)]
    more += [other for other in plainvalues.other_integers(arguments) if bench.takes(other)]
    more += [*plainvalues.larger_constants(arguments)]
    shapes = any(problem.kind == "shape" for problem in evaluation.problems)
    others += [other for other in more if other is not None and not _refused(bench, other, ("raises",) if shapes else ("raises", "shape"))]
    out = []
    for position, other in enumerate(other for other in others if other is not None):
        try:
            run = bench.forward(other)
            if position and not finite(run):
                continue
            case = _case(bench, evaluation._replace(arguments=other, run=run, grads=evaluation.grads if position == 0 else bench.random_grads(run)))
            out += [case] if case is not None else []
        except Exception:
            if position == 0:
                return []
    return [*out, *_right_otherwise(bench, evaluation)]


def _right_otherwise(bench: Bench, evaluation: Evaluation) -> typing.Iterator[Case]:
    """Passes with a flag the other way that are right as they are: a sign for both ways mends the one and spoils the other."""
    for _, other in plainvalues.other_flags(evaluation.arguments):
        try:
            run = bench.forward(other)
            case = _case(bench, evaluation._replace(arguments=other, run=run, grads=bench.random_grads(run))) if finite(run) else None
        except Exception:
            continue
        if case is not None and right_in(bench, case, bench.subject.backward, set(case.true)):
            yield case


def seen_first(bench: Bench, evaluation: Evaluation) -> list[Case]:
    """The pass that showed the mistake, where the others are made of another one: what mends those has to mend it, too."""
    if variants.elements(evaluation.arguments) > 16 * variants.LARGE:
        return []
    case = _case(bench, evaluation._replace(run=bench.forward(evaluation.arguments)))
    return [case] if case is not None else []


def _case(bench: Bench, evaluation: Evaluation) -> Case | None:
    arguments, run = evaluation.arguments, evaluation.run
    true = {}
    for k in arguments.checked:
        found, _ = true_gradient(bench, evaluation, k)
        if found is None:
            return None
        true[k] = found.gradient
    grads = _passed(run, evaluation.grads)
    return Case(arguments, run, grads, true, Given((*grads, *(run.context.to_save or ()), *vars(run.context).values(), *arguments.values)))


def _refused(bench: Bench, arguments: Arguments, kinds: tuple[str, ...]) -> bool:
    try:
        return any(problem.kind in kinds for problem in bench.evaluate(arguments).problems)
    except Exception:
        return True


def _passed(run: Run, grads: tuple) -> tuple:
    return tuple(
        torch.zeros_like(o) if g is None and isinstance(o, torch.Tensor) and run.context.materialize_grads else g
        for g, o in zip(grads, run.outputs, strict=True)
    )


def _writes(bench: Bench, case: Case) -> bool:
    """A backward that writes into what it is given cannot be run twice on it."""
    before = case.given.versions()
    with torch.no_grad():
        try:
            bench.subject.backward(case.run.context, case.grads)
        except Exception:
            pass
        return case.given.restored(before) or case.given.written()


def right_already(bench: Bench, cases: list[Case]) -> set[int]:
    def right(k: int) -> bool:
        return all(right_in(bench, case, bench.subject.backward, {k}) for case in cases)

    return {k for k in cases[0].true if right(k)}


def right_in(bench: Bench, case: Case, backward: typing.Callable, wanted: set[int]) -> bool:
    try:
        with torch.no_grad():
            before = case.given.versions()
            try:
                raw = backward(case.run.context, case.grads)
            finally:
                written = case.given.restored(before)
        if written:
            return False
        raw = raw if isinstance(raw, tuple) else (raw,)
        settled, problems = settle(case.arguments, raw, case.arguments.needs)
    except Exception:
        return False
    if any(p.kind == "count" or p.kind == "unexpected" or p.input in wanted for p in problems if p.kind != "none"):
        return False
    for k in wanted:
        grad = settled.get(k)
        if grad is None:
            if bool((case.true[k] != 0).any()):
                return False
        elif bool(differing(grad, case.true[k]).any()):
            return False
    return True


def finite_at_zero(bench: Bench, case: Case, wanted: set[int], function: typing.Callable) -> bool:
    """Whether a method that divides gives numbers where an input holds a zero, as far as the true gradient does: `grad / x` of a product does not."""
    values = list(case.arguments.values)
    for k in case.arguments.checked:
        values[k] = values[k].clone()
        values[k].view(-1)[:1] = 0
    try:
        other = case.arguments.with_values(values)
        run = bench.forward(other)
        if not finite(run):
            return True
        true = through_forward(bench, Evaluation(other, run, case.grads, (), {}, ()))
        with torch.no_grad():
            raw = function(run.context, list(case.grads)) if bench.subject.boxed else function(run.context, *case.grads)
        settled, _ = settle(other, raw if isinstance(raw, tuple) else (raw,), other.needs)
    except Exception:
        return True
    return not any(bool((torch.isfinite(true[k]) & ~torch.isfinite(settled[k])).any()) for k in wanted if settled.get(k) is not None and k in true)


def passes(bench: Bench, cases: list[Case], wanted: set[int], right: set[int], function: typing.Callable) -> bool:
    def backward(context, grads):
        return function(context, list(grads)) if bench.subject.boxed else function(context, *grads)

    return all(right_in(bench, case, backward, wanted | right) for case in cases)

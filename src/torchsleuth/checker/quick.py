"""The fast road for a Function that is right: several unusual conditions in one pass.

If a gradient is right for another batch size, larger values, strided and expanded memory all at once, and so is
its derivative, it is right for each of them; only when such a pass fails is each condition tried alone, to say
which one it is.
"""

from __future__ import annotations

import functools
import typing

import torch

from torchsleuth.checker import layouts, plainvalues, second, variants
from torchsleuth.checker.arguments import Arguments
from torchsleuth.checker.bench import Bench, Evaluation, finite, gradients, is_float, product
from torchsleuth.checker.subject import Run
from torchsleuth.checker.truth import agrees, tolerance_now

if typing.TYPE_CHECKING:
    from torchsleuth.checker.experiment import Experiment


# Values five times as large may saturate: what is left of the gradient then drowns in the rounding of a shorter step.
A_STEP = 1e-7
FEW = 16  # elements


class Together(typing.NamedTuple):
    """The pass that had everything at once, and what it says of double backward."""

    evaluation: Evaluation
    double: str  # right | refused | empty: to be looked at


def all_at_once(trial: Experiment) -> Together | None:
    """The pass where everything came out right, and the trial's list of cases says what that was; else None."""
    if trial.bench.random or trial.bench.writes:
        return None
    study, generator, sizes = trial.study_untried(), trial.generator, trial.sizes
    single = bool(trial.batched) and study.values[trial.batched[0]].shape[0] == 1
    batch = None if single else variants.with_batch(study, 1, generator, trial.batched)
    usual = study if single else batch or study
    other, names = _other_values(trial, usual)
    if single:
        # A batch of one, repeated without memory and with the rest of it out of order, is all of it at once.
        batch = wide = _repeated(_larger(other or usual))
        together = _with_derivatives(trial, wide, sizes, variants.repeated_strides)
        if together is None and other is not None and _refused(trial, other, names):
            # Other signs may lie outside forward's domain; without them, then.
            names = []
            together = _with_derivatives(trial, _repeated(_larger(usual)), sizes, variants.repeated_strides)
    else:
        # Two passes: strided inputs with expanded grad_outputs, and the other way round.
        together = _with_derivatives(trial, _larger(study), sizes, variants.repeated_strides)
        if together is not None and not _right(trial, _as_expanded(other or usual), sizes, variants.reversed_strides):
            if other is None or not _refused(trial, other, names) or not _right(trial, _as_expanded(usual), sizes, variants.reversed_strides):
                return None
            names = []
    if together is None:
        return None
    if names and variants.elements(usual) < FEW:
        # One row, repeated without memory, may lie on one side of a threshold: the other constants again, with all rows.
        whole, _ = _other_values(trial, study)
        if whole is not None and trial.bench.takes(whole) and not _right(trial, whole, sizes):
            return None
    cases = [("a batch of 3" if single else "a batch of 1", batch.shapes())] if batch is not None else []
    cases += _LAYOUTS
    cases += [(name, "") for name in names]
    empty = variants.with_batch(study, 0, generator, trial.batched)
    if empty is not None:
        if not _right(trial, empty, sizes):
            return None
        cases.append(("size 0", empty.shapes()))
    trial.cases += cases
    trial.study = study
    trial.unequal()
    return together


def _with_derivatives(trial: Experiment, arguments: Arguments, sizes: dict[int, float], strides: typing.Callable) -> Together | None:
    """A pass through `apply` with its first and second derivatives, against one pass a little further along a random direction."""
    bench, checked, like = trial.bench, arguments.checked, trial.generator.like
    values, refuses = list(arguments.values), second.refuses(bench)
    for k in checked:
        values[k] = values[k].detach().requires_grad_()
    leaves = [values[k] for k in checked]
    try:
        with torch.enable_grad():
            returned = bench.subject.function.apply(*values)
            outputs = returned if isinstance(returned, tuple) else (returned,)
            live = [o for o, out in enumerate(outputs) if is_float(out) and out.requires_grad]
            if len(live) < sum(map(is_float, outputs)):
                return None
            grads = [like(outputs[o], strides).requires_grad_() for o in live]
            first = _first(bench, arguments, outputs, leaves, grads) or gradients([outputs[o] for o in live], leaves, grads, create_graph=True)
            weights = [None if g is None else like(g).clone() for g in first]
            curved = [] if refuses else [(g, w) for g, w in zip(first, weights, strict=True) if g is not None and g.requires_grad]
            everything = [*leaves, *grads]
            if curved:
                roots, ways = zip(*curved, strict=True)
                curves = gradients(roots, everything, ways)
            else:
                curves = (None,) * len(everything)
    except Exception:
        return None
    outputs = tuple([out.detach() if isinstance(out, torch.Tensor) else out for out in outputs])
    here = Run(None, outputs, returned)
    moves = {k: like(values[k]) for k in checked}
    grad_moves = [like(g) for g in grads]
    sent = dict(zip(live, (g.detach() for g in grads), strict=True))
    gradient = {k: None if g is None else g.detach() for k, g in zip(checked, first, strict=True)}
    evaluation = Evaluation(arguments, here, tuple(map(sent.get, range(len(outputs)))), (), gradient, ())
    there = _moved(trial, evaluation, moves, sizes, dict(zip(live, grad_moves, strict=True)))
    if there is None:
        return None
    for k, g in gradient.items():
        if g is not None and there.settled.get(k) is None:
            return None
    if not _rises(evaluation, there, moves, sizes):
        return None
    rise = found = 0.0
    for k, weight, curve in zip(checked, weights, curves, strict=False):
        if weight is not None:
            rise += product(weight, there.settled[k] - gradient[k])
        if curve is not None:
            found += sizes[k] * product(curve, moves[k])
    for curve, move in zip(curves[len(checked) :], grad_moves, strict=True):
        if curve is not None:
            found += product(curve, move)
    right = abs(rise / A_STEP - found) <= 1e-4 * abs(found)
    return Together(evaluation, "refused" if refuses else "right" if right else "")


def _first(bench: Bench, arguments: Arguments, outputs: tuple, leaves: list, grads: list) -> list | None:
    """What backward returns, called with the node that `apply` made, as the engine would; None where that takes the engine."""
    node = outputs[0].grad_fn
    if len(outputs) != len(grads) or getattr(node, "_forward_cls", None) is not bench.subject.function:
        return None
    raw = bench.subject.backward(node, tuple(grads))
    first = [raw[k] for k in arguments.checked]
    for g, leaf in zip(first, leaves, strict=True):
        if not isinstance(g, torch.Tensor) or g.shape != leaf.shape or g.dtype is not leaf.dtype or g.layout is not torch.strided:
            return None
    return first


def _moved(
    trial: Experiment, evaluation: Evaluation, moves: dict[int, torch.Tensor], sizes: dict[int, float], grad_moves: dict[int, torch.Tensor]
) -> Evaluation | None:
    """The pass a step further, in plain memory and outside the engine; None where anything is odd about it, a write by backward too."""
    bench, arguments = trial.bench, evaluation.arguments
    values = [torch.add(v, moves[k], alpha=A_STEP * sizes[k]) if k in moves else v for k, v in enumerate(arguments.values)]
    grads = tuple([None if g is None else torch.add(g, grad_moves[o], alpha=A_STEP) for o, g in enumerate(evaluation.grads)])
    try:
        moved = arguments.with_values(values)
        run = bench.forward(moved)
        versions = [out._version for out in run.outputs if isinstance(out, torch.Tensor)]
        there = bench.evaluate(moved, grads, run=run)
    except Exception:
        return None
    if there.problems:
        return None
    for k in moves:
        if values[k]._version:
            return None
    # A write past the version counter shows in the values: they are compared next.
    if versions != [out._version for out in run.outputs if isinstance(out, torch.Tensor)]:
        return None
    for g, sent in zip(grads, bench.sent, strict=True):
        if g is not None and (sent._version or not torch.equal(g, sent)):
            return None
    return there


def _rises(evaluation: Evaluation, there: Evaluation, moves: dict[int, torch.Tensor], sizes: dict[int, float]) -> bool:
    """Whether forward's values rise from one pass to the other as the gradient says; what does not pass is looked at again."""
    rise = expected = 0.0
    for grad, here, ahead in zip(evaluation.grads, evaluation.run.outputs, there.run.outputs, strict=True):
        if grad is not None:
            rise += product(grad, ahead - here)
    for k, grad in evaluation.settled.items():
        if grad is not None:
            expected += sizes[k] * product(grad, moves[k])
    return abs(rise / A_STEP - expected) <= 10 * tolerance_now.get() * abs(expected)


_LAYOUTS = [
    (name, "")
    for name in ("values five times as large", "non-contiguous inputs", "expanded inputs", "non-contiguous grad_output",
                 "expanded grad_output (as .sum() makes it)")
]  # fmt: skip


def _larger(arguments: Arguments) -> Arguments:
    """Values five times as large, their memory in reverse order."""
    values = list(arguments.values)
    for k, value in enumerate(values):
        if k in arguments.checked and value.dtype is torch.float64:
            values[k] = torch.mul(value, 5, out=value.new_empty_strided(value.shape, _out_of_order(value.shape)))
        elif isinstance(value, torch.Tensor):
            values[k] = _transposed(value * 5 if k in arguments.checked else value)
    return arguments.with_values(values)


@functools.lru_cache(maxsize=4096)
def _out_of_order(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides: reversed where two dimensions or more are long, with gaps where one is."""
    strides = variants.reversed_strides(shape)
    return strides if sum(n > 1 for n in shape) > 1 else tuple(2 * n for n in strides)


def _repeated(arguments: Arguments) -> Arguments:
    """Every batch of one as a batch of three: the same memory three times."""
    return arguments.with_values(
        [v.expand(3, *v.shape[1:]) if isinstance(v, torch.Tensor) and v.ndim and v.shape[0] == 1 else v for v in arguments.values]
    )


def _as_expanded(arguments: Arguments) -> Arguments:
    return arguments.with_values(_expanded(v) if k in arguments.checked else v for k, v in enumerate(arguments.values))


def _transposed(value: torch.Tensor) -> torch.Tensor:
    other = layouts.noncontiguous(value)
    return value if other is None else other


def _expanded(value: torch.Tensor) -> torch.Tensor:
    """The first slice of the first long dimension, repeated without memory (stride 0)."""
    dim = next((d for d, n in enumerate(value.shape) if n > 1), None)
    return value if dim is None else value.narrow(dim, 0, 1).expand(value.shape)


def _refused(trial: Experiment, other: Arguments, names: list[str]) -> bool:
    """Whether it is forward that does not take the other values: then they are nothing to judge by."""
    try:
        if finite(trial.bench.forward(other)):
            return False
        why = "forward is not finite there"
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    trial.refused.append((", ".join(names), why))
    return True


def _other_values(trial: Experiment, study: Arguments) -> tuple[Arguments | None, list[str]]:
    """Other signs, masks and constants, together."""
    names = []
    for name, change in (("other signs", variants.other_signs), ("other masks", variants.other_masks)):
        other = change(study, trial.generator)
        if other is not None:
            study = other
            names.append(name)
    done: set[str] = set()
    while True:
        changed = next((c for c in plainvalues.other_constants(study) if c[0].split("=")[0] not in done), None)
        if changed is None:
            break
        done.add(changed[0].split("=")[0])
        names.append(changed[0])
        study = changed[1]
    return (study if names else None), names


def _right(trial: Experiment, arguments: Arguments, sizes: dict[int, float], strides: typing.Callable | None = None) -> bool:
    bench = trial.bench
    try:
        run = bench.forward(arguments)
        empty = not any(out.numel() for out in run.outputs if is_float(out))
        if not empty and not finite(run):
            return False
        grads = bench.random_grads(run) if strides is None else tuple(bench.generator.like(out, strides) if run.carries_gradient(out) else None for out in run.outputs)
        evaluation = bench.evaluate(arguments, grads, run=run, spent=empty)
    except Exception:
        return False
    if evaluation.problems:
        return False
    inputs = [k for k in arguments.checked if arguments.values[k].numel() and evaluation.settled.get(k) is not None]
    if empty:
        return not any(bool(evaluation.settled[k].any()) for k in inputs)  # nothing depends on them
    return not inputs or agrees(bench, evaluation, inputs, sizes, exact=False)

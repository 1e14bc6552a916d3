"""The fast road for a Function that is right: several unusual conditions in one pass.

If a gradient is right for another batch size, larger values, strided and expanded memory all at once, it
is right for each of them; only when such a pass fails is each condition tried alone, to say which one it is.
"""

from __future__ import annotations

import typing

import torch

from torchsleuth.checker import variants
from torchsleuth.checker.arguments import Arguments
from torchsleuth.checker.bench import finite
from torchsleuth.checker.truth import agrees, scales

if typing.TYPE_CHECKING:
    from torchsleuth.checker.experiment import Experiment


def all_at_once(trial: Experiment) -> bool:
    """True where everything came out right, and the trial's list of cases says what that was."""
    if trial.bench.random or trial.bench.writes:
        return False
    study, generator = trial.study, trial.generator
    sizes = scales(study)
    single = variants.first_size(study) == 1
    batch = _repeated(study) if single else variants.with_batch(study, 1, generator)
    other, names = _other_values(trial, study if single else batch or study)
    if not _right_everywhere(trial, other or (study if single else batch or study), single, sizes):
        # Other signs may lie outside forward's domain; without them, then.
        if other is None or not _refused(trial, other, names) or not _right_everywhere(trial, study if single else batch or study, single, sizes):
            return False
        names = []
    cases = [("a batch of 3" if single else "a batch of 1", batch.shapes())] if batch is not None else []
    cases += _LAYOUTS
    cases += [(name, "") for name in names]
    empty = variants.with_batch(study, 0, generator)
    if empty is not None:
        if not _right(trial, empty, sizes):
            return False
        cases.append(("size 0", empty.shapes()))
    trial.cases += cases
    trial.unequal()
    return True


def _right_everywhere(trial: Experiment, values: Arguments, single: bool, sizes: dict[int, float]) -> bool:
    if single:
        # A batch of one, repeated without memory and with the rest of it out of order, is all of it at once.
        return _right(trial, _repeated(_larger(values)), sizes, laid_out=_both)
    # Two passes: strided inputs with expanded grad_outputs, and the other way round.
    return _right(trial, _strided(_larger(trial.study)), sizes, laid_out=_expanded) and _right(
        trial, _as_expanded(values), sizes, laid_out=_transposed
    )


_LAYOUTS = [
    (name, "")
    for name in ("values five times as large", "non-contiguous inputs", "expanded inputs", "non-contiguous grad_output",
                 "expanded grad_output (as .sum() makes it)")
]  # fmt: skip


def _larger(arguments: Arguments) -> Arguments:
    return arguments.with_values(v * 5 if k in arguments.checked else v for k, v in enumerate(arguments.values))


def _repeated(arguments: Arguments) -> Arguments:
    """Every batch of one as a batch of three: the same memory three times, its other dimensions out of order."""
    return arguments.with_values(
        _transposed(v).expand(3, *v.shape[1:]) if isinstance(v, torch.Tensor) and v.ndim and v.shape[0] == 1
        else _transposed(v) if isinstance(v, torch.Tensor) else v
        for v in arguments.values
    )  # fmt: skip


def _both(value: torch.Tensor) -> torch.Tensor:
    """Out of order, and repeated along the first dimension."""
    if value.ndim < 2 or value.shape[0] < 2:
        return _expanded(value)
    return _transposed(value[:1]).expand(value.shape)


def _strided(arguments: Arguments) -> Arguments:
    return arguments.with_values(_transposed(v) if isinstance(v, torch.Tensor) else v for v in arguments.values)


def _as_expanded(arguments: Arguments) -> Arguments:
    return arguments.with_values(_expanded(v) if k in arguments.checked else v for k, v in enumerate(arguments.values))


def _transposed(value: torch.Tensor) -> torch.Tensor:
    other = variants.noncontiguous(value)
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
        changed = next((c for c in variants.other_constants(study) if c[0].split("=")[0] not in done), None)
        if changed is None:
            break
        done.add(changed[0].split("=")[0])
        names.append(changed[0])
        study = changed[1]
    return (study if names else None), names


def _right(trial: Experiment, arguments: Arguments, sizes: dict[int, float], laid_out: typing.Callable | None = None) -> bool:
    bench = trial.bench
    try:
        run = bench.forward(arguments)
        if not finite(run):
            return False
        grads = bench.random_grads(run)
        if laid_out is not None:
            grads = tuple(None if g is None else laid_out(g) for g in grads)
        evaluation = bench.evaluate(arguments, grads, run=run)
    except Exception:
        return False
    if evaluation.problems:
        return False
    inputs = [k for k in arguments.checked if arguments.values[k].numel() and evaluation.settled.get(k) is not None]
    return not inputs or agrees(bench, evaluation, inputs, sizes, exact=False)

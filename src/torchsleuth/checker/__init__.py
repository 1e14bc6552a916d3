"""`check`: experiments on custom autograd Functions, and what they say about `backward`.

    report = torchsleuth.check(MyFunction, x, weight)     # tensors of any floating-point type
    report = torchsleuth.check(MyFunction, (1, 32, 100))  # or shapes
"""

from __future__ import annotations

import functools
import types
import typing
import warnings

from torchsleuth.checker.report import CheckReport, report_of
from torchsleuth.checker.trial import Trial

__all__ = ["CheckReport", "check", "check_trial"]


def check(
    function: type,
    *inputs: typing.Any,
    accept_surrogate: bool | None = None,
    strict: bool = False,
    only_given: bool = False,
    directions: int = 1,
    seed: int | None = None,
) -> CheckReport:
    """Checks the backward of `function` (a torch.autograd.Function) against its forward.

    `inputs` are what `function.apply` takes: tensors and plain values, or, where no tensor is among
    them, shapes as tuples of integers. Nothing passed in is changed, and neither is the random state.
    A backward that is not the derivative of forward on purpose (straight-through estimators, gradient
    reversal) is a note, and so are a second derivative that is wrong where the Function's file takes none,
    outputs that are views, and an empty batch that backward refuses; `strict` makes findings of them all, `accept_surrogate` decides about the
    first. `only_given` compares the gradient for these
    inputs and leaves out everything else: other sizes, layouts, types, double backward, mechanics.
    """
    trial = check_trial(function, *inputs, seed=seed, directions=directions, only_given=only_given)
    return report_of((trial,), accept_surrogate, strict=strict)


def check_trial(
    function: type,
    *inputs: typing.Any,
    seed: int | None = None,
    directions: int = 1,
    mend: bool = True,
    made: bool = False,
    only_given: bool = False,
) -> Trial:
    """The evidence alone: everything that was tried on one Function, before it is judged. `made`: the inputs are random, not the user's."""
    experiment, guard, randomness, subject = _stages()
    function = subject.function_class(function)
    with guard.untouched(inputs, randomness.reached_by(function, inputs)) as state, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unusual sizes make torch warn about things the user never did
        seed = experiment.SEED if seed is None else seed
        return experiment.Experiment(function, inputs, seed=seed, directions=directions, mend=mend, made=made, only_given=only_given).run(state)


@functools.cache
def _stages() -> tuple[types.ModuleType, ...]:
    """What imports torch: rules, which do not, import this package too."""
    from torchsleuth.checker import experiment, guard, randomness, subject

    return experiment, guard, randomness, subject

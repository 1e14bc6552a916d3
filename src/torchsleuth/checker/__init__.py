"""`check`: experiments on custom autograd Functions, and what they say about `backward`.

    report = torchsleuth.check(MyFunction, x, weight)     # tensors of any floating-point type
    report = torchsleuth.check(MyFunction, (1, 32, 100))  # or shapes
"""

from __future__ import annotations

import typing
import warnings

from torchsleuth.checker.report import CheckReport, report_of

__all__ = ["CheckReport", "check", "check_trial"]


def check(function: type, *inputs: typing.Any, accept_surrogate: bool = False, seed: int | None = None, directions: int = 2) -> CheckReport:
    """Checks the backward of `function` (a torch.autograd.Function) against its forward.

    `inputs` are what `function.apply` takes: tensors and plain values, or, where no tensor is among
    them, shapes as tuples of integers. Nothing passed in is changed, and neither is the random state.
    `accept_surrogate` accepts a backward that is not the derivative of forward on purpose
    (straight-through estimators, gradient reversal).
    """
    return report_of((check_trial(function, *inputs, seed=seed, directions=directions),), accept_surrogate)


def check_trial(function: type, *inputs: typing.Any, seed: int | None = None, directions: int = 2, mend: bool = True, made: bool = False):
    """The evidence alone: everything that was tried on one Function, before it is judged. `made`: the inputs are random, not the user's."""
    from torchsleuth.checker.experiment import SEED, Experiment
    from torchsleuth.checker.guard import untouched

    with untouched(inputs) as state, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unusual sizes make torch warn about things the user never did
        return Experiment(function, inputs, seed=SEED if seed is None else seed, directions=directions, mend=mend, made=made).run(state)

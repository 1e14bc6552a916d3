"""The undisturbed run that all experiments are compared with, and whether the model gives the same result twice."""

from __future__ import annotations

import typing

from torchsleuth.auditor.inputs.batch import Call
from torchsleuth.auditor.laboratory.compare import distance, moved_flags, output_leaves
from torchsleuth.auditor.laboratory.lab import Lab
from torchsleuth.auditor.laboratory.runner import Runner
from torchsleuth.auditor.tracing.forwardpass import Forward
from torchsleuth.auditor.tracing.stepview import StepView
from torchsleuth.auditor.tracing.trace import Trace


def undisturbed(runner: Runner, call: Call, step: StepView, forward: Forward | None, note: typing.Callable[[str], None]) -> Lab | None:
    """`forward`: the pass of the step, if it was this model's. None where nothing can be compared, which is noted."""
    mode = "no-statistics" if runner.model.training else "as-is"
    known = forward.of_it(step) if forward is not None else None
    base, trace = _base(runner, call, mode, known)
    if known is not None and forward is not None and forward.gave(base):
        return Lab(runner, call, base, trace, 0.0, mode)  # the step itself gave the same
    again = runner.run(call.args, call.kwargs, mode=mode)
    floor = 0.0
    for (name, one), (_, two) in zip(output_leaves(base), output_leaves(again), strict=False):
        if one.shape != two.shape:
            note(f"experiments were not made: two runs gave `{name}` of different shapes, {list(one.shape)} and {list(two.shape)}")
            return None
        flags, _ = moved_flags(one, two)
        if flags.any():
            gap = distance(one, two, flags)
            if one.is_floating_point() and gap < 1e-3 * float(one.abs().max()):
                floor = max(floor, 4 * gap)
                continue
            note(
                f"experiments were not made: the model gives different results for the same input and random numbers (`{name}` differs by {gap:.3g})"
            )
            return None
    return Lab(runner, call, base, trace, floor, mode)


def _base(runner: Runner, call: Call, mode: str, known: Trace | None) -> tuple[typing.Any, Trace]:
    """Low precision would hide small movements; what mixes with what does not depend on it. But not every model can do without.

    `known`: the calls of the forward pass, where they are known already.
    """
    ways = [(True, runner.can_widen, False), (True, False, False), (False, False, False), (False, False, True)]
    for runner.precise, runner.wide, runner.differentiates in ways:
        trace = Trace() if known is None else None
        try:
            return runner.run(call.args, call.kwargs, trace=trace, mode=mode), known or trace  # type: ignore[return-value]
        except Exception as error:
            if runner.differentiates:
                raise
            if not runner.precise and "require grad" not in str(error):
                raise
    raise AssertionError

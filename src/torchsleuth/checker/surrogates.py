"""Backwards that are not the derivative of forward on purpose: straight-through estimators, surrogate and changed gradients.

Nobody asks for the derivative of a step: it is zero wherever it exists. A Function whose forward rounds, or passes its input on as it
is, has a backward of its own because something else is wanted.
"""

from __future__ import annotations

import typing

import torch
from torch.overrides import TorchFunctionMode

from torchsleuth.checker import variants
from torchsleuth.checker.bench import Bench, Evaluation, finite, is_float
from torchsleuth.checker.truth import differing, through_forward, true_gradient

ROUNDING = frozenset("round round_ floor floor_ ceil ceil_ trunc trunc_ fix fix_ sign sign_ sgn sgn_".split())


class StraightThrough(TorchFunctionMode):
    """Every rounding of a tensor that requires grad has the derivative one; `met`: there was any."""

    def __init__(self) -> None:
        super().__init__()
        self.met = False

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        operand = arguments[0] if arguments and isinstance(arguments[0], torch.Tensor) else None
        rounds = getattr(function, "__name__", "") in ROUNDING and operand is not None and operand.requires_grad
        before = operand.clone() if rounds else None  # it may be rounded in place
        result = function(*arguments, **(keywords or {}))
        if not rounds or not isinstance(result, torch.Tensor):
            return result
        self.met = True
        return before + (result - before).detach()


def straight_through(bench: Bench, evaluation: Evaluation) -> tuple[bool, dict[int, torch.Tensor]]:
    """Whether forward rounds what depends on its inputs, and the gradients with rounding taken as the identity."""
    mode = StraightThrough()
    with mode:
        found = through_forward(bench, evaluation)
    return mode.met, found


def rounded(bench: Bench, evaluation: Evaluation, k: int) -> bool:
    """Whether input k comes through forward's rounding: its gradient is another one with rounding taken as the identity."""
    met, found = straight_through(bench, evaluation)
    plain = through_forward(bench, evaluation).get(k)
    return met and (plain is None or k not in found or bool(differing(plain, found[k]).any()))


def passed_through(bench: Bench, evaluation: Evaluation, k: int) -> bool:
    """Whether the gradient for input k is that of forward without its rounding, times a constant (a gradient's own scale)."""
    factor = None
    others = [evaluation, bench.evaluate(evaluation.arguments, bench.random_grads(evaluation.run))]
    for other in others:
        met, found = straight_through(bench, other)
        returned = other.settled.get(k)
        if not met or k not in found or returned is None:
            return False
        returned, made = returned.to(torch.float64), found[k].to(torch.float64)
        square = float((made * made).sum())
        plain = through_forward(bench, other).get(k)
        if not square > 0 or plain is not None and not bool(differing(plain, made).any()):
            return False  # this input does not come through the rounding
        here = float((returned * made).sum()) / square
        if bool(differing(returned, here * made).any()) or factor is not None and abs(here - factor) > 1e-6 * abs(factor):
            return False
        factor = here
    return factor is not None and abs(factor) > 1e-9


def flat(bench: Bench, evaluation: Evaluation, k: int) -> bool:
    """Whether forward does not change with input k at other values either: a ReLU of negative numbers is no step function."""
    return all(_flat_at(bench, other, k) for other in elsewhere(bench, evaluation))


def steps(bench: Bench, evaluation: Evaluation, k: int) -> bool:
    """Whether one of several outputs is flat in input k, and backward makes something of its gradient all the same: a neuron's spikes."""
    live = [o for o, g in enumerate(evaluation.grads) if g is not None]
    return len(live) > 1 and any(_steps_in(bench, evaluation, k, o) for o in live)


def _steps_in(bench: Bench, evaluation: Evaluation, k: int, o: int) -> bool:
    used = False
    for other in (evaluation, *elsewhere(bench, evaluation)):
        alone = bench.evaluate(other.arguments, tuple(g if j == o else None for j, g in enumerate(other.grads)))
        returned = alone.settled.get(k)
        if returned is None or not _flat_at(bench, alone, k):
            return False
        used |= bool((returned != 0).any())
    return used


def _flat_at(bench: Bench, evaluation: Evaluation, k: int) -> bool:
    truth, _ = true_gradient(bench, evaluation, k)
    return truth is None or not bool((truth.gradient != 0).any())


def unchanged_input(bench: Bench, evaluation: Evaluation, k: int) -> bool:
    """Whether forward returns input k as it is, at other values too."""
    return _same_as_input(evaluation, k) and all(_same_as_input(other, k) for other in elsewhere(bench, evaluation))


def _same_as_input(evaluation: Evaluation, k: int) -> bool:
    value = evaluation.arguments.values[k]
    return any(is_float(o) and o.shape == value.shape and torch.equal(o, value) for o in evaluation.run.outputs)


def elsewhere(bench: Bench, evaluation: Evaluation) -> typing.Iterator[Evaluation]:
    """Passes at other values, of both signs and five times as large, as far as forward takes them."""
    other = variants.redrawn(evaluation.arguments, bench.generator)
    for arguments in (other, variants.wider(other)):
        try:
            run = bench.forward(arguments)
            if finite(run):
                yield bench.evaluate(arguments)
        except Exception:
            continue

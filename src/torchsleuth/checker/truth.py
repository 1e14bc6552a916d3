"""What the gradient should be: autograd through `forward`, checked against differences of `forward`.

`forward` run with gradients on gives the exact derivative in float64, at points next to a kink too;
but it may detach, leave torch, or call other Functions, and then it is not the truth. Differences of
forward's values are, except next to a kink. Where the two disagree, differences decide.
"""

from __future__ import annotations

import contextvars
import typing

import torch

from torchsleuth.checker.arguments import Arguments
from torchsleuth.checker.bench import STEP, Bench, Evaluation, gradients, is_float, length, product
from torchsleuth.checker.variants import elements, randn

TOLERANCE = 1e-6
# Looser where forward itself computes in a shorter type than the inputs have.
tolerance_now: contextvars.ContextVar[float] = contextvars.ContextVar("tolerance", default=TOLERANCE)
ONE_SIDED = 3e-8
LARGE = 10**6  # elements: above, a call of forward is dear, and fewer of them have to do
FULL = 4096  # inputs up to this many elements get a whole gradient by differences


class Truth(typing.NamedTuple):
    """The true gradient of one input under the grads of an evaluation."""

    gradient: torch.Tensor
    source: str  # "autograd" | "finite differences"


class Verdict(typing.NamedTuple):
    """Whether a returned gradient is right; `truth` where that was found out, `wrong` where it is not."""

    right: bool
    truth: Truth | None = None
    wrong: torch.Tensor | None = None  # mask of elements that differ
    why: str = ""  # kink | detached | triangle | unknown: why a difference is not held against it
    zero: bool = False  # the true gradient is zero everywhere


def scales(arguments: Arguments) -> dict[int, float]:
    """A typical size of each checked input, which directions are measured in."""
    out = {}
    for k in arguments.checked:
        value = arguments.values[k]
        size = length(value) / value.numel() ** 0.5 if value.numel() else 1.0
        out[k] = min(max(size, 1e-3), 1e6) if size == size and size else 1.0
    return out


def at_a_glance(bench: Bench, evaluation: Evaluation, inputs: typing.Sequence[int], sizes: dict[int, float]) -> bool:
    """The fastest test: one call of forward, a step along a random direction of all inputs at once.

    The gap is held to the tolerance of the input with the smallest part in it, so that no other drowns it. What
    does not pass is looked at again.
    """
    values, parts = list(evaluation.arguments.values), {}
    for k in inputs:
        direction = bench.generator.like(values[k])
        parts[k] = sizes[k] * product(evaluation.settled[k], direction)
        values[k] = torch.add(values[k], direction, alpha=ONE_SIDED * sizes[k])
    if not parts:
        return True
    gap, tolerance = abs(bench.rise_to(evaluation, values) / ONE_SIDED - sum(parts.values())), tolerance_now.get()
    # A part is small by chance, now and then: its gradient's length is what counts, and costs a little more.
    return gap <= tolerance * min(map(abs, parts.values())) or gap <= tolerance * min(sizes[k] * length(evaluation.settled[k]) for k in parts)


def agrees(bench: Bench, evaluation: Evaluation, inputs: typing.Sequence[int], sizes: dict[int, float], exact: bool = True) -> bool:
    """The fast test: one random direction through all of `inputs` at once.

    Not `exact`: a one-sided difference, half the work; what it does not pass is looked at again.
    """
    arguments, grads = evaluation.arguments, evaluation.grads
    directions, expected, square = {}, 0.0, 0.0
    for k in inputs:
        value, grad = arguments.values[k], evaluation.settled.get(k)
        direction = directions[k] = bench.generator.like(value) * sizes[k]
        if grad is not None:
            expected += product(grad, direction)
            square += (length(grad) * sizes[k]) ** 2
    tolerance = tolerance_now.get() * square**0.5
    if not exact and abs(bench.rise(evaluation, directions, ONE_SIDED) - expected) <= 10 * tolerance:
        return True
    # In a large input some elements are within any step of a kink; a shorter step finds fewer of them.
    step = STEP if all(arguments.values[k].numel() < LARGE // 10 for k in inputs) else STEP / 100
    gap = abs(bench.slope(arguments, grads, directions, step) - expected)
    if gap <= tolerance:
        return True
    rounding = sum(length(out) for out in evaluation.run.outputs if is_float(out))
    return gap <= tolerance + 3e-15 / step * rounding + 1e-12


def verdict(bench: Bench, evaluation: Evaluation, k: int) -> Verdict:
    """The slow test, for a gradient the fast one did not pass."""
    returned = evaluation.settled.get(k)
    truth, disputed = true_gradient(bench, evaluation, k)
    if truth is None:
        return Verdict(True, None, None, "unknown")
    zero = not bool((truth.gradient != 0).any())
    if returned is None:
        return Verdict(zero, truth, truth.gradient != 0, zero=zero)
    wrong = differing(returned, truth.gradient)
    if not bool(wrong.any()):
        return Verdict(True, truth, None, "detached" if disputed else "", zero)
    if disputed is not None and not bool(differing(returned, disputed).any()) and bool((disputed != 0).any()):
        return Verdict(True, truth, None, "detached")
    if _right_for_symmetric(bench, evaluation, k, returned, truth.gradient):
        return Verdict(True, truth, None, "triangle", zero)
    wrong = wrong & ~next_to_kinks(bench, evaluation, k, wrong, returned, truth.gradient)
    if not bool(wrong.any()):
        return Verdict(True, truth, None, "kink", zero)
    return Verdict(False, truth, wrong, zero=zero)


def _right_for_symmetric(bench: Bench, evaluation: Evaluation, k: int, returned: torch.Tensor, true: torch.Tensor) -> bool:
    """Whether forward reads one triangle of a matrix only, as `eigh` does, and the gradient is right for symmetric changes of it."""
    if true.ndim < 2 or true.shape[-1] != true.shape[-2] or true.shape[-1] < 2 or returned.shape != true.shape:
        return False
    upper = bool(true.tril(-1).any())  # what is not read, then
    if upper == bool(true.triu(1).any()) or bool(differing(returned + returned.mT, true + true.mT).any()):
        return False
    # With other values in the other inputs: a zero among them hides what it is multiplied by.
    values = [v + 0.1 * bench.generator.like(v) if is_float(v) and j != k else v for j, v in enumerate(evaluation.arguments.values)]
    noise, sides = bench.generator.like(values[k]), []
    for change in (0, noise.triu(1) if upper else noise.tril(-1)):
        sides.append(bench.forward(evaluation.arguments.with_values(v + change if j == k else v for j, v in enumerate(values))).outputs)
    return all(not is_float(a) or torch.equal(a, b) for a, b in zip(*sides, strict=True))


def differing(returned: torch.Tensor, true: torch.Tensor, tolerance: float | None = None) -> torch.Tensor:
    """The elements where two gradients are not the same to within the tolerance."""
    tolerance = tolerance_now.get() if tolerance is None else tolerance
    returned, true = returned.to(torch.float64), true.to(torch.float64)
    finite = true[torch.isfinite(true)]
    typical = float(finite.norm()) / max(finite.numel(), 1) ** 0.5 if finite.numel() else 0.0
    bound = tolerance * (true.abs() + typical) + 1e-11
    both_odd = (returned != returned) & (true != true)
    return ~((returned - true).abs() <= bound) & ~both_odd & ~(returned == true)


def true_gradient(bench: Bench, evaluation: Evaluation, k: int) -> tuple[Truth | None, torch.Tensor | None]:
    """The true gradient of input k, and autograd's where differences of forward contradict it."""
    by_autograd = through_forward(bench, evaluation).get(k)
    value = evaluation.arguments.values[k]
    if not value.numel():
        return Truth(torch.zeros_like(value), "autograd"), None
    small = elements(evaluation.arguments) <= LARGE
    slopes = [_slope(bench, evaluation, k, (1e-4, STEP, STEP / 8) if small else (STEP, STEP / 8)) for _ in range(2 if small else 1)]
    reliable = [s for s in slopes if s[2]]
    if by_autograd is not None and all(_matches(by_autograd, s) for s in reliable):
        return Truth(by_autograd, "autograd"), None
    if not reliable:
        return None, None
    whole = by_differences(bench, evaluation, k)
    return (Truth(whole, "finite differences") if whole is not None else None), by_autograd


def through_forward(bench: Bench, evaluation: Evaluation) -> dict[int, torch.Tensor]:
    """The gradients autograd finds through `forward`, or nothing where it cannot."""
    arguments = evaluation.arguments
    try:
        leaves, run = differentiable_run(bench, arguments)
    except Exception:
        return {}
    pairs = [
        (out, g)
        for out, g in zip(run.outputs, evaluation.grads, strict=True)
        if is_float(out) and out.requires_grad and g is not None
    ]
    if not pairs:
        return {k: torch.zeros_like(leaf) for k, leaf in leaves.items()}
    try:
        found = gradients([p[0] for p in pairs], list(leaves.values()), [p[1].to(p[0].dtype) for p in pairs])
    except Exception:
        return {}
    return {k: torch.zeros_like(leaf) if g is None else g for (k, leaf), g in zip(leaves.items(), found, strict=True)}


def differentiable_run(bench: Bench, arguments: Arguments):
    """`forward` with gradients on: the leaves by position, and the run."""
    from torchsleuth.checker.randomness import restore_random

    leaves = {k: arguments.values[k].detach().requires_grad_() for k in arguments.checked}
    if bench.random:
        restore_random(bench.state)
    with torch.enable_grad():
        passed = tuple(
            (leaves[k].clone() if bench.writes else leaves[k]) if k in leaves
            else v.clone() if bench.writes and isinstance(v, torch.Tensor) else v
            for k, v in enumerate(arguments.values)
        )  # fmt: skip
        run = bench.subject.forward(passed, arguments.needs)
    return leaves, run


def _slope(bench: Bench, evaluation: Evaluation, k: int, steps: tuple[float, ...]) -> tuple[torch.Tensor, float, bool]:
    """A direction, the slope along it, and whether two step sizes agree on it."""
    value = evaluation.arguments.values[k]
    direction = randn(value, bench.generator) * scales(evaluation.arguments)[k]
    best, best_gap = 0.0, float("inf")
    previous = None
    for step in steps:
        slope = bench.slope(evaluation.arguments, evaluation.grads, {k: direction}, step)
        if previous is not None:
            gap = abs(slope - previous)
            if gap < best_gap:
                best, best_gap = slope, gap
        previous = slope
    rounding = sum(float(out.norm()) for out in evaluation.run.outputs if is_float(out))
    reliable = best_gap <= 1e-4 * abs(best) + 1e-7 * rounding + 1e-12
    if reliable and elements(evaluation.arguments) <= LARGE:
        # On a kink both steps give the mean of two slopes; only the two sides tell.
        ahead, behind = (bench.rise(evaluation, {k: direction}, step) for step in (STEP, -STEP))
        reliable = abs(ahead - behind) <= 1e-3 * (abs(ahead) + abs(behind)) + 1e-6 * rounding + 1e-12
    return direction, best, reliable


def _matches(gradient: torch.Tensor, slope: tuple[torch.Tensor, float, bool]) -> bool:
    direction, found, _ = slope
    parts = gradient * direction
    return abs(float(parts.sum()) - found) <= 3e-4 * float(parts.norm()) + 1e-4 * abs(found) + 1e-8


def by_differences(bench: Bench, evaluation: Evaluation, k: int) -> torch.Tensor | None:
    """The whole gradient, one element at a time."""
    value = evaluation.arguments.values[k]
    if value.numel() > FULL or elements(evaluation.arguments) > LARGE:
        return None
    out = torch.zeros_like(value)
    flat, unit = out.view(-1), torch.zeros_like(value)
    for i in range(value.numel()):
        unit.view(-1)[i] = 1
        flat[i] = bench.slope(evaluation.arguments, evaluation.grads, {k: unit}, STEP * scales(evaluation.arguments)[k])
        unit.view(-1)[i] = 0
    # Differences carry some 9 digits; tiny values are zeros.
    out[out.abs() < 1e-7 * max(float(out.abs().max()), 1e-3)] = 0
    return out


def next_to_kinks(
    bench: Bench, evaluation: Evaluation, k: int, wrong: torch.Tensor, returned: torch.Tensor, true: torch.Tensor
) -> torch.Tensor:
    """Those wrong elements that lie on a kink, and whose returned value is one of its slopes or between them."""
    arguments, value = evaluation.arguments, evaluation.arguments.values[k]
    excused = torch.zeros_like(wrong)
    positions = wrong.reshape(-1).nonzero().reshape(-1)
    cost = elements(arguments)  # of a call of forward
    limit = 64 if cost <= FULL else 6 if cost <= LARGE else 3
    if positions.numel() > limit:
        # Spread over the tensor: if none of these is a kink, the rest is not looked at.
        sample = positions[spread(positions.numel(), limit)]
    else:
        sample = positions
    here = evaluation.run.outputs
    typical = float(true.norm()) / max(true.numel(), 1) ** 0.5
    step = 1e-7 * scales(arguments)[k]
    hits = 0
    for position in sample.tolist():
        sides: list[list[torch.Tensor]] = []
        for sign in (1, -1):
            moved = value.clone()
            moved.view(-1)[position] += sign * step
            there = bench.forward(arguments.with_values(moved if j == k else v for j, v in enumerate(arguments.values))).outputs
            sides.append([g * (b - a) * (sign / step) for g, a, b in zip(evaluation.grads, here, there, strict=True)
                          if g is not None and a.shape == b.shape])  # fmt: skip
        # Output by output: each may be on a kink of its own, and any slope between its two sides is one of it.
        low = sum(float(torch.minimum(p, m).sum()) for p, m in zip(*sides, strict=True))
        high = sum(float(torch.maximum(p, m).sum()) for p, m in zip(*sides, strict=True))
        slack = 1e-3 * (abs(low) + abs(high)) + 1e-5 * typical + 1e-8
        got = float(returned.reshape(-1)[position])
        if high - low > 2 * slack and low - slack <= got <= high + slack:
            excused.view(-1)[position] = True
            hits += 1
    if hits == len(sample) and positions.numel() > limit:
        return wrong
    return excused


def spread(count: int, wanted: int) -> list[int]:
    """So many of the first `count` whole numbers, evenly. (torch.linspace in float32 goes past the end beyond 2 ** 24.)"""
    return [round(i * (count - 1) / max(wanted - 1, 1)) for i in range(wanted)]

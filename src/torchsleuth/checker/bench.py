"""Running a Function on given inputs: its outputs, its gradients as returned, and slopes of forward.

A slope is a central difference of <grad_output, forward(x)> along a direction: two calls of forward
say what the gradient's product with that direction has to be, whatever the size of the input.
"""

from __future__ import annotations

import math
import typing

import torch

from torchsleuth.checker.arguments import Arguments, dtype_name
from torchsleuth.checker.randomness import restore_random
from torchsleuth.checker.subject import Run, Subject
from torchsleuth.checker.variants import Noise

STEP = 1e-6
FEW = 4096


class Problem(typing.NamedTuple):
    """A gradient that is wrong before its values are looked at."""

    kind: str  # count | none | unexpected | not-tensor | shape | dtype | device | raises
    input: int = -1
    returned: typing.Any = None
    expected: typing.Any = None
    exception: BaseException | None = None


class Evaluation(typing.NamedTuple):
    """One pass: `grads` went into backward, `raw` came out, `settled` is what the engine would make of it."""

    arguments: Arguments
    run: Run
    grads: tuple
    raw: tuple
    settled: dict[int, torch.Tensor | None]
    problems: tuple[Problem, ...]


class Bench:
    """Calls the subject under the same conditions every time: same random numbers, inputs protected."""

    def __init__(self, subject: Subject, generator: Noise):
        self.subject = subject
        self.generator = generator
        self.random = False  # forward draws random numbers: rewind them before every call
        self.writes = False  # forward writes into its inputs: give it copies
        self.state: tuple | None = None
        self.passed: tuple = ()  # what forward was last called with
        self.sent: tuple = ()  # what backward was last called with
        self.experiments: tuple[Evaluation, list] | None = None  # what changes of backward were last tried on

    def forward(self, arguments: Arguments, needs: tuple[bool, ...] = ()) -> Run:
        values = arguments.values
        if self.random:
            restore_random(self.state)
        if self.writes:
            values = tuple(v.clone() if isinstance(v, torch.Tensor) else v for v in values)
        self.passed = values
        if not torch.is_grad_enabled():
            return self.subject.forward(values, needs or arguments.needs)
        with torch.no_grad():
            return self.subject.forward(values, needs or arguments.needs)

    def takes(self, arguments: Arguments) -> bool:
        """Whether forward accepts the inputs, with finite outputs."""
        try:
            return finite(self.forward(arguments))
        except Exception:
            return False

    def random_grads(self, run: Run) -> tuple:
        return tuple([self.generator.like(out).clone() if run.carries_gradient(out) else None for out in run.outputs])

    def evaluate(
        self, arguments: Arguments, grads: tuple | None = None, needs: tuple[bool, ...] = (), run: Run | None = None, spent: bool = False
    ) -> Evaluation:
        """One forward and one backward; whatever backward raises becomes a problem, forward's errors pass.

        `spent`: nobody looks at `grads` afterwards, so backward may have them as they are.
        """
        run = self.forward(arguments, needs) if run is None else run
        grads = self.random_grads(run) if grads is None else grads
        materialize = getattr(run.context, "materialize_grads", True)
        # Copies: backward may write into what it is given, and `grads` is compared with afterwards.
        self.sent = passed = tuple([
            (g if spent or is_expanded(g) else g.clone()) if g is not None
            else torch.zeros_like(out) if materialize and isinstance(out, torch.Tensor) else None
            for g, out in zip(grads, run.outputs, strict=True)
        ])  # fmt: skip
        try:
            if not torch.is_grad_enabled():
                raw = self.subject.backward(run.context, passed)
            else:
                with torch.no_grad():
                    raw = self.subject.backward(run.context, passed)
        except Exception as error:
            return Evaluation(arguments, run, grads, (), {}, (Problem("raises", exception=error),))
        settled, problems = settle(arguments, raw, needs or arguments.needs)
        return Evaluation(arguments, run, grads, raw, settled, problems)

    def slope(self, arguments: Arguments, grads: tuple, directions: dict[int, torch.Tensor], step: float = STEP) -> float:
        """d/dt <grads, forward(x + t * direction)> at t = 0, by a central difference."""
        total = 0.0
        for grad, ahead, behind in zip(grads, *self.sides(arguments, directions, step), strict=True):
            if grad is not None and is_float(ahead) and ahead.shape == behind.shape:
                total += product(grad, ahead - behind)
        return total / (2 * step)

    def rise(self, evaluation: Evaluation, directions: dict[int, torch.Tensor], step: float) -> float:
        """The slope by a one-sided difference: one call of forward, and less exact."""
        values = list(evaluation.arguments.values)
        for k, direction in directions.items():
            values[k] = torch.add(values[k], direction, alpha=step)
        return self.rise_to(evaluation, values) / step

    def rise_to(self, evaluation: Evaluation, values: typing.Sequence) -> float:
        """By how much <grads, forward> rises from an evaluation to these inputs."""
        total = 0.0
        there = self.forward(evaluation.arguments.with_values(values)).outputs
        for grad, ahead, here in zip(evaluation.grads, there, evaluation.run.outputs, strict=True):
            if grad is not None and is_float(ahead) and ahead.shape == here.shape:
                total += product(grad, ahead - here)
        return total

    def changes(self, arguments: Arguments, directions: dict[int, torch.Tensor], step: float = STEP) -> tuple:
        """(forward(x + step * d) - forward(x - step * d)) / (2 * step), per output."""
        return tuple(
            (a.to(torch.float64) - b.to(torch.float64)) / (2 * step) if is_float(a) and a.shape == b.shape else None
            for a, b in zip(*self.sides(arguments, directions, step), strict=True)
        )

    def sides(self, arguments: Arguments, directions: dict[int, torch.Tensor], step: float) -> tuple[tuple, tuple]:
        """The outputs a step ahead and a step behind."""
        out = []
        for signed in (step, -step):
            values = list(arguments.values)
            for k, direction in directions.items():
                values[k] = torch.add(values[k], direction, alpha=signed)
            out.append(self.forward(arguments.with_values(values)).outputs)
        return out[0], out[1]


def gradients(
    outputs: typing.Sequence, inputs: typing.Sequence, grads: typing.Sequence, *, create_graph: bool = False, retain_graph: bool = False
) -> tuple:
    """`torch.autograd.grad`, None for what is not reached, without the checks of its arguments.

    They take as long as the engine does for small tensors, and import sympy, a second the first time.
    """
    run = torch.autograd.Variable._execution_engine.run_backward
    found = run(tuple(outputs), tuple(grads), create_graph or retain_graph, create_graph, tuple(inputs), allow_unreachable=True, accumulate_grad=False)
    return tuple(g.to_dense() if g is not None and g.layout is not torch.strided else g for g in found)


def product(a: torch.Tensor, b: torch.Tensor) -> float:
    """The inner product of two tensors of one shape."""
    if a.dtype is not b.dtype:
        a, b = a.double(), b.double()
    if a.numel() <= FEW:
        return (a * b).sum().item()
    return torch.dot(a.reshape(-1), b.reshape(-1)).item()  # without a tensor in between


def length(a: torch.Tensor) -> float:
    return torch.linalg.vector_norm(a).item()


def finite(run: Run) -> bool:
    """Whether no floating-point output has NaN or infinity: neither survives a sum."""
    for out in run.outputs:
        if is_float(out) and not math.isfinite((out.detach() if out.requires_grad else out).sum().item()) and not bool(torch.isfinite(out).all()):
            return False
    return True


def is_float(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def settle(arguments: Arguments, raw: tuple, needs: tuple[bool, ...]) -> tuple[dict, tuple[Problem, ...]]:
    """What the engine does with the returned gradients, and what it (or arithmetic) objects to.

    The engine sums a gradient whose shape the input's shape expands to, converts floating-point
    types, and ignores trailing Nones; all of that is right and no problem.
    """
    problems: list[Problem] = []
    count = len(arguments.values)
    given = len(raw)
    while given > count and raw[given - 1] is None:
        given -= 1
    if given != count:
        problems.append(Problem("count", returned=given, expected=count))
    settled: dict[int, torch.Tensor | None] = {}
    for k, value in enumerate(arguments.values):
        grad = raw[k] if k < len(raw) else None
        if not isinstance(value, torch.Tensor):
            if grad is not None and given == count:
                problems.append(Problem("unexpected", k, describe(grad)))
            continue
        if not needs[k]:
            continue
        if isinstance(grad, torch.Tensor) and grad.dtype is value.dtype and grad.shape == value.shape and _alike(grad, value):
            settled[k] = grad
        elif grad is None:
            settled[k] = None
            if k < len(raw):
                problems.append(Problem("none", k))
        elif not isinstance(grad, torch.Tensor):
            settled[k] = None
            problems.append(Problem("not-tensor", k, describe(grad)))
        elif grad.device != value.device:
            settled[k] = None
            problems.append(Problem("device", k, str(grad.device), str(value.device)))
        elif grad.is_complex():
            settled[k] = None
            problems.append(Problem("dtype", k, dtype_name(grad.dtype), dtype_name(value.dtype)))
        else:
            if grad.layout is not torch.strided:
                grad = grad.to_dense()  # the engine takes sparse gradients
            if not grad.is_floating_point():
                problems.append(Problem("dtype", k, dtype_name(grad.dtype), dtype_name(value.dtype)))
            if grad.shape != value.shape:
                if expands_to(value.shape, grad.shape):
                    grad = grad.sum_to_size(value.shape)
                else:
                    problems.append(Problem("shape", k, tuple(grad.shape), tuple(value.shape)))
                    settled[k] = None
                    continue
            settled[k] = grad
    return settled, tuple(problems)


def _alike(grad: torch.Tensor, value: torch.Tensor) -> bool:
    return grad.layout is torch.strided and (grad.is_cpu and value.is_cpu or grad.device == value.device)


def is_expanded(value: torch.Tensor) -> bool:
    """Whether memory is shared between elements: torch itself refuses writes into such a tensor."""
    return 0 in value.stride() and any(n > 1 and s == 0 for n, s in zip(value.shape, value.stride(), strict=True))


def expands_to(shape: typing.Sequence[int], wanted: typing.Sequence[int]) -> bool:
    return len(shape) <= len(wanted) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(wanted), strict=False))


def describe(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor {dtype_name(value.dtype)}{list(value.shape)}"
    if isinstance(value, (list, dict, set)):
        return f"a {type(value).__name__}"
    return f"{value!r} ({type(value).__name__})" if isinstance(value, (int, float, bool, str)) else f"a {type(value).__name__}"

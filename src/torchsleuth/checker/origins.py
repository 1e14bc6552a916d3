"""What runs in backward, and where something first goes wrong there, seen by running it once more under watch."""

from __future__ import annotations

import sys
import typing

import torch
from torch.overrides import TorchFunctionMode

from torchsleuth.checker.bench import Bench, Evaluation


class _Watch(TorchFunctionMode):
    """The first operation that makes NaN or infinity of finite tensors, and its line."""

    def __init__(self, code: typing.Any):
        super().__init__()
        self.code = code
        self.found: tuple[str, str, int] = ("", "", 0)

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **(keywords or {}))
        if not self.found[0] and isinstance(result, torch.Tensor) and result.is_floating_point() and result.numel():
            odd = ~torch.isfinite(result)
            operands = [a for a in arguments if isinstance(a, torch.Tensor) and a.is_floating_point()]
            if bool(odd.any()) and operands and all(bool(torch.isfinite(a).all()) for a in operands):
                self.found = (getattr(function, "__name__", ""), "NaN" if bool((result != result).any()) else "infinity", line_in(self.code))
        return result


def line_in(code: typing.Any) -> int:
    """The line of a function that is running right now."""
    frame = sys._getframe()
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame.f_lineno if frame is not None else 0


def _run_backward(bench: Bench, evaluation: Evaluation, watch: TorchFunctionMode) -> None:
    """Once more, watched; what it raises was reported where it ran first."""
    try:
        run = bench.forward(evaluation.arguments)
        grads = tuple(None if g is None else g.clone() for g in evaluation.grads)
        with watch:
            bench.subject.backward(run.context, grads)
    except Exception:
        pass


@torch.no_grad()
def first_not_finite(bench: Bench, evaluation: Evaluation) -> tuple[str, str, int]:
    """The operation of backward that gives NaN or infinity first: its name, which of the two, its line. Empty where none was seen."""
    watch = _Watch(getattr(bench.subject.backward_code, "__code__", None))
    _run_backward(bench, evaluation, watch)
    return watch.found


class _Draws(TorchFunctionMode):
    """The line of the first operation that draws random numbers."""

    def __init__(self, code: typing.Any):
        super().__init__()
        self.code, self.line = code, 0

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        before = torch.get_rng_state()
        result = function(*arguments, **(keywords or {}))
        if not self.line and not torch.equal(before, torch.get_rng_state()):
            self.line = line_in(self.code)
        return result


@torch.no_grad()
def drawn_at(bench: Bench, evaluation: Evaluation) -> int:
    """The line of backward that draws random numbers from torch; 0 where none was seen to."""
    watch = _Draws(getattr(bench.subject.backward_code, "__code__", None))
    _run_backward(bench, evaluation, watch)
    return watch.line


def executed_lines(bench: Bench, evaluation: Evaluation, function: typing.Any) -> frozenset[int] | None:
    """The lines of backward that run for these inputs, seen by running it once more."""
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    lines: set[int] = set()

    def local(frame, event, argument):
        lines.add(frame.f_lineno)
        return local

    def trace(frame, event, argument):
        return local(frame, event, argument) if frame.f_code is code else None

    run = bench.forward(evaluation.arguments)
    grads = tuple(
        g.clone() if g is not None else torch.zeros_like(o) if isinstance(o, torch.Tensor) and run.context.materialize_grads else None
        for g, o in zip(evaluation.grads, run.outputs, strict=True)
    )
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with torch.no_grad():
            bench.subject.backward(run.context, grads)
    except Exception:
        pass
    finally:
        sys.settrace(before)
    return frozenset(lines) or None

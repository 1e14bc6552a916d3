"""Watching a running program: the first inputs of every custom Function it applies, checked later.

`FunctionWatch` stands between `Function.apply` and the C++ below it only while it is started. The
first call of each Function class copies its inputs (detached); every other call costs one set lookup.
Nothing is read back from a device, no random number is drawn, and the copies are dropped by `reports`.
"""

from __future__ import annotations

import typing

import torch
from torch.autograd.function import _SingleLevelFunction

if typing.TYPE_CHECKING:
    from torchsleuth.checker.report import CheckReport

# Inputs larger than this in all are remembered as shapes only.
LARGEST = 256 * 2**20


class FunctionWatch:
    """Captures the first inputs of each custom Function between `start` and `stop`; `reports` checks them.

    One watch at a time is active; starting a second one raises. Functions defined inside torch itself
    are not custom and not watched.
    """

    _active: typing.ClassVar[FunctionWatch | None] = None

    def __init__(self) -> None:
        self._inputs: dict[type, tuple | None] = {}
        self._seen: set[type] = set()

    def __enter__(self) -> FunctionWatch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        if FunctionWatch._active is not None:
            raise RuntimeError("another FunctionWatch is active")
        FunctionWatch._active = self
        seen, capture = self._seen, self._capture

        # Function.apply calls super().apply, found on this class first: programs that bound
        # `op = MyOp.apply` before `start` are seen too, which patching Function.apply would miss.
        def apply(cls, *arguments, **keywords):
            if cls not in seen:
                seen.add(cls)
                capture(cls, arguments)
            return super(_SingleLevelFunction, cls).apply(*arguments, **keywords)

        _SingleLevelFunction.apply = classmethod(apply)

    def stop(self) -> None:
        if FunctionWatch._active is self:
            FunctionWatch._active = None
            if "apply" in vars(_SingleLevelFunction):
                del _SingleLevelFunction.apply

    def seen(self) -> list[type]:
        return list(self._inputs)

    def inputs_of(self, function: type) -> tuple | None:
        return self._inputs.get(function)

    def reports(self, accept_surrogate: bool = False) -> list[CheckReport]:
        """One report per Function seen; the captured inputs are let go. A check that fails is a note, never an error."""
        from torchsleuth.checker import check_trial
        from torchsleuth.checker.report import report_of

        self.stop()
        out = []
        captured, self._inputs = self._inputs, {}
        for function, inputs in captured.items():
            if inputs is None:
                out.append(report_of((), notes=(f"{function.__name__}: its inputs were too large to keep; not checked",)))
                continue
            try:
                out.append(report_of((check_trial(function, *inputs),), accept_surrogate))
            except Exception as error:
                out.append(report_of((), notes=(f"{function.__name__}: not checked: {error}",)))
        return out

    def _capture(self, function: type, arguments: tuple) -> None:
        if (function.__module__ or "").partition(".")[0] in ("torch", "torchsleuth"):
            return
        size = sum(a.numel() * a.element_size() for a in arguments if isinstance(a, torch.Tensor))
        self._inputs[function] = tuple(_copy(a, size > LARGEST) for a in arguments)


def _copy(value: typing.Any, large: bool) -> typing.Any:
    """A detached copy with the same requires_grad; for large inputs random values of the same shape, drawn on no global generator."""
    if not isinstance(value, torch.Tensor):
        return value
    with torch.no_grad():
        if large and value.is_floating_point():
            flat = value.detach().reshape(-1) if value.is_contiguous() else value.detach()[tuple(slice(0, 8) for _ in value.shape)].reshape(-1)
            sample = flat[:4096].clone()
            copy = Large(sample, tuple(value.shape)).whole() if sample.numel() else torch.empty_like(value)
        else:
            copy = value.detach().clone()
    return copy.requires_grad_(value.requires_grad) if value.is_floating_point() else copy


class Large:
    """A large input remembered by its first elements, repeated to its shape when it is needed."""

    def __init__(self, sample: torch.Tensor, shape: tuple[int, ...]):
        self.sample, self.shape = sample, shape

    def whole(self) -> torch.Tensor:
        count = 1
        for n in self.shape:
            count *= n
        return self.sample.repeat(-(-count // self.sample.numel()))[:count].view(self.shape)

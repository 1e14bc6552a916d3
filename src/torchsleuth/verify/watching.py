"""What a verification run notes while the program runs: the backward calls, their values, and when the point is passed."""

from __future__ import annotations

import gc
import sys
import time
import typing

import torch
import torch._C._functorch as _transforms

from torchsleuth.probe.names import locals_of
from torchsleuth.verify.job import FURTHER, Backward

MOST_BACKWARDS = 24
MOST_PASSES = 8
MOST_SEEN_VISITS = 3
_MOST_SEEN = 4_000_000  # elements
_MOST_NAMES = 200
_BIGGEST = 50_000_000  # elements; beyond that the numbers would cost more than the step


def number_of(tensor: torch.Tensor) -> float:
    """One number for a tensor's values: changes with any of them, and with their order."""
    with torch.no_grad():
        flat = tensor.detach().to("cpu", torch.float64).reshape(-1) if not tensor.is_complex() else torch.view_as_real(tensor.detach().cpu()).double().reshape(-1)
        weights = torch.cos(torch.arange(flat.numel(), dtype=torch.float64, device="cpu")) + 1.5
        return float((flat * weights).sum())


def leaves_of(roots: typing.Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The leaves that a backward from these roots gives a gradient."""
    pending = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen: set[typing.Any] = set()
    found: list[torch.Tensor] = []
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.append(variable)
        pending.extend(following for following, _ in node.next_functions)
    return found


def numbers_of(scope: typing.Mapping[str, object]) -> tuple[tuple[str, float], ...]:
    """Name and number of each tensor of floats among these variables; none under `vmap` and `grad`, whose tensors hold no numbers of their own."""
    found = []
    if _transforms.peek_interpreter_stack() is not None:
        return ()
    for name, value in list(scope.items()):
        if isinstance(value, torch.Tensor) and value.layout is torch.strided and value.is_floating_point() and value.numel() <= _MOST_SEEN:
            if not name.startswith("__") and value.device.type != "meta" and not _transforms.is_functorch_wrapped_tensor(value):
                found.append((name, number_of(value)))
    return tuple(sorted(found)[:_MOST_NAMES])


class Observer:
    """Stands around `torch.autograd.backward` and counts how often the failing statement was begun and passed."""

    def __init__(self, finish: typing.Callable[[], None], note: typing.Callable[[], None], visit: int = 1) -> None:
        self.passes = 0
        self.begun = 0
        self.backwards: list[Backward] = []
        self.running = False
        self.seen: list[tuple[tuple[str, float], ...]] = []
        self.differences: typing.Any = None
        self._visit = visit
        self._calls = 0
        self._finish, self._note = finish, note
        self._is_backward = False  # the point itself calls backward
        self._calls_before = 0
        self._noted_at = 0.0

    @property
    def is_evaluating(self) -> bool:
        """This process is a copy that only evaluates a loss."""
        return self.differences is not None and self.differences.is_copy

    def install(self) -> None:
        original = torch.autograd.backward

        def backward(tensors, *arguments, **options):
            roots = [tensors] if isinstance(tensors, torch.Tensor) else [t for t in tensors if isinstance(t, torch.Tensor)]
            if self.differences is not None:
                self.differences.before_backward(roots, arguments, options)
            # Near the failing visit, and at the beginning.
            noted = len(self.backwards) < MOST_BACKWARDS or self.begun >= self._visit > 0
            numbers = tuple(number_of(root) for root in roots) if noted else ()
            leaves = leaves_of(roots) if noted and options.get("inputs") is None else []
            self.running = True
            result = original(tensors, *arguments, **options)
            self.running = False
            if noted:
                self.backwards.append(_noted(self._calls, numbers, leaves))
            if self.differences is not None:
                self.differences.after_backward(self._calls, again=self._calls < 2 or self.begun + 1 >= self._visit > 0)
            self._calls += 1
            return result

        torch.autograd.backward = backward

    def begins(self) -> None:
        if self.is_evaluating:
            return
        self.begun += 1
        if self.begun == self._visit or (not self._visit and self.begun <= MOST_SEEN_VISITS):
            self.seen.append(numbers_of(locals_of(sys._getframe(1))))
        self._calls_before = self._calls

    def passed(self, value: object = None) -> object:
        if self.is_evaluating:
            return value
        self.passes += 1
        self._is_backward = self._is_backward or self._calls > self._calls_before
        if self._visit:
            # A failure in the forward pass is over only when a backward has come after it.
            after = self.passes - self._visit
            enough = after >= FURTHER and (self._is_backward or self._has_gradients())
            if enough or after >= MOST_PASSES:
                self._finish()
        if time.monotonic() - self._noted_at > 0.2 or self.passes <= MOST_PASSES:
            self._noted_at = time.monotonic()
            self._note()  # should the time run out, this much has been shown
        return value

    def _has_gradients(self) -> bool:
        return any(item.number >= self._visit - 1 for item in self.backwards)


def _noted(number: int, roots: tuple[float, ...], leaves: list[torch.Tensor]) -> Backward:
    gradients, missing, infinite, total = [], 0, 0, 0
    for leaf in leaves:
        gradient = leaf.grad
        if gradient is None:
            missing += 1
            continue
        if gradient.is_sparse:
            gradient = gradient.to_dense()
        total += gradient.numel()
        if total > _BIGGEST:
            break
        if not bool(torch.isfinite(gradient).all()):
            infinite += 1
        gradients.append((str(list(gradient.shape)), number_of(gradient)))
    optimized = optimized_parameters()
    untouched = sum(parameter.grad is None for parameter in optimized)
    return Backward(roots, tuple(sorted(gradients)), missing, infinite, number, untouched, len(optimized))


def optimized_parameters() -> list[torch.Tensor]:
    """The parameters that the program's optimizers hold and that require grad."""
    if "torch.optim" not in sys.modules:
        return []
    found: dict[int, torch.Tensor] = {}
    for item in gc.get_objects():
        if isinstance(item, torch.optim.Optimizer):
            for group in item.param_groups:
                found |= {id(parameter): parameter for parameter in group["params"] if parameter.requires_grad}
    return list(found.values())


def copy_saved_tensors() -> None:
    """Every tensor saved for backward is copied: then no later write can spoil it. The reference for gradients."""
    torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.clone(), lambda tensor: tensor).__enter__()

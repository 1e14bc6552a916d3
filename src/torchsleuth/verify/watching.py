"""What a verification run notes while the program runs: the backward calls, their values, and when the point is passed."""

from __future__ import annotations

import typing

import torch

from torchsleuth.verify.job import PASSES, Backward

MOST_BACKWARDS = 24
MOST_PASSES = 8
_BIGGEST = 50_000_000  # elements; beyond that the numbers would cost more than the step


def number_of(tensor: torch.Tensor) -> float:
    """One number for a tensor's values: changes with any of them, and with their order."""
    with torch.no_grad():
        flat = tensor.detach().to("cpu", torch.float64).reshape(-1) if not tensor.is_complex() else torch.view_as_real(tensor.detach().cpu()).double().reshape(-1)
        weights = torch.cos(torch.arange(flat.numel(), dtype=torch.float64)) + 1.5
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


class Observer:
    """Stands around `torch.autograd.backward` and counts how often the failing statement was passed."""

    def __init__(self, finish: typing.Callable[[], None], note: typing.Callable[[], None]) -> None:
        self.passes = 0
        self.backwards: list[Backward] = []
        self.running = False
        self._since_pass = 0
        self._finish, self._note = finish, note
        self._is_backward = False  # the point itself calls backward
        self._before_pass = 0

    def install(self) -> None:
        original = torch.autograd.backward

        def backward(tensors, *arguments, **options):
            roots = [tensors] if isinstance(tensors, torch.Tensor) else [t for t in tensors if isinstance(t, torch.Tensor)]
            noted = len(self.backwards) < MOST_BACKWARDS
            numbers = tuple(number_of(root) for root in roots) if noted else ()
            leaves = leaves_of(roots) if noted and options.get("inputs") is None else []
            self.running = True
            result = original(tensors, *arguments, **options)
            self.running = False
            self._since_pass += 1
            if noted:
                self.backwards.append(_noted(numbers, leaves))
            return result

        torch.autograd.backward = backward

    def passed(self, value: object = None) -> object:
        self.passes += 1
        if self.passes == 1:
            self._is_backward = self._since_pass > self._before_pass
            self._before_pass = self._since_pass
        # A failure in the forward pass is over only when a backward has come after it.
        enough = self.passes >= PASSES and (self._is_backward or self._since_pass > self._before_pass)
        if enough or self.passes >= MOST_PASSES:
            self._finish()
        self._note()  # should the time run out, this much has been shown
        return value


def _noted(roots: tuple[float, ...], leaves: list[torch.Tensor]) -> Backward:
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
    return Backward(roots, tuple(sorted(gradients)), missing, infinite)


def copy_saved_tensors() -> None:
    """Every tensor saved for backward is copied: then no later write can spoil it. The reference for gradients."""
    torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.clone(), lambda tensor: tensor).__enter__()

"""The backward pass, watched node by node: where a gradient becomes exactly zero, or stops being finite.

Hooks on the nodes of the graph note one number for each gradient that passes (a sum of absolute values,
left on the device); they change nothing. A node is traced back to its expression by its sequence number,
which lies between the numbers read before and after the call that made it.
"""

from __future__ import annotations

import typing

import torch

from torchsleuth.auditor.observation import Vanish
from torchsleuth.auditor.trace import Op, Trace

MOST_NODES = 20_000
_PRODUCTS = {"linear", "matmul", "__matmul__", "mm", "bmm", "addmm", "baddbmm", "einsum", "bilinear", "conv1d", "conv2d", "conv3d", "mv", "dot",
             "lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "mul", "embedding"}  # fmt: skip


class BackwardWatch:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._passed: list[tuple[int, str, list[torch.Tensor], list[torch.Tensor]]] = []
        self._handles: list[typing.Any] = []

    def attach(self, loss: torch.Tensor) -> None:
        if loss.grad_fn is None:
            return
        seen, todo = {loss.grad_fn}, [loss.grad_fn]
        while todo and len(seen) <= MOST_NODES:
            node = todo.pop()
            if node.name() != "struct torch::autograd::AccumulateGrad" and not node.name().endswith("AccumulateGrad"):
                self._handles.append(node.register_hook(self._hook(node._sequence_nr(), node.name())))
            for following, _ in node.next_functions:
                if following is not None and following not in seen:
                    seen.add(following)
                    todo.append(following)

    def _hook(self, number: int, name: str):
        def note(leaving: typing.Any, arriving: typing.Any) -> None:
            try:
                self._passed.append((number, name, _sums(arriving), _sums(leaving)))
            except Exception:  # an unusual layout; the backward pass must not notice
                pass

        return note

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def vanished(self, states: dict[str, str], keys: dict[str, int]) -> list[Vanish]:
        """For parameters whose gradient is zero or NaN: the expression behind which it is."""
        found: list[Vanish] = []
        for kind in ("nan", "zero"):
            names = [name for name, state in sorted(states.items()) if state == kind and name in keys]
            if not names:
                continue
            behind = {name: self.trace.descendants({keys[name]}) for name in names}
            left = set(names)
            for number, _, arriving, leaving in self._passed:  # in the order of the backward pass: the loss first
                states_in = set(map(_state, arriving))
                if not leaving or (not states_in <= {"ok", "zero"} if kind == "nan" else "ok" not in states_in):
                    continue
                if not all(_state(value) in (("nan", "inf") if kind == "nan" else ("zero",)) for value in leaving):
                    continue
                op = self._op(number)
                if op is None:
                    continue
                mine = sorted(name for name in left if any(seen.key in behind[name] for seen in op.ins))
                if kind == "zero" and op.name.rstrip("_") in _PRODUCTS:
                    # A weight whose input is zero (the first state of a recurrent cell) has a zero gradient, rightly.
                    direct = {name for name in mine if keys[name] in {seen.key for seen in op.ins}}
                    left -= direct
                    mine = [name for name in mine if name not in direct]
                if mine:
                    left -= set(mine)
                    found.append(Vanish(kind, tuple(mine), op.name, self.trace.site(op), _sizes(op)))
            if left:
                found.append(Vanish(kind, tuple(sorted(left)), "", None))
        return found

    def _op(self, number: int) -> Op | None:
        return next((op for op in reversed(self.trace.ops) if op.numbers[0] <= number < op.numbers[1]), None)


def _sums(gradients: typing.Any) -> list[torch.Tensor]:
    found = []
    for gradient in gradients:
        if gradient is not None:
            values = gradient._values() if gradient.is_sparse else gradient
            found.append(values.detach().abs().sum())
    return found


def _state(total: torch.Tensor) -> str:
    value = float(total)
    return "nan" if value != value else "inf" if value == float("inf") else "zero" if value == 0 else "ok"


def _sizes(op: Op) -> str:
    return " -> ".join(str(list(seen.size)) for seen in (*op.ins[:1], *op.outs[:1]))

"""What `sigmoid` and `tanh` are given in a traced step, in three numbers each: `SaturationWatch`."""

from __future__ import annotations

import typing
from dataclasses import dataclass

import torch

from torchsleuth.auditor.tracing.trace import Op, Trace, quietly

BEYOND = {"sigmoid": 9.2, "tanh": 5.3}  # there the slope is below a ten-thousandth
SHARE = 0.95  # of the numbers
LEAST = 16
MOST_CALLS = 64


@dataclass
class Seen:
    op: Op
    count: int
    lowest: torch.Tensor  # numbers on their device, which is not waited for
    highest: torch.Tensor
    beyond: torch.Tensor

    @property
    def flat(self) -> bool:
        return float(self.beyond) >= SHARE * self.count


class SaturationWatch:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.seen: list[Seen] = []

    def install(self) -> None:
        for name in BEYOND:
            self.trace.watchers.setdefault(name, []).append(quietly(self._activation))

    def _activation(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        given = args[0] if args else kwargs.get("input")
        if len(self.seen) >= MOST_CALLS or not isinstance(given, torch.Tensor) or not given.requires_grad or given.numel() < LEAST or not given.is_floating_point():
            return
        with torch.no_grad():
            values = given.detach().float()
            self.seen.append(Seen(op, given.numel(), values.amin(), values.amax(), (values.abs() > BEYOND[op.name]).sum()))

    def flat(self) -> list[Seen]:
        return [one for one in self.seen if one.flat]

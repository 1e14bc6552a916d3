"""Where the forward pass makes NaN (or infinity) out of numbers that are none: `FiniteWatch`, one look at each result of the step.

Only what the loss is computed from counts: a masked -inf or the garbage of `torch.empty` that is overwritten is no news.
"""

from __future__ import annotations

import math
import typing

import torch

from torchsleuth.again.undefined import SINGULAR, why_undefined
from torchsleuth.auditor.observation_training import NotFinite
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Trace, tensors_in

# Calls that put values somewhere, and compute nothing.
_PLACING = {"where", "masked_fill", "masked_fill_", "cat", "stack", "__setitem__", "index_put_", "fill_", "masked_scatter", "scatter", "index_fill"}
MOST = 32  # places remembered


class FiniteWatch:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.places: list[tuple[Op, str, str]] = []  # the call, "nan", "inf" or "given" (NaN, with the data), and what its inputs were like
        self.resting = False
        self._data: set[int] = set()  # keys of tensors into which the program has put NaN itself
        self._spoilt: set[int] = set()  # keys of tensors known to hold NaN

    def install(self) -> None:
        self.trace.every.append(self._look)

    def _look(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        if self.resting:
            return
        if op.name in ARRANGING or len(self.places) >= MOST or not op.outs:
            if self._spoilt and any(seen.key in self._spoilt for seen in op.ins):
                self._spoilt.update(seen.key for seen in op.outs)
            return
        try:
            with torch.no_grad():
                self._judge(op, args, kwargs, result)
        except Exception:  # an unusual layout; the program must not notice
            pass

    def _judge(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        results = [t for t in tensors_in(args[0] if op.writes else result) if t.is_floating_point() and t.layout is torch.strided]
        if any(t.is_cuda for t in results) and torch.cuda.is_current_stream_capturing():
            return  # a value cannot be read while a graph is captured
        if any(bool(t.isnan().any()) for t in results):
            known = any(seen.key in self._spoilt for seen in op.ins)
            if not known and op.name in _PLACING and (self._given(op, args, kwargs) or any(a != a for a in (*args, *kwargs.values()) if isinstance(a, float))):
                self._data.update(seen.key for seen in op.outs)  # NaN stands for what is missing, and was put there on purpose
                return
            self._spoilt.update(seen.key for seen in op.outs)
            inputs = [t for t in tensors_in((args[1:] if op.writes else args, kwargs)) if t.is_floating_point()]
            if not known and not any(bool(t.isnan().any()) for t in inputs):
                self.places.append((op, "nan", why_undefined(op.name, args, kwargs, op.outs[0].size if op.outs else ())))
            elif not known and (given := self._given(op, args, kwargs)):
                self.places.append((op, "given", given))
        elif op.name in SINGULAR and any(bool(t.isinf().any()) for t in results):
            inputs = [t for t in tensors_in((args, kwargs)) if t.is_floating_point()]
            if not any(bool(t.isinf().any()) for t in inputs):
                self.places.append((op, "inf", why_undefined(op.name, args, kwargs, op.outs[0].size if op.outs else ())))

    def _given(self, op: Op, args: tuple, kwargs: dict) -> str:
        """The operand that brings NaN along, if it is data: nothing in this step has computed it."""
        for number, (seen, tensor) in enumerate(zip(op.ins, tensors_in((args, kwargs)), strict=False), 1):
            if not tensor.is_floating_point() or not (bad := tensor.isnan()).any():
                continue
            chain = list(self.trace.made_through(seen, ARRANGING))
            meant = bool(chain) and any(one.key in self._data for one in chain[-1].outs)
            if not chain or not chain[-1].ins or chain[-1].name in ARRANGING or meant:
                what = "a parameter" if seen.key in self.trace.parameters else f"operand {number}"
                return f"{what} of `{op.name}`, shape {list(seen.size)}, holds {int(bad.sum())} NaN, the first at {bad.nonzero()[0].tolist()}" + (
                    f"; they were put in by `{chain[-1].name}`" if meant else "; it was given so")
        return ""

    def culprit(self, loss: torch.Tensor | None) -> NotFinite | None:
        """The first place that the loss was computed from, if the loss is not finite."""
        if loss is None or loss.numel() != 1 or not self.places:
            return None
        value = float(loss.detach())
        if math.isfinite(value):
            return None
        key = self.trace.known_key(loss)
        before = self.trace.ancestors({key}) if key is not None else set()
        for op, kind, why in self.places:
            site = self.trace.site(op)
            if site is not None and (kind != "inf" or math.isinf(value)) and any(seen.key in before for seen in op.outs):
                return NotFinite(kind, op.name, site, why, "NaN" if math.isnan(value) else "infinite")
        return None

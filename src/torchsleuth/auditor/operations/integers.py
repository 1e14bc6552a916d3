"""Arithmetic on integers that does not give what it would give on numbers: bytes that wrap around, `~` of zeros and ones, and many numbers that all
become one when they are made whole. `IntegerWatch`."""

from __future__ import annotations

import typing
from dataclasses import dataclass, field

import torch

from torchsleuth.auditor.laboratory.accelerator import at_hand
from torchsleuth.auditor.observation import InputFact
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Trace, quietly, tensors_in

MOST_ELEMENTS = 1 << 20
MOST_FOUND = 64
_INVERTING = ("__invert__", "bitwise_not")
_COMPUTING = {"sub": torch.sub, "__sub__": torch.sub, "rsub": torch.rsub, "__rsub__": torch.rsub, "add": torch.add, "__add__": torch.add, "mul": torch.mul, "__mul__": torch.mul}
_SIGNS = {torch.sub: "-", torch.rsub: "-", torch.add: "+", torch.mul: "*"}
_WHOLE = {"floor_divide", "__floordiv__", "long", "int", "byte", "short", "char", "to", "type"}
DISTINCT = 8  # numbers that became one
_ALL = 0.95  # of them; the rest may be those that lie at the end of the range
_TIMES = {"mul", "__mul__", "__rmul__", "mul_", "__imul__", "multiply"}
_LOSSES = {"cross_entropy", "nll_loss"}
_GATHERING = ARRANGING | {"stack", "cat", "concat", "index_select"}


@dataclass
class IntegerWatch:
    trace: Trace
    _found: list[tuple[Op, str, str]] = field(default_factory=list)  # the call, the kind of fact, and what was seen

    def install(self) -> None:
        for name in _INVERTING:
            self.trace.watchers.setdefault(name, []).append(quietly(self._inverted))
        for name in _COMPUTING:
            self.trace.watchers.setdefault(name, []).append(quietly(self._computed))
        for name in _WHOLE:
            self.trace.watchers.setdefault(name, []).append(quietly(self._made_whole))

    def facts(self, keys: set[int]) -> list[InputFact]:
        """Those results that are taken for numbers on the way to one of `keys`: the inputs of the model, and the loss."""
        before = self.trace.ancestors(keys) if self._found else set()
        found: dict[typing.Any, InputFact] = {}
        for op, kind, text in self._found:
            site = self.trace.site(op)
            if op.outs[0].key in before and site is not None and not site.library and self._as_numbers(op, kind):
                found.setdefault(site.span, InputFact(kind, "", text, site=site))
        return list(found.values())

    def _inverted(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        given = args[0]
        if given.dtype is torch.bool or not 0 < given.numel() <= MOST_ELEMENTS or len(self._found) >= MOST_FOUND:
            return
        values = at_hand(given)
        if bool(((values == 0) | (values == 1)).all()):
            zero, one = (int(~torch.tensor(value, dtype=given.dtype, device="cpu")) for value in (0, 1))
            text = f"`~` is given {str(given.dtype).removeprefix('torch.')} that is 0 or 1 everywhere: it gives {zero} for 0 and {one} for 1"
            self._found.append((op, "inverted-integers", text))

    def _computed(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        if result.dtype is not torch.uint8 or kwargs or len(args) != 2 or not 0 < result.numel() <= MOST_ELEMENTS or len(self._found) >= MOST_FOUND:
            return
        function = _COMPUTING[op.name]
        one, other = (at_hand(a).to(torch.int32) if isinstance(a, torch.Tensor) else a for a in args)
        if not all(isinstance(a, (torch.Tensor, int)) for a in (one, other)):
            return
        true = function(one, other) if tensors_in(one) else function(torch.as_tensor(one, device="cpu"), other)
        wrong = (true < 0) | (true > 255)
        if not bool(wrong.any()):
            return
        at = tuple(wrong.nonzero()[0].tolist())
        left, right = (int(torch.as_tensor(a, device="cpu").expand(true.shape)[at]) for a in ((other, one) if function is torch.rsub else (one, other)))
        text = (f"it is computed in uint8, and {int(wrong.sum())} of {true.numel()} results lie outside of 0 to 255: "
                f"{left} {_SIGNS[function]} {right} gives {int(at_hand(result)[at])}, not {int(true[at])}")  # fmt: skip
        self._found.append((op, "wrapped-integers", text))

    def _made_whole(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        given = args[0]
        dividing = op.name in ("floor_divide", "__floordiv__")
        if not isinstance(given, torch.Tensor) or not isinstance(result, torch.Tensor) or not DISTINCT <= result.numel() <= MOST_ELEMENTS or len(self._found) >= MOST_FOUND:
            return
        if (given.shape != result.shape or result.dtype is torch.bool) or (result.is_floating_point() and not dividing) or not (given.is_floating_point() or dividing):
            return
        many, (left, counts) = at_hand(given).unique(), at_hand(result).unique(return_counts=True)
        most = int(counts.argmax())
        if many.numel() >= DISTINCT and left.numel() <= 2 and float(counts[most]) >= _ALL * result.numel():
            text = (f"`{'//' if op.name == '__floordiv__' else op.name}` is given {many.numel()} different numbers from {float(many[0]):.4g} to {float(many[-1]):.4g}, and gives "
                    f"{int(left[most])} for {int(counts[most])} of {result.numel()} of them")  # fmt: skip
            self._found.append((op, "collapsed-integers", text))

    def _as_numbers(self, made: Op, kind: str) -> bool:
        """Is the result made floating point, or a factor of what is? Bits and hashes are not."""
        keys = {made.outs[0].key}
        if kind == "collapsed-integers" and made.outs[0].dtype.is_floating_point:
            return True
        for op in self.trace.ops[made.index + 1 :]:
            if not any(seen.key in keys for seen in op.ins) or not op.outs:
                continue
            if op.outs[0].dtype.is_floating_point and (op.name in _TIMES or (kind == "collapsed-integers" and op.name in _LOSSES) or (kind != "inverted-integers" and op.name not in ("embedding", "__getitem__"))):
                return True
            if op.name in _GATHERING:
                keys.update(seen.key for seen in op.outs)
        return False

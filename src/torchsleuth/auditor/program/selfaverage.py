"""Moving averages of weights that average the wrong things, seen between the first step and the next backward pass: `AverageWatch`.

An average that shares its memory with what it is an average of; one that is written into the trained model instead of the copy; one
that an optimizer trains, too. Which memory a value was computed from, and with which factors, is followed through sums and products.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass

import torch

from torchsleuth.auditor.gradients.symmetry import own_numbers
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.observation_training import WrongAverage
from torchsleuth.auditor.program.optimizers import OptimizerWatch, parameters_of
from torchsleuth.auditor.tracing.modestack import enter_below, harmless, take_out
from torchsleuth.auditor.tracing.trace import Op, Trace, quietly

MOST_OPERATIONS = 20_000
LEAST_SHARE = 0.5  # that an average keeps of what it was
CLOSE = 1e-4
_SAME = {"data", "detach", "clone", "to", "float", "double", "contiguous", "cpu", "cuda", "view", "reshape"}
_WRITING = {"copy_", "set_data"}

Terms = tuple[tuple[int, float], ...]  # the identities of parameters, each with its factor


@dataclass
class Written:
    kind: str
    site: Site
    made: Site | None
    source: torch.Tensor
    before: torch.Tensor
    share: float
    count: int = 1


class AverageWatch:
    """`start()` after the first step; from the next backward pass on it sees nothing, and goes off at the next step; `found()` at the end."""

    def __init__(self, before: Trace, trained: list[torch.Tensor], optimizers: OptimizerWatch) -> None:
        self._before, self._optimizers = before, optimizers
        self._trained = {id(p) for p in trained}
        copies = [(p, origin) for ref, origin, _ in optimizers.copies.values() if (p := ref()) is not None]
        self._origin = {id(p): origin for p, origin in copies}
        self._known = {id(p): p for p in (*trained, *(p for p, _ in copies))}
        self._held = {p.data_ptr(): id(p) for p in self._known.values() if p.layout is torch.strided and p.numel() > 1}
        self._terms: dict[int, Terms] = {}  # by the number of the tensor
        self._scaled: dict[int, float] = {}  # parameters that were multiplied by a number just before
        self._written: dict[tuple, Written] = {}
        self._trace: Trace | None = None
        self._over = False

    def start(self) -> None:
        self._trace = trace = Trace(watchers={}, early={})
        trace.follow(self._before)
        trace.most = len(trace.ops) + MOST_OPERATIONS
        trace.carried = True
        trace.early.setdefault("backward", []).append(self._backward)
        trace.every.append(quietly(self._look))
        enter_below(trace)

    def before_step(self) -> None:
        if self._over:
            self.stop()

    def stop(self) -> None:
        trace, self._trace = self._trace, None
        if trace is not None:
            trace.most = 0
            take_out(trace)

    def failed(self, error: Exception) -> None:
        self._written.clear()
        self.stop()

    @harmless
    def _backward(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        self._over = True  # while a mode handles a call it is not on the stack, and cannot be taken out
        if self._trace is not None:
            self._trace.most = 0

    # -- what is computed from which memory -----------------------------------------------------------

    def _look(self, op: Op, args: tuple, kwargs: dict, result: typing.Any) -> None:
        if self._trace is None or self._over or not args or not isinstance(args[0], torch.Tensor):
            return
        name = op.name.strip("_") if op.name.startswith("__") else op.name
        other = args[1] if len(args) > 1 else kwargs.get("other", kwargs.get("end"))
        mine = self._of(args[0], op.ins[0].key)
        theirs = self._of(other, op.ins[1].key) if isinstance(other, torch.Tensor) and len(op.ins) > 1 else ()
        weight = args[2] if len(args) > 2 else kwargs.get("weight")
        target = self._who(args[0])
        if name in _WRITING:
            self._put(op, args[0], theirs)
        elif name in ("mul_", "imul"):
            self._scaled.clear()
            if target is not None and isinstance(other, (int, float)):
                self._scaled[target] = float(other)
        elif name in ("add_", "iadd"):
            kept = _times(mine, self._scaled.get(target, 1.0)) if target is not None else ()
            self._put(op, args[0], kept + _times(theirs, kwargs.get("alpha", 1)) if kept and theirs else ())
        elif name in ("lerp", "lerp_") and isinstance(weight, float):
            terms = _times(mine, 1 - weight) + _times(theirs, weight) if mine and theirs else ()
            if name == "lerp_":
                self._put(op, args[0], terms)
            else:
                self._terms[op.outs[0].key] = terms
        elif op.outs and name in _SAME:
            self._terms[op.outs[0].key] = mine
        elif op.outs and name in ("mul", "rmul") and isinstance(other, (int, float)):
            self._terms[op.outs[0].key] = _times(mine, other)
        elif op.outs and name in ("add", "radd") and mine and theirs:
            self._terms[op.outs[0].key] = mine + _times(theirs, kwargs.get("alpha", 1))

    def _of(self, tensor: torch.Tensor, key: int) -> Terms:
        who = self._who(tensor)
        return ((who, 1.0),) if who is not None else self._terms.get(key, ())

    def _who(self, tensor: torch.Tensor) -> int | None:
        """The parameter whose memory this is."""
        if id(tensor) in self._known:
            return id(tensor)
        who = self._held.get(tensor.data_ptr()) if tensor.layout is torch.strided else None
        return who if who is not None and self._known[who].numel() == tensor.numel() else None

    def _put(self, op: Op, into: torch.Tensor, terms: Terms) -> None:
        target = self._who(into)
        if target is None:
            return
        self._scaled.clear()
        if op.name == "set_data":
            self._held[into.data_ptr()] = target
        sources = {who for who, _ in terms}
        if len(terms) < 2 or abs(sum(factor for _, factor in terms) - 1) > CLOSE or not all(0 < factor < 1 for _, factor in terms):
            return
        share = sum(factor for who, factor in terms if who == target)
        if sources == {target}:
            self._note("itself", op, target, max(factor for _, factor in terms), self._known[target])
        elif len(sources) == 2 and target in sources and share >= LEAST_SHARE:
            source = next(iter(sources - {target}))
            if target in self._trained and self._origin.get(source) == target:
                self._note("reversed", op, target, share, self._known[source])
            elif source in self._trained and self._origin.get(target) == source and self._also_trained(target):
                self._note("trained", op, target, share, self._known[target])

    def _also_trained(self, target: int) -> bool:
        parameter = self._known[target]
        return parameter.requires_grad and parameter.grad is not None and any(parameter is p for o in self._optimizers.stepped for p in parameters_of(o))

    def _note(self, kind: str, op: Op, target: int, share: float, source: torch.Tensor) -> None:
        assert self._trace is not None
        site = self._trace.site(op)
        if site is None or site.library:
            return
        if (known := self._written.get((kind, site.span))) is not None:
            known.count += 1
            return
        with torch._C.DisableTorchFunction():
            before = source.detach().clone()
        self._written[(kind, site.span)] = Written(kind, site, self._aliased(op) if kind == "itself" else None, source, before, share)

    def _aliased(self, op: Op) -> Site | None:
        """Where the second name for this memory was made: `p.data`, `p.detach()`."""
        assert self._trace is not None
        key = op.ins[0].key
        while (at := self._trace.producer.get(key)) is not None and (made := self._trace.ops[at]).ins:
            if made.name in ("data", "detach"):
                return self._trace.site(made)
            if not made.writes:
                return None
            key = made.ins[0].key
        return None

    # -- the end --------------------------------------------------------------------------------------

    def found(self) -> list[WrongAverage]:
        facts = []
        for one in self._written.values():
            uses = self._uses(one.source) if one.kind != "itself" else []
            if one.kind == "reversed" and not (uses and torch.equal(one.source.detach(), one.before)):
                continue
            taught = next((op for op in uses if op.grad_enabled), None) if one.kind == "trained" else None
            facts.append(WrongAverage(one.kind, one.site, self._before.site(taught) if taught is not None else one.made, one.share, one.count))
        return facts

    def _uses(self, parameter: torch.Tensor) -> list[Op]:
        """The layers that it is a weight of, in the first step."""
        key = self._before.known_key(parameter)
        own = own_numbers(self._before, parameter) if key is not None else set()
        return [op for op in self._before.ops if len(op.ins) > 1 and not op.writes and any(seen.key in own for seen in op.ins[1:])]


def _times(terms: Terms, factor: typing.Any) -> Terms:
    return tuple((who, weight * factor) for who, weight in terms) if isinstance(factor, (int, float)) else ()

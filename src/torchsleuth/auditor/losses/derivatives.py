"""Derivatives that a loss is computed from and that are constants in it: `autograd.grad` without `create_graph`, beside others with it.

Where one derivative of a computation keeps its graph and another one does not, and both are added up (the terms of a differential
equation), the second was forgotten. Weights that are made of derivatives on purpose are multiplied with a loss, or belong to parameters.
"""

from __future__ import annotations

from torchsleuth.auditor.observation_training import Cut
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Trace

_ADDING = {"add", "sub", "__radd__", "__rsub__", "radd", "rsub", "add_", "sub_", "subtract", "cat", "concat", "stack", "concatenate"}
_SUMMING = ARRANGING | {"sum", "mean"}


def without_graph(trace: Trace, loss: int | None, keys: dict[str, int], trained: set[str]) -> list[Cut]:
    if loss is None:
        return []
    on_the_way = trace.ancestors({loss})
    taken = [op for op in trace.ops if op.name == "grad" and op.ins and any(seen.key in on_the_way for seen in op.outs)]
    kept = [op for op in taken if any(seen.requires_grad for seen in op.outs)]
    found = []
    for op in taken:
        if op in kept or any(seen.key in trace.parameters for seen in op.ins) or not _of_the_same(trace, op, kept) or not _added(trace, op, on_the_way):
            continue
        before = trace.ancestors({op.ins[0].key})
        who = tuple(sorted(name for name, key in keys.items() if key in before and name in trained))
        site = trace.site(op)
        if who and site is not None and not site.library:
            found.append(Cut("grad", "derivative", site, who, partly=True))
    return list({cut.site.span: cut for cut in found}.values())


def _of_the_same(trace: Trace, op: Op, kept: list[Op]) -> bool:
    """Is it a derivative of what another one with a graph is a derivative of, or of that one?"""
    root = _root(trace, op)
    before = trace.ancestors({root})
    return any(_root(trace, other) == root or any(seen.key in before for seen in other.outs) for other in kept)


def _root(trace: Trace, op: Op) -> int:
    """What this is the derivative of; behind its sum, or the part of it that was taken."""
    key = op.ins[0].key
    for made in trace.made_through(op.ins[0], _SUMMING):
        if made.name in _SUMMING and made.ins:
            key = made.ins[0].key
    return key


def _added(trace: Trace, op: Op, on_the_way: set[int]) -> bool:
    """Is it, or what is computed from it alone, added to something that has a history, or multiplied with what it is the derivative of?"""
    mine, root = {seen.key for seen in op.outs}, _root(trace, op)
    for later in trace.ops[op.index + 1 :]:
        if not any(seen.key in mine for seen in later.ins) or not any(seen.key in on_the_way for seen in later.outs):
            continue
        if not any(seen.requires_grad for seen in later.outs):
            mine.update(seen.key for seen in later.outs)
            continue
        alive = [seen for seen in later.ins if seen.requires_grad and seen.key not in trace.parameters]
        if not alive and later.name != "grad":
            mine.update(seen.key for seen in later.outs)  # times a coefficient that is learned
        elif later.name in _ADDING or any(seen.key == root for seen in alive):
            return True
    return False

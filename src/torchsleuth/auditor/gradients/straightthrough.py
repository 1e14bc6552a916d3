"""Hard choices with an estimator beside them: in `hard + soft - soft.detach()` the comparison is meant to have no history, the other term is to carry it."""

from __future__ import annotations

import typing

from torchsleuth.auditor.tracing.trace import Op, Trace

_JOINING = {"add", "sub", "rsub", "radd", "__add__", "__sub__", "__radd__", "__rsub__", "add_", "sub_", "__iadd__", "__isub__"}
_HARD = {"argmax", "compare", "integer"}
_SOFT = {"detach", "data"}


def estimators_blamed(trace: Trace, ends: dict[int, set[str]], reason: typing.Callable[[Op], str]) -> dict[int, set[str]]:
    """Without the hard choices that meet, in a sum, a term of the same parameters whose history was cut off on purpose: that one was to carry it."""
    hard = [at for at in ends if reason(trace.ops[at]) in _HARD]
    soft = [at for at in ends if reason(trace.ops[at]) in _SOFT]
    spared: dict[int, set[str]] = {}
    below = {at: trace.descendants({seen.key for seen in trace.ops[at].outs}) for at in (hard + soft if hard and soft else ())}
    sums = [[seen.key for seen in op.ins] for op in trace.ops if op.name in _JOINING and len(op.ins) > 1] if below else []
    for one in hard if below else ():
        for other in soft:
            if any(a in below[one] - below[other] and b in below[other] - below[one] for keys in sums for a in keys for b in keys):
                spared.setdefault(one, set()).update(ends[other])
    return {at: left for at, who in ends.items() if (left := who - spared.get(at, set()))}

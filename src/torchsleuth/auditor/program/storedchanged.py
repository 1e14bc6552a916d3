"""Samples that a data set changes where they are stored: arithmetic in place, in `__getitem__` or what it calls, on a view of what it holds.

The next epoch finds what this one has left. Buffers that are filled anew for each sample are none of it.
"""

from __future__ import annotations

from torchsleuth.auditor.observation import InputFact
from torchsleuth.auditor.tracing.trace import CHANGING, Op, Seen, Trace

_VIEWING = {"__getitem__", "select", "narrow", "view", "reshape", "squeeze", "unsqueeze", "transpose", "permute", "T", "unbind"}
_FILLING = {"__setitem__", "copy_", "fill_", "zero_", "normal_", "uniform_"}


def changed_where_stored(trace: Trace, inputs: set[int]) -> list[InputFact]:
    """`inputs`: what the model is given."""
    mine = [op for op in trace.ops if op.name in CHANGING and op.writes and op.ins and "__getitem__" in (_name(op.place.user_code), _name(op.caller.user_code))]
    if not mine:
        return []
    before = trace.ancestors(inputs)
    first: dict[object, int] = {}
    for op in trace.ops:
        first.setdefault(op.place.user_code, op.index)
    filled = {key for op in trace.ops if op.name in _FILLING and op.writes and _name(op.place.user_code) == "__getitem__" for seen in op.ins[:1] for key in (seen.key, _root(trace, op).key)}
    found: dict[object, list[Op]] = {}
    for op in mine:
        root = _root(trace, op)
        made = trace.producer.get(root.key)
        view = root.key != op.ins[0].key and any(seen.size == root.size for seen in op.outs[1:])  # what an index by a tensor gives is a copy, and has no base
        held = view and made is not None and made < min(first[code] for code in (op.place.user_code, op.caller.user_code) if code in first)
        if held and root.key not in filled and any(seen.key in before for seen in op.outs):
            found.setdefault(op.place.user_code, []).append(op)
    facts = []
    for ops in found.values():
        sites = {site.span.line: site for op in ops if (site := trace.site(op)) is not None}
        if sites:
            site = sites[min(sites)]
            more = f"; line {max(sites)} does the same" if len(sites) > 1 else ""
            facts.append(InputFact("stored-changed", "", f"`{ops[0].name.strip('_')}` writes into a part of what was made before the data set was asked for any sample{more}", site=site))
    return facts


def _root(trace: Trace, op: Op) -> Seen:
    """What this is a view of."""
    seen = op.ins[0]
    for made in trace.made_through(op.ins[0], _VIEWING | CHANGING):
        if made.name not in _VIEWING and made.name not in CHANGING:
            break
        seen = made.ins[0]
    return seen


def _name(code: object) -> str:
    return getattr(code, "co_name", "")

"""Losses that are computed with a history and left out: `backward()` is called on a part of the sum, or on another loss."""

from __future__ import annotations

import torch

from torchsleuth.auditor.losses.overwritten import UNCHANGED
from torchsleuth.auditor.observation_training import Unused
from torchsleuth.auditor.tracing.bydesign import origin_of_place
from torchsleuth.auditor.tracing.trace import EXITS, Trace
from torchsleuth.auditor.tracing.watchers import LOSSES
from torchsleuth.model import Span
from torchsleuth.origin import Origin

LEFT_OUT = ("part", "left-out")
_LOOKS = EXITS | UNCHANGED | {"detach", "data", "__format__", "backward", "clone", "cpu"}  # a loss that is only read is not used


def left_out(trace: Trace, losses: list[torch.Tensor], keys: dict[str, int], explained: set[Span], missing: list[str]) -> list[Unused]:
    """Numbers that parameters without gradient count for and nothing takes up: a sum that one of the `losses` is a term of, or the result of a loss.
    `explained`: places of losses of which it is known why nothing takes them up."""
    known = [key for loss in losses if (key := trace.known_key(loss)) is not None]
    taken = {seen.key for op in trace.ops if op.name not in _LOOKS for seen in op.ins}
    behind = trace.descendants(set(known)) - set(known)
    compared = trace.descendants({seen.key for op in trace.ops if op.name in LOSSES for seen in op.outs})
    asked = next((op for op in reversed(trace.ops) if op.name == "backward" and op.ins and op.ins[0].key in known), None)
    found: dict[int, tuple[Unused, list[str]]] = {}
    for name in missing if asked is not None else ():
        live = _live(trace, keys[name])
        for op in trace.ops[: asked.index] if asked is not None else ():
            out = op.outs[0] if len(op.outs) == 1 else None
            if out is None or out.key not in live or out.size != () or out.key in taken or out.key in known or op.writes or op.name in UNCHANGED:
                continue
            site = trace.site(op)
            if not (out.key in behind or out.key in compared) or origin_of_place(op) is not Origin.USER or site is None or asked is None or site.span in explained:
                continue
            how = "part" if out.key in behind else "left-out"
            fact, names = found.setdefault(op.index, (Unused((), how, "", "", trace.site(asked), end=site), []))
            names.append(name)
            break
    return [Unused(tuple(names), fact.how, "", "", fact.site, end=fact.end) for fact, names in found.values()]


def _live(trace: Trace, key: int) -> set[int]:
    """All that a gradient would come from to this parameter."""
    live = {key}
    for op in trace.ops:
        if any(seen.key in live and seen.requires_grad for seen in op.ins):
            live.update(seen.key for seen in op.outs if seen.requires_grad)
    return live

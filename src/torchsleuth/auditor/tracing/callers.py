"""Which line of the program called the helper that cuts a history: a helper that several lines call is right for some of them."""

from __future__ import annotations

import dataclasses
import sys
import types
import typing

from torchsleuth.auditor.observation_training import Cut
from torchsleuth.auditor.tracing.sites import NOWHERE, TRAMPOLINE, Place, site_of
from torchsleuth.origin import Origin, origin_of_file

if typing.TYPE_CHECKING:
    from torchsleuth.auditor.observation_parts import Site
    from torchsleuth.auditor.tracing.trace import Op, Trace


_PARTS = {"<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>"}  # of a function


def caller_here(depth: int = 1) -> Place:
    """Where the program called the function of its own that is running."""
    frame: types.FrameType | None = sys._getframe(depth)
    inner: types.FrameType | None = None
    while frame is not None:
        if origin_of_file(frame.f_code.co_filename) is Origin.USER and frame.f_code.co_name != TRAMPOLINE and frame.f_code.co_name not in _PARTS:
            if inner is not None:
                return Place(frame.f_code, frame.f_lasti, frame.f_code, frame.f_lasti)
            inner = frame
        frame = frame.f_back
    return NOWHERE


def of_several(trace: Trace, made: Op) -> Site | None:
    """The line that called the function in which this was made, where the program calls it in several: what it is given there is what differs."""
    if made.caller.code is None:
        return None
    here = (made.place.user_code, made.place.user_offset)
    lines = {(op.caller.code, op.caller.offset) for op in trace.ops if op.name == made.name and (op.place.user_code, op.place.user_offset) == here}
    return site_of(made.caller) if len(lines) > 1 else None


def with_caller(trace: Trace, cut: Cut, loss: int | None, since: int) -> Cut:
    """With the line that called the function in which the history ends, if others call it, too. Calls before `since` are those of other steps."""
    if cut.used is not None or loss is None:
        return cut
    same = [op for op in trace.ops if op.name == cut.operation and op.caller.code is not None and (site := trace.site(op)) is not None and site.span == cut.site.span]
    lines = {(op.caller.code, op.caller.offset) for op in same}
    before = trace.ancestors({loss}) if len(lines) > 1 else set()
    late = [op for op in same if op.index >= since]
    mine = [op for op in late if any(seen.key in before and not seen.requires_grad for seen in op.outs)]
    if not mine and before and len({(op.caller.code, op.caller.offset) for op in late}) == 1:
        mine = late  # a pool may give back what an earlier call has put into it
    return dataclasses.replace(cut, used=site_of(mine[-1].caller), shared=True) if mine else cut

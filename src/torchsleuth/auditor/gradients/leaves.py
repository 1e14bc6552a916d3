"""New parameters made of what has been computed: `nn.Parameter(w)` begins a history of its own, with the values of another."""

from __future__ import annotations

import torch
from torch import nn

from torchsleuth.auditor.tracing.sites import place_here
from torchsleuth.auditor.tracing.trace import Op, Seen, Trace

MOST_LOOKED_AT = 64  # each is a walk over the tensors of a trace
LEAF = "Parameter"  # what the call is named in a trace


class LeafNotes:
    """`registered()` for each parameter that a module is given while a trace runs."""

    def __init__(self) -> None:
        self.count = 0

    def registered(self, trace: Trace, value: object) -> None:
        """A call in the trace, if this parameter lies where a computed tensor does: torch itself makes none that is seen."""
        if type(value) is not nn.Parameter or self.count >= MOST_LOOKED_AT or not trace.ops:
            return
        self.count += 1
        with torch._C.DisableTorchFunction():
            address, size = value.data_ptr(), tuple(value.shape)
            source = next((t for t in trace.alive() if t is not value and t.grad_fn is not None and t.data_ptr() == address and tuple(t.shape) == size), None)
        if source is None or not value.numel():
            return
        made = Op(len(trace.ops), LEAF, place_here(3), "", (Seen(trace.key(source), size, source.dtype, source.requires_grad),), ((), {}))
        made.outs = (Seen(trace.key(value), size, value.dtype, value.requires_grad),)
        trace.producer[made.outs[0].key] = made.index
        trace.ops.append(made)

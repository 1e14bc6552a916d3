"""What a library's model does inside, by its authors' decision: a user who calls it rightly is not told of it."""

from __future__ import annotations

from torchsleuth.auditor.tracing.trace import Op, Trace
from torchsleuth.origin import Origin, origin_of_file


def origin_of_place(op: Op) -> Origin:
    return origin_of_file(op.place.code.co_filename) if op.place.code is not None else Origin.LIBRARY


def ends_by_design(trace: Trace, op: Op, on_the_way: set[int]) -> bool:
    """History ends inside a library, and what the program gets of the same call goes on to the loss with a history
    (an index of positions that is not trained). Where it gets none (`model.generate()`), it is the call that is wrong."""
    if origin_of_place(op) is not Origin.LIBRARY:
        return False
    call = (op.place.user_code, op.place.user_offset)
    inside = (one for one in trace.ops if (one.place.user_code, one.place.user_offset) == call and origin_of_place(one) is Origin.LIBRARY)
    return any(seen.requires_grad and seen.key in on_the_way for one in inside for seen in one.outs)

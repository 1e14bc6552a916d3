"""Where the program made what a model, an attention or a loss is given: back through all that only rearranges, converts or partly fills it."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Trace

CONVERTING = {"long", "int", "bool", "short", "byte", "detach", "type", "pin_memory", "share_memory_", "copy_"}
_COLLATING = {"stack", "cat", "tensor", "as_tensor"}
_PICKING = {"__getitem__", "select", "narrow", "split", "chunk", "unbind", "__setitem__"}
MOST_STEPS = 200


def beginning(trace: Trace, key: int | None, through: frozenset[str] = frozenset()) -> Site | None:
    """The program's own expression that gave a tensor its values; None where nothing tells. `through`: calls beside the usual ones that are not it."""
    op = maker(trace, key, through)
    if op is not None:
        return trace.site(op) if op.place.user_code is not None else None
    given = given_by(trace, [*way_back(trace, key, through)][-1:], key)
    return trace.beforehand.made(given) if given is not None and trace.beforehand is not None else None


def given_by(trace: Trace, way: list[Op], key: int | None) -> torch.Tensor | None:
    """The tensor that the audit was called with, at the end of this way back from `key`."""
    root = way[-1].ins[0].key if way and way[-1].ins else key
    given = trace.beforehand.tensors() if trace.beforehand is not None and root is not None else ()
    return next((tensor for tensor in given if trace.known_key(tensor) == root), None)


def maker(trace: Trace, key: int | None, through: frozenset[str] = frozenset()) -> Op | None:
    """The call that did it; or the first that was seen to take up what came from elsewhere (`torch.from_numpy` is not seen), but for a mere index."""
    ops = list(way_back(trace, key, through))
    if not ops or (ops[-1].name in _COLLATING and not ops[-1].place.direct):
        return None  # or a data loader's, of numbers that no tensor held before
    last = ops[-1]
    if not _passes_on(last, through):
        return last
    return last if last.name not in _PICKING and last.place.direct else None


def way_back(trace: Trace, key: int | None, through: frozenset[str] = frozenset()) -> Iterator[Op]:
    """The calls back from a tensor to the one that gave it its values, or as far as they were seen."""
    for _ in range(MOST_STEPS):
        index = trace.producer.get(key) if key is not None else None
        if index is None or index >= len(trace.ops):
            return
        op = trace.ops[index]
        if op.name == "stack" and op.ins:  # of samples that were made one by one
            inside = list(way_back(trace, op.ins[0].key, through))
            yield op
            yield from inside if maker(trace, op.ins[0].key, through) is not None else ()
            return
        yield op
        if not op.ins or not _passes_on(op, through):
            return
        key = op.ins[0].key


def _passes_on(op: Op, through: frozenset[str]) -> bool:
    library = op.place.code is not op.place.user_code and len(op.ins) == 1  # a model of a library's that pads or shifts what it is given
    return library or op.name in ARRANGING or op.name in CONVERTING or op.name in through or _fills_in(op)


def _fills_in(op: Op) -> bool:
    """`rows[i, :n] = row`: what stands elsewhere was there before. One number written to many places is what they hold from then on."""
    return op.name == "__setitem__" and op.argument(2, "value") == "tensor"

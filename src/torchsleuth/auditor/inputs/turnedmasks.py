"""A mask of an attention that is transposed, which as many samples as positions hide from torch: told by the padding that it fits only when it is turned back."""

from __future__ import annotations

import typing

import torch
from torch import nn

from torchsleuth.auditor.inputs import batch as batches
from torchsleuth.auditor.inputs.batch import Call
from torchsleuth.auditor.inputs.padded import is_padding_at
from torchsleuth.auditor.inputs.polarity import polarity
from torchsleuth.auditor.observation import InputFact
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.beginnings import way_back
from torchsleuth.auditor.tracing.trace import Op, Trace

_TRANSPOSING = {"t", "T", "mT", "transpose", "permute", "swapaxes", "movedim"}


def transposed_masks(call: Call, trace: Trace, hidden: typing.Iterable[tuple[Op, torch.Tensor, int]]) -> list[InputFact]:
    """`hidden`: what attention hides, flags [samples, keys], and the mask's key."""
    if any(isinstance(m, nn.MultiheadAttention) and not m.batch_first for m in call.model.modules()):
        return []  # time first, where masks are turned on purpose
    for op, flags, mask in hidden:
        count = flags.shape[0]
        if tuple(flags.shape) != (count, count) or torch.equal(flags, flags.T):
            continue
        for leaf in batches.sequences(call):
            if tuple(leaf.tensor.shape[:2]) != (count, count):
                continue
            turned = flags.T.to(leaf.values.device)
            if not is_padding_at(leaf, turned) or is_padding_at(leaf, turned.T) or not _at_the_end(turned) or _at_the_end(turned.T):
                continue
            row, position = (turned & ~turned.T).nonzero()[0].tolist()
            text = (f"the padding of `{leaf.name}`, shape {list(leaf.tensor.shape)}, stands where the mask's transpose is set, at all {int(turned.sum())} places: "
                    f"at [{row}, {position}] it is padding, and the mask hides [{position}, {row}]")  # fmt: skip
            given = {key for one in call.leaves if (key := trace.known_key(one.tensor)) is not None}
            site = trace.site(op)
            return [InputFact("mask-transposed", "", text, position=(row, position), site=site, made=_turning(trace, mask) or polarity(trace, op, mask, given, "").made, limit=count)]
    return []


def _turning(trace: Trace, mask: int) -> Site | None:
    """The call that transposes flags on their way to an attention."""
    key: int | None = mask
    while key is not None:
        ops = list(way_back(trace, key))
        turning = next((op for op in ops if op.name in _TRANSPOSING and op.place.direct), None)
        if turning is not None:
            return trace.site(turning)
        last = ops[-1] if ops else None
        before = next((seen for seen in last.ins if seen.dtype is torch.bool), None) if last is not None and last.name.startswith("masked_fill") else None
        key = before.key if before is not None else None
    return None


def _at_the_end(flags: torch.Tensor) -> bool:
    return bool((flags[:, 1:] >= flags[:, :-1]).all())

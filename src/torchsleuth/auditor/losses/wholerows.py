"""Losses of single tokens that the program averages itself: over whole rows, with what stands at their padded ends."""

from __future__ import annotations

import math
import typing

import torch

from torchsleuth.auditor.inputs.batch import Leaf
from torchsleuth.auditor.inputs.padded import ended
from torchsleuth.auditor.observation import InputFact
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Trace

_REDUCING = {"mean", "sum"}
_SCALING = {"neg", "__neg__", "negative", "mul", "__mul__", "__rmul__", "div", "__truediv__"}


class Picked(typing.NamedTuple):
    """The log-probabilities of labels, picked out of those of all classes."""

    op: Op
    labels: torch.Tensor  # [B, T]
    classes: int


class LookedUp(typing.Protocol):
    ids: torch.Tensor
    rows: int
    padding_idx: int | None


def reduced_whole(trace: Trace, key: int) -> Op | None:
    """The call that adds all of these numbers up, or averages them; None where some are left out, weighted or looked at one by one."""
    mine, found = {key}, None
    for op in trace.ops:
        taken = next((seen for seen in op.ins if seen.key in mine), None)
        if taken is None or not any(seen.requires_grad for seen in op.outs):
            continue
        apart = [seen for seen in op.ins if seen.key not in mine and seen.size]
        same = len(op.outs) == 1 and math.prod(op.outs[0].size) == math.prod(taken.size)
        if not apart and same and op.name in _REDUCING | _SCALING | ARRANGING:
            mine.add(op.outs[0].key)
        elif not apart and not same and op.name in _REDUCING:
            found = found or op
        else:
            return None
    return found


def padded_picks(trace: Trace, picked: typing.Iterable[Picked], lookups: typing.Sequence[LookedUp]) -> list[InputFact]:
    """Labels picked by `gather` that are padding, as the table says that such tokens are looked up in, and that are averaged in."""
    for one in picked:
        pads = {known.padding_idx for known in lookups if known.padding_idx is not None and known.rows == one.classes and known.ids.shape[0] == one.labels.shape[0]}
        padding = ended(Leaf("labels", (), one.labels), pads) if pads else None
        reducing = reduced_whole(trace, one.op.outs[0].key) if padding is not None else None
        site, made = (trace.site(reducing), trace.site(one.op)) if reducing is not None else (None, None)
        if padding is None or reducing is None or site is None or site.library:
            continue
        count = int((~padding.valid).sum())
        text = (f"{count} of the {padding.valid.numel()} labels that `gather` picks log-probabilities for stand at padded positions: all of them are {padding.pad_id}, "
                f"the `padding_idx` of the table that the tokens are looked up in")  # fmt: skip
        return [InputFact("padding-picked", reducing.name, text, padding.pad_id, site=site, count=count, made=made)]
    return []

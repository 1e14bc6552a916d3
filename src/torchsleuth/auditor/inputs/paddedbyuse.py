"""Padding that is told by what is done with ids: they are looked up in a table with a `padding_idx`, or compared with the number that rows end in."""

from __future__ import annotations

import dataclasses
import typing

import torch

from torchsleuth.auditor.inputs import batch as batches
from torchsleuth.auditor.inputs.batch import Call, Leaf
from torchsleuth.auditor.inputs.padded import Padding, declared_pad_ids, ended
from torchsleuth.auditor.tracing.trace import ARRANGING, Trace

_EQUAL, _UNEQUAL = {"eq", "__eq__"}, {"ne", "__ne__"}
_TURNING = {*_EQUAL, *_UNEQUAL, "__invert__", "bitwise_not", "logical_not", "__and__", "__or__", "__rand__", "__ror__", "bitwise_and", "bitwise_or", "logical_and", "logical_or",
            "masked_fill", "masked_fill_", "mul", "__mul__", "rsub", "__rsub__", "repeat", "repeat_interleave", "type", "long", "int"}  # fmt: skip
_HIDING = {"masked_fill", "masked_fill_", "multi_head_attention_forward", "scaled_dot_product_attention"}
_FINDING = {"argmax", "argmin", "nonzero", "max", "cumsum", "topk", "where", "__getitem__"}


class LookedUp(typing.Protocol):
    """Ids that were looked up in a table of embeddings."""

    ids: torch.Tensor
    padding_idx: int | None
    whole: int | None


def padded_by_comparison(call: Call, trace: Trace, known: list[Padding]) -> list[Padding]:
    """These, and those of inputs that the program compares with the number that their rows end in; or begin with, where a configuration says what pads."""
    pads = getattr(getattr(call.model, "config", None), "pad_token_id", None)
    masked = any(batches.looks_like_mask(leaf) for leaf in call.leaves)
    found = list(known)
    for leaf in batches.sequences(call):
        if leaf.tensor.dim() != 2 or leaf.tensor.is_floating_point() or any(one.leaf is leaf for one in known):
            continue
        key = call.numbers.get(leaf.path, trace.known_key(leaf.tensor))
        numbers = compared_with(trace, key) if key is not None else set()
        padding = ended(leaf, numbers) if numbers else None
        if padding is None and isinstance(pads, int) and not masked:
            padding = begun(leaf, {pads})
        found += [padding] if padding is not None else []
    return found


def padded_labels(call: Call) -> list[Padding]:
    """Labels that are sequences of their own, where rows of them end in the pad id: a `transformers` model with a decoder makes its inputs of them."""
    if not getattr(getattr(call.model, "config", None), "is_encoder_decoder", False):
        return []
    labels = [leaf for leaf in call.leaves if batches.is_label(leaf) and leaf.tensor.dim() == 2 and not leaf.tensor.is_floating_point()]
    return [found for leaf in labels if (found := ended(leaf, declared_pad_ids(call.model))) is not None]


def padded_lookups(trace: Trace, lookups: typing.Iterable[LookedUp]) -> tuple[list[Padding], list[Padding]]:
    """Of ids that were looked up, whatever the model calls them: padding at the end of rows, and at the beginning."""
    last, first = [], []
    for one in lookups:
        leaf = Leaf("the ids looked up", (), one.ids)
        numbers = ({one.padding_idx} if one.padding_idx is not None else set()) if one.whole is None else None
        if numbers is not None and one.ids.dim() == 2:
            last += [padding] if numbers and (padding := ended(leaf, numbers)) is not None else []
            first += [padding] if numbers and (padding := begun(leaf, numbers)) is not None else []
    return last, first


def begun(leaf: Leaf, pad_ids: set[int]) -> Padding | None:
    """Rows that begin with a run of a declared pad id."""
    turned = ended(Leaf(leaf.name, leaf.path, leaf.tensor.flip(1)), pad_ids)
    return dataclasses.replace(turned, leaf=leaf, valid=turned.valid.flip(1)) if turned is not None else None


def compared_with(trace: Trace, key: int) -> set[int]:
    """The numbers that tell what is hidden of these ids. (Where a sentence ends is looked for in the same way; that is read, not hidden.)"""
    mine, found = {key}, set()
    for op in trace.ops:
        if not op.ins or op.ins[0].key not in mine:
            continue
        number = op.argument(1, "other")
        if op.name in ARRANGING:
            mine.update(seen.key for seen in op.outs)
        elif op.name in _EQUAL | _UNEQUAL and len(op.ins) == 1 and isinstance(number, int) and not isinstance(number, bool) and _hides(trace, op.outs[0].key):
            found.add(number)
    return found


def _hides(trace: Trace, flags: int) -> bool:
    """Do these flags go into an attention, or fill something, and are no positions looked for with them?"""
    mine, hides = {flags}, False
    for op in trace.ops:
        if not any(seen.key in mine for seen in op.ins):
            continue
        hides = hides or op.name in _HIDING
        if op.name in _FINDING and op.ins[0].dtype is not torch.bool or op.name in ("argmax", "argmin", "nonzero", "cumsum"):
            return False
        if op.name in _TURNING | ARRANGING and all(seen.key in mine or seen.dtype is torch.bool or not seen.size for seen in op.ins):
            mine.update(seen.key for seen in op.outs)
    return hides

"""Padding inside of padding: words of sentences, or of choices, [B, K, L], each of which ends in padding of its own.

The sentences of all samples are taken for rows; those that hold no word at all are left as they are.
"""

from __future__ import annotations

import torch

from torchsleuth.auditor.inputs import batch as batches
from torchsleuth.auditor.inputs.batch import Call, Leaf
from torchsleuth.auditor.inputs.padded import Padding, is_documents


class Words(Padding):
    """`valid` is [B * K, L] of ids [B, K, L]; also where a sentence holds no word."""

    @property
    def empty(self) -> torch.Tensor:
        return (self.leaf.tensor == self.pad_id).all(-1).flatten()

    def like_leaf(self, flags: torch.Tensor) -> torch.Tensor:
        return flags.reshape(self.leaf.tensor.shape)

    def laid(self, tensor: torch.Tensor) -> torch.Tensor | None:
        return tensor.flatten(0, 1) if tensor.shape[:3] == self.leaf.tensor.shape else None

    def named(self, row: int) -> str:
        return f"row {list(divmod(row, self.leaf.tensor.shape[1]))}"


def words_padded(call: Call, pad_ids: set[int]) -> list[Words]:
    return [found for leaf in call.leaves if is_documents(leaf) and (found := _masked(call, leaf) or _ended(leaf, pad_ids)) is not None]


def _masked(call: Call, leaf: Leaf) -> Words | None:
    """Told by a mask of the same shape, whose zeros (or ones) stand at one id only."""
    ids = leaf.values
    for mask in call.leaves:
        if mask is leaf or mask.tensor.shape != ids.shape or not batches.flags_of(mask):
            continue
        for keep in (True, False):
            valid = (mask.values != 0) == keep
            there = ids[~valid].unique()
            if there.numel() == 1 and not bool((ids[valid] == there[0]).any()):
                return _words(leaf, valid, mask, keep, int(there[0]))
    return None


def _ended(leaf: Leaf, pad_ids: set[int]) -> Words | None:
    """Told by the declared pad id, where it stands at the end of rows and nowhere else."""
    for pad in pad_ids:
        at = leaf.values == pad
        if not bool((at[..., 1:] < at[..., :-1]).any()) and _longest(at) >= 2:
            return _words(leaf, ~at, None, True, pad)
    return None


def _longest(at: torch.Tensor) -> int:
    some = at.sum(-1)[~at.all(-1)]
    return int(some.max()) if some.numel() else 0


def _words(leaf: Leaf, valid: torch.Tensor, mask: Leaf | None, keep: bool, pad: int) -> Words | None:
    valid = (valid | ~valid.any(-1, keepdim=True)).flatten(0, 1).to(leaf.tensor.device)
    return Words(leaf, valid, mask, keep, pad_id=pad, axis=2) if not bool(valid.all()) else None

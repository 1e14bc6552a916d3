"""Which positions of a call's sequences are padding, which axis counts the samples, and how that is known.

Everything is decided from the call's own tensors and the model's declarations; where neither says it,
nothing is assumed (or it is marked as assumed, and said).
"""

from __future__ import annotations

import dataclasses
import re
import typing
from dataclasses import dataclass

import torch
from torch import nn

from torchsleuth.auditor.inputs import batch as batches
from torchsleuth.auditor.inputs.batch import Call, Leaf
from torchsleuth.auditor.inputs.heldrows import reordered

_OF_DECODERS = ("decoder_", "dec_", "tgt", "trg")


@dataclass
class Padding:
    """Which positions of a sequence input are padding, and how that is known."""

    leaf: Leaf  # the sequence: token ids [B, L] or features [B, L, F]; with time first [L, B] or [L, B, F]; with channels first [B, C, L], [B, C, F, L]
    valid: torch.Tensor  # bool [B, L]
    mask: Leaf | None  # the mask or lengths that said so
    keep_value: bool = True  # what the mask holds at valid positions
    assumed: bool = False  # told from runs of one id at the end of rows
    pad_id: int | None = None
    suspicious_polarity: bool = False
    axis: int = 1  # of the sequence, along which positions are counted: 0 for data with time first, 2 or more with channels first

    @property
    def right(self) -> bool:
        """Padding only at the end of rows."""
        return bool((self.valid[:, 1:] <= self.valid[:, :-1]).all())

    @property
    def left(self) -> bool:
        """Padding only at the beginning of rows."""
        return bool((self.valid[:, 1:] >= self.valid[:, :-1]).all())

    @property
    def lies_along_columns(self) -> bool:
        """A mask that is laid out as the sequence is, with padding at the end (or at the beginning) of its columns, and not of its rows: time comes first."""
        return self._is_laid_alike and not self.right and not self.left and (_ends(self.valid.T) or _ends(~self.valid.T))

    @property
    def reads_both_ways(self) -> bool:
        """And of both, as where the samples are in the order of their lengths: either axis may count them."""
        return self._is_laid_alike and self.right and _ends(self.valid.T) and not _ends(~self.valid.T)

    @property
    def _is_laid_alike(self) -> bool:
        return self.axis == 1 and self.mask is not None and self.mask.tensor.dim() == 2 and self.mask.tensor.shape == self.valid.shape

    @property
    def real(self) -> str:
        """An expression that is True at real positions, in the model's own names; "" where none is short and sure."""
        told = self.mask
        if told is None:
            return f"{self.leaf.name} != {self.pad_id}" if self.pad_id is not None and self.leaf.name.isidentifier() and self.axis == 1 else ""
        if self.suspicious_polarity or not told.name.isidentifier() or told.tensor.shape != self.valid.shape:
            return ""
        if told.tensor.dtype is torch.bool:
            return told.name if self.keep_value else f"~{told.name}"
        if not bool(((told.values == 0) | (told.values == 1)).all()):
            return ""
        return f"{told.name} != 0" if self.keep_value else f"{told.name} == 0"

    def like_leaf(self, flags: torch.Tensor) -> torch.Tensor:
        """Flags over samples and positions as the sequence itself is laid out."""
        if self.axis > 1:
            between = self.leaf.tensor.shape[1 : self.axis]
            return flags.reshape(flags.shape[0], *[1] * len(between), -1).expand(-1, *between, -1)
        return flags if self.axis == 1 else flags.T

    def laid(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """A tensor that is laid out like the sequence, with the samples along the first axis and the positions along the second; None if it is not."""
        if tensor.dim() <= max(1, self.axis):
            return None
        turned = tensor.transpose(self.axis, 1)
        return turned if turned.shape[:2] == self.valid.shape else None

    @property
    def sample(self) -> str:
        """What a sample is called: where time comes first, it is no row."""
        return "sample" if self.axis == 0 else "row"

    def named(self, row: int) -> str:
        return f"{self.sample} {row}"

    @property
    def padded_rows(self) -> list[int]:
        return (~self.valid).any(1).nonzero().flatten().tolist()


def known_padding(call: Call) -> tuple[list[Padding], set[int]]:
    """The padding of the call's sequences, and the pad ids that the model declares."""
    pad_ids = declared_pad_ids(call.model)
    return paddings(call, pad_ids), pad_ids


def paddings(call: Call, pad_ids: set[int]) -> list[Padding]:
    """Every sequence input for which the call says which positions are padding."""
    asked = frozenset(pad_ids)
    if asked not in call.known:
        leaves = [*batches.sequences(call), *(leaf for leaf in call.leaves if is_documents(leaf))]
        call.known[asked] = [found for leaf in leaves if (found := _padding(call, leaf, pad_ids)) is not None]
        call.known[asked] += [found for leaf in batches.signals(call) if (found := _signal(call, leaf)) is not None]
    return call.known[asked]


def _signal(call: Call, leaf: Leaf) -> Padding | None:
    """The axis along which zeros stand wherever a mask or lengths say that there is padding, and nowhere else."""
    for axis in range(1, leaf.tensor.dim()):
        turned = _turned(leaf, axis)
        for told in (_masked, _measured):
            found = told(call, turned, set())
            if found is not None and _agrees(found) and bool(found.valid.any(1).all()):
                return dataclasses.replace(found, leaf=leaf, axis=axis, valid=found.valid.to(leaf.tensor.device))
    return None


def _padding(call: Call, leaf: Leaf, pad_ids: set[int]) -> Padding | None:
    """Told by a mask, by lengths or by the ids alone; where these say nothing of its rows that its content agrees with, of its columns (time first, or channels first)."""
    others = [] if is_documents(leaf) else [(0, _turned(leaf, 0)), *([(2, _turned(leaf, 2))] if leaf.tensor.dim() == 3 else [])]
    for told in (_masked, _measured, _trailing):
        found = told(call, leaf, pad_ids)
        for axis, turned in others if found is None or not _agrees(found) else []:
            other = told(call, turned, pad_ids)
            if other is not None and _agrees(other):
                found = dataclasses.replace(other, leaf=leaf, axis=axis)
                break
        if found is not None:
            if found.lies_along_columns:
                found = dataclasses.replace(found, valid=found.valid.T, axis=0)
            found.valid = found.valid.to(leaf.tensor.device)
            return found if bool(found.valid.any(1).all()) and not bool(found.valid.all()) else None
    return None


def _turned(leaf: Leaf, axis: int) -> Leaf:
    return Leaf(leaf.name, leaf.path, leaf.tensor.transpose(axis, 1))


def _agrees(padding: Padding) -> bool:
    return is_padding_at(padding.leaf, ~padding.valid)


def _masked(call: Call, leaf: Leaf, pad_ids: set[int]) -> Padding | None:
    shape = tuple(leaf.tensor.shape[:2])
    decoder = leaf.name.startswith(_OF_DECODERS)
    masks = [m for m in call.leaves if (values := batches.mask_values(m)) is not None and tuple(values.shape) == shape and m is not leaf]
    masks = [m for m in masks if m.name.startswith(_OF_DECODERS) == decoder]
    mask = _belonging(call, leaf, masks, lambda m, other: _flags(m).to(other.values.device))
    if mask is None:
        return None
    flags = _flags(mask).to(leaf.values.device)
    keep, suspicious = _keep_value(mask, flags, leaf, pad_ids)
    if keep is None:
        return None
    valid = flags if keep else ~flags
    return Padding(leaf, valid, mask, keep, pad_id=_pad_id(leaf, valid, pad_ids), suspicious_polarity=suspicious)


def _flags(mask: Leaf) -> torch.Tensor:
    values = batches.mask_values(mask)
    assert values is not None
    return values != 0


def _keep_value(mask: Leaf, flags: torch.Tensor, leaf: Leaf, pad_ids: set[int]) -> tuple[bool | None, bool]:
    """What the mask holds at valid positions, and whether that contradicts its name; None where neither says it."""
    if flags.all() or not flags.any():
        return None, False
    name = mask.name.lower()
    by_name: bool | None = None
    if batches.added_to_hide(mask) is not None:
        pass  # zeros keep, whatever it is called
    elif "attention_mask" in name or "valid" in name or "keep" in name:
        by_name = True
    elif "pad" in name:
        by_name = False  # key_padding_mask, padding_mask, is_pad: True where there is padding
    by_content: bool | None = None
    ids = leaf.values if leaf.tensor.dim() == 2 and not leaf.tensor.is_floating_point() else None
    for value in (True, False):
        hidden = flags != value
        if ids is not None:
            values = ids[hidden].unique()
            # One id only where hidden, more than one elsewhere: that one is the padding.
            if values.numel() == 1 and not (ids[~hidden] == values[0]).any() and ids[~hidden].unique().numel() > 1:
                by_content = value
                break
        elif (leaf.values[hidden] == 0).all() and (leaf.values[~hidden] != 0).any():
            by_content = value
            break
    if by_content is None and by_name is None:
        # Sequences begin with words: right padding is the rule where nothing else tells.
        if flags[:, 0].all() and _ends(flags):
            by_content = True
        elif not flags[:, 0].any() and _ends(~flags):
            by_content = False
    if by_content is not None:
        return by_content, by_name is not None and by_name != by_content
    return by_name, False


def _ends(valid: torch.Tensor) -> bool:
    return bool((valid[:, 1:] <= valid[:, :-1]).all())


def _pad_id(leaf: Leaf, valid: torch.Tensor, pad_ids: set[int]) -> int | None:
    if leaf.tensor.is_floating_point():
        return None
    values = leaf.values[~valid].unique()
    return int(values[0]) if values.numel() == 1 else None


def _measured(call: Call, leaf: Leaf, pad_ids: set[int]) -> Padding | None:
    batch, longest = leaf.tensor.shape[:2]
    lengths = [other for other in call.leaves if batches.is_lengths(other, longest) and other.tensor.shape[0] == batch and reordered(other, leaf, pad_ids) is None]
    lengths = lengths or [other for other in call.leaves if batches.could_be_lengths(other, longest) and _fit(other, leaf, _within(other, leaf))[0]]
    if leaf.tensor.dim() == 3 and leaf.tensor.is_floating_point():  # channels first, it seems, where they are lengths of the last axis
        lengths = [one for one in lengths if int(one.values.max()) == longest or int(one.values.max()) > leaf.tensor.shape[2] or is_padding_at(leaf, ~_within(one, leaf))]
    measure = _belonging(call, leaf, lengths, lambda m, other: _within(m, other) if int(m.values.max()) <= other.tensor.shape[1] else None)
    if measure is None:
        return None
    valid = _within(measure, leaf)
    if bool(valid.all()) and bool(pad_ids):
        return None  # no row is shorter, they say; rows that end in the declared pad id say otherwise
    return Padding(leaf, valid, measure, pad_id=_pad_id(leaf, valid, pad_ids))


def idle_lengths(call: Call, padding: Padding) -> Leaf | None:
    """Lengths among the inputs that say the padded width for every row, where padding was told by the ids alone."""
    batch, longest = padding.valid.shape
    if padding.mask is not None:
        return None
    sides = [leaf for leaf in call.leaves if batches.is_lengths(leaf, longest) and leaf.tensor.shape[0] == batch]
    return next((leaf for leaf in sides if bool((leaf.values == longest).all())), None) if len(sides) == 1 else None


def _within(lengths: Leaf, leaf: Leaf) -> torch.Tensor:
    return torch.arange(leaf.tensor.shape[1], device=leaf.values.device)[None, :] < lengths.values.to(leaf.values.device)[:, None]


# -- which mask or lengths belong to which input ---------------------------------------------------

_COMMON_WORDS = {"mask", "masks", "padding", "pad", "key", "attention", "valid", "keep", "ids", "id", "input", "inputs", "token", "tokens", "len",
                 "lens", "length", "lengths", "seq", "seqs", "sequence", "is", "not", "n", "num", "size", "sizes", "batch", "x"}  # fmt: skip


def _belonging(call: Call, leaf: Leaf, sides: list[Leaf], flags: typing.Callable[[Leaf, Leaf], torch.Tensor | None]) -> Leaf | None:
    """The one of these masks (or lengths) that says where this input's padding is: by the pad ids that stand there, or by name.

    None where two say it equally well, or where the only one belongs to another input.
    """
    if not sides:
        return None
    fits = {id(side): _fit(side, leaf, flags(side, leaf)) for side in sides}
    best = max(fits.values())
    chosen = [side for side in sides if fits[id(side)] == best]
    if len(chosen) > 1 and not all(torch.equal(side.values, chosen[0].values) for side in chosen[1:]):
        return None
    side = chosen[0]
    if best == (False, 0):
        others = [other for other in batches.sequences(call) if other is not leaf and other.tensor.shape[0] == leaf.tensor.shape[0]]
        shaped = [other for other in others if side.tensor.dim() < 2 or other.tensor.shape[:2] == _flags(side).shape]
        if any(_fit(side, other, flags(side, other)) > best for other in shaped):
            return None
    return side


def _fit(side: Leaf, leaf: Leaf, flags: torch.Tensor | None) -> tuple[bool, int]:
    """Does the content of the input agree with the flags, and how many words do the names share?"""
    content = flags is not None and flags.shape == leaf.tensor.shape[:2] and any(is_padding_at(leaf, hidden) for hidden in (flags, ~flags))
    return content, sum(any(a.startswith(b) or b.startswith(a) for b in _words(side.name)) for a in _words(leaf.name))


def is_padding_at(leaf: Leaf, hidden: torch.Tensor) -> bool:
    """One id only stands there, and nowhere else; or zeros, with something else everywhere else."""
    if not bool(hidden.any()) or bool(hidden.all()):
        return False
    inside, outside = leaf.values[hidden], leaf.values[~hidden]
    if leaf.tensor.dim() == 2 and leaf.tensor.is_floating_point():
        return not bool(inside.any()) and float((outside != 0).float().mean()) > 0.5  # a wave may be zero now and then
    if leaf.tensor.dim() == 2:
        values = inside.unique()
        return values.numel() == 1 and not bool((outside == values[0]).any())
    return not bool(inside.any()) and bool((outside != 0).flatten(1).any(1).all())


def measured_by(lengths: Leaf, inputs: list[Leaf]) -> Leaf | None:
    """The input that these lengths are of: by name, or the first that is long enough."""
    named = [leaf for leaf in inputs if names_agree(lengths, leaf)]
    enough = [leaf for leaf in inputs if int(lengths.tensor.max()) <= max(leaf.tensor.shape[:2])]
    return next(iter(named or enough or inputs), None)


def names_agree(side: Leaf, leaf: Leaf) -> bool:
    return any(a.startswith(b) or b.startswith(a) for a in _words(leaf.name) for b in _words(side.name))


def _words(name: str) -> set[str]:
    return set(re.findall("[a-z]+|[0-9]+", name.lower())) - _COMMON_WORDS


def is_documents(leaf: Leaf) -> bool:
    """Ids of words of sentences of documents: [B, S, W]."""
    tensor = leaf.tensor
    return tensor.dim() == 3 and not tensor.is_floating_point() and tensor.dtype is not torch.bool and min(tensor.shape) > 1 and not batches.is_label(leaf)


def _trailing_sentences(leaf: Leaf, pad_ids: set[int]) -> Padding | None:
    """Sentences of nothing but the pad id at the end of documents. Other sentences begin with a word, and some end in padding, too."""
    ids = leaf.values
    for pad in pad_ids:
        empty = (ids == pad).all(2)
        inside = (ids == pad) & ~empty[..., None]
        if empty.any() and _ends(~empty) and inside.any() and not (inside[..., 1:] < inside[..., :-1]).any():
            return Padding(leaf, ~empty, None, pad_id=pad)
    return None


def ended(leaf: Leaf, pad_ids: set[int]) -> Padding | None:
    """Rows that end in a run of one of these ids."""
    padding = _trailing(None, leaf, pad_ids)
    return padding if padding is not None and not padding.assumed and bool(padding.valid.any(1).all()) else None


def _trailing(call: Call | None, leaf: Leaf, pad_ids: set[int]) -> Padding | None:
    """Padding told from the ids alone: rows that end in a run of the pad id, which stands nowhere else."""
    ids = leaf.values
    if ids.dim() == 3 and not ids.is_floating_point():
        return _trailing_sentences(leaf, pad_ids)
    if ids.dim() != 2 or ids.shape[1] < 2 or ids.is_complex():
        return None
    declared = [p for p in pad_ids if (ids[:, -1] == p).any()]
    for pad in declared or {0, int(ids[:, -1].mode().values)}:
        ended = ids.flip(1).eq(pad).to(torch.int64).cumprod(1).flip(1).bool()
        runs = ended.sum(1)
        if not runs.any() or ((ids == pad) & ~ended).any() or ended.all(1).any():
            continue
        if not declared:
            # It may be a word: it takes several rows that end in it twice, of several lengths, one of them full, to call it padding.
            distinct = runs.unique().numel()
            if int((runs >= 2).sum()) < 2 or distinct < 3 or not (runs == 0).any():
                continue
        elif int(runs.max()) < 2:
            continue  # a single trailing id may be chance
        return Padding(leaf, ~ended, None, assumed=not declared, pad_id=pad)
    return None


def declared_pad_ids(model: nn.Module) -> set[int]:
    """Pad ids that the model itself names: `padding_idx` of embeddings and the configuration of a `transformers` model."""
    found = set()
    for module in model.modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)) and module.padding_idx is not None:
            found.add(int(module.padding_idx))
    pad = getattr(getattr(model, "config", None), "pad_token_id", None)
    if isinstance(pad, int):
        found.add(pad)
    return found


# -- which axis counts the samples --------------------------------------------------------------


def batch_is_second(call: Call, paddings: list[Padding], targets: list[torch.Tensor]) -> int | None:
    """How many samples the second axis counts, if padding says that it does, or labels: one for each of its entries, and none for each of the first's."""
    if paddings and all(padding.axis == 0 for padding in paddings):
        return paddings[0].valid.shape[0]
    inputs = [leaf.tensor for leaf in call.leaves if leaf.tensor.dim() >= 2 and not batches.is_label(leaf)]
    shapes = {tuple(tensor.shape[:2]) for tensor in inputs if tensor.dim() > 2 or not tensor.is_floating_point()}
    counts = {t.shape[0] for t in targets + [leaf.tensor for leaf in call.leaves if batches.is_label(leaf)] if t.dim() == 1}
    if len(shapes) != 1 or len(counts) != 1:
        return None
    (first, second), count = shapes.pop(), counts.pop()
    return second if count == second != first and first > 1 < second else None  # of one row, the labels of all positions are as many


def batch_is_first(call: Call, paddings: list[Padding], targets: list[torch.Tensor]) -> bool:
    """Does something say that the first axis counts samples? Lengths, masks, or one label for each row."""
    if paddings:
        return any(padding.axis == 1 and not padding.reads_both_ways for padding in paddings) or (
            any(padding.reads_both_ways for padding in paddings) and any(t.dim() == 1 and t.shape[0] == call.batch_size for t in targets))  # fmt: skip
    inputs = [leaf.tensor for leaf in call.leaves if not batches.is_label(leaf) and leaf.tensor.dim() > 1]
    if inputs and all(tensor.shape[0] == tensor.shape[1] for tensor in inputs):
        return False  # as many positions as samples: the labels may be one for each column just as well
    labels = targets + [leaf.tensor for leaf in call.leaves if batches.is_label(leaf)]
    return any(t.dim() == 1 and t.shape[0] == call.batch_size for t in labels)

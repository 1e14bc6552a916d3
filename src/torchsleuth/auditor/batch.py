"""What the inputs of a model call are: names, which axis counts samples, which positions are padding.

Everything is decided from the call's own tensors and the model's declarations; where neither says it,
nothing is assumed (or it is marked as assumed, and said).
"""

from __future__ import annotations

import collections
import functools
import inspect
import re
import typing
from dataclasses import dataclass, field

import torch
from torch import nn

from torchsleuth.auditor.accelerator import at_hand
from torchsleuth.auditor.containers import Attribute, Path, attributes_of, with_tensor

_MASKLIKE = ("mask", "pad", "valid", "keep")
_LABELLIKE = ("label", "target", "tgt_y", "gold", "answer")


@dataclass
class Leaf:
    """One tensor of the call, by the name the model's `forward` gives it."""

    name: str
    path: Path
    tensor: torch.Tensor

    @functools.cached_property
    def values(self) -> torch.Tensor:
        """The tensor to be read, not to be computed with: on the host if it is small."""
        return at_hand(self.tensor)


@dataclass
class Padding:
    """Which positions of a sequence input are padding, and how that is known."""

    leaf: Leaf  # the sequence: token ids [B, L] or features [B, L, F]
    valid: torch.Tensor  # bool [B, L]
    mask: Leaf | None  # the mask or lengths that said so
    keep_value: bool = True  # what the mask holds at valid positions
    assumed: bool = False  # told from a run of equal ids at the end of rows
    pad_id: int | None = None
    suspicious_polarity: bool = False

    @property
    def right(self) -> bool:
        """Padding only at the end of rows."""
        return bool((self.valid[:, 1:] <= self.valid[:, :-1]).all())

    @property
    def padded_rows(self) -> list[int]:
        return (~self.valid).any(1).nonzero().flatten().tolist()


@dataclass
class Call:
    """A model call: positional and keyword arguments, as bound to `forward`."""

    model: nn.Module
    args: tuple
    kwargs: dict
    leaves: list[Leaf] = field(default_factory=list)
    _paddings: dict[frozenset[int], list[Padding]] = field(default_factory=dict)  # answers of `paddings`, which is asked often

    def __post_init__(self) -> None:
        names = _positional_names(self.model, len(self.args))
        for position, value in enumerate(self.args):
            self._collect(value, names[position], (0, position))
        for name, value in self.kwargs.items():
            self._collect(value, name, (1, name))

    def _collect(self, value: typing.Any, name: str, path: Path) -> None:
        if isinstance(value, torch.Tensor):
            if not value.is_sparse and not value.is_nested:
                self.leaves.append(Leaf(name, path, value))
        elif isinstance(value, collections.abc.Mapping):
            for key, item in value.items():
                self._collect(item, str(key), (*path, key))
        elif isinstance(value, (list, tuple)) and len(path) < 6:
            for position, item in enumerate(value):
                self._collect(item, f"{name}[{position}]", (*path, position))
        elif len(path) < 5:
            for attribute, item in attributes_of(value):
                self._collect(item, attribute, (*path, Attribute(attribute)))

    def replaced(self, changes: dict[Path, torch.Tensor]) -> tuple[tuple, dict]:
        """Arguments with some tensors exchanged; everything else is the same object."""
        args, kwargs = list(self.args), dict(self.kwargs)
        for path, tensor in changes.items():
            root: typing.Any = args if path[0] == 0 else kwargs
            root[path[1]] = with_tensor(root[path[1]], path[2:], tensor)
        return tuple(args), kwargs

    def leaf(self, name: str) -> Leaf | None:
        return next((leaf for leaf in self.leaves if leaf.name == name), None)

    @property
    def batch_size(self) -> int | None:
        """The first size that the call's tensors agree on."""
        sizes = [leaf.tensor.shape[0] for leaf in self.leaves if leaf.tensor.dim() >= 1]
        if not sizes:
            return None
        return collections.Counter(sizes).most_common(1)[0][0]


def signature_of(model: nn.Module) -> inspect.Signature:
    """What `forward` takes; raises ValueError or TypeError where nothing says it."""
    schema = getattr(model.forward, "schema", None) if isinstance(model, torch.jit.ScriptModule) else None
    if schema is None:
        return inspect.signature(model.forward)
    return inspect.Signature([
        inspect.Parameter(a.name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None if a.has_default_value() else inspect.Parameter.empty)
        for a in schema.arguments[1:]
    ])  # fmt: skip


def _positional_names(model: nn.Module, count: int) -> list[str]:
    try:
        parameters = list(signature_of(model).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}[{i}]" for i in range(count - len(names))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    names += [f"argument {i}" for i in range(len(names), count)]
    return names[:count]


def is_label(leaf: Leaf) -> bool:
    name = leaf.name.lower()
    return any(word in name for word in _LABELLIKE) or name in ("y", "start_positions", "end_positions")


def looks_like_mask(leaf: Leaf) -> bool:
    tensor = leaf.tensor
    if tensor.dim() != 2 or is_label(leaf) or tensor.numel() == 0:
        return False
    if tensor.dtype is torch.bool:
        return True
    named = any(word in leaf.name.lower() for word in _MASKLIKE)
    if not named:
        return False
    return bool(((leaf.values == 0) | (leaf.values == 1)).all())


def is_lengths(leaf: Leaf, longest: int) -> bool:
    tensor = leaf.tensor
    if tensor.dim() != 1 or tensor.dtype.is_floating_point or tensor.dtype is torch.bool or tensor.numel() == 0:
        return False
    name = leaf.name.lower()
    if not ("len" in name or name in ("n", "sizes", "seq_sizes")):
        return False
    return bool((leaf.values >= 0).all()) and int(leaf.values.max()) <= longest


def sequences(call: Call) -> list[Leaf]:
    """Inputs that look like batches of sequences: integer [B, L] or floating [B, L, F]."""
    found = []
    for leaf in call.leaves:
        if is_label(leaf):
            continue
        tensor = leaf.tensor
        name = leaf.name.lower()
        if tensor.dim() == 2 and not tensor.is_floating_point() and tensor.dtype is not torch.bool:
            if looks_like_mask(leaf) or any(word in name for word in ("position", "token_type", "segment")):
                continue
            found.append(leaf)
        elif tensor.dim() == 3 and tensor.is_floating_point():
            found.append(leaf)
    return found


def paddings(call: Call, pad_ids: set[int]) -> list[Padding]:
    """Every sequence input for which the call says which positions are padding."""
    asked = frozenset(pad_ids)
    if asked not in call._paddings:
        call._paddings[asked] = _paddings(call, pad_ids)
    return call._paddings[asked]


def _paddings(call: Call, pad_ids: set[int]) -> list[Padding]:
    found: list[Padding] = []
    for leaf in [*sequences(call), *(leaf for leaf in call.leaves if _is_documents(leaf))]:
        found_one = _masked(call, leaf, pad_ids) or _measured(call, leaf, pad_ids) or _trailing(leaf, pad_ids)
        if found_one is not None and found_one.valid.any(1).all() and not found_one.valid.all():
            found_one.valid = found_one.valid.to(leaf.tensor.device)
            found.append(found_one)
    return found


def _masked(call: Call, leaf: Leaf, pad_ids: set[int]) -> Padding | None:
    shape = tuple(leaf.tensor.shape[:2])
    decoder = leaf.name.startswith(("decoder_", "tgt"))
    masks = [m for m in call.leaves if looks_like_mask(m) and tuple(m.tensor.shape) == shape and m is not leaf]
    masks = [m for m in masks if m.name.startswith(("decoder_", "tgt")) == decoder]
    mask = _belonging(call, leaf, masks, lambda m, other: (m.values != 0).to(other.values.device))
    if mask is None:
        return None
    flags = (mask.values != 0).to(leaf.values.device)
    keep, suspicious = _keep_value(mask, flags, leaf, pad_ids)
    if keep is None:
        return None
    valid = flags if keep else ~flags
    return Padding(leaf, valid, mask, keep, pad_id=_pad_id(leaf, valid, pad_ids), suspicious_polarity=suspicious)


def _keep_value(mask: Leaf, flags: torch.Tensor, leaf: Leaf, pad_ids: set[int]) -> tuple[bool | None, bool]:
    """What the mask holds at valid positions, and whether that contradicts its name; None where neither says it."""
    if flags.all() or not flags.any():
        return None, False
    name = mask.name.lower()
    by_name: bool | None = None
    if "attention_mask" in name or "valid" in name or "keep" in name:
        by_name = True
    elif "pad" in name:
        by_name = False  # key_padding_mask, padding_mask, is_pad: True where there is padding
    by_content: bool | None = None
    ids = leaf.values if leaf.tensor.dim() == 2 else None
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
    lengths = [other for other in call.leaves if is_lengths(other, longest) and other.tensor.shape[0] == batch]
    if leaf.tensor.dim() == 3 and leaf.tensor.is_floating_point():  # channels first, it seems, where they are lengths of the last axis
        lengths = [one for one in lengths if int(one.values.max()) == longest or int(one.values.max()) > leaf.tensor.shape[2]]
    measure = _belonging(call, leaf, lengths, lambda m, other: _within(m, other) if int(m.values.max()) <= other.tensor.shape[1] else None)
    if measure is None:
        return None
    valid = _within(measure, leaf)
    return Padding(leaf, valid, measure, pad_id=_pad_id(leaf, valid, pad_ids))


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
        others = [other for other in sequences(call) if other is not leaf and other.tensor.shape[0] == leaf.tensor.shape[0]]
        shaped = [other for other in others if side.tensor.dim() != 2 or other.tensor.shape[:2] == side.tensor.shape]
        if any(_fit(side, other, flags(side, other)) > best for other in shaped):
            return None
    return side


def _fit(side: Leaf, leaf: Leaf, flags: torch.Tensor | None) -> tuple[bool, int]:
    """Does the content of the input agree with the flags, and how many words do the names share?"""
    content = flags is not None and flags.shape == leaf.tensor.shape[:2] and any(_is_padding_at(leaf, hidden) for hidden in (flags, ~flags))
    return content, sum(any(a.startswith(b) or b.startswith(a) for b in _words(side.name)) for a in _words(leaf.name))


def _is_padding_at(leaf: Leaf, hidden: torch.Tensor) -> bool:
    """One id only stands there, and nowhere else; or zeros, with something else everywhere else."""
    if not bool(hidden.any()) or bool(hidden.all()):
        return False
    inside, outside = leaf.values[hidden], leaf.values[~hidden]
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


def _is_documents(leaf: Leaf) -> bool:
    """Ids of words of sentences of documents: [B, S, W]."""
    tensor = leaf.tensor
    return tensor.dim() == 3 and not tensor.is_floating_point() and tensor.dtype is not torch.bool and min(tensor.shape) > 1 and not is_label(leaf)


def _trailing_sentences(leaf: Leaf, pad_ids: set[int]) -> Padding | None:
    """Sentences of nothing but the pad id at the end of documents. Other sentences begin with a word, and some end in padding, too."""
    ids = leaf.values
    for pad in pad_ids:
        empty = (ids == pad).all(2)
        inside = (ids == pad) & ~empty[..., None]
        if empty.any() and _ends(~empty) and inside.any() and not (inside[..., 1:] < inside[..., :-1]).any():
            return Padding(leaf, ~empty, None, pad_id=pad)
    return None


def _trailing(leaf: Leaf, pad_ids: set[int]) -> Padding | None:
    """Padding told from the ids alone: rows that end in a run of the pad id, which stands nowhere else."""
    ids = leaf.values
    if ids.dim() == 3 and not ids.is_floating_point():
        return _trailing_sentences(leaf, pad_ids)
    if ids.dim() != 2 or ids.shape[1] < 2:
        return None
    declared = [p for p in pad_ids if (ids[:, -1] == p).any()]
    for pad in declared or [0]:
        ended = ids.flip(1).eq(pad).to(torch.int64).cumprod(1).flip(1).bool()
        runs = ended.sum(1)
        if not runs.any() or ((ids == pad) & ~ended).any() or ended.all(1).any():
            continue
        if not declared:
            # Zero may be a word: it takes several rows that end in it twice, of several lengths, one of them full, to call it padding.
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


def batch_is_second(call: Call, targets: list[torch.Tensor]) -> int | None:
    """How many samples the second axis counts, if labels say that it does: one for each of its entries, and none for each of the first's."""
    inputs = [leaf.tensor for leaf in call.leaves if leaf.tensor.dim() >= 2 and not is_label(leaf)]
    shapes = {tuple(tensor.shape[:2]) for tensor in inputs if tensor.dim() > 2 or not tensor.is_floating_point()}
    counts = {t.shape[0] for t in targets + [leaf.tensor for leaf in call.leaves if is_label(leaf)] if t.dim() == 1}
    if len(shapes) != 1 or len(counts) != 1:
        return None
    (first, second), count = shapes.pop(), counts.pop()
    return second if count == second != first and second > 1 else None


def batch_is_first(call: Call, paddings: list[Padding], targets: list[torch.Tensor]) -> bool:
    """Does something say that the first axis counts samples? Lengths, masks, or one label for each row."""
    if paddings:
        return True
    inputs = [leaf.tensor for leaf in call.leaves if not is_label(leaf) and leaf.tensor.dim() > 1]
    if inputs and all(tensor.shape[0] == tensor.shape[1] for tensor in inputs):
        return False  # as many positions as samples: the labels may be one for each column just as well
    labels = targets + [leaf.tensor for leaf in call.leaves if is_label(leaf)]
    return any(t.dim() == 1 and t.shape[0] == call.batch_size for t in labels)

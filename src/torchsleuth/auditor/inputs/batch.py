"""What the inputs of a model call are: their names, and which of them are sequences, masks, lengths and labels."""

from __future__ import annotations

import collections
import functools
import inspect
import typing
from dataclasses import dataclass, field

import torch
from torch import nn

from torchsleuth.auditor.inputs.containers import Attribute, Path, attributes_of, with_tensor
from torchsleuth.auditor.laboratory.accelerator import at_hand

_MASKLIKE = ("mask", "pad", "valid", "keep")
HIDES = 1e2  # what is added to a score must be larger than that to hide it
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
        return at_hand(self.tensor.detach() if self.tensor.requires_grad else self.tensor)


@dataclass
class Call:
    """A model call: positional and keyword arguments, as bound to `forward`."""

    model: nn.Module
    args: tuple
    kwargs: dict
    leaves: list[Leaf] = field(default_factory=list)
    known: dict[frozenset[int], list] = field(default_factory=dict)  # what `padded.paddings` has found, which is asked often
    numbers: dict[Path, int] = field(default_factory=dict)  # of a copy: by which the trace of the program's own step knows its tensors

    def __post_init__(self) -> None:
        names = _positional_names(self.model, len(self.args))
        for position, value in enumerate(self.args):
            self._collect(value, names[position], (0, position))
        for name, value in self.kwargs.items():
            self._collect(value, name, (1, name))

    def _collect(self, value: typing.Any, name: str, path: Path) -> None:
        if isinstance(value, torch.Tensor):
            if value.layout is torch.strided and not value.is_nested and not value.is_quantized:
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
    return mask_values(leaf) is not None


def mask_values(leaf: Leaf) -> torch.Tensor | None:
    """What a mask says of each sample and position, [B, L]; given as [B, L], [B, 1, L], [B, 1, 1, L] or [B, L, 1]. None if it is no mask.

    Of one that is added to scores: True where it adds nothing.
    """
    tensor = leaf.values
    while tensor.dim() > 2 and 1 in tensor.shape[1:]:
        tensor = tensor.squeeze(1 + tensor.shape[1:].index(1))
    if tensor.dim() != 2 or is_label(leaf) or tensor.numel() == 0:
        return None
    if tensor.dtype is not torch.bool and added_to_hide(leaf) is not None:
        return tensor == 0
    return tensor if flags_of(leaf) else None


def flags_of(leaf: Leaf) -> bool:
    """Flags, or zeros and ones that are called what masks are called."""
    if leaf.tensor.dtype is torch.bool:
        return True
    return any(word in leaf.name.lower() for word in _MASKLIKE) and bool(((leaf.values == 0) | (leaf.values == 1)).all())


def added_to_hide(leaf: Leaf) -> float | None:
    """The large negative number that a mask of zeros and that number adds to scores; None if it is another kind of mask, or none."""
    lowest = float(leaf.values.detach().min()) if leaf.tensor.is_floating_point() and leaf.tensor.numel() else 0.0
    return lowest if lowest < -HIDES and bool(((leaf.values == 0) | (leaf.values == lowest)).all()) else None


def is_lengths(leaf: Leaf, longest: int) -> bool:
    name = leaf.name.lower()
    return ("len" in name or name in ("n", "sizes", "seq_sizes")) and could_be_lengths(leaf, longest)


def could_be_lengths(leaf: Leaf, longest: int) -> bool:
    """One whole number for each sample, none larger than a sequence is long. What it is called may be anything (`frames`, `count`): then content must agree."""
    tensor = leaf.tensor
    if tensor.dim() != 1 or tensor.dtype.is_floating_point or tensor.dtype is torch.bool or tensor.numel() == 0 or is_label(leaf):
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
        elif tensor.dim() == 3 and tensor.is_floating_point() and not looks_like_mask(leaf):
            found.append(leaf)
    return found


def signals(call: Call) -> list[Leaf]:
    """Other inputs that may have positions along an axis, of which only their content can tell: waves [B, T], spectrograms [B, C, F, T], films [B, T, C, H, W]."""
    return [
        leaf for leaf in call.leaves
        if leaf.tensor.is_floating_point() and leaf.tensor.dim() in (2, 4, 5) and not is_label(leaf) and not looks_like_mask(leaf)
    ]  # fmt: skip

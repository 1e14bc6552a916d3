"""What a layer takes: the parameter that has the size of its input, the argument of its constructor that says so, and what that was computed from."""

from __future__ import annotations

import typing

import torch

from torchsleuth.capture.reckoning import Agreed
from torchsleuth.capture.trails import mark_of
from torchsleuth.evidence_forward import Made, Operand, SizeOrigin

if typing.TYPE_CHECKING:
    from torchsleuth.capture.origins import Origins


class Intake(typing.NamedTuple):
    """The constructor has the size first, by whatever name."""

    parameter: torch.Tensor
    size: int
    axis: int  # of the input
    keyword: str


def intake(module: torch.nn.Module | None, rank: int) -> Intake | None:
    """For an input of so many dimensions."""
    if isinstance(module, torch.nn.Linear):
        return Intake(module.weight, module.in_features, -1, "in_features")
    if isinstance(module, (torch.nn.RNNBase, torch.nn.RNNCellBase)):
        weight = getattr(module, "weight_ih_l0", None) if isinstance(module, torch.nn.RNNBase) else module.weight_ih
        return Intake(weight, module.input_size, -1, "input_size") if isinstance(weight, torch.Tensor) else None
    if isinstance(module, torch.nn.modules.conv._ConvNd) and module.groups == 1:
        return Intake(module.weight, module.in_channels, rank - len(module.kernel_size) - 1, "in_channels")
    if isinstance(module, torch.nn.LayerNorm) and module.weight is not None and len(module.normalized_shape) == 1:
        return Intake(module.weight, module.normalized_shape[-1], -1, "normalized_shape")
    if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and module.weight is not None:
        return Intake(module.weight, module.num_features, 1, "num_features")
    return None


class ComputedFrom(typing.NamedTuple):
    """For a layer behind a flattened feature map, or behind tensors that were joined: what the size of its input was computed from."""

    numbers: tuple[Made, ...] = ()
    not_counted: tuple[SizeOrigin, ...] = ()  # those of the tensors whose sizes are not in that sum
    fitting: int | None = None  # the size of the model's input that fits in place of the one number


def computed_from(origins: Origins, module: torch.nn.Module | None, operands: list[Operand]) -> ComputedFrom:
    given = operands[0] if operands else None
    takes = intake(module, len(given.shape)) if given is not None else None
    if given is None or takes is None or not -len(given.shape) <= takes.axis < len(given.shape) or given.shape[takes.axis] == takes.size:
        return ComputedFrom()
    mark, terms = mark_of(takes.parameter), given.terms_of(takes.axis)
    if mark is None:
        return ComputedFrom()
    of_input = tuple(origin.size for origin in given.input_sizes if origin.axis > 1)  # neither the samples nor the channels
    agreed = Agreed(tuple(part.size for part in given.parts_of(takes.axis)), tuple(term.size for term in terms), given.shape[takes.axis], of_input)
    found, left, fitting = origins.constants_behind(mark, takes.size, takes.keyword, agreed)
    return ComputedFrom(tuple(found), tuple(term for term in terms if term.size in left), fitting)

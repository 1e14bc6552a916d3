"""Padding before the words: does a part of the model count positions from the first column, because it was not given them?

A row is run alone, with its padding and without. Where that makes a difference, and none once `position_ids` are
given that begin with the first word, they are what is missing.
"""

from __future__ import annotations

import contextlib
import inspect
import typing
from collections.abc import Iterator

import torch
from torch import nn

from torchsleuth.auditor.compare import output_leaves
from torchsleuth.auditor.lab import Lab
from torchsleuth.auditor.observation import Move
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.padded import Padding
from torchsleuth.auditor.padding import row_alone
from torchsleuth.auditor.sites import place_of_module_call, site_of

_NAME = "position_ids"


def position_moves(lab: Lab, padding: Padding) -> list[Move]:
    takers = [module for module in lab.runner.modules if _takes_positions(module)] if padding.axis == 1 and padding.mask is not None and padding.left else []
    lengths = padding.valid.sum(1)
    row, count = int(lengths.argmin()), int(lengths.min())
    if not takers or count < 2:
        return []
    first = padding.valid.shape[1] - count
    single, cut = row_alone(lab, padding, row, first, count)
    positions = torch.arange(-first, count, device=padding.leaf.tensor.device).clamp(min=0)[None]
    sites: list[Site | None] = []
    try:
        with _watched(lab.runner.model, takers, sites, None):
            counted = lab.runner.run(*lab.call.replaced(single), mode="eval", changed=True)
        without = lab.runner.run(*lab.call.replaced(cut), mode="eval", changed=True) if sites else None
        gaps = _gaps(counted, without, first) if sites else {}
        name = next((name for name, (gap, most) in gaps.items() if gap > _least(lab, most)), None)
        if name is None:
            return []
        with _watched(lab.runner.model, takers, [], positions):
            gap, most = _gaps(lab.runner.run(*lab.call.replaced(single), mode="eval", changed=True), without, first)[name]
    except Exception:
        return []  # it takes other positions, or none
    if gap > _least(lab, most):
        return []  # it is something else
    changed = f"Running row {row} alone, without the {first} padded tokens before its words,"
    return [Move("padding-positions", changed, f"`{name}` at its {count} words", gaps[name][0], max(gap, 1e-12), site=lab.called if sites[0] is None else sites[0],
                 mask_name=padding.mask.name if padding.mask is not None else "", sequence=padding.leaf.name, not_given=_NAME)]  # fmt: skip


def _least(lab: Lab, most: float) -> float:
    return max(lab.floor, 1e-4 * most)


def _takes_positions(module: nn.Module) -> bool:
    try:
        parameter = inspect.signature(module.forward).parameters.get(_NAME)
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.default is None


def _gaps(padded: typing.Any, bare: typing.Any, first: int) -> dict[str, tuple[float, float]]:
    """By how much each result differs at the words, and how large it is."""
    found = {}
    for (name, one), (_, two) in zip(output_leaves(padded), output_leaves(bare), strict=False):
        one = one[:, first:] if one.dim() > 1 and one.shape != two.shape else one
        if one.shape == two.shape and one.is_floating_point() and one.dim() and one.numel():
            found[name] = (float((one - two).abs().max()), float(two.abs().max()))
    return found


@contextlib.contextmanager
def _watched(model: nn.Module, takers: list[nn.Module], sites: list[Site | None], positions: torch.Tensor | None) -> Iterator[None]:
    """Notes where a part of the model was called that takes positions and was given none (None for the model itself), and gives it these."""

    def enter(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        if inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments.get(_NAME) is not None:
            return None
        place = place_of_module_call(2)
        sites.append(site_of(place) if module is not model and place.code is place.user_code else None)
        return None if positions is None else (args, {**kwargs, _NAME: positions})

    handles = [module.register_forward_pre_hook(enter, with_kwargs=True) for module in takers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()

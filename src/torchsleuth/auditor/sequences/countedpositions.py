"""Padding before the words: does the model count positions from the first column, by itself or because it was not given them?

A row is run alone, with its padding and without. Where that makes a difference, and none once positions begin with the first
word (`position_ids` are given, or what the model adds for its own is moved on), they are what is wrong.
"""

from __future__ import annotations

import contextlib
import inspect
import typing
from collections.abc import Iterator

import torch
from torch import nn

from torchsleuth.auditor.inputs.padded import Padding
from torchsleuth.auditor.laboratory.compare import output_leaves
from torchsleuth.auditor.laboratory.lab import Lab
from torchsleuth.auditor.observation import Move
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.sequences.padding import row_alone
from torchsleuth.auditor.tracing.sites import place_of_module_call, site_of
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Trace

_NAME = "position_ids"


def position_moves(lab: Lab, padding: Padding) -> list[Move]:
    return _not_given(lab, padding) or _counted(lab, padding)


def _not_given(lab: Lab, padding: Padding) -> list[Move]:
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


def _counted(lab: Lab, padding: Padding) -> list[Move]:
    """A model that counts positions of its own: the expression that counts them."""
    own = own_positions(lab, padding) if padding.axis == 1 and padding.left else None
    lengths = padding.valid.sum(1)
    row, count = int(lengths.argmin()), int(lengths.min())
    first = padding.valid.shape[1] - count
    if own is None or count < 2 or own.place.user_code is None or int(lengths.max()) < first + count:
        return []  # where no row is as wide as the batch, it is a width that was settled on
    single, cut = row_alone(lab, padding, row, first, count)

    def moved_on(op: Op, args: tuple, kwargs: dict, result: typing.Any) -> typing.Any:
        axis = _axis_of(result, first + count) if _same_place(op, own) and isinstance(result, torch.Tensor) else None
        if axis is None:
            return result
        return torch.cat([result.narrow(axis, 0, first), result.narrow(axis, 0, count)], axis)

    try:
        counted, without = (lab.runner.run(*lab.call.replaced(changes), mode="eval", changed=True) for changes in (single, cut))
        gaps = _gaps(counted, without, first)
        name = next((name for name, (gap, most) in gaps.items() if gap > _least(lab, most)), None)
        if name is None:
            return []
        again = lab.runner.run(*lab.call.replaced(single), trace=Trace(change=moved_on), mode="eval", changed=True)
        gap, most = _gaps(again, without, first)[name]
    except Exception:
        return []
    if gap > _least(lab, most):
        return []  # it is something else
    index = lab.trace.maker(own.ins[0]) if own.name == "embedding" else None
    while index is not None and index.ins and index.name in ARRANGING:
        index = lab.trace.maker(index.ins[0])
    changed = f"Running row {row} alone, without the {first} padded tokens before its words,"
    where = f"`{name}` at its {count} words" if dict(output_leaves(counted))[name].shape != dict(output_leaves(without))[name].shape else f"`{name}`"
    return [Move("padding-positions", changed, where, gaps[name][0], max(gap, 1e-12), site=lab.site(lab.trace, index or own),
                 mask_name=padding.mask.name if padding.mask is not None else "", sequence=padding.leaf.name, pad_id=padding.pad_id)]  # fmt: skip


def own_positions(lab: Lab, padding: Padding) -> Op | None:
    """The call that makes what the model adds to its tokens by their column alone: looked up, cut from a table, or computed.

    Not where the table has no more columns than the batch: then rows are always that wide, and a column is as good as a position.
    """
    trace, length = lab.trace, padding.valid.shape[1]
    given = [key for leaf in lab.call.leaves if (key := trace.known_key(leaf.tensor)) is not None]
    of_data = set(given)
    for op in trace.ops:
        mine = [seen for seen in op.ins if seen.key in of_data]
        for seen in op.ins if mine and op.name in ("add", "__add__", "add_", "__iadd__") else ():
            made = trace.maker(seen)
            if seen.key in of_data or len(seen.size) < 2 or seen.size[-2] != length or seen.size[-1] < 2 or made is None:
                continue
            while made is not None and made.name in ARRANGING - {"__getitem__", "narrow"} and made.ins:
                made = trace.maker(made.ins[0])
            if made is None or (made.name == "embedding" and made.ins[1].size[0] <= length + 1):
                continue
            if made.name in ("__getitem__", "narrow") and made.ins and max(made.ins[0].size[:-1], default=0) <= length + 1:
                continue
            return made
        if mine:
            of_data.update(seen.key for seen in op.outs)
    return None


def _same_place(one: Op, two: Op) -> bool:
    return one.name == two.name and (one.place.user_code, one.place.user_offset) == (two.place.user_code, two.place.user_offset)


def _axis_of(result: torch.Tensor, length: int) -> int | None:
    return next((axis for axis in range(max(0, result.dim() - 2), result.dim() - 1) if result.shape[axis] == length), None)


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

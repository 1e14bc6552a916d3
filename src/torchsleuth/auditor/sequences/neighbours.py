"""Do the masks or lengths of other samples count? A copy of one sample, with its mask, is put in the place of another: all others must stay as they are."""

from __future__ import annotations

import torch

from torchsleuth.auditor.laboratory.compare import May, first_difference
from torchsleuth.auditor.laboratory.firstmoved import first_moved
from torchsleuth.auditor.laboratory.lab import Lab
from torchsleuth.auditor.observation import Move
from torchsleuth.auditor.samples.together import in_groups, told_to_each
from torchsleuth.auditor.sequences.masks import applied_astray
from torchsleuth.auditor.tracing.trace import Trace


def neighbour_moves(lab: Lab) -> list[Move]:
    """Made in eval mode: other lengths draw other random numbers. The longest stay as long as they are, so that nothing is cut to another width."""
    padding = next((one for one in lab.paddings if one.mask is not None and one.axis == 1), None)
    if padding is None or padding.mask is None:
        return []
    lengths = padding.valid.sum(1)
    size, taken = len(lengths), int(lengths.argmin())
    others = [row for row in range(size) if row != taken and lengths[row] != lengths[taken]]
    if not others:
        return []
    copied = others[0]
    order = torch.arange(size, device=padding.leaf.tensor.device)
    order[taken] = copied
    changes = {leaf.path: leaf.tensor[order.to(leaf.tensor.device)] for leaf in lab.call.leaves if leaf.tensor.dim() and leaf.tensor.shape[0] == size}
    args, kwargs = lab.call.replaced(changes)
    base = lab.base if not lab.runner.model.training else lab.runner.calm(lab.call.args, lab.call.kwargs)
    result = lab.runner.run(args, kwargs, mode="eval", changed=True)
    may = May(torch.arange(size, device=order.device) == taken)
    difference = first_difference(base, result, may, scalars=False, floor=lab.floor, needs_batch=True)
    if difference is None or size not in difference.first.shape:
        return []
    first, second = Trace(keep=True), Trace(keep=True)
    again = lab.runner.run(lab.call.args, lab.call.kwargs, trace=first, mode="eval")
    lab.runner.run(args, kwargs, trace=second, mode="eval", changed=True)
    found = first_moved(first, second, again, difference.position, may)
    if found is None or found.chosen or in_groups(first, found.op, size) or told_to_each(first, found.op):
        return []
    moved = difference.flags.movedim(difference.first.shape.index(size), 0).reshape(size, -1).any(1)
    row = int((moved & ~may.table.to(moved.device)).int().argmax())
    changed = f"Putting a copy of sample {copied}, with its `{padding.mask.name}`, in the place of sample {taken}"
    move = lab.move("mixing", changed, f"`{difference.name}` of sample {row}", difference, found, first, mask_name=padding.mask.name, **applied_astray(padding, first, found.op))
    return [move]

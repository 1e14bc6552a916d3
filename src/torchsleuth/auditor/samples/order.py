"""Does a sample's place in the batch count? Exchange two samples: their outputs must be exchanged, and no more.

Only tried where the model lays something of its own (a table of positions, say) along an axis as long as the batch.
"""

from __future__ import annotations

import torch

from torchsleuth.auditor.inputs.batch import Leaf
from torchsleuth.auditor.laboratory.compare import distance, moved_flags, output_leaves
from torchsleuth.auditor.laboratory.lab import Lab
from torchsleuth.auditor.losses.broadcasting import ELEMENTWISE
from torchsleuth.auditor.observation import Move
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Seen


def order_moves(lab: Lab) -> list[Move]:
    size = lab.call.batch_size
    if size is None or size < 2:
        return []
    suspects = _laid_along(lab, size)
    leaves = [leaf for leaf in lab.call.leaves if leaf.tensor.dim() >= 1 and leaf.tensor.shape[0] == size]
    if not suspects or not leaves or any(size in leaf.tensor.shape[1:2] and leaf.tensor.shape[0] != size for leaf in lab.call.leaves):
        return []
    order = torch.arange(size, device="cpu")
    order[0], order[1] = 1, 0
    base = lab.runner.calm(lab.call.args, lab.call.kwargs)  # without dropout: its random numbers belong to places, not to samples
    args, kwargs = lab.call.replaced({leaf.path: leaf.tensor[order.to(leaf.tensor.device)] for leaf in leaves})
    result = lab.runner.run(args, kwargs, mode="eval")
    for (name, one), (_, two) in zip(output_leaves(base), output_leaves(result), strict=False):
        if one.dim() == 0 or one.shape != two.shape or one.shape[0] != size:
            continue
        flags, allowed = _least(one, two, order, size, lab.floor)
        if not flags.any():
            continue
        again = lab.runner.run(lab.call.args, lab.call.kwargs, mode="eval", seed=1)
        if any(bool(moved_flags(a, b, lab.floor)[0].any()) for (_, a), (_, b) in zip(output_leaves(base), output_leaves(again), strict=False)):
            return []  # random numbers count in eval mode too: they belong to places by design
        op = suspects[0]
        names = ", ".join(f"`{leaf.name}`" for leaf in leaves if not _is_side(leaf))
        gap = distance(one[order.to(one.device)], two, flags)
        sides = " and ".join(str(list(seen.size)) for seen in op.ins[:2])
        return [
            Move("order", f"Exchanging samples 0 and 1 of {names}", f"`{name}` of the same samples", gap, max(allowed, 1e-12),
                 operation=op.name, operation_shape=op.outs[0].size if op.outs else (), site=lab.trace.site(op), intent=sides)
        ]  # fmt: skip
    return []


def _laid_along(lab: Lab, size: int) -> list[Op]:
    """Element by element calls of something made of inputs with something made of none, both as long as the batch on the first axis."""
    data = {key for leaf in lab.call.leaves if (key := lab.trace.known_key(leaf.tensor)) is not None}
    found = []
    for op in lab.trace.ops:
        if op.name not in ELEMENTWISE or len(op.ins) < 2:
            continue
        sides = op.ins[:2]
        if not any(side.size[:1] == (size,) for side in sides) or len({len(side.size) for side in sides}) != 1 or not sides[0].size:
            continue
        if any(side.size[0] != size for side in sides):
            continue
        fed = [bool(lab.trace.ancestors({side.key}) & data) for side in sides]
        if fed[0] != fed[1] and lab.trace.site(op) is not None and _cut_to_size(lab, sides[fed[0]], size):
            found.append(op)
    return found


def _cut_to_size(lab: Lab, seen: Seen, size: int) -> bool:
    """A longer table, of which as many rows were taken as there are samples. One of just that length is meant for what the first axis counts."""
    return any(
        op.name == "embedding" or (op.ins and op.ins[0].size[:1] > (size,))
        for op in lab.trace.made_through(seen, ARRANGING | ELEMENTWISE)
        if op.outs and op.outs[0].size[:1] == (size,)
    )


def _least(one: torch.Tensor, two: torch.Tensor, order: torch.Tensor, size: int, floor: float) -> tuple[torch.Tensor, float]:
    """What moved, with the samples put back: along the first axis, or along all axes as long as the batch (similarities)."""
    best: tuple[torch.Tensor, float] | None = None
    index = order.to(one.device)
    axes = [axis for axis, n in enumerate(one.shape) if n == size]
    for chosen in ([0], axes):
        turned = one
        for axis in chosen:
            turned = turned.index_select(axis, index)
        flags, allowed = moved_flags(turned, two, floor)
        if best is None or int(flags.sum()) < int(best[0].sum()):
            best = (flags, allowed)
    assert best is not None
    return best


def _is_side(leaf: Leaf) -> bool:
    return any(word in leaf.name.lower() for word in ("mask", "len", "label"))



"""Samples that a model looks at together on purpose: in groups, as a statistic of the batch told to each of them, or as a set beside them."""

from __future__ import annotations

import math

import torch
from torch import nn

from torchsleuth.auditor.inputs.batch import Leaf
from torchsleuth.auditor.laboratory.compare import May, first_difference, moved_flags, output_leaves
from torchsleuth.auditor.laboratory.lab import Lab
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Seen, Trace

_PARTING = {"view", "reshape", "unflatten"}
_TELLING = ARRANGING | {"repeat", "tile", "broadcast_to", "repeat_interleave"}
_BESIDE = {"cat", "concat", "concatenate", "hstack"}

_PICKING = {"__getitem__", "index_select", "gather", "embedding"}
_PRODUCTS = ("mm", "matmul", "matmul__", "einsum")
_EXTREMES = {"max", "amax", "min", "amin", "aminmax", "quantile", "norm"}
_ROUNDING = {"round", "round_", "floor", "floor_", "fake_quantize_per_tensor_affine", "quantize_per_tensor"}
_QUANTISING = ("torch.ao.quantization.", "torchao.quantization.")


def in_groups(trace: Trace, op: Op, size: int) -> bool:
    """The program has parted the axis of the samples into groups of so many each (an episode's classes, pairs of views), which it then puts together."""
    return _parts(op, size) or any(_parts(made, size) for seen in op.ins for made in trace.made_through(seen, ARRANGING | {"sub", "square", "pow"}))


def _parts(op: Op, size: int) -> bool:
    if op.name not in _PARTING or not op.ins or not op.outs:
        return False
    before, after = op.ins[0].size, op.outs[0].size
    return any(
        math.prod(after[axis : axis + 2]) == size and 1 not in after[axis : axis + 2] and before[:axis] == after[:axis] and before[axis] == size
        for axis in range(min(len(before), len(after) - 1))
    )


def told_to_each(trace: Trace, op: Op) -> bool:
    """All that comes of this operation is one number for the whole batch, which is laid beside each sample's own features (as a GAN's critic is told the spread).

    A mistaken axis leaves the other axes as they are; and what is subtracted or multiplied takes the place of the samples' own values.
    """
    on_the_way, told, beside = {seen.key for seen in op.outs if math.prod(seen.size) > 1}, set[int](), False
    told.update(seen.key for seen in op.outs if math.prod(seen.size) == 1)
    last: tuple[Seen, ...] = op.outs
    for later in trace.ops[op.index + 1 :]:
        if any(seen.key in told for seen in later.ins):
            if later.name in _BESIDE:
                beside = True
            elif later.name in _TELLING or all(math.prod(seen.size) == 1 for seen in later.outs):
                told.update(seen.key for seen in later.outs)
            else:
                return False
        if any(seen.key in on_the_way for seen in later.ins):
            for seen in later.outs:
                (told if math.prod(seen.size) == 1 else on_the_way).add(seen.key)
        last = later.outs or last
    return beside and not any(seen.key in on_the_way for seen in last)


def each_with_each(trace: Trace, op: Op, size: int) -> bool:
    """What this takes together is a table that compares each sample's features with each other one's (a critic that is shown how alike they are).

    One tensor of features was given an axis on either side, on purpose; of features for each position that would be an axis mistaken for another.
    """
    table = next((seen for seen in op.ins if seen.size.count(size) > 1), None)
    while table is not None and (made := trace.maker(table)) is not None:
        table = next((seen for seen in made.ins if seen.size.count(size) > 1), None)
        if table is None:
            sides = [seen for seen in made.ins if size in seen.size]
            stretched = made.name == "cdist" or [seen.size[:2] for seen in sides] in ([(1, size), (size, 1)], [(size, 1), (1, size)])
            return len(sides) == 2 and stretched and bool(set.intersection(*(_features(trace, seen, size) for seen in sides)))
    return False


def _features(trace: Trace, seen: Seen, size: int) -> set[int]:
    """The tensors of one row for each sample that this one only rearranges, or is."""
    before = [seen, *(made.ins[0] for made in trace.made_through(seen, ARRANGING) if made.name in ARRANGING and made.ins)]
    return {one.key for one in before if len(one.size) == 2 and one.size[0] == size}


def sets_a_range(trace: Trace, op: Op) -> bool:
    """The largest of all values, which something is then rounded by: the range of a quantisation."""
    if op.name not in _EXTREMES or not op.outs or math.prod(op.outs[0].size) != 1:
        return False
    derived = trace.descendants({seen.key for seen in op.outs})
    return any(later.name in _ROUNDING and any(seen.key in derived for seen in later.ins) for later in trace.ops[op.index :])


def observes_ranges(model: nn.Module, op: Op | None) -> bool:
    """Modules that watch the range of what passes, to quantise by it, made this (or it was seen nowhere)."""
    watching = [path for path, module in model.named_modules() if type(module).__module__.startswith(_QUANTISING)]
    return any(op is None or op.module == path or op.module.startswith(path + ".") for path in watching)


def linked_by_table(lab: Lab, trace: Trace, op: Op, size: int) -> bool:
    """What is made of an input is multiplied by a table that says of each two rows how they are linked, and that is neither learned nor made of it: a graph.

    Or rows are picked by the numbers of a table among the inputs: several neighbours for each.
    """
    if op.name in _PICKING and op.ins and op.ins[0].size[:1] == (size,):
        tables = {key for leaf in lab.call.leaves if _counts_rows(leaf, size) and (key := trace.known_key(leaf.tensor)) is not None}
        return any(tables & {seen.key, *(back.ins[0].key for back in trace.made_through(seen, ARRANGING) if back.ins)} for seen in op.ins[1:])
    if not op.name.endswith(_PRODUCTS) or len(op.ins) < 2 or op.ins[0].size[-2:] != (size, size):
        return False
    given = {key for leaf in lab.call.leaves if (key := trace.known_key(leaf.tensor)) is not None}
    table, rows = (trace.ancestors({seen.key}) for seen in op.ins[:2])
    return not table & set(trace.parameters) and not table & rows & given and bool(rows & given)


def _counts_rows(leaf: Leaf, size: int) -> bool:
    tensor = leaf.tensor
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool or tensor.shape == (size,) or not tensor.numel():
        return False
    return -1 <= int(leaf.values.min()) and int(leaf.values.max()) < size


def a_set_beside(lab: Lab, leaves: list[Leaf], may: May, row: int) -> bool:
    """One input's rows are the samples; another has as many rows, all of which count for each of them, and two of which can be exchanged: a support set."""
    size, alone = may.batch, {}
    for leaf in leaves:
        where = torch.zeros(leaf.tensor.shape, dtype=torch.bool, device=leaf.tensor.device)
        where[row] = True
        result, _ = lab.run([(leaf, where)])
        if not _moves(lab, result):
            return False
        alone[leaf.path] = first_difference(lab.base, result, may, scalars=False, floor=lab.floor, needs_batch=True) is None
    mixed = [leaf for leaf in leaves if not alone[leaf.path]]
    return 0 < len(mixed) < len(leaves) and all(any(_exchangeable(lab, leaf, row, other, size) for other in (1, size // 2, size - 1)) for leaf in mixed)


def _exchangeable(lab: Lab, leaf: Leaf, row: int, other: int, size: int) -> bool:
    order = torch.arange(size, device=leaf.tensor.device)
    order[row], order[other] = other, row
    if row == other or torch.equal(leaf.tensor[order], leaf.tensor):
        return False
    args, kwargs = lab.call.replaced({leaf.path: leaf.tensor[order]})
    return not _moves(lab, lab.runner.run(args, kwargs, mode=lab.mode, changed=True))


def _moves(lab: Lab, result: object) -> bool:
    pairs = zip(output_leaves(lab.base), output_leaves(result), strict=False)
    return any(one.shape != two.shape or bool(moved_flags(one, two, lab.floor)[0].any()) for (_, one), (_, two) in pairs)

"""Do other samples count? The paired runs for independence of the batch."""

from __future__ import annotations

import dataclasses
import re
import typing

import torch
from torch import nn

from torchsleuth.auditor.inputs import batch as batches
from torchsleuth.auditor.inputs.batch import Call, Leaf
from torchsleuth.auditor.laboratory.compare import Difference, May, first_difference, moved_flags, output_leaves
from torchsleuth.auditor.laboratory.firstmoved import Found, first_moved, value_of
from torchsleuth.auditor.laboratory.lab import Lab
from torchsleuth.auditor.laboratory.runner import BATCH_NORMS
from torchsleuth.auditor.losses.broadcasting import ELEMENTWISE
from torchsleuth.auditor.observation import Move
from torchsleuth.auditor.samples.rearranging import keeps_samples_apart, meant
from torchsleuth.auditor.samples.together import a_set_beside, each_with_each, in_groups, linked_by_table, observes_ranges, sets_a_range, told_to_each
from torchsleuth.auditor.tracing.construction import built
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Trace

_SEQUENCE_OPERATIONS = {"lstm", "gru", "rnn_tanh", "rnn_relu", "conv1d", "multi_head_attention_forward",
                        "scaled_dot_product_attention", "fft"}  # fmt: skip
_ATTENDING = {"multi_head_attention_forward", "scaled_dot_product_attention", "softmax", "matmul", "bmm", "einsum", "__matmul__"}
FAINT, LOUD = 1 / 64, 30.0  # a movement below the usual threshold that is looked at again, and how much louder
_GRAPH_WORDS = {"edge", "edges", "adj", "adjs", "adjacency", "graph", "graphs", "neighbor", "neighbors", "neighbour", "neighbours",
                "nbr", "nbrs", "senders", "receivers", "laplacian"}  # fmt: skip
_STATISTICS = {"mean", "var", "std", "var_mean", "std_mean", "batch_norm", "sum"}


def mixing_moves(lab: Lab, evidence: bool, second: int | None = None) -> tuple[list[Move], str]:
    """Change one sample; the others may not move. Also a remark where movement is by design.

    `evidence`: something says that the first axis counts the samples. `second`: something says that the second does, and how many.
    """
    lab.anyhow = True
    try:
        return _mixing_moves(lab, evidence) if second is None else _mixing_moves(lab, True, 1, second)
    finally:
        lab.loudness, lab.anyhow = 1.0, False


def _mixing_moves(lab: Lab, evidence: bool, axis: int = 0, size: int | None = None) -> tuple[list[Move], str]:
    size = lab.call.batch_size if size is None else size
    if size is None or size < 2:
        return [], "batch mixing was not tested: the batch holds one sample" if size == 1 else ""
    leaves = [leaf for leaf in lab.call.leaves if _is_content(leaf, lab) and leaf.tensor.dim() > axis and leaf.tensor.shape[axis] == size]
    if not leaves or _is_graph(lab.call, size):
        return [], "batch mixing was not tested: the inputs describe a graph" if leaves else ""
    # Where samples are put in another order, one of them may stand where it stood: then a second one is tried.
    for row in (0, size // 2) if any(_recombines(op, size) for op in lab.trace.ops) else (0,):
        only = torch.zeros(size, dtype=torch.bool, device=leaves[0].tensor.device)
        only[row] = True
        may = May(only)
        change = [(leaf, _rows(leaf.tensor, row, axis)) for leaf in leaves]
        result, _ = lab.run(change)
        difference = first_difference(lab.base, result, may, scalars=False, floor=lab.floor, needs_batch=True)
        # The others' sums are of the same numbers as before: they should not move by a bit. If it is more than rounding, it grows. And the
        # largest of all samples' values may be another one's, and stay so if this one's change a little.
        faint = difference is None and first_difference(lab.base, result, may, scalars=False, floor=lab.floor, needs_batch=True, patience=FAINT) is not None
        if faint or difference is None and any(_extreme_of_all(op, size) for op in lab.trace.ops):
            lab.loudness = LOUD
            result, _ = lab.run(change)
            difference = first_difference(lab.base, result, may, scalars=False, floor=lab.floor, needs_batch=True)
        if difference is not None:
            break
    if difference is None or size not in difference.first.shape:
        unheard = _unheard(lab, leaves, change, may, result, row) if difference is None and evidence and axis == 0 else None
        lab.separate = difference is None and unheard is None
        return [unheard] if unheard is not None else [], ""
    if not evidence and _second_axis_separates(lab, leaves):
        return [], ""
    if _only_at_first(lab, change, may):
        return [], "the first call of the model sets it up from its batch, and links the samples; later calls do not; that is not reported"
    places, trace = lab.locate(change, difference, may, False)
    found = places[0][0]
    if found is not None and _one_sequence(lab, found, leaves, size):
        return [], ""
    if found is not None and found.op.name == "batch_norm":
        return [], "the samples are linked by BatchNorm without running values, which takes those of the batch; that is not reported"
    if found is not None and (found.op.name.endswith("_dynamic") or sets_a_range(trace, found.op)):
        return [], f"the samples are linked by quantisation, which takes its range over the whole batch (`{found.op.name}`); that is not reported"
    if observes_ranges(lab.runner.model, found.op if found is not None else None):
        return [], "the samples are linked by the ranges that the model's quantisation takes from the batch; that is not reported"
    if lab.runner.model.training and _clean_in_eval(lab, leaves, may, row, axis):
        how = "by batch statistics computed in the model's own code" if found is not None and found.op.name in _STATISTICS else "and in eval mode they are not"
        return [], f"in train mode the samples are linked {how}; that is not reported"
    if found is not None and in_groups(trace, found.op, size):
        return [], f"the model puts its samples in groups and takes each group together (`{found.op.name}`); that is not reported"
    if found is not None and found.crossed is None and told_to_each(trace, found.op):
        return [], f"a number for the whole batch (`{found.op.name}`) is laid beside the features of each sample; that is not reported"
    if found is not None and each_with_each(trace, found.op, size):
        return [], f"the model compares each sample with each other one (`{found.op.name}`); that is not reported"
    if found is not None and linked_by_table(lab, trace, found.op, size):
        return [], "batch mixing was not tested: the inputs describe a graph"
    if axis == 0 and a_set_beside(lab, leaves, may, row):
        return [], "one of the inputs is a set, each row of which counts for all samples of the others; that is not reported"
    if found is not None and _attends_both_ways(found.op, lab, size):
        return [], f"`{found.op.name}` runs over the samples as one sequence, beside one within each sample; that is not reported"
    if found is not None and (found.chosen or _competes(found.op, size)):
        return [], f"the samples are linked by a choice among all of them (`{found.op.name}`), as routing with a capacity makes one; that is not reported"
    picks = _picks(trace, found.op, size) if found is not None else None
    if picks is not None:
        if _own_row_moves(lab.base, result, difference, row, size):
            return [], f"the samples are recombined by number (`{picks.name}`), as mixup does; that is not reported"
        if _tells_the_order(lab, trace, picks):
            return [], "the model puts the samples in another order and gives that order, or other inputs in it, with its results; that is not reported"
    names = ", ".join(f"`{leaf.name}`" for leaf in leaves)
    changed = f"Changing sample {row} of {names} and nothing else"
    moves = []
    if picks is not None:  # the places after it only show what it did
        where = f"`{difference.name}` of sample {_other_row(difference, row, size)}"
        move = lab.move_at("mixing", trace, picks, difference.distance, changed, where, reordered=True)
        return [dataclasses.replace(move, rounding=max(difference.allowed, 1e-12))], ""
    for rank, (last, one) in enumerate(places):
        found = last.across or last if last is not None else None
        layer, setting = built(lab, found.op, "mixing-time-first" if axis else "mixing") if found is not None else (None, "")
        where = f"`{one.name}` of sample {_other_row(one, row, size)}"
        pairs = _pairs_made(trace, found.op, size) if found is not None else None
        made = trace.site(pairs) if pairs is not None else None
        written = meant(found.op, keeps_samples_apart(found, trace, may, change)) if found is not None else ""
        moves.append(lab.move("mixing", changed, where, one, found, trace, rank=rank, built_site=layer, setting=setting, made_site=made, written=written,
                              operation_input=found.op.ins[0].size if found is not None and found.op.ins else ()))  # fmt: skip
    return moves, ""


def _unheard(lab: Lab, leaves: list[Leaf], change: list[tuple[Leaf, torch.Tensor]], may: May, result: typing.Any, row: int) -> Move | None:
    """No output depends on any sample, and a layer was built for time first: it runs over the samples, and what is read off (a class token) is the same for all."""
    pairs = zip(output_leaves(lab.base), output_leaves(result), strict=False)
    layers = (m for m in lab.runner.modules if isinstance(m, (nn.RNNBase, nn.MultiheadAttention)) and not m.batch_first)
    if not any(layers) or not all(torch.equal(one, two) for (_, one), (_, two) in pairs):
        return None
    first = Trace(keep=True)
    again = lab.runner.run(lab.call.args, lab.call.kwargs, trace=first, mode=lab.mode)
    _, second = lab.run(change, keep=True)
    found = first_moved(first, second, again, 0, may) if second is not None else None
    layer, setting = built(lab, found.op, "mixing") if found is not None else (None, "")
    if found is None or not setting or found.op.name not in _SEQUENCE_OPERATIONS:
        return None
    changed = f"Changing sample {row} of {', '.join(f'`{leaf.name}`' for leaf in leaves)} and nothing else"
    return lab.move_at("mixing", first, found.op, found.distance, changed, f"the result of `{found.op.name}` for other samples", built_site=layer, setting=setting, unheard=True)


def _pairs_made(trace: Trace, op: Op, size: int) -> Op | None:
    """The element by element call that laid the samples along two axes, if this one takes such a table of pairs."""
    table = next((seen for seen in op.ins if seen.size.count(size) > 1), None)
    while table is not None and (made := trace.maker(table)) is not None:
        table = next((seen for seen in made.ins if seen.size.count(size) > 1), None)
        if table is None:
            return made if made.name in ELEMENTWISE and sum(size in seen.size for seen in made.ins) > 1 else None
    return None


def _only_at_first(lab: Lab, change: list[tuple[Leaf, torch.Tensor]], may: May) -> bool:
    """Does the movement go away once the model has been called? (Statistics or codebooks that start from the first batch.)"""
    own = lab.call.args, lab.call.kwargs
    base = lab.runner.run(*own, mode=lab.mode, after=own)
    result, _ = lab.run(change, after=own)
    if first_difference(base, result, may, scalars=False, floor=lab.floor, needs_batch=True) is not None:
        return False
    # The disturbance must still show where it may: else the second call has only remembered the first.
    return any(one.shape == two.shape and bool(moved_flags(one, two)[0].any()) for (_, one), (_, two) in zip(output_leaves(base), output_leaves(result), strict=False))


def _is_content(leaf: Leaf, lab: Lab) -> bool:
    if batches.is_label(leaf) and not (leaf.tensor.is_floating_point() and leaf.tensor.dim() > 1):  # a series that is to go on may be called a target
        return False
    if batches.looks_like_mask(leaf) or leaf.tensor.dtype is torch.bool:
        return False
    name = leaf.name.lower()
    if any(word in name for word in ("mask", "position", "token_type", "segment", "len")):
        return False
    return leaf.tensor.is_floating_point() or leaf.tensor.dim() == 2 or bool(lab.embedded(leaf))


def _one_sequence(lab: Lab, found: Found, leaves: list[Leaf], size: int) -> bool:
    """The rows are the positions of one sequence: vectors or ids without an axis of samples, or (time first) with one that counts a single sample."""
    op = found.op
    if found.crossed is not None and all(leaf.tensor.dim() <= 1 + leaf.tensor.is_floating_point() for leaf in leaves):
        return True  # a loop hands on from row to row what it has made of them
    if all(leaf.tensor.dim() == 2 and leaf.tensor.is_floating_point() for leaf in leaves):
        return op.name in _SEQUENCE_OPERATIONS
    if all(leaf.tensor.dim() == 1 for leaf in leaves):  # which nobody gives one by one, as samples, to a layer for sequences
        return op.name in _SEQUENCE_OPERATIONS or op.name in _ATTENDING and any(seen.size.count(size) > 1 for seen in op.ins)
    if any(leaf.tensor.dim() < 2 or leaf.tensor.shape[1] != 1 for leaf in leaves):
        return False
    return not any(leaf.tensor.is_floating_point() for leaf in leaves) or all(tuple(one.shape[:2]) == (size, 1) for _, one in output_leaves(lab.base))


def _recombines(op: Op, size: int) -> bool:
    """Whole samples are picked by number, as mixup does. No mistake about shapes does that."""
    if op.name in ("flip", "roll"):
        return True
    return op.name in ("__getitem__", "index_select") and any(seen.size == (size,) and not seen.dtype.is_floating_point for seen in op.ins[1:])


def _extreme_of_all(op: Op, size: int) -> bool:
    """The largest or smallest values of all samples together."""
    if op.name not in ("max", "min", "amax", "amin", "aminmax", "quantile", "median") or not op.ins or op.ins[0].size[:1] != (size,) or not op.ins[0].dtype.is_floating_point:
        return False
    return bool(op.outs) and size not in op.outs[0].size


def _picks(trace: Trace, op: Op, size: int) -> Op | None:
    """The call that did so: this one, or the one that put the ids in another order which this one looks up."""
    looked = trace.made_through(op.ins[0], ARRANGING) if op.name == "embedding" and op.ins else ()
    return next((made for made in (op, *looked) if _recombines(made, size)), None)


def _attends_both_ways(op: Op, lab: Lab, size: int) -> bool:
    """The program has laid the batch out as one single sequence, and elsewhere attends within the samples: it knows its axes."""
    if op.name not in _ATTENDING or not op.ins or 1 not in op.ins[0].size or size not in op.ins[0].size:
        return False
    return any(other.name == op.name and size in other.ins[0].size and 1 not in other.ins[0].size for other in lab.trace.ops if other.index < op.index and other.ins)


def _tells_the_order(lab: Lab, trace: Trace, op: Op) -> bool:
    """Who sorts the samples and hands out the order, or the labels in the same order, knows that they are sorted."""
    order = next((found for seen in op.ins[1:] if not seen.dtype.is_floating_point and (found := value_of(trace, seen)) is not None), None)
    if order is None:
        return False
    given = [order, *(leaf.tensor[order] for leaf in lab.call.leaves if not leaf.tensor.is_floating_point() and leaf.tensor.shape[:1] == order.shape)]
    return any(torch.equal(one, other) for _, one in output_leaves(lab.base) for other in given if one.shape == other.shape and one.dtype == other.dtype)


def _competes(op: Op, size: int) -> bool:
    """The best of all positions of all samples are taken: their axis is not that of the samples, which a mistake would take for another."""
    if op.name not in ("topk", "sort", "argsort", "kthvalue") or not op.ins:
        return False
    dim = op.argument(1 if "sort" in op.name else 2, "dim", -1)
    sizes = op.ins[0].size
    return isinstance(dim, int) and -len(sizes) <= dim < len(sizes) and sizes[dim] != size and sizes[dim] % size == 0


def _own_row_moves(base: typing.Any, result: typing.Any, difference: Difference, row: int, size: int) -> bool:
    """The changed sample's own output moves too: it is mixed with others, and not handed to another sample."""
    pairs = list(zip(output_leaves(base), output_leaves(result), strict=False))
    (_, one), (_, two) = pairs[difference.position]
    flags, _ = moved_flags(one, two)
    return any(bool(flags.select(axis, row).any()) for axis, n in enumerate(flags.shape) if n == size)


def _is_graph(call: Call, size: int) -> bool:
    for leaf in call.leaves:
        shape, name = leaf.tensor.shape, leaf.name.lower()
        if set(re.findall("[a-z]+", name)) & _GRAPH_WORDS and not (len(shape) == 3 and shape[0] == size and shape[1] == shape[2] != size):  # one table for each sample
            return True
        if len(shape) == 2 and shape[0] == 2 and not leaf.tensor.is_floating_point() and size != 2 and shape[1] > 2:
            return True
    return False


def _second_axis_separates(lab: Lab, leaves: list[Leaf]) -> bool:
    """Time-first data: the second axis counts the samples, and along it nothing mixes."""
    sizes = {leaf.tensor.shape[1] for leaf in leaves if leaf.tensor.dim() >= 2}
    if len(sizes) != 1 or (size := sizes.pop()) < 2:
        return False
    only = torch.zeros(size, dtype=torch.bool, device=leaves[0].tensor.device)
    only[size - 1] = True
    try:
        result, _ = lab.run([(leaf, _rows(leaf.tensor, size - 1, 1)) for leaf in leaves if leaf.tensor.dim() >= 2])
    except Exception:
        return False
    return first_difference(lab.base, result, May(only), scalars=False, floor=lab.floor) is None


def _clean_in_eval(lab: Lab, leaves: list[Leaf], may: May, row: int, axis: int) -> bool:
    calm = lab.calmed()
    if calm is None:
        return False
    result, _ = calm.run([(leaf, _rows(leaf.tensor, row, axis)) for leaf in leaves])
    return first_difference(calm.base, result, may, scalars=False, floor=lab.floor, needs_batch=True) is None


def batch_statistics_remark(model: nn.Module) -> str:
    names = [name or type(m).__name__ for name, m in model.named_modules() if isinstance(m, BATCH_NORMS) and m.training]
    if not names:
        return ""
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"in train mode BatchNorm links the samples of a batch by design ({shown}); it was held still while testing for mixing"


def _rows(tensor: torch.Tensor, index: int, axis: int) -> torch.Tensor:
    where = torch.zeros(tensor.shape, dtype=torch.bool, device=tensor.device)
    where.select(axis, index).fill_(True)
    return where


def _other_row(difference: Difference, row: int, size: int) -> int:
    for axis, n in enumerate(difference.flags.shape):
        if n == size:
            rows = difference.flags.movedim(axis, 0).reshape(size, -1).any(1).nonzero().flatten().tolist()
            return next((r for r in rows if r != row), row)
    return 0

"""The paired runs: change one thing in the input, run again, see what moved.

Padding, later tokens and other samples are changed by the same mechanism: embeddings of chosen positions
are disturbed as they are looked up (ids, and masks or positions computed from them, stay as they are), or
floating inputs directly. `compare.May` says what may move.
"""

from __future__ import annotations

import typing

import torch
from torch import nn

from torchsleuth.auditor import batch as batches
from torchsleuth.auditor.batch import Call, Leaf, Padding
from torchsleuth.auditor.compare import Difference, Found, May, first_difference, first_moved, output_leaves
from torchsleuth.auditor.observation import Move
from torchsleuth.auditor.runner import BATCH_NORMS, Runner
from torchsleuth.auditor.trace import ARRANGING, Op, Trace

KEPT_BYTES = 2 << 30  # results kept for one localisation
EXTRA_COLUMNS = 3
MOST_PLACES = 4  # places named for one leak
_MASKING = {"masked_fill", "masked_fill_", "where", "add", "mul", "sub", "__setitem__", "add_", "mul_", "logical_and"}
_THROUGH = ARRANGING | _MASKING | {"div", "dropout", "div_", "softmax"}
_SEQUENCE_OPERATIONS = {"lstm", "gru", "rnn_tanh", "rnn_relu", "conv1d", "multi_head_attention_forward",
                        "scaled_dot_product_attention", "fft"}  # fmt: skip
_STATISTICS = {"mean", "var", "std", "var_mean", "std_mean", "batch_norm", "sum"}


class Lab:
    """One model call to experiment on, with the undisturbed run to compare against."""

    def __init__(self, runner: Runner, call: Call, base: typing.Any, trace: Trace, floor: float, mode: str) -> None:
        self.runner, self.call, self.base, self.trace, self.floor, self.mode = runner, call, base, trace, floor, mode

    def embedded(self, leaf: Leaf) -> list[Op]:
        """The lookups of this input's ids in embedding tables, as seen in the undisturbed run."""
        key = self.trace.known_key(leaf.tensor)
        found = []
        for op in self.trace.ops:
            if op.name == "embedding" and op.ins and _is_slice(op.ins[0].size, tuple(leaf.tensor.shape)):
                made = self.trace.ancestors({op.ins[0].key})
                if key is None or key in made:
                    found.append(op)
        return found

    def changed(self, leaf: Leaf, where: torch.Tensor, trace: Trace | None = None) -> tuple[Trace | None, dict]:
        """A trace that disturbs the content at `where` as it is looked up, or else exchanged inputs."""
        if leaf.tensor.is_floating_point():
            return trace, {leaf.path: disturbed(leaf.tensor, where)}
        if self.embedded(leaf):
            trace = trace or Trace()
            trace.change = _lookup_change(leaf.tensor, where)
            return trace, {}
        return trace, {leaf.path: _other_ids(leaf.tensor, where)}

    def run(
        self, leaf_where: list[tuple[Leaf, torch.Tensor]], keep: bool = False, healing: typing.Callable | None = None
    ) -> tuple[typing.Any, Trace | None]:
        trace = Trace(keep=True) if keep else None
        changes: dict = {}
        lookups = []
        for leaf, where in leaf_where:
            made, exchanged = self.changed(leaf, where, Trace())
            changes.update(exchanged)
            if made is not None and made.change is not None:
                lookups.append(made.change)
        if healing is not None:
            lookups.append(healing)
        if lookups:
            trace = trace or Trace()
            trace.change = _chained(lookups)
        args, kwargs = self.call.replaced(changes)
        return self.runner.run(args, kwargs, trace=trace, mode=self.mode), trace

    def locate(
        self, leaf_where: list[tuple[Leaf, torch.Tensor]], difference: Difference, may: May, scalars: bool
    ) -> tuple[list[tuple[Found | None, Difference]], Trace]:
        """Both runs again with all results kept: the first operation that moved.

        Then the same with that operation's result put right, for there may be a second place that lets the change through.
        """
        first = Trace(keep=True)
        result = self.runner.run(self.call.args, self.call.kwargs, trace=first, mode=self.mode)
        if first.kept_bytes > KEPT_BYTES:
            return [(None, difference)], first
        places: set[tuple] = set()
        found: list[tuple[Found | None, Difference]] = []
        while len(found) < MOST_PLACES:
            healing = _healing(first, places, may) if places else None
            second, trace = self.run(leaf_where, keep=True, healing=healing)
            if places:
                left = first_difference(self.base, second, may, scalars=scalars, floor=max(self.floor, difference.distance * 1e-3))
                if left is None:
                    break
                difference = left
            assert trace is not None
            one = first_moved(first, trace, result, difference.position, may)
            place = (one.op.place.user_code, one.op.place.user_offset) if one is not None else None
            if one is None or place is None or place in places or (places and one.op.place.code is not one.op.place.user_code):
                break
            found.append((one, difference))
            places.add(place)
            if one.op.place.code is not one.op.place.user_code:
                break  # inside a library: the program's call is all there is to name
        return found or [(None, difference)], first

    def move(self, kind: str, changed: str, where: str, difference: Difference, found: Found | None, trace: Trace, **more) -> Move:
        site = trace.site(found.op) if found else None
        return Move(
            kind, changed, where, difference.distance, max(difference.allowed, 1e-12),
            operation=found.op.name if found else "",
            operation_shape=found.op.outs[0].size if found and found.op.outs else (),
            site=site, **more,
        )  # fmt: skip


# -- padding ---------------------------------------------------------------------------------------


def padding_moves(lab: Lab, padding: Padding) -> list[Move]:
    may = May(~padding.valid)
    scalars = not any(batches.is_label(leaf) for leaf in lab.call.leaves)
    change = [(padding.leaf, ~padding.valid)]
    difference = None
    if padding.mask is not None or padding.leaf.tensor.is_floating_point() or lab.embedded(padding.leaf):
        # Where only the pad id says what is padding, another id there would be a word.
        result, _ = lab.run(change)
        difference = first_difference(lab.base, result, may, scalars=scalars, floor=lab.floor)
    longer = _longer(lab, padding, scalars)
    if difference is None:
        return [longer[0]] if longer is not None and longer[0] is not None else []
    if _inert(lab, padding) and (longer is None or longer[0] is None):
        return []  # what stands at padded positions is zero by construction, and the length of it does not count
    places, trace = lab.locate(change, difference, may, scalars)
    inverted = _inverted(lab, padding, scalars)
    return [_padding_move(lab, padding, one, found, trace, may, inverted and not rank, rank) for rank, (found, one) in enumerate(places)]


def _padding_move(
    lab: Lab, padding: Padding, difference: Difference, found: Found | None, trace: Trace, may: May, inverted: bool, rank: int
) -> Move:
    row, position = _row_and_position(difference, may)
    row = row if row in padding.padded_rows else padding.padded_rows[0]
    count = int((~padding.valid[row]).sum())
    what = "tokens" if padding.leaf.tensor.dim() == 2 else "time steps"
    changed = f"Changing the content of the {count} padded {what} of row {row} of `{padding.leaf.name}`"
    pooled = not any(n == may.length for n in difference.first.shape)
    if difference.first.dim() <= 2:
        position = None  # [B, L]: one number for each position, or L features? The sizes do not tell
    where = f"`{difference.name}` of that row" if position is None else f"`{difference.name}` at valid position {position} of that row"
    masking = _mask_application(lab, trace, found, padding.mask) if found else None
    return lab.move(
        "padding", changed, where, difference, found, trace, pooled=pooled, assumed=padding.assumed, rank=rank,
        mask_site=trace.site(masking) if masking else None, mask_operation=masking.name if masking else "",
        mask_name=padding.mask.name if padding.mask else "", inverted=inverted,
    )  # fmt: skip


def _inert(lab: Lab, padding: Padding) -> bool:
    """The padded content cannot be anything but zero: an embedding's `padding_idx`, or zeros in a float input."""
    if padding.leaf.tensor.is_floating_point():
        return bool((padding.leaf.tensor[~padding.valid] == 0).all())
    lookups = lab.embedded(padding.leaf)
    return bool(lookups) and all(
        padding.pad_id is not None and op.argument(2, "padding_idx") == padding.pad_id for op in lookups if _is_main(op, lab)
    )


def _is_main(op: Op, lab: Lab) -> bool:
    return bool(op.ins)


def _inverted(lab: Lab, padding: Padding, scalars: bool) -> bool:
    """Do the words not count? Disturb one word and see whether any other valid position moves."""
    if padding.mask is None or padding.mask.tensor.dim() != 2:
        return False
    count = padding.valid.sum(1, keepdim=True)
    # One from the middle: the first and the last are what pooled outputs are read from.
    first = padding.valid & (padding.valid.cumsum(1) == (count + 1) // 2) & (~padding.valid).any(1, keepdim=True)
    result, _ = lab.run([(padding.leaf, first)])
    return first_difference(lab.base, result, May(first), scalars=scalars, floor=lab.floor) is None


def _longer(lab: Lab, padding: Padding, scalars: bool) -> tuple[Move | None] | None:
    """More padding: append columns that the mask hides. None where the model cannot be run on them."""
    if not padding.right:
        return None
    length = padding.leaf.tensor.shape[1]
    changes = {}
    for leaf in lab.call.leaves:
        tensor = leaf.tensor
        if tensor.dim() >= 2 and tensor.shape[:2] == padding.valid.shape:
            fill = _fill(leaf, padding)
            if fill is None:
                return None
            extra = tensor.new_full((tensor.shape[0], EXTRA_COLUMNS, *tensor.shape[2:]), fill)
            changes[leaf.path] = torch.cat([tensor, extra], 1)
    args, kwargs = lab.call.replaced(changes)
    # Other sizes draw other random numbers, so this one is run without dropout.
    base = lab.base if not lab.runner.model.training else lab.runner.run(lab.call.args, lab.call.kwargs, mode="eval")
    try:
        result = lab.runner.run(args, kwargs, mode="eval")
    except Exception:
        return None

    def fitted(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor | None:
        if tensor.dim() != like.dim():
            return None
        for axis, (size, wanted) in enumerate(zip(tensor.shape, like.shape, strict=True)):
            if size == length + EXTRA_COLUMNS and wanted == length:
                tensor = tensor.narrow(axis, 0, length)
            elif size != wanted:
                return None
        return tensor

    enough = (~padding.valid).sum(1)
    enough = enough >= min(EXTRA_COLUMNS, int(enough.max()))
    may = May(~(padding.valid & enough[:, None]))
    labels = any(batches.is_label(leaf) for leaf in lab.call.leaves)
    for position, ((name, one), (_, two)) in enumerate(zip(output_leaves(base), output_leaves(result), strict=False)):
        trimmed = fitted(two, one)
        if trimmed is None or (one.dim() == 0 and (labels or not scalars)):
            continue
        if one.dim() == 0 and not enough.all():
            continue
        difference = first_difference(one, trimmed, may, scalars=scalars, floor=max(lab.floor, 1e-5 * float(one.abs().max()) if one.is_floating_point() and one.numel() else 0.0))
        if difference is None:
            continue
        first, second = Trace(keep=True), Trace(keep=True)
        again = lab.runner.run(lab.call.args, lab.call.kwargs, trace=first, mode="eval")
        lab.runner.run(args, kwargs, trace=second, mode="eval")
        found = first_moved(first, second, again, position, may, fitted)
        row, where = _row_and_position(difference, may)
        difference.name = name
        changed = f"Appending {EXTRA_COLUMNS} more columns of padding to `{padding.leaf.name}`"
        place = f"`{name}` of row {row}" if where is None else f"`{name}` at valid position {where} of row {row}"
        return (
            lab.move(
                "padding-length", changed, place, difference, found, first, pooled=where is None, assumed=padding.assumed,
                mask_name=padding.mask.name if padding.mask else "",
            ),
        )  # fmt: skip
    return (None,)


def _fill(leaf: Leaf, padding: Padding) -> float | int | bool | None:
    """What stands in a column of padding of this input."""
    if leaf is padding.leaf:
        return 0.0 if leaf.tensor.is_floating_point() else padding.pad_id
    if padding.mask is not None and leaf is padding.mask:
        return int(not padding.keep_value) if leaf.tensor.dtype is not torch.bool else not padding.keep_value
    if batches.is_label(leaf):
        return -100 if not leaf.tensor.is_floating_point() else None
    values = leaf.tensor[~padding.valid]
    unique = values.unique() if values.dim() == 1 else values.new_zeros(0)
    return unique[0].item() if unique.numel() == 1 else None


def _mask_application(lab: Lab, trace: Trace, found: Found, mask: Leaf | None) -> Op | None:
    """The operation just before the culprit that brought the mask and the values together."""
    if mask is None:
        return None
    key = trace.known_key(mask.tensor)
    if key is None:
        return None
    pure = {key}
    for op in trace.ops:
        if op.ins and any(s.key in pure for s in op.ins) and all(s.key in pure or s.size == () for s in op.ins):
            pure.update(s.key for s in op.outs)
    todo, seen = [(s, 0) for s in found.op.ins], set()
    while todo:
        tensor, depth = todo.pop(0)
        op = trace.maker(tensor)
        if op is None or op.index in seen or depth > 6:
            continue
        seen.add(op.index)
        mine = [s for s in op.ins if s.key in pure]
        if mine and len(mine) < len(op.ins) and op.name in _MASKING:
            return op
        if op.name in _THROUGH and not mine:
            todo += [(s, depth + 1) for s in op.ins]
    return None


# -- causality -------------------------------------------------------------------------------------


def causal_moves(lab: Lab, leaf: Leaf, intent: str) -> list[Move]:
    """Change one token of each row; nothing before it may move."""
    where, position, may = _late(leaf)
    if where is None:
        return []
    result, _ = lab.run([(leaf, where)])
    # A scalar is a loss over all positions: it may move.
    difference = first_difference(lab.base, result, may, scalars=False, floor=lab.floor)
    if difference is None or leaf.tensor.shape[1] not in difference.first.shape:
        return []
    places, trace = lab.locate([(leaf, where)], difference, may, False)
    changed = f"Changing token {position} of `{leaf.name}`"
    moves = []
    for rank, (found, one) in enumerate(places):
        _, moved = _row_and_position(one, may)
        moves.append(lab.move("causal", changed, f"`{one.name}` at the earlier position {moved}", one, found, trace, intent=intent, rank=rank))
    return moves


def is_causal(lab: Lab, leaf: Leaf) -> bool:
    where, _, may = _late(leaf)
    if where is None:
        return False
    result, _ = lab.run([(leaf, where)])
    leaves = [t for _, t in output_leaves(lab.base) if leaf.tensor.shape[1] in t.shape and t.dim() >= 2]
    return bool(leaves) and first_difference(lab.base, result, may, scalars=False, floor=lab.floor) is None


def _late(leaf: Leaf) -> tuple[torch.Tensor | None, int, May]:
    length = leaf.tensor.shape[1]
    position = length // 2
    late = torch.zeros(leaf.tensor.shape[:2], dtype=torch.bool, device=leaf.tensor.device)
    if length < 2:
        return None, 0, May(late)
    late[:, position] = True
    after = torch.zeros_like(late)
    after[:, position:] = True
    return late, position, May(after)


# -- mixing ----------------------------------------------------------------------------------------


def mixing_moves(lab: Lab, evidence: bool) -> tuple[list[Move], str]:
    """Change one sample; the others may not move. Also a remark where movement is by design."""
    size = lab.call.batch_size
    if size is None or size < 2:
        return [], "batch mixing was not tested: the batch holds one sample" if size == 1 else ""
    leaves = [leaf for leaf in lab.call.leaves if _is_content(leaf) and leaf.tensor.dim() >= 1 and leaf.tensor.shape[0] == size]
    if not leaves or _is_graph(lab.call, size):
        return [], "batch mixing was not tested: the inputs describe a graph" if leaves else ""
    row = 0
    only = torch.zeros(size, dtype=torch.bool, device=leaves[0].tensor.device)
    only[row] = True
    may = May(only)
    change = [(leaf, _rows(leaf.tensor, row, 0)) for leaf in leaves]
    result, _ = lab.run(change)
    difference = first_difference(lab.base, result, may, scalars=False, floor=lab.floor, needs_batch=True)
    if difference is None or size not in difference.first.shape:
        return [], ""
    if not evidence and _second_axis_separates(lab, leaves):
        return [], ""
    places, trace = lab.locate(change, difference, may, False)
    found = places[0][0]
    if found is not None and found.op.name in _SEQUENCE_OPERATIONS and all(l.tensor.dim() == 2 and l.tensor.is_floating_point() for l in leaves):
        return [], ""  # one unbatched sequence
    if found is not None and found.op.name in _STATISTICS and lab.runner.model.training and _clean_in_eval(lab, leaves, may, row):
        return [], "in train mode the samples are linked by batch statistics computed in the model's own code; that is not reported"
    names = ", ".join(f"`{leaf.name}`" for leaf in leaves)
    changed = f"Changing sample {row} of {names} and nothing else"
    return [
        lab.move("mixing", changed, f"`{one.name}` of sample {_other_row(one, row, size)}", one, found, trace, rank=rank)
        for rank, (found, one) in enumerate(places)
    ], ""


def _is_content(leaf: Leaf) -> bool:
    if batches.is_label(leaf) or batches.looks_like_mask(leaf) or leaf.tensor.dtype is torch.bool:
        return False
    name = leaf.name.lower()
    if any(word in name for word in ("mask", "position", "token_type", "segment", "len")):
        return False
    return leaf.tensor.is_floating_point() or leaf.tensor.dim() == 2


def _is_graph(call: Call, size: int) -> bool:
    for leaf in call.leaves:
        shape, name = leaf.tensor.shape, leaf.name.lower()
        if "edge" in name or "adj" in name or "graph" in name:
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


def _clean_in_eval(lab: Lab, leaves: list[Leaf], may: May, row: int) -> bool:
    calm = Lab(lab.runner, lab.call, lab.runner.run(lab.call.args, lab.call.kwargs, mode="eval"), lab.trace, lab.floor, "eval")
    result, _ = calm.run([(leaf, _rows(leaf.tensor, row, 0)) for leaf in leaves])
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


# -- changes ---------------------------------------------------------------------------------------


def disturbed(tensor: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    """Noise of the tensor's own size added at `where` (flags over its leading axes)."""
    flags = where.reshape(*where.shape, *[1] * (tensor.dim() - where.dim()))
    generator = torch.Generator().manual_seed(7)
    noise = torch.randn(tensor.shape, generator=generator).to(device=tensor.device, dtype=tensor.dtype)
    spread = tensor.detach().float().std() if tensor.numel() > 1 else tensor.new_ones(())
    spread = spread.to(tensor.dtype) if torch.isfinite(spread) and spread > 0 else torch.ones((), dtype=tensor.dtype, device=tensor.device)
    return torch.where(flags, tensor.detach() + noise * spread, tensor.detach())


def _other_ids(ids: torch.Tensor, where: torch.Tensor) -> torch.Tensor:
    """Other ids at `where`, only such as occur in the input."""
    values = ids.unique()
    if values.numel() < 2:
        return ids
    rank = torch.searchsorted(values, ids.contiguous())
    return torch.where(where.reshape(where.shape), values[(rank + 1) % values.numel()], ids)


def _lookup_change(ids: torch.Tensor, where: torch.Tensor):
    """Disturbs the rows that an embedding lookup of these ids returns at `where`."""

    def change(op: Op, args: tuple, kwargs: dict, result: typing.Any) -> typing.Any:
        if op.name != "embedding" or not isinstance(result, torch.Tensor):
            return result
        indices = args[0] if args else kwargs.get("input")
        flags = _matching(indices, ids, where)
        return result if flags is None else disturbed(result, flags)

    return change


def _chained(changes: list) -> typing.Callable:
    def change(op: Op, args: tuple, kwargs: dict, result: typing.Any) -> typing.Any:
        for one in changes:
            result = one(op, args, kwargs, result)
        return result

    return change


def _healing(first: Trace, places: set[tuple], may: May) -> typing.Callable:
    """Gives the results of the operations at these places the values of the first run wherever the change must not show."""

    def heal(op: Op, args: tuple, kwargs: dict, result: typing.Any) -> typing.Any:
        if (op.place.user_code, op.place.user_offset) not in places or op.index >= len(first.ops):
            return result
        before = first.ops[op.index]
        if before.name != op.name or not before.tensors:
            return result
        if isinstance(result, torch.Tensor):
            return _put_right(may, before.tensors[0], result)
        if type(result) is tuple and sum(isinstance(r, torch.Tensor) for r in result) == len(before.tensors):
            kept = iter(before.tensors)
            return tuple(_put_right(may, next(kept), r) if isinstance(r, torch.Tensor) else r for r in result)
        return result

    return heal


def _put_right(may: May, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return may.healed(first, second) if first.shape == second.shape else second


def _matching(indices: typing.Any, ids: torch.Tensor, where: torch.Tensor) -> torch.Tensor | None:
    """The flags for these indices if they are the ids, the ids without a column, or the ids turned."""
    if not isinstance(indices, torch.Tensor) or indices.dim() != 2 or not _is_slice(tuple(indices.shape), tuple(ids.shape)):
        return None
    length = ids.shape[1]
    candidates = [(ids, where), (ids.T, where.T)]
    candidates += [(ids[:, k:], where[:, k:]) for k in (1, 2) if length > k] + [(ids[:, :-k], where[:, :-k]) for k in (1, 2) if length > k]
    for values, flags in candidates:
        if values.shape == indices.shape and torch.equal(values.to(indices.dtype), indices):
            return flags
    return None


def _is_slice(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    return len(shape) == len(whole) == 2 and (shape == whole or shape == whole[::-1] or (shape[0] == whole[0] and 0 < whole[1] - shape[1] <= 2))


def _row_and_position(difference: Difference, may: May) -> tuple[int, int | None]:
    """The row, and the position along the sequence if the output has one, where the movement is largest."""
    gap = (difference.first.double() - difference.second.double()).abs().nan_to_num(posinf=1e300) * difference.flags
    index = torch.unravel_index(gap.argmax(), gap.shape) if gap.dim() else ()
    row, position = 0, None
    for axis, size in enumerate(gap.shape):
        if size == may.batch and axis == 0:
            row = int(index[axis])
        elif size == may.length and position is None and axis != gap.dim() - 1:
            position = int(index[axis])
    if position is None and may.length is not None and gap.dim() == 2 and gap.shape[1] == may.length:
        position = int(index[1])
    return row, position

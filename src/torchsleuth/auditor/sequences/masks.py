"""What became of a mask on its way to the operation that let padding through: where it was applied, and whether it hides anything."""

from __future__ import annotations

import typing

import torch
from torch import nn

from torchsleuth.auditor.inputs import batch as batches
from torchsleuth.auditor.inputs.batch import HIDES
from torchsleuth.auditor.inputs.padded import Padding
from torchsleuth.auditor.laboratory.compare import moved_flags
from torchsleuth.auditor.laboratory.firstmoved import Found
from torchsleuth.auditor.laboratory.lab import Lab
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.sequences.handing import derived, handed, hands_mask, idle_mask, idle_measure, made_of, mask_made, not_given
from torchsleuth.auditor.sequences.maskaxes import samples_astray, scores_of
from torchsleuth.auditor.tracing.beginnings import maker
from torchsleuth.auditor.tracing.sites import site_of
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Seen, Trace

_MASKING = {"masked_fill", "masked_fill_", "where", "add", "mul", "sub", "__setitem__", "add_", "mul_", "logical_and"}
_THROUGH = ARRANGING | _MASKING | {"div", "dropout", "div_", "softmax"}
_TURNING = ARRANGING | {"__invert__", "bitwise_not", "logical_not", "bool", "int", "long", "repeat", "repeat_interleave"}
_REPEATING = {"repeat", "tile", "cat", "concat"}  # as a whole, along the first axis
_COMPARING = {"eq", "ne", "__eq__", "__ne__", "lt", "gt"}
_RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}
_JOINING = {"__or__", "__and__", "bitwise_or", "bitwise_and", "logical_or", "logical_and"}
HIDES_NOTHING = "the same at all positions: it hides nothing"


# Where each kind of attention takes its masks: (position, name), the one for padding first.
ATTENTIONS = {"multi_head_attention_forward": ((14, "key_padding_mask"), (16, "attn_mask")), "scaled_dot_product_attention": ((3, "attn_mask"),)}


def told(lab: Lab, padding: Padding, trace: Trace, found: Found | None, content: bool) -> dict[str, typing.Any]:
    """Fields of a `Move`: how the operation that moved was told what is padding, as far as that can be seen.

    `content`: what stands at padded positions shows. Where it is only their number, a mask that is applied may do what it should.
    """
    if found is None:
        return {}
    if facts := idle_measure(lab, padding):
        return facts
    if found.op.name in ATTENTIONS and all(found.op.argument(position, name) is None for position, name in ATTENTIONS[found.op.name]):
        facts = {"unmasked": _asked_for(lab, found.op), **(unused(lab, padding, trace, found) if content else {})}
        facts |= idle_mask(lab, padding) or not_given(lab, trace, found.op)
        site = lab.site(trace, found.op)
        if padding.mask is None and site is not None and site.library and site.source.endswith("()"):  # `trainer.train()`: what the model is given is settled where the batch is made
            facts["padded_site"] = lab.beginning(padding.leaf)
        return facts
    if content and (facts := unused(lab, padding, trace, found)):
        return facts | ({} if facts["instead"] else not_given(lab, trace, found.op))
    if found.op.name in ATTENTIONS and (facts := beside_keys(lab, padding, trace, found)):
        return facts
    given, of_ids = _mask_keys(trace, padding)
    pure = given | of_ids
    applied = application(trace, found, pure)
    if applied is not None and found.op.name in _RECURRENT:
        return {}  # it goes on over zeros as over anything else: no mask that is applied to its steps hides them
    if applied is None:
        return idle_mask(lab, padding) or not_given(lab, trace, found.op) or (another(lab, padding, trace, found, pure) if content else {})
    side = next((seen for seen in applied.ins if seen.key in pure and seen.size), None)
    masked = max((seen for seen in applied.ins if seen.key not in pure), key=lambda seen: len(seen.size))
    if applied.name in ("mul", "mul_") and _before_softmax(trace, found, applied):
        return {"mask_site": trace.site(applied), "multiplied": True}
    if (filled := _filled_with(applied)) is not None and filled > -HIDES and _before_softmax(trace, found, applied):
        return {"mask_site": trace.site(applied), "filled": f"{filled:g}"}
    if side is not None and (facts := samples_astray(padding, trace, applied, side, masked.size)):
        return facts
    empty = hollow(padding, trace, applied, side)
    along = {"mask_shape": side.size, "masked_shape": masked.size} if side is not None else {}
    queries = "softmax" in found.op.name and side is not None and side.size[-1:] == (1,)
    if not content and not empty and not queries:
        return {}
    hidden = hidden_flags(padding, trace, applied, side)
    if hidden is not None and torch.equal(hidden, ~padding.valid.to(hidden.device)) and not queries:
        return _across(trace, found, side, masked)  # the mask is right
    if side is not None and (facts := repeated_whole(padding, trace, side)):
        return {"mask_site": trace.site(applied), "mask_operation": applied.name, **along, **facts}
    text = _where(padding, hidden, ~padding.valid) if hidden is not None and not empty and not queries else ""
    other = _of_other(lab, padding, hidden) if text else ""
    made = mask_made(lab, trace, applied, side) if text and side is not None and not other else None
    by_ids = side is not None and side.key not in given
    return {"mask_site": trace.site(applied), "mask_operation": applied.name, "aside": text, "of_other": other, "made_site": made, "mask_of_ids": by_ids, **along, **empty}


def _asked_for(lab: Lab, op: Op) -> str:
    """What the mask of the padding is called by the layer that the program calls."""
    name = ATTENTIONS[op.name][0][1]
    layer = lab.runner.model.get_submodule(op.module.rpartition(".")[0]) if "." in op.module and name == "key_padding_mask" else None
    if isinstance(layer, nn.TransformerEncoderLayer):
        return f"src_{name}"
    if isinstance(layer, nn.TransformerDecoderLayer):
        return f"memory_{name}" if op.module.endswith("multihead_attn") else f"tgt_{name}"
    return name


_HOLDING_WITHIN = frozenset({"clamp", "clamp_", "long", "int"})  # what keeps a number among those that are there


def read_at(padding: Padding, trace: Trace, found: Found, row: int) -> tuple[int, Site | None] | None:
    """The one position that this operation reads of a row, told by its index, where that is a padded one; and where the index was made."""
    index = next((seen for seen in found.op.ins[1:] if not seen.dtype.is_floating_point and seen.dtype is not torch.bool), None)
    values = _value(trace, index) if index is not None and found.op.name in ("gather", "__getitem__", "take_along_dim") else None
    for seen in found.op.ins[1:] if values is None or values.dim() == 1 else ():
        index, values = seen, _value(trace, seen)  # `h[rows, lengths - 1]`: the last index counts positions
    if index is None or values is None or values.dim() < 1 or values.shape[0] != padding.valid.shape[0]:
        return None
    own = values[row].unique()
    position = int(own[0]) if own.numel() == 1 else -1
    if not 0 <= position < padding.valid.shape[1] or bool(padding.valid[row, position]):
        return None
    made = maker(trace, index.key, _HOLDING_WITHIN)
    return position, trace.site(made) if made is not None and made.place.direct else None


def _filled_with(applied: Op) -> float | None:
    """The number that stands for the scores of padded keys."""
    place, name = {"masked_fill": (2, "value"), "masked_fill_": (2, "value"), "where": (2, "other")}.get(applied.name, (0, ""))
    number = applied.argument(place, name) if name else None
    return number if isinstance(number, (int, float)) and not isinstance(number, bool) else None


def _before_softmax(trace: Trace, found: Found, applied: Op) -> bool:
    """A product with the mask goes into the softmax of an attention: the score of a padded key is zero then, which has a weight like any other."""
    before = [op for seen in found.op.ins for op in trace.made_through(seen, ARRANGING | {"dropout"})]
    before += [op for made in before if made.name in ("mul", "__mul__") for seen in made.ins for op in trace.made_through(seen, ARRANGING)]  # weighted, and summed
    softmax = next((op for op in (found.op, *before) if op.name == "softmax"), None)
    return softmax is not None and any(op is applied for op in trace.made_through(softmax.ins[0], ARRANGING | {"div", "div_"}))


def applied_astray(padding: Padding, trace: Trace, before: Op) -> dict[str, typing.Any]:
    """Where, on the way to this operation, a mask is applied whose samples lie along another axis of the scores."""
    given, of_ids = _mask_keys(trace, padding)
    pure, way = given | of_ids, trace.ancestors({seen.key for seen in before.outs})
    for op in trace.ops[: before.index + 1]:
        side = next((seen for seen in op.ins if seen.key in pure and seen.size), None)
        if side is None or not any(seen.key in way for seen in op.outs):
            continue
        met = scores_of(op) or max((seen.size for seen in op.ins if op.name in _MASKING and seen.key not in pure), key=len, default=())
        if met and (facts := samples_astray(padding, trace, op, side, met)):
            return facts
    return {}


def hidden_flags(padding: Padding, trace: Trace, applied: Op, side: Seen | None) -> torch.Tensor | None:
    """Which positions a mask hides where it meets the values, [B, L]; None where that is not plain."""
    value = _value(trace, side) if side is not None else None
    if value is None or value.numel() != padding.valid.numel() or tuple(n for n in value.shape if n != 1) != tuple(n for n in padding.valid.shape if n != 1):
        return None
    value = value.reshape(padding.valid.shape)
    if applied.name.startswith("masked_fill"):
        return value if value.dtype is torch.bool else None
    if applied.name.startswith("mul"):
        return value == 0
    return value < -HIDES if applied.name.startswith("add") and value.is_floating_point() else None


def repeats_mask(padding: Padding, trace: Trace) -> bool:
    """Does the model repeat its mask as a whole at all?"""
    given, of_ids = _mask_keys(trace, padding)
    return any(op.name in _REPEATING and op.ins and op.ins[0].key in given | of_ids for op in trace.ops)


def repeated_whole(padding: Padding, trace: Trace, side: Seen) -> dict[str, typing.Any]:
    """A mask that is right, repeated as a whole: it lies in the order of (repeat, sample), along something that lies in that of (sample, repeat)."""
    batch, length = padding.valid.shape
    value, made = _value(trace, side), trace.maker(side)
    if value is not None and value.dim() == 3 and bool((value == value[:, :1]).all()):
        value = value[:, 0]  # the same for all queries
    while made is not None and made.ins and (made.name in _TURNING - _REPEATING or made.name.startswith("masked_fill")):
        # A layer of torch's makes numbers of flags, to be added to the scores.
        made = trace.maker(next((seen for seen in made.ins if seen.dtype is torch.bool), made.ins[0]))
    if value is None or made is None or made.name not in _REPEATING or any(seen.key != made.ins[0].key for seen in made.ins):
        return {}
    times, rest = divmod(side.size[0], batch)
    if times < 2 or rest or made.ins[0].size[:1] != (batch,) or value.numel() != times * batch * length:
        return {}
    parts = value.reshape(times, batch, length) != 0
    valid = padding.valid.to(parts.device)
    if not bool((parts == valid).all()) and not bool((parts == ~valid).all()):
        return {}
    return {"repeated": times, "made_site": trace.site(made)}


def _across(trace: Trace, found: Found, side: Seen | None, masked: Seen) -> dict[str, typing.Any]:
    """A softmax that runs along another axis than the one that the mask lies along: itself, or the one before a product with the values."""
    before = (op for seen in found.op.ins for op in trace.made_through(seen, ARRANGING | {"dropout"}))
    softmax = next((op for op in (found.op, *before) if op.name == "softmax"), None)
    dims = len(masked.size)
    dim = softmax.argument(1, "dim") if softmax is not None else None
    if side is None or softmax is None or not isinstance(dim, int) or softmax.ins[0].size != masked.size:
        return {}
    size = (1,) * (dims - len(side.size)) + side.size
    lies = [axis for axis in range(1, dims) if size[axis] > 1]
    if len(lies) != 1 or dim % dims == lies[0]:
        return {}
    return {"mask_axis": lies[0], "operation_axis": dim % dims, "made_site": trace.site(softmax), "masked_shape": masked.size}


def beside_keys(lab: Lab, padding: Padding, trace: Trace, found: Found) -> dict[str, typing.Any]:
    """What the mask of an attention hides instead of the padding among its keys, or that it hides nothing, and where it was made."""
    stands = _among_keys(padding, trace, found)
    for seen in found.op.ins[3:] if stands is not None else ():
        if facts := samples_astray(padding, trace, found.op, seen, scores_of(found.op)):
            return facts
        mask = _value(trace, seen)
        if mask is not None and seen.size[0] > padding.valid.shape[0] and (facts := repeated_whole(padding, trace, seen)):
            return facts
        if stands is None or mask is None or len(seen.size) < 2 or (seen.size[0], seen.size[-1]) != tuple(stands.shape):
            continue
        hides = _hides(found.op, mask)
        text = _where(padding, hides, stands)
        if not text:
            return {}
        given, of_ids = _mask_keys(trace, padding)
        rows, made = mask[padding.padded_rows], _joined(padding, trace, found.op, seen, stands, given | of_ids) or mask_made(lab, trace, found.op, seen)
        if seen.key in given | of_ids and bool((rows == rows.flatten()[0]).all()):
            return {"hollow": HIDES_NOTHING, "made_site": made, "mask_of_ids": seen.key not in given}
        other = _of_other(lab, padding, hides)
        return {"aside": text, "of_other": other, "made_site": None if other else made} | (handed(lab, trace, found.op) if given | of_ids and not _partly(trace, seen, given | of_ids) else {})
    return {}


def another(lab: Lab, padding: Padding, trace: Trace, found: Found, pure: set[int]) -> dict[str, typing.Any]:
    """The mask that was applied to the scores of a softmax although it is not that of its keys, if there is one that is."""
    if "softmax" not in found.op.name:
        return {}
    for op in trace.made_through(found.op.ins[0], ARRANGING | {"div", "div_", "mul", "add"}):
        side = next((seen for seen in op.ins if op.name.startswith("masked_fill") and seen.dtype is torch.bool), None)
        value = _value(trace, side) if side is not None else None
        if side is None or value is None:
            continue
        hidden = value.flatten(1, -2).all(1) if value.dim() > 2 else value
        text = _where(padding, hidden, ~padding.valid) if tuple(hidden.shape) == tuple(padding.valid.shape) else ""
        if not text:
            return {}
        given = handed(lab, trace, op) if pure and not _partly(trace, side, pure) else {}
        other = _of_other(lab, padding, hidden)
        made = None if other else mask_made(lab, trace, op, side)
        return {"mask_site": trace.site(op), "mask_operation": op.name, "aside": text, "of_other": other, "made_site": made, "mask_of_ids": True} | given
    return {}


def _of_other(lab: Lab, padding: Padding, hidden: torch.Tensor | None) -> str:
    """The other input whose padding this mask hides, where it hides just that: it is right, and given in the wrong place."""
    others = (one for one in lab.paddings if one.leaf is not padding.leaf and hidden is not None and one.valid.shape == hidden.shape)
    return next((one.leaf.name for one in others if torch.equal(~one.valid.to(hidden.device), hidden)), "")


def _partly(trace: Trace, mask: Seen, pure: set[int]) -> bool:
    """Is a mask that is right a part of this one?"""
    return bool(trace.ancestors({mask.key}) & pure)


def _hides(op: Op, mask: torch.Tensor) -> torch.Tensor:
    """Which keys of which samples this attention's mask hides from all queries."""
    hides = mask < -HIDES if mask.is_floating_point() else mask if op.name == "multi_head_attention_forward" else ~mask
    return hides.flatten(1, -2).all(1) if hides.dim() > 2 else hides


def _joined(padding: Padding, trace: Trace, op: Op, mask: Seen, stands: torch.Tensor, pure: set[int]) -> Site | None:
    """The expression that joined a mask that knows the padding with another one, if what came of it does not hide the padding any more."""
    todo, first = [mask], None
    while todo:
        made = trace.maker(todo.pop())
        if made is None or made.name not in _JOINING | ARRANGING:
            continue
        value = _value(trace, made.outs[0]) if made.name in _JOINING and any(seen.key in pure for seen in made.ins) else None
        if value is not None and value.dim() > 2 and (value.shape[0], value.shape[-1]) == tuple(stands.shape) and value.dtype is torch.bool:
            if not _where(padding, _hides(op, value), stands):
                continue  # it is all right up to here
            first = made
        todo += made.ins
    return trace.site(first) if first is not None else None


def _among_keys(padding: Padding, trace: Trace, found: Found) -> torch.Tensor | None:
    """Where the padding stands among the keys of an attention: where these moved with its content, or, if only its amount was changed, where it is given."""
    keys = _value(trace, found.op.ins[1]) if len(found.op.ins) > 1 else None
    again = _value(found.second, found.again.ins[1]) if found.again is not None and found.second is not None and len(found.again.ins) > 1 else None
    if keys is None or again is None or keys.dim() < 3:
        return None
    whole = found.op.name == "multi_head_attention_forward"  # keys are [S, B, E]; else [B, S, E] or [B, heads, S, E]
    if keys.shape != again.shape:
        sizes = (keys.shape[1], keys.shape[0]) if whole else (keys.shape[0], keys.shape[-2])
        return ~padding.valid if sizes == tuple(padding.valid.shape) else None
    moved = moved_flags(keys, again)[0].any(-1)
    return moved.T if whole else moved.flatten(1, -2).any(1) if moved.dim() > 2 else moved


def _where(padding: Padding, hidden: torch.Tensor, stands: torch.Tensor) -> str:
    stands = stands.to(hidden.device)
    row = next((row for row in padding.padded_rows if bool((stands[row] & ~hidden[row]).any())), None)
    if row is None:
        return ""
    return f"in {padding.named(row)} the mask hides {_spans(hidden[row])}, and the padding stands at {_spans(stands[row])}"


def _spans(flags: torch.Tensor) -> str:
    """"position 3", "positions 3 to 7", "positions 0, 2 and 5 to 8"."""
    places = flags.nonzero().flatten().tolist()
    runs: list[list[int]] = []
    for place in places:
        if runs and runs[-1][1] == place - 1:
            runs[-1][1] = place
        else:
            runs.append([place, place])
    texts = [str(a) if a == b else f"{a} to {b}" for a, b in runs]
    if not texts:
        return "nothing"
    return f"position{'s' * (len(places) > 1)} " + (texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " and " + texts[-1])


def unused(lab: Lab, padding: Padding, trace: Trace, found: Found | None) -> dict[str, typing.Any]:
    """A mask that the model takes and does not use; where the part that it was not handed to was called, and with what instead."""
    if padding.mask is None or found is None:
        return {}
    keys = {key: leaf for leaf in lab.call.leaves if (key := trace.known_key(leaf.tensor)) is not None}
    used = {seen.key for op in trace.ops for seen in op.ins}
    if any(leaf.tensor is padding.mask.tensor and key in used for key, leaf in keys.items()):
        return {}
    masks = {key: leaf for key, leaf in keys.items() if leaf.tensor.shape == padding.mask.tensor.shape and batches.looks_like_mask(leaf)}
    instead = [
        leaf.name for key, leaf in masks.items()
        if derived(trace, key) & {seen.key for seen in found.op.ins} or application(trace, found, derived(trace, key)) is not None
    ]  # fmt: skip
    left_out = next((place for place in trace.calls(found.op) if instead or not hands_mask(place)), None)
    return {"mask_unused": True, "instead": instead[0] if instead else "", "made_site": site_of(left_out) if left_out is not None else None}


def hollow(padding: Padding, trace: Trace, masking: Op, side: Seen | None) -> dict[str, typing.Any]:
    """Where the mask that was applied was made, if it is the same at all positions of rows that have padding: then it hides nothing."""
    value = (_value(trace, side) if trace.maker(side) is not None else trace.tensor(side.key)) if side is not None else None
    if side is None or value is None or value.dim() < 2 or value.shape[0] != padding.valid.shape[0]:
        return {}
    rows = value.reshape(value.shape[0], -1)[padding.padded_rows].float()
    spread = float((rows.amax(1) - rows.amin(1)).max())
    adds = masking.name in ("add", "add_", "sub")
    if spread > (HIDES if adds else 0.0) or rows.shape[1] < 2:
        return {}
    made = trace.maker(side)
    while made is not None and made.ins and (made.name in _TURNING or (made.name in _COMPARING and made.ins[0].dtype is torch.bool)):
        made = trace.maker(made.ins[0])
    if made is None and not adds:
        return {}
    text = f"between {float(rows.min()):.3g} and {float(rows.max()):.3g}: too little to hide anything" if adds else HIDES_NOTHING
    return {"hollow": text, "made_site": trace.site(made) if made is not None else None}


def _value(trace: Trace, seen: Seen) -> torch.Tensor | None:
    made = trace.maker(seen)
    return next((t for out, t in zip(made.outs, made.tensors, strict=False) if out.key == seen.key), None) if made is not None else None


def _mask_keys(trace: Trace, padding: Padding) -> tuple[set[int], set[int]]:
    """The mask that is given and all that was made of it alone; and the flags that the model makes of its ids, likewise."""
    given = made_of(trace, padding.mask.tensor) if padding.mask is not None else set()
    key = trace.known_key(padding.leaf.tensor)
    flags = [op.outs[0].key for op in trace.ops if op.outs and op.outs[0].dtype is torch.bool and op.ins and all(s.key == key or s.size == () for s in op.ins)]
    return given, set().union(*(derived(trace, flag) for flag in flags)) if key is not None else set()


def application(trace: Trace, found: Found, pure: set[int]) -> Op | None:
    """The operation just before the culprit that brought the mask (or what was made of it) and the values together."""
    todo, seen = [(s, 0) for s in found.op.ins], set()
    while todo and pure:
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

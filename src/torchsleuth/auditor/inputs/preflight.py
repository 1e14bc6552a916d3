"""Looking at the batch before anything runs: values, dtypes, lengths and masks against what the model declares."""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import nn

from torchsleuth.auditor.inputs import batch as batches
from torchsleuth.auditor.inputs import padded
from torchsleuth.auditor.inputs.batch import Call, Leaf
from torchsleuth.auditor.inputs.endings import end_never_asked
from torchsleuth.auditor.inputs.given import given
from torchsleuth.auditor.inputs.heldrows import lengths_in_another_order, listed_at
from torchsleuth.auditor.inputs.levels import NEAR_ZERO, stretched_bytes
from torchsleuth.auditor.observation import InputFact
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.tracing.beginnings import beginning, way_back
from torchsleuth.auditor.tracing.trace import ARRANGING, Op, Trace

ENOUGH = 32  # elements from which a constant input is no accident of a small example
FEW = 4  # samples may be equal by chance
PIXELS = 128  # whole numbers that stay below are as likely classes of a segmentation, or counts
_REPEATING = {"__getitem__", "select", "expand", "expand_as", "repeat", "tile", "index_select"}
_PICKING = {"__getitem__", "select", "narrow"}
_CONSTANTS = {"ones", "full", "zeros", "ones_like", "full_like", "zeros_like", "new_ones", "new_full", "new_zeros"}
_IMAGE_CHANNELS = (1, 3, 4)
_STATES = ("hidden", "state", "cache", "h0", "c0", "hx")


def batch_facts(call: Call, pad_ids: set[int], begins: bool = False) -> list[InputFact]:
    """`begins`: the first of several calls, the others of which are given something else (the state that a simulation starts from)."""
    found: list[InputFact] = []
    for leaf in call.leaves:
        found += _not_finite(leaf)
    found += _constant(_content(call)) if not begins else []
    found += _lengths(call)
    found += lengths_in_another_order(call, pad_ids)
    found += _mask_shapes(call)
    found += _pad_is_token(call, pad_ids) or _pad_between_words(call)
    found += _polarity(call, pad_ids)
    found += end_never_asked(call)
    return found


def traced_facts(call: Call, trace: Trace) -> list[InputFact]:
    """Facts that need to know what the model did with the input: images that nothing scales."""
    found = []
    for leaf in call.leaves:
        tensor = leaf.tensor
        if tensor.dim() != 4 or tensor.shape[1] not in _IMAGE_CHANNELS or tensor.dtype is torch.bool:
            continue
        key = trace.known_key(leaf.tensor)
        if key is None or tensor.numel() < ENOUGH:
            continue
        values = tensor.detach().float()
        low, high = float(values.min()), float(values.max())
        raw = low >= 0 and PIXELS <= high <= 255 and bool((values == values.round()).all())
        steps = stretched_bytes(values) if not raw and low >= -NEAR_ZERO and high >= PIXELS else None
        taker = _first_taker(trace, key) if raw or steps is not None else None
        if taker is None or taker.name not in ("conv2d", "linear", "conv_transpose2d", "matmul"):
            continue
        if steps is None:
            text = f"`{leaf.name}` holds whole numbers from {low:g} to {high:g}, and `{taker.name}` takes it as it is"
            found.append(InputFact("unscaled-image", leaf.name, text, high, site=trace.site(taker)))
        else:
            text = (f"`{leaf.name}` lies between {low:.4g} and {high:.4g}, in at most 256 levels that are {steps[0]:.3g} apart in the first channel: as whole numbers up to 255, "
                    f"divided by {1 / steps[0]:.3g}; `{taker.name}` takes it as it is")  # fmt: skip
            found.append(InputFact("stretched-image", leaf.name, text, high, site=trace.site(taker)))
    return found


def with_beginnings(facts: list[InputFact], call: Call, step: Trace, where: Site | None) -> list[InputFact]:
    """The same with the expression that made the input, where the program was seen to make it, or its source at the call (`where`) leaves one reading."""
    leaves = {leaf.name: leaf for leaf in call.leaves}

    def made(fact: InputFact) -> Site | None:
        leaf = leaves.get(fact.name)
        return (_made(step, call.numbers.get(leaf.path), fact.kind) or given(where, leaf.path)) if leaf is not None else None

    begun = [dataclasses.replace(fact, made=made(fact)) if fact.made is None else fact for fact in facts]
    begun = [fact for fact in begun if fact.kind != "constant" or fact.name not in leaves or not _written_out(step, call.numbers.get(leaves[fact.name].path), fact.made, where)]
    return [dataclasses.replace(fact, made=listed_at(fact.made)) if fact.kind == "lengths-reordered" else fact for fact in begun]


def _written_out(step: Trace, key: int | None, made: Site | None, where: Site | None) -> bool:
    """The constant stands in the call itself, `policy(torch.ones(64, 1))`: meant so, by a model that has nothing to tell apart."""
    maker = step.producer.get(key) if key is not None else None
    if maker is None or made is None or where is None or step.ops[maker].name not in _CONSTANTS or made.span.file != where.span.file:
        return False
    first, last = (where.span.line, where.span.column), (where.span.end_line, where.span.end_column)
    return first <= (made.span.line, made.span.column) and (made.span.end_line, made.span.end_column) <= last


def _made(step: Trace, key: int | None, kind: str) -> Site | None:
    """Where the input was made; bytes of a picture are scaled where they become numbers of floating point."""
    for op in way_back(step, key) if kind == "unscaled-image" else ():
        if op.place.code is op.place.user_code and op.ins and op.outs and op.outs[0].dtype.is_floating_point > op.ins[0].dtype.is_floating_point:
            return step.site(op)
    return beginning(step, key)


def crash_facts(call: Call, trace: Trace, error: BaseException) -> list[InputFact]:
    """What the inputs have to do with a forward pass that raised."""
    op = trace.failed
    if op is None:
        return []
    site = trace.site(op)
    if op.name == "embedding" and op.ins and (op.ins[0].dtype.is_floating_point or op.ins[0].dtype is torch.bool):
        dtype = _name(op.ins[0].dtype)
        return [InputFact("float-ids", _leaf_name(call, trace, op), f"the embedding is asked for ids of dtype {dtype}", site=site)]
    if op.name == "conv2d" and len(op.ins) > 1 and len(op.ins[0].size) == 4:
        size, wanted = op.ins[0].size, op.ins[1].size[1]
        if size[1] != wanted and size[-1] == wanted:
            text = f"the convolution wants {wanted} channels in axis 1; the input is {list(size)}, with {wanted} in the last axis"
            return [InputFact("channels-last", _leaf_name(call, trace, op), text, site=site, limit=wanted)]
    if op.name in ("cross_entropy", "nll_loss") and len(op.ins) > 1:
        return [dataclasses.replace(fact, made=beginning(trace, op.ins[1].key)) for fact in _label_facts(op.ins[0].size, op.ins[1].size, op.ins[1].dtype, site)]
    if op.name in ("binary_cross_entropy_with_logits", "binary_cross_entropy") and len(op.ins) > 1 and not op.ins[1].dtype.is_floating_point:
        return [InputFact("integer-target", "", f"the targets of `{op.name}` are {_name(op.ins[1].dtype)}, not floating point", site=site, made=beginning(trace, op.ins[1].key))]
    if op.name in ("linear", "conv2d", "conv1d", "matmul") and len(op.ins) > 1:
        first, second = op.ins[0], op.ins[1]
        text = f"`{op.name}` is given {_name(first.dtype)}, its weights are {_name(second.dtype)}"
        if not first.dtype.is_floating_point and second.dtype.is_floating_point:
            return [InputFact("integer-input", _leaf_name(call, trace, op), text, site=site)]
        if first.dtype is torch.float64 and second.dtype is torch.float32:
            return [InputFact("double-input", _leaf_name(call, trace, op), text, site=site)]
    return []


def _label_facts(scores: tuple[int, ...], labels: tuple[int, ...], dtype: torch.dtype, site: Site | None) -> list[InputFact]:
    """What is wrong with class labels that the loss has refused."""
    shapes = f"the scores are {list(scores)}, the labels {list(labels)}, {_name(dtype)}"
    if dtype.is_floating_point and len(labels) < len(scores):
        return [InputFact("float-labels", "", f"the class labels are {_name(dtype)}, not integers", site=site)]
    if labels == scores and not dtype.is_floating_point:
        return [InputFact("one-hot-labels", "", shapes, site=site)]
    if len(labels) == len(scores) and len(scores) > 1 and labels[1] == 1 and (labels[0], *labels[2:]) == (scores[0], *scores[2:]):
        return [InputFact("label-column", "", shapes, site=site)]
    if len(labels) == len(scores) - 1 and dtype not in (torch.int64, torch.uint8) and not dtype.is_floating_point:
        return [InputFact("short-labels", "", f"the class labels are {_name(dtype)}, not int64", site=site)]
    return []


def against_configuration(call: Call, trace: Trace) -> list[InputFact]:
    """A forward pass that raised on what the model does not allow: channels elsewhere, sequences longer than its configuration or its table of positions."""
    config = getattr(call.model, "config", None)
    if (channels := getattr(config, "num_channels", None)) is not None:
        for leaf in call.leaves:
            size = leaf.tensor.shape
            if len(size) == 4 and size[1] != channels and size[3] == channels:
                text = f"the model's configuration says {channels} channels in axis 1; `{leaf.name}` is {list(size)}, with {channels} in the last axis"
                return [InputFact("channels-last", leaf.name, text, limit=channels)]
    limit = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    if not isinstance(limit, int):
        return []
    positions = call.leaf("position_ids")
    if positions is not None and positions.tensor.numel() and int(positions.tensor.max()) >= limit:
        text = f"`position_ids` goes up to {int(positions.tensor.max())}; the model's configuration allows {limit} positions (0 to {limit - 1})"
        return [InputFact("too-long", "position_ids", text, int(positions.tensor.max()), limit=limit)]
    said = f"the model's configuration allows {limit}"
    for path, table in call.model.named_modules():
        if isinstance(table, nn.Embedding) and table.padding_idx is not None and "position" in path:
            # Models of RoBERTa's kind: the first position is the one after the padding's own.
            limit, first = table.num_embeddings - table.padding_idx - 1, table.padding_idx + 1
            said = f"`{path}` has {table.num_embeddings} rows, of which the first position takes row {first}: that is enough for {limit}"
            break
    for leaf in batches.sequences(call):
        if leaf.tensor.dim() == 2 and leaf.tensor.shape[1] > limit:
            length = leaf.tensor.shape[1]
            text = f"`{leaf.name}` has {length} positions (shape {list(leaf.tensor.shape)}); {said}"
            site = trace.site(trace.failed) if trace.failed is not None else None
            return [InputFact("too-long", leaf.name, text, length, limit=limit, site=site)]
    return []


def named_tables(facts: list[InputFact], call: Call, model: nn.Module) -> list[InputFact]:
    """Out-of-table lookups, with the input they came from and the table they were made in."""
    named = []
    for fact in facts:
        if fact.kind != "index-out-of-table":
            named.append(fact)
            continue
        leaf = next((leaf for leaf in call.leaves if _holds(leaf, fact)), None)
        try:
            module = model.get_submodule(fact.table)
            table = f"{fact.table or type(module).__name__} ({type(module).__name__})"
        except AttributeError:
            table = fact.table
        named.append(
            InputFact(fact.kind, leaf.name if leaf else "", fact.text, fact.value, fact.position, fact.limit, table, fact.site, fact.count)
        )
    return named


def _holds(leaf: Leaf, fact: InputFact) -> bool:
    tensor = leaf.tensor
    if tensor.is_floating_point() or tensor.dim() != len(fact.position) or any(p >= n for p, n in zip(fact.position, tensor.shape, strict=True)):
        return False
    return int(tensor[fact.position]) == fact.value


def _is_content(leaf: Leaf) -> bool:
    name = leaf.name.lower()
    if batches.is_label(leaf) or batches.looks_like_mask(leaf) or leaf.tensor.dtype is torch.bool:
        return False
    return not any(word in name for word in ("mask", "position", "token_type", "segment", "len", *_STATES))


def _not_finite(leaf: Leaf) -> list[InputFact]:
    tensor = leaf.tensor
    if not tensor.is_floating_point() or "mask" in leaf.name.lower() or "bias" in leaf.name.lower() or tensor.numel() == 0:
        return []
    if math.isfinite(leaf.values.sum()):  # then each of them is
        return []
    bad = ~leaf.values.isfinite()
    if not bad.any():
        return []
    at = tuple(bad.nonzero()[0].tolist())
    kind = "NaN" if leaf.values[at].isnan() else "infinite"
    count = int(bad.sum())
    text = f"`{leaf.name}` holds {count} value{'s' * (count != 1)} that {'are' if count != 1 else 'is'} not finite; the first, at {list(at)}, is {kind}"
    return [InputFact("not-finite", leaf.name, text, None, at, count=count)]


def _constant(content: list[Leaf]) -> list[InputFact]:
    """Inputs whose elements or samples are all equal, where there is no other input to tell the samples apart."""
    found = []
    for leaf in content:
        tensor = leaf.tensor
        if tensor.dim() < 2 or tensor.numel() < ENOUGH or tensor.shape[0] < 2:
            return []
        if not bool((leaf.values == leaf.values.reshape(-1)[0]).all()):
            return []
        found.append(InputFact("constant", leaf.name, f"all {tensor.numel()} elements of `{leaf.name}` are {tensor.reshape(-1)[0].item():g}"))
    return found


def all_alike(call: Call) -> bool:
    """All samples are one and the same to the model."""
    return all(_rows_equal(leaf.values) for leaf in _content(call) if leaf.tensor.dim() > 0)


def _content(call: Call) -> list[Leaf]:
    """What samples are told apart by: a state, too, that is another one for each (a decoder begins with one word, and what the encoder says of the picture)."""
    return [leaf for leaf in call.leaves if _is_content(leaf) or _is_state_of_each(leaf, call.batch_size)]


def _is_state_of_each(leaf: Leaf, count: int | None) -> bool:
    axes = [axis for axis, size in enumerate(leaf.tensor.shape) if size == count]
    return any(word in leaf.name.lower() for word in _STATES) and any(not _rows_equal(leaf.values.movedim(axis, 0)) for axis in axes)


def equal_samples(call: Call, trace: Trace, asked: list[torch.Tensor]) -> list[InputFact]:
    """One sample repeated for the whole batch, of which different answers are asked."""
    content = [leaf for leaf in _content(call) if leaf.tensor.dim() > 0]
    count = call.batch_size
    if not content or count is None or count < FEW or any(leaf.tensor.shape[0] != count or not _rows_equal(leaf.values) for leaf in content):
        return []
    leaf = max(content, key=lambda one: one.tensor.numel())
    answers = next((target for target in asked if target.dim() and target.shape[0] == count and not _rows_equal(target)), None)
    if leaf.tensor.numel() == count or _constant(content):  # which tells it, too
        return []
    if answers is None:
        return _one_piece_again(leaf, count, trace)
    text = f"all {count} samples of `{leaf.name}`, shape {list(leaf.tensor.shape)}, are one and the same, and the loss asks {answers.unique(dim=0).shape[0]} different answers of them"
    repeating = (op for op in way_back(trace, trace.known_key(leaf.tensor)) if op.name in _REPEATING and op.place.direct)
    return [InputFact("equal-samples", leaf.name, text, count=count, made=next((trace.site(op) for op in repeating), None))]


def _one_piece_again(leaf: Leaf, count: int, trace: Trace) -> list[InputFact]:
    """A data set that cut the same piece out of a larger tensor for every number that the loader asked for. One that holds a single sample cuts out nothing."""
    stacked = next((op for op in way_back(trace, trace.known_key(leaf.tensor)) if op.name == "stack" and not op.place.direct and len(op.ins) == count), None)
    picked = [trace.maker(seen) for seen in stacked.ins] if stacked is not None else []
    if any(op is None or op.name not in _PICKING or not op.ins or op.ins[0].size[:1] < (count,) for op in picked):
        return []
    places = {(op.ins[0].key, op.place.user_code, op.place.user_offset, repr(op.plain)): op for op in picked if op is not None}
    if len(places) != 1 or any(unknown in repr(op.plain[0][1:]) for op in places.values() for unknown in ("'tensor'", "'?'")):
        return []
    op = next(iter(places.values()))
    text = f"all {count} samples of `{leaf.name}`, shape {list(leaf.tensor.shape)}, are one and the same; they were cut out of one tensor of {op.ins[0].size[0]} rows"
    return [InputFact("one-piece", leaf.name, text, count=count, made=trace.site(op))]


def _rows_equal(values: torch.Tensor) -> bool:
    return bool((values == values[:1]).all())


def _lengths(call: Call) -> list[InputFact]:
    found = []
    sequences = batches.sequences(call)
    for leaf in call.leaves:
        tensor = leaf.tensor
        if tensor.dim() != 1 or tensor.is_floating_point() or tensor.dtype is torch.bool or "len" not in leaf.name.lower() or not tensor.numel():
            continue
        partner = padded.measured_by(leaf, [s for s in sequences if tensor.shape[0] in s.tensor.shape[:2]])
        if partner is None:
            continue
        batch_first = partner.tensor.shape[0] == tensor.shape[0]
        longest = partner.tensor.shape[1 if batch_first else 0]
        others = [o for o in call.leaves if o is not partner and o.tensor.dim() > 1 and not padded.names_agree(leaf, partner)]
        held = any(int(tensor.max()) <= max(o.tensor.shape[1:]) for o in others)  # by another input, it seems
        if int(tensor.max()) > longest and not held and not (partner.tensor.dim() == 3 and int(tensor.max()) <= partner.tensor.shape[2]):  # or channels come first
            row = int(tensor.argmax())
            text = f"`{leaf.name}[{row}]` is {int(tensor.max())}, but `{partner.name}` has {longest} positions (shape {list(partner.tensor.shape)})"
            found.append(InputFact("length-too-long", leaf.name, text, int(tensor.max()), (row,), longest))
        if int(tensor.min()) < 1:
            row = int(tensor.argmin())
            found.append(InputFact("length-empty", leaf.name, f"`{leaf.name}[{row}]` is {int(tensor.min())}: this row has no valid position", int(tensor.min()), (row,)))
    return found


def _polarity(call: Call, pad_ids: set[int]) -> list[InputFact]:
    """A `transformers` model's attention mask that is 1 at padding and 0 at words."""
    if getattr(call.model, "config", None) is None:
        return []
    for padding in padded.paddings(call, pad_ids):
        if padding.mask is not None and padding.suspicious_polarity and padding.mask.name.endswith("attention_mask") and padding.pad_id is not None:
            hidden, kept = int(padding.valid.sum()), int((~padding.valid).sum())
            text = (
                f"`{padding.mask.name}` is 0 at the {hidden} positions of `{padding.leaf.name}` that hold words and 1 at the {kept} that hold "
                f"only id {padding.pad_id}"
            )
            return [InputFact("mask-polarity", padding.mask.name, text)]
    return []


def _mask_shapes(call: Call) -> list[InputFact]:
    found = []
    ids = {leaf.name.startswith("decoder_"): leaf for leaf in reversed(batches.sequences(call)) if leaf.tensor.dim() == 2}
    for leaf in call.leaves:
        if leaf.name not in ("attention_mask", "decoder_attention_mask"):
            continue
        partner = ids.get(leaf.name.startswith("decoder_"))
        if partner is None or leaf.tensor.dim() != 2:
            continue
        shape, wanted = tuple(leaf.tensor.shape), tuple(partner.tensor.shape)
        if shape == wanted[::-1] and shape != wanted:
            text = f"`{leaf.name}` is {list(shape)}, `{partner.name}` is {list(wanted)}: the mask is transposed"
            found.append(InputFact("mask-shape", leaf.name, text))
        elif shape[0] != wanted[0] or shape[1] < wanted[1]:
            text = f"`{leaf.name}` is {list(shape)}, `{partner.name}` is {list(wanted)}"
            found.append(InputFact("mask-shape", leaf.name, text))
        elif bool((leaf.tensor == 0).all()):
            found.append(InputFact("mask-empty", leaf.name, f"`{leaf.name}` is 0 everywhere: every position is hidden"))
        elif bool((leaf.tensor == 0).all(1).any()):
            row = int((leaf.tensor == 0).all(1).nonzero()[0])
            text = f"row {row} of `{leaf.name}` is 0 everywhere: all of its positions are hidden"
            counts = any(label.tensor.dim() and label.tensor.shape[0] == shape[0] and bool((label.tensor[row] != -100).any()) for label in call.leaves if batches.is_label(label))
            found.append(InputFact("mask-row-counted" if counts else "mask-row-empty", leaf.name, text + (", and its label counts" if counts else "")))
    return found


def _pad_is_token(call: Call, pad_ids: set[int]) -> list[InputFact]:
    """The id that the embedding treats as padding also stands at positions the mask calls valid."""
    found = []
    declared = {
        int(m.padding_idx) for m in call.model.modules() if isinstance(m, nn.Embedding) and m.padding_idx is not None
    }  # fmt: skip
    for padding in padded.paddings(call, pad_ids):
        if padding.mask is None or padding.leaf.tensor.dim() != 2 or padding.pad_id not in declared:
            continue
        where = (padding.leaf.tensor == padding.pad_id) & padding.like_leaf(padding.valid)
        if where.any():
            row, position = where.nonzero()[0].tolist()
            text = (
                f"id {padding.pad_id} is `padding_idx`, and it also stands at {int(where.sum())} valid positions of "
                f"`{padding.leaf.name}`, the first at [{row}, {position}]"
            )
            found.append(InputFact("pad-is-token", padding.leaf.name, text, padding.pad_id, (row, position), count=int(where.sum())))
    return found


def _pad_between_words(call: Call) -> list[InputFact]:
    """The id that the embedding treats as padding ends rows, and also stands alone between words."""
    declared = {m.padding_idx for m in call.model.modules() if isinstance(m, nn.Embedding) and m.padding_idx is not None}
    for leaf in batches.sequences(call):
        if leaf.tensor.dim() != 2 or len(declared) != 1:
            continue
        pad, ids = next(iter(declared)), leaf.values
        words = ids != pad
        after = words.flip(1).cumsum(1).flip(1) > 0
        before = words.cumsum(1) > 0
        alone = ~words & after & before
        runs = alone[:, 1:] & alone[:, :-1]
        ended = int((~after).sum(1).max())  # positions of padding at the end of a row
        if int(alone.sum()) < FEW - 1 or int(alone.any(1).sum()) < 2 or bool(runs.any()) or ended < 2 or bool((~before).any()):
            continue
        row, position = alone.nonzero()[0].tolist()
        text = (f"id {pad} is `padding_idx`, which rows of `{leaf.name}` end in, and it also stands alone between words at {int(alone.sum())} positions, "
                f"the first at [{row}, {position}]")  # fmt: skip
        return [InputFact("pad-is-token", leaf.name, text, pad, (row, position), count=int(alone.sum()))]
    return []


def _first_taker(trace: Trace, key: int) -> Op | None:
    keys = {key}
    for op in trace.ops:
        if op.ins and op.ins[0].key in keys:
            if op.name in ARRANGING:
                keys.update(seen.key for seen in op.outs)
            else:
                return op
    return None


def _leaf_name(call: Call, trace: Trace, op: Op) -> str:
    key = op.ins[0].key if op.ins else None
    return next((leaf.name for leaf in call.leaves if trace.known_key(leaf.tensor) == key), "")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")



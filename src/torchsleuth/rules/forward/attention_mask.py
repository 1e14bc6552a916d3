"""Masks and inputs that attention does not take."""

from __future__ import annotations

import re

from torchsleuth.evidence import Evidence
from torchsleuth.evidence_forward import FailedOperation, Operand
from torchsleuth.model import Diagnosis
from torchsleuth.rule import CrashRule
from torchsleuth.rules.forward._culprits import of_axis, of_tensor
from torchsleuth.rules.forward._report import report
from torchsleuth.rules.forward._words import expr, failed, inferred, line_of, seen, shape

_ATTENTION = ("scaled_dot_product_attention", "multi_head_attention_forward")


class AttentionMask(CrashRule):
    """An attention mask, or a query, key or value, has a shape or dtype that attention does not take.

    What happened
    -------------
    Attention scores have shape [batch, heads, queries, keys]. A padding mask (`key_padding_mask`) has shape
    [batch, keys]; a causal or pairwise mask (`attn_mask`) has shape [queries, keys], or [batch × heads, queries, keys];
    for `scaled_dot_product_attention` anything that broadcasts to [batch, heads, queries, keys].

    Why
    ---
    Typical: a padding mask passed as `attn_mask`; batch and sequence swapped, because `nn.MultiheadAttention` expects
    [sequence, batch, features] unless `batch_first=True`; a mask for one token more or less; a mask per batch but
    not per head; integer masks, which are neither boolean nor additive.

    Example
    -------
    This raises "The shape of the 2D attn_mask is torch.Size([2, 6]), but should be (6, 6).":

        import torch

        layer = torch.nn.MultiheadAttention(16, 4, batch_first=True)
        x = torch.randn(2, 6, 16)
        padding = torch.zeros(2, 6, dtype=torch.bool)
        layer(x, x, x, attn_mask=padding)

    Fix
    ---
    Pass a padding mask as `key_padding_mask`; for `scaled_dot_product_attention` give it the missing dimensions:
    `mask[:, None, None, :]`. Boolean or float, not integer.

    Common false explanations
    -------------------------
    "True always means: keep." In `nn.MultiheadAttention` True means *ignore*, in `scaled_dot_product_attention` *keep*.
    This prints two different results:

        import torch

        q, mask = torch.eye(2)[None], torch.tensor([[True, False], [True, False]])
        keep = torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)
        ignore = torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=~mask)
        print(keep, ignore)
    """

    name = "attention-mask"
    messages = (
        r"attn_mask",
        r"key_padd(ing|ed)_mask",
        r"was expecting embedding dimension of",
        r"key shape .* does not match value shape|key's sequence and batch dims",
        r"embed_dim must be divisible by num_heads",
        r"the batch number of src and tgt must be equal|the feature number of src and tgt",
        r"must match the size of tensor b|expanded size of the tensor|Expected size for first two dimensions of batch2",
        r"[Qq]uery,? (and )?[Kk]ey",
        r"query should be unbatched|key_padding_mask",
    )
    needs = ("operation",)
    priority = 30

    def diagnose(self, evidence: Evidence) -> Diagnosis | None:
        operation = failed(evidence)
        if operation is None:
            return None
        message = line_of(operation.message)
        if "to have the same dtype" in message:
            return None
        own = operation.name in _ATTENTION or operation.module_type in ("MultiheadAttention", "Transformer") or any(
            operand.argument in ("attn_mask", "key_padding_mask") for operand in operation.operands)  # fmt: skip
        if not own and not re.search(r"attn_mask|key_padd|embed_dim must be", message):
            return None
        query, key, mask = (operation.operand(name) for name in ("query", "key", "attn_mask"))
        padding = operation.operand("key_padding_mask", "src_key_padding_mask")
        said = re.search(r"The shape of the (\d)D attn_mask is torch\.Size\(\[([\d, ]*)\]\), but should be \(([\d, ]*)\)", message)
        facts, fixes = [], []
        if said and mask is not None:
            want = tuple(int(n) for n in said[3].split(",") if n.strip())
            facts.append(seen(f"Attention has {want[-2]} queries and {want[-1]} keys here."))
            axis = next((k for k, (a, b) in enumerate(zip(mask.shape, want)) if a != b), -1)
            creates = [of_axis(mask, axis)]
            source = query if query is not None else None
            batches = {size for size in (query.shape[:2] if query is not None and len(query.shape) == 3 else ())}
            # [batch, keys] in either order of the input's first two sizes; a square of the batch's size is neither.
            if len(mask.shape) == 2 and mask.shape[-1] == want[-1] and mask.shape[0] in batches - {want[-2]}:
                facts.append(inferred("It has the shape of a padding mask, [batch, keys]."))
                fixes.append("Pass it as `key_padding_mask` (`src_key_padding_mask` in encoder layers).")
            elif len(mask.shape) == 3:
                fixes.append(f"A 3-D mask needs one matrix for each batch and head: `mask.repeat_interleave(num_heads, dim=0)` gives {shape(want)}.")
            else:
                fixes.append(f"Make the mask {shape(want)}: [queries, keys].")
                if mask.shape[-1] in batches and source is not None and want[-1] == source.shape[0]:
                    fixes.append("If the batch comes first in the input, build the layer with `batch_first=True`.")
                creates.append(of_axis(source, 0 if source is not None and source.shape[0] == want[axis] else 1) if source is not None else (None, ""))
            return report(self.name, operation, title=f"The attention mask {mask.called} has shape {shape(mask.shape)}; {shape(want)} is needed", label=f"{shape(mask.shape)}; {shape(want)} is needed",
                          lead=mask, why="attn_mask says which query may look at which key: one row for each query, one column for each key.",
                          creates=creates, facts=facts, fixes=fixes, shown=4)  # fmt: skip
        if padding is not None and re.search(r"key_padd(ing|ed)_mask", message):
            return self._padding(operation, padding, message)
        if "dtype" in message and mask is not None:
            return report(self.name, operation, title=f"The attention mask {mask.called} has dtype {mask.tensor.dtype}", label="a mask is boolean or float", lead=mask,
                          why="A boolean mask says which keys count; a float mask is added to the scores. An integer mask is neither.",
                          creates=[(mask.dtype_made, f"{mask.called} gets its dtype {mask.tensor.dtype} here")], facts=facts, fixes=[f"`{expr(mask, 'mask')}.bool()`, if 1 means: may be attended to."])  # fmt: skip
        if mask is not None and query is not None and key is not None and operation.name == "scaled_dot_product_attention":
            wanted = (*query.shape[:-1], key.shape[-2])
            if _misfits(mask.shape, wanted):
                axis = _misfits(mask.shape, wanted)[-1]
                fixes = [_missing(mask, wanted)]
                sizes = [of_axis(mask, axis), of_axis(key if axis == -1 else query, -2)]
                if mask.shape == (wanted[0], wanted[-1]):  # a padding mask: its sizes are right, and it lacks dimensions
                    sizes = [of_tensor(mask)]
                return report(self.name, operation, title=f"The attention mask {mask.called} {shape(mask.shape)} does not broadcast to the scores {shape(wanted)}", label=f"{shape(mask.shape)} for scores {shape(wanted)}",
                              lead=mask, why=f"The mask is lined up at the right with the scores [batch, heads, queries, keys] = {shape(wanted)}; sizes must be equal or 1.",
                              creates=sizes, facts=facts, fixes=fixes, shown=4)  # fmt: skip
        width = re.search(r"embedding dimension of (\d+), but got (\d+)", message)
        if width:
            lead = query
            return report(self.name, operation, title=f"{query.called if query else 'The query'} has {width[2]} features; the layer was built for {width[1]}", label=f"last size {width[2]}; {width[1]} is taken",
                          lead=lead, why="The last dimension of query, key and value must be the layer's embed_dim.", creates=[of_axis(query, -1), (operation.made_for(int(width[1])), f"the layer is made for {width[1]} features here")],
                          facts=facts, fixes=["Build the layer with the features that arrive, or project them first."])  # fmt: skip
        if not own:
            return None
        if re.search(r"size of tensor|expanded size|Expected size for first", message) and mask is None:
            return None  # a product inside attention: the rules for products and broadcasting say more
        creates = [of_tensor(operand) for operand in operation.operands[:3]]
        return report(self.name, operation, title="Attention got inputs that do not fit together", label="shapes do not fit", why=f"torch says: {message}", creates=creates, facts=facts)

    def _padding(self, operation: FailedOperation, padding: Operand, message: str) -> Diagnosis:
        if not padding.source:  # torch has made another mask of it on the way
            own = [item for item in operation.call_operands if item.argument.endswith("key_padding_mask") and item.shape == padding.shape]
            padding = own[0] if len(own) == 1 else padding
        data = batch_first_missing(operation, padding)
        creates, facts = [of_tensor(padding)], []
        fixes = [f"A padding mask is [batch, keys]: `{expr(padding, 'mask')}.transpose(0, 1)` if it is the other way round, or `batch_first=True` for the layer."]
        if data is not None:
            facts = [
                inferred(
                    f"{data.called} {shape(data.shape)} and the mask {shape(padding.shape)} agree with one another, batch first. Without `batch_first=True` "
                    f"the layer takes dimension 1 for the batch: {data.shape[1]} sequences of {data.shape[0]} steps."
                )
            ]
            creates.append((operation.module_made, "the layer is made here, without `batch_first=True`"))
            fixes = ["Build the layer with `batch_first=True`."]
        columns = re.search(r"shape\[1\] to be (\d+), but got (\d+)", message)
        if columns and data is None:
            # Its rows were counted first, and are right: the sequence that it was made from has another length than the keys.
            keys = next((item for item in (*operation.call_operands, *operation.operands) if len(item.shape) == 3 and sorted(item.shape[:2]) == sorted((padding.shape[0], int(columns[1])))), None)
            if keys is not None:
                creates.append(of_axis(keys, 1 if keys.shape[1] == int(columns[1]) else 0))
            fixes = [f"Give the mask {columns[1]} columns, one for each key: where tokens are added to a sequence or cut off, do the same to its mask."]
        return report(self.name, operation, title=f"The padding mask {padding.called} {shape(padding.shape)} does not fit the batch", label=f"{shape(padding.shape)} is not [batch, keys]",
                      lead=padding, why=f"A padding mask has one row for each sample and one column for each key. torch says: {message}", creates=creates, facts=facts, fixes=fixes, shown=4)  # fmt: skip


def batch_first_missing(operation: FailedOperation, padding: Operand) -> Operand | None:
    """The input that the mask fits with the batch first, where the layer expects it second.

    Only inside of a transformer layer, whose users mostly put the batch first; beside a bare attention module the mask may
    as well be the one that is turned.
    """
    if not operation.module.endswith("attn"):
        return None
    sizes = {name: next(iter(argument.numbers), None) for name in ("src_len", "bsz") if (argument := operation.argument(name)) is not None}
    if len(padding.shape) != 2 or padding.shape != (sizes.get("src_len"), sizes.get("bsz")):
        return None
    return next((item for item in (*operation.operands, *operation.call_operands) if len(item.shape) == 3 and item.shape[:2] == padding.shape), None)


def _misfits(have: tuple[int, ...], want: tuple[int, ...]) -> list[int]:
    return [axis for axis in range(-min(len(have), len(want)), 0) if have[axis] not in (1, want[axis])]


def _missing(mask: Operand, wanted: tuple[int, ...]) -> str:
    name = expr(mask, "mask")
    if len(mask.shape) == 2 and mask.shape == (wanted[0], wanted[-1]):
        return f"A padding mask needs dimensions for heads and queries: `{name}[:, None, None, :]`."
    if len(mask.shape) == 3 and mask.shape == (wanted[0], *wanted[-2:]):
        return f"A mask for each sample needs a dimension for the heads: `{name}.unsqueeze(1)`."
    return f"Make the mask {shape(wanted)}, or smaller with size 1 where it is the same for all."

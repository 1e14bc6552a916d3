"""Padding that changes the results of real positions."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Move, Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, again, culprit, module_words, number, recomputed
from torchsleuth.model import Confidence, Diagnosis, Role


class PaddingLeak(AuditRule):
    """The content or the amount of padding changes the output at real positions.

    What happened
    -------------
    torchsleuth changed only what stands at padded positions (or appended more of them) and ran the
    model again. Outputs at positions that hold real data moved, by far more than rounding. The
    expression named is the first one, in order of execution, whose result moved at real positions.

    Why
    ---
    Rows of a batch are padded to a common length. Every operation that combines positions (attention,
    a mean over time, the last step of a recurrent network, a convolution) must leave padded positions
    out. If it does not, a sentence is read differently depending on how long its neighbours in the
    batch are: training and evaluation see different functions, and nothing crashes.

    Example
    -------
    The mean runs over 4 positions although only 2 are real. This prints 1.5 and then 0.75, the second
    of which depends on the padding:

        import torch

        x = torch.tensor([[1.0, 2.0, 0.0, 0.0]])
        mask = torch.tensor([[1.0, 1.0, 0.0, 0.0]])
        print(((x * mask).sum(1) / mask.sum(1)).item())
        print(x.mean(1).item())

    Fix
    ---
    Give the mask to the operation that combines positions: `masked_fill(mask == 0, -inf)` on attention
    scores before the softmax, `key_padding_mask=` for `nn.MultiheadAttention` (True where there is
    padding), `attn_mask=` for `scaled_dot_product_attention` (True where there is data), a masked sum
    divided by the number of real positions instead of `mean`, `pack_padded_sequence` or the step at
    `length - 1` for recurrent networks, `-inf` at padded positions before a maximum.

    Common false explanations
    -------------------------
    "Padding is zero, so it does not count": it counts in the denominator of a mean and in the
    denominator of a softmax, it is the largest of numbers below zero, and biases and position
    embeddings make it non-zero after one layer.
    "`ignore_index` takes care of it": that only leaves padded labels out of the loss.
    """

    name = "padding-leak"
    order = 10

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for move in observation.moves:
            if move.kind == "padding-maximum":
                yield _maximum(move)
            elif move.kind in ("padding", "padding-length", "padding-shorter"):
                yield _diagnosis(observation, move)


_ATTENTION = {"multi_head_attention_forward", "scaled_dot_product_attention"}
_COUNTING = {"mean", "sum", "div", "var", "std", "var_mean", "std_mean", "norm", "layer_norm", "instance_norm", "group_norm", "batch_norm", "avg_pool1d", "cumsum"}


def _remedy(operation: str) -> str:
    if "softmax" in operation:
        return "Fill the scores of padded positions with `-inf` before the softmax: `masked_fill(~mask, float('-inf'))`."
    if operation == "multi_head_attention_forward":
        return "Give this attention the mask of the padding of its keys (`key_padding_mask=`, `src_key_padding_mask=`, `memory_key_padding_mask=`): True where there is padding."
    if operation == "scaled_dot_product_attention":
        return "Give this attention `attn_mask=`: True where a key is real."
    if operation in _COUNTING:
        return "Use real positions only: sum over them and divide by their number."
    return "Let no result of a row depend on the padded length: use its real positions only (the step at `length - 1`, a sum over them)."


def _maximum(move: Move) -> Diagnosis:
    assert move.site is not None
    facts = [f"{move.changed} changes {move.where}"]
    if where := module_words(move.site):
        facts.append(f"the maximum is that of `{move.operation}`, shape {list(move.operation_shape)}, {where}")
    return Diagnosis(
        PaddingLeak.name, "padded positions hold zero, and zero wins the maximum" if move.zero else "padded positions win the maximum", Confidence.LIKELY if move.assumed else Confidence.CERTAIN,
        (culprit(move.site, Role.CREATE, f"`{move.operation}` takes what stands at padded positions for values"),), recomputed(*facts),
        f"Where all real values of a feature are {'negative, zero is larger' if move.zero else 'less than what stands at padded positions'}, and the "
        "padding decides. A row with padding gets another result than the same row without.",
        (advice("Fill padded positions with `-inf` before the maximum: `masked_fill(~mask, float('-inf'))`."),),
    )  # fmt: skip


def _hides_queries(move: Move) -> bool:
    """The mask runs along the last axis but one of square scores, and stands still along the last."""
    mask, scores = move.mask_shape, move.masked_shape
    return "softmax" in move.operation and len(mask) >= 2 and len(scores) >= 2 and mask[-1] == 1 < mask[-2] == scores[-2] == scores[-1]


def _axis(move: Move) -> int:
    return len(move.masked_shape) - 2


def _diagnosis(observation: Observation, move: Move) -> Diagnosis:
    culprits = []
    site = move.site or observation.call
    what = f"`{move.operation}` gives a result that moves with the padding" if move.operation else "the padding shows in its result"
    if move.mask_unused and move.made_site is not None and (site is None or move.made_site.span != site.span):
        label = f"`{move.instead}` is given here, `{move.mask_name}` is not" if move.instead else f"`{move.mask_name}` is not given here"
        culprits.append(culprit(move.made_site, Role.CALL, label))
    if move.hollow and move.made_site is not None:
        culprits.append(culprit(move.made_site, Role.CREATE, f"this mask is {move.hollow}"))
    if move.mask_site is not None and not any(c.span == move.mask_site.span for c in culprits):
        label = f"the mask lies along axis {_axis(move)} here, and the keys are the last one" if _hides_queries(move) else \
            "the mask is applied here, and does not hide the padding"  # fmt: skip
        culprits.append(culprit(move.mask_site, Role.CREATE, label))
    if site is not None and (move.mask_site is None or site.span != move.mask_site.span):
        culprits.append(culprit(site, Role.CALL if site.library else Role.CREATE, what))
    facts = [f"{again(move)}{move.changed} moved {move.where} by {number(move.distance)}; rounding explains {number(move.rounding)}"]
    if move.site is not None and move.operation:
        where = module_words(move.site)
        shape = f", shape {list(move.operation_shape)}" if move.operation_shape else ""
        library = f" inside {move.site.library}" if move.site.library else ""
        facts.append(f"the first result that moved at real positions is that of `{move.operation}`{shape}{library}{' ' + where if where else ''}")
    if _hides_queries(move):
        facts.append(f"the mask has shape {list(move.mask_shape)} where it meets {list(move.masked_shape)}: it fills whole rows of the scores, and no key is hidden")
    if move.unmasked:
        facts.append(f"`{move.operation}` was given no `{move.unmasked}`")
    if move.hollow:
        facts.append(f"the mask that is made of `{move.mask_name}` and applied there is {move.hollow}, in rows that have padding")
    if move.mask_unused:
        facts.append(f"nothing in the model uses `{move.mask_name}`" + (f"; `{move.instead}` is used in its place" if move.instead else ""))
    if move.inverted:
        facts.append("changing a real token moved no other real position: the mask hides the words and keeps the padding")
    if move.assumed:
        facts.append("no mask, lengths or pad id were given; the runs of id 0 at the end of rows were taken for padding")
    if move.inverted:
        title = f"the mask `{move.mask_name}` hides the words and keeps the padding"
        fix = advice(f"Invert the mask where it is applied, or give `{move.mask_name}` the other way round.")
    elif move.instead:
        title = f"the mask `{move.mask_name}` is not used, and padding leaks into the output"
        fix = advice(f"Hand `{move.mask_name}` on to the operation that combines positions, in the place of `{move.instead}`.")
    elif move.unmasked or _hides_queries(move):
        title = "padding takes part in an attention: nothing hides its keys"
        whole = " (`memory_key_padding_mask=` for what a decoder of `nn.Transformer` reads)" if move.unmasked == "key_padding_mask" else ""
        fix = advice(f"Give it the padding of what it attends to: `{move.unmasked}=`{whole}." if move.unmasked else
                     "Let the mask lie along the keys, the last axis of the scores: `mask[:, None, None, :]` for [batch, heads, queries, keys].")  # fmt: skip
    elif move.hollow:
        title = f"the mask made of `{move.mask_name}` hides nothing, and padding leaks into the output"
        fix = advice("Add a large negative number to the scores of padded keys, such as `-1e9` or `torch.finfo(scores.dtype).min`."
                     if "too little" in move.hollow else "Make a mask that differs between real and padded positions: lengths must be counted in the "
                     "steps that the mask is laid along (after a subsampling, in its steps).")  # fmt: skip
    elif move.kind in ("padding-length", "padding-shorter"):
        title = "the output depends on how much padding a row has"
        fix = advice(_remedy(move.operation))
    elif move.pooled:
        title = "padding leaks into the pooled output"
        fix = advice(_remedy(move.operation)) if move.operation in _ATTENTION and not move.mask_site else advice("Leave padded positions out where positions are combined: a masked sum over the number of real positions, "
                     "the step at `length - 1`, or the mask given to the attention.")  # fmt: skip
    else:
        title = "padding leaks into the outputs at real positions" if "position" in move.where else "padding leaks into the output"
        fix = advice("Give the padding mask to the operation that combines positions." if not move.mask_name else
                     f"Make the operation that combines positions leave out what `{move.mask_name}` marks as padding.")  # fmt: skip
    explanation = (
        "Positions that hold no data must not influence those that do. Here they do, so the result for a row depends on "
        "the length of its neighbours in the batch, and differs between training and inference."
    )
    confidence = Confidence.LIKELY if move.assumed or move.kind in ("padding-length", "padding-shorter") else Confidence.CERTAIN
    return Diagnosis(PaddingLeak.name, title, confidence, tuple(culprits), recomputed(*facts), explanation, (fix,))

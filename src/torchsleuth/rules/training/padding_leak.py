"""Padding that changes the results of real positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchsleuth.auditor.observation import Move, Observation
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.verdicts import (
    AuditRule,
    advice,
    again,
    astray_fix,
    astray_mask,
    astray_words,
    culprit,
    module_words,
    number,
    observed,
    recomputed,
    turned_mask,
    turned_title,
    turned_words,
    turning,
)
from torchsleuth.model import Confidence, Diagnosis, Role


class PaddingLeak(AuditRule):
    """The content or the amount of padding changes the output at real positions.

    What happened
    -------------
    torchsleuth changed only what stands at padded positions (or appended more of them) and ran the
    model again. Outputs at positions that hold real data moved, by far more than rounding. The
    expression named is the first one, in order of execution, whose result moved at real positions. Or it
    is the other way round: changing the last real position of every row moved nothing, because lengths,
    a mask or an index are one too small.

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
            elif move.kind == "padding-positions":
                yield _positions(move, move.site or observation.call)
            elif move.kind == "padding-choices":
                yield _choices(move, move.site or observation.call)
            elif move.kind == "padding-short":
                yield _short(move)
            elif move.kind == "padding-packed":
                yield _packed(move)
            elif move.kind == "padding-shorter" and any(one.kind == "features" for one in observation.broadcasts):
                continue  # the neighbours' lengths reach a row by that
            elif move.kind in ("padding", "padding-length", "padding-shorter") and not _same_mask(move, observation.moves):
                yield _diagnosis(observation, move)


_COUNTING = {"mean", "sum", "div", "var", "std", "var_mean", "std_mean", "norm", "layer_norm", "instance_norm", "group_norm", "batch_norm", "avg_pool1d", "cumsum"}
_RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}
_ANYHOW = "Let no result of a row depend on the padded length: use its real positions only (the step at `length - 1`, a sum over them)."


def _remedy(move: Move) -> str:
    """What to do at this kind of operation; "" where that depends on what it is for."""
    operation, (mask, made) = move.operation, _real(move)
    if "softmax" in operation:
        return f"Fill the scores of padded positions with `-inf` before the softmax: `masked_fill(~{mask}, float('-inf'))`.{made}"
    if operation == "multi_head_attention_forward":
        return "Give this attention the mask of the padding of its keys (`key_padding_mask=`, `src_key_padding_mask=`, `memory_key_padding_mask=`): True where there is padding."
    if operation == "scaled_dot_product_attention":
        return "Give this attention `attn_mask=`: True where a key is real."
    if operation in ("sum", "cumsum"):
        return f"Let padded positions add nothing: set them to zero just before, as `(x * {mask}[..., None]).{operation}(1)` does along axis 1.{made}"
    if operation in _COUNTING:
        example = f", as `(h * {mask}[..., None]).sum(1) / {mask}.sum(1, keepdim=True)` does along axis 1" if operation == "mean" else ""
        return f"Use real positions only: sum over them and divide by their number{example}.{made if example else ''}"
    if operation in _RECURRENT:
        return (
            "Give the layer the real steps only: `pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)` (without "
            "`batch_first` if time comes first), and `pad_packed_sequence` after it. One direction alone may also be read at `length - 1`."
        )
    if operation.startswith("conv"):
        return f"Set padded positions to zero before each convolution that reaches beyond one position: `x.masked_fill(~{mask}, 0)`, with `{mask}` along the positions.{made}"
    return ""


def _real(move: Move) -> tuple[str, str]:
    """A name for what is True at real positions, and a sentence that says what it is, where the model has none for it."""
    if not move.real or move.real.isidentifier():
        return move.real or "mask", ""
    return "real", f" Here `real = {move.real}`."


def _maximum(move: Move) -> Diagnosis:
    assert move.site is not None
    facts = [f"{move.changed} changes {move.where}"]
    if where := module_words(move.site):
        facts.append(f"the maximum is that of `{move.operation}`, shape {list(move.operation_shape)}, {where}")
    larger = "negative, zero is larger, and the padding decides" if move.zero else "less than what stands at padded positions, the padding decides"
    return Diagnosis(
        PaddingLeak.name, "padded positions hold zero, and zero wins the maximum" if move.zero else "padded positions win the maximum", Confidence.LIKELY if move.assumed else Confidence.CERTAIN,
        (culprit(move.site, Role.CREATE, f"`{move.operation}` takes what stands at padded positions for values"),), recomputed(*facts),
        f"Where all real values of a feature are {larger}. A row with padding gets another result than the same row without.",
        (advice("Fill padded positions with `-inf` before the maximum: `masked_fill(~{}, float('-inf'))`.{}".format(*_real(move))),),
    )  # fmt: skip


def _choices(move: Move, site: Site | None) -> Diagnosis:
    culprits = [culprit(site, Role.CREATE, "scores of padded positions are among these")] if site is not None else []
    if move.made_site is not None:
        culprits.append(culprit(move.made_site, Role.CALL, f"`{move.operation}` chooses among all {move.operation_shape[-1]} positions"))
    return Diagnosis(
        PaddingLeak.name, f"`{move.operation}` chooses among positions, and padded ones are not ruled out", Confidence.LIKELY if move.assumed else Confidence.CERTAIN, tuple(culprits),
        recomputed(f"{move.changed} moved {move.where} by {number(move.distance)}, and nothing else: the classes of `{move.operation}`, shape {list(move.operation_shape)}, are positions", move.alone),
        f"`{move.operation}` takes a softmax over all positions. What a padded one is given is taken from the real ones, and the loss of a row depends on how long the others are.",
        (advice("Fill the scores of padded positions before the loss: `scores.masked_fill(~mask, float('-inf'))` (or `-1e9`), with a mask that is True at positions that hold data."),),
    )  # fmt: skip


def _short(move: Move) -> Diagnosis:
    culprits = [culprit(move.made_site, Role.CREATE, f"`{move.mask_name}` is made here" if move.mask_name else "one position too few is counted here")] if move.made_site is not None else []
    if move.site is not None:
        culprits.append(culprit(move.site, Role.CALL, f"`{move.mask_name}` is given here"))
    return Diagnosis(
        PaddingLeak.name, "the last position of every row is left out", Confidence.LIKELY, tuple(culprits), recomputed(move.changed, move.where),
        "A row of n positions has them at 0 to n - 1, and all of them hold data. Here the last one is left out: the model never sees how a row ends.",
        (advice("Count all positions that hold data: `positions < lengths` is True at them, and `lengths - 1` is the last one's number, not how many there are."),),
    )  # fmt: skip


def _packed(move: Move) -> Diagnosis:
    assert move.site is not None
    return Diagnosis(
        PaddingLeak.name, f"`{move.sequence}` is packed with the lengths of `{move.of_other}`", Confidence.CERTAIN,
        (culprit(move.site, Role.CREATE, f"`{move.sequence}` is packed here, with `{move.handed}`"),), observed(move.changed),
        "A row that is longer than it is said to be loses its end; in one that is shorter, padding is read like data.",
        (advice(f"Pack `{move.sequence}` with its own lengths, `{move.mask_name}`."),),
    )  # fmt: skip


def _positions(move: Move, site: Site | None) -> Diagnosis:
    mask = f"{move.mask_name}.long()" if move.mask_name else f"({move.sequence} != {move.pad_id}).long()"
    counted = f"({mask}.cumsum(1) - 1).clamp(min=0)"
    own = not move.not_given
    return Diagnosis(
        PaddingLeak.name, "padding before the words shifts their positions", Confidence.LIKELY,
        (culprit(site, Role.CREATE if own else Role.CALL, "positions are counted from the first column here" if own else f"`{move.not_given}` is not given here"),) if site is not None else (),
        recomputed(
            f"{move.changed} moved {move.where} by {number(move.distance)}",
            f"with {'positions' if own else f'`{move.not_given}`'} that begin with 0 at the first word the two agree to {number(move.rounding)}",
        ),
        ("Positions are counted from the first column of the batch." if own else "Where no positions are given, they are counted from the first column.")
        + " With padding on the left a word's position then depends on how long the other rows of its batch are.",
        (advice((f"Count each row's positions from its first word: `positions = {counted}`" if own else f"Give this call positions that are counted from the first word: `{move.not_given}={counted}`") + "; or pad on the right."),),
    )  # fmt: skip


def _hides_queries(move: Move) -> bool:
    """The mask runs along the last axis but one of square scores, and stands still along the last."""
    mask, scores = move.mask_shape, move.masked_shape
    return "softmax" in move.operation and len(mask) >= 2 and len(scores) >= 2 and mask[-1] == 1 < mask[-2] == scores[-2] == scores[-1]


def _axis(move: Move) -> int:
    return len(move.masked_shape) - 2


def _same_mask(move: Move, moves: Sequence[Move]) -> bool:
    """Another place where the same wrong mask is used has been named: it is made in one. Or this very place has: padded sentences show among padded words."""
    before = moves[: moves.index(move)]
    if any((one.aside or one.hollow) and one.sequence == move.sequence and one.site is not None and move.site is not None and one.site.span == move.site.span for one in before):
        return True
    made = move.made_site if move.aside or move.hollow else None
    return made is not None and any((one.aside or one.hollow) and one.made_site is not None and one.made_site.span == made.span for one in before)


def _diagnosis(observation: Observation, move: Move) -> Diagnosis:
    culprits = []
    site = move.site or observation.call
    made_of = f"`{move.mask_name}`" if move.mask_name and not move.mask_of_ids else "the ids"
    what = f"`{move.operation}` is given the mask of `{move.of_other}`, and what it looks at is `{move.sequence}`" if move.of_other and move.unmasked == "" and not move.mask_site else \
        "the state goes on through padded steps here" if move.carried else \
        f"no {'mask' if site is not None and site.library else f'`{move.unmasked}`'} is given here: the padding is looked at like data" if move.unmasked and not move.not_given else \
        f"`{move.operation}` gives a result that moves with the padding" if move.operation else "the padding shows in its result"  # fmt: skip
    apart = move.made_site is not None and (site is None or move.made_site.span != site.span)
    if move.made_site is not None and move.turned and apart:
        culprits.append(culprit(move.made_site, Role.CREATE, f"`{move.mask_name}` is made here, zero at padding"))
    elif move.made_site is not None and move.idle_mask:
        label = f"`{move.idle_mask}` is made here, {move.idle_width} for every row" if move.idle_width else f"`{move.idle_mask}` is made here, the same at all positions"
        culprits.append(culprit(move.made_site, Role.CREATE, label))
    elif move.made_site is not None and move.not_given and apart:
        culprits.append(culprit(move.made_site, Role.CALL, f"`{move.not_given}` is not given here"))
    elif move.made_site is not None and move.aside and not move.hollow and apart and not move.inverted:
        label = f"`{move.handed}` is given here, and hides other positions" if move.handed else "this mask hides other positions"
        culprits.append(culprit(move.made_site, Role.CALL if move.handed else Role.CREATE, label))
    elif move.made_site is not None and move.mask_unused and apart:
        label = f"`{move.instead}` is given here, `{move.mask_name}` is not" if move.instead else f"`{move.mask_name}` is not given here"
        culprits.append(culprit(move.made_site, Role.CALL, label))
    if move.mask_axis and move.made_site is not None and apart:
        culprits.append(culprit(move.made_site, Role.CREATE, f"runs along axis {move.operation_axis}, and the mask lies along axis {move.mask_axis}"))
    if move.repeated and move.made_site is not None:
        culprits.append(culprit(move.made_site, Role.CREATE, f"repeats the mask as a whole, {move.repeated} times"))
    if move.hollow and move.made_site is not None:
        culprits.append(culprit(move.made_site, Role.CREATE, f"this mask is {move.hollow}"))
    culprits += astray_mask(move)
    if move.read_at is not None and site is not None and move.read_at.span.line != site.span.line:
        culprits.append(culprit(move.read_at, Role.CREATE, "the positions to be read are made here"))
    if move.mask_site is not None and not any(c.span == move.mask_site.span for c in culprits):
        label = f"the mask lies along axis {_axis(move)} here, and the keys are the last one" if _hides_queries(move) else \
            "scores are multiplied with the mask here: those of padded keys are 0, not hidden" if move.multiplied else \
            f"scores of padded keys are filled with {move.filled} here, not hidden" if move.filled else \
            f"the mask of `{move.of_other}` is applied here, to `{move.sequence}`" if move.of_other else \
            "the mask is applied here, and does not hide the padding"  # fmt: skip
        culprits.append(culprit(move.mask_site, Role.CREATE, label))
    if move.padded_site is not None and (site is None or move.padded_site.span != site.span):
        culprits.append(culprit(move.padded_site, Role.CREATE, f"`{move.sequence}` is padded here, and no mask goes with it"))
        what = f"the model is called in here, without `{move.unmasked}`: the padding is looked at like data"
    if site is not None and (move.mask_site is None or site.span != move.mask_site.span):
        culprits.append(culprit(site, Role.CALL if site.library else Role.CREATE, what))
    way = next((fact.polarity for fact in observation.inputs if fact.polarity is not None), None) if move.inverted and not move.turned else None
    if way is not None:
        taker = next(fact.site for fact in observation.inputs if fact.polarity is way)
        culprits = turned_mask(way, taker)
    if move.kept_site is not None:
        culprits.append(culprit(move.kept_site, Role.CREATE, "and is kept here for all rows, also for those whose steps are padding"))
    facts = [f"{again(move)}{move.changed} moved {move.where} by {number(move.distance)}; rounding explains {number(move.rounding)}"]
    if move.site is not None and move.operation:
        where = module_words(move.site)
        shape = f", shape {list(move.operation_shape)}" if move.operation_shape else ""
        library = f" inside {move.site.library}" if move.site.library else ""
        what = "state that a padded step changed, and that is used after it," if move.carried else "result that moved at real positions"
        facts.append(f"the first {what} is that of `{move.operation}`{shape}{library}{' ' + where if where else ''}")
    if move.declares is not None:
        facts.append(f"`pad_token_id` of the model's configuration is {move.declares}, and id {move.pad_id} stands at the padded positions of `{move.sequence}`")
    if move.alone:
        facts.append(move.alone)
    if _hides_queries(move):
        facts.append(f"the mask has shape {list(move.mask_shape)} where it meets {list(move.masked_shape)}: it fills whole rows of the scores, and no key is hidden")
    if move.samples_axis:
        facts.append(astray_words(move))
    if move.multiplied:
        facts.append("the softmax gives a score of 0 a weight like any other: a product with a mask before it hides nothing")
    if move.filled:
        facts.append(f"the softmax gives a score of {move.filled} a weight like any other: what is filled with it is not hidden")
    if move.unmasked:
        facts.append(f"the call gives no `{move.unmasked}`" if "_key_" in move.unmasked and not move.unmasked.startswith("key") else f"`{move.operation}` was given no `{move.unmasked}`")
    if move.idle_mask:
        says = f"says {move.idle_width}, the padded width, for every row" if move.idle_width else "is the same at all positions"
        facts.append(f"`{move.idle_mask}` {says}, also where `{move.sequence}` holds nothing but id {move.pad_id} to the end of the row: it hides nothing")
    elif move.not_given:
        facts.append(f"the part of the model that does it takes `{move.not_given}`, and is not given it here")
    if move.hollow:
        facts.append(f"the mask that is made of {made_of} and applied there is {move.hollow}, in rows that have padding")
    if move.aside:
        facts.append(move.aside)
    if move.repeated:
        facts.append(f"the mask is right before it is repeated {move.repeated} times, as a whole; what it is laid along holds the {move.repeated} entries of one sample one after the other")
    if move.mask_axis:
        facts.append(f"the mask hides the padding along axis {move.mask_axis} of the scores, {list(move.masked_shape)}; the softmax runs along axis {move.operation_axis}")
    if move.mask_unused:
        facts.append(f"nothing in the model uses `{move.mask_name}`" + (f"; `{move.instead}` is used in its place" if move.instead else ""))
    if move.read:
        facts.append(move.read)
    if move.inverted:
        facts.append("changing a real token moved no other real position: the mask hides the words and keeps the padding")
    if way is not None and (words := turned_words(way)):
        facts.append(words)
    if move.assumed:
        facts.append(f"no mask, lengths or pad id were given; the runs of id {move.pad_id} at the end of rows were taken for padding")
    remedy = _remedy(move) if move.mask_site is None else ""  # else it has a mask, and that is the matter
    through = f" through `{move.operation}`" if remedy else ""
    if way is not None:
        title, fix = turned_title(way), turning(way)
    elif move.inverted:
        title = f"the mask `{move.mask_name}` hides the words and keeps the padding"
        fix = advice(f"Make `{move.mask_name}` the other way round: zero at positions that hold data." if move.turned else
                     f"Invert the mask where it is applied, or give `{move.mask_name}` the other way round.")  # fmt: skip
    elif move.instead:
        title = f"the mask `{move.mask_name}` is not used, and padding leaks into the output"
        fix = advice(f"Hand `{move.mask_name}` on to the operation that combines positions, in the place of `{move.instead}`.")
    elif move.idle_mask:
        title = f"the lengths `{move.idle_mask}` count the padding, and padding leaks into the output" if move.idle_width else \
            f"the mask `{move.idle_mask}` hides nothing, and padding leaks into the output"  # fmt: skip
        fix = advice(f"Count the real positions of each row: `{move.idle_mask} = ({move.sequence} != {move.pad_id}).sum(1)` (`sum(0)` where time comes first), or the lengths before padding."
                     if move.idle_width else f"Make `{move.idle_mask}` of the ids that it belongs to: `{move.sequence} != {move.pad_id}`.")  # fmt: skip
    elif move.not_given:
        title = "padding takes part in an attention: nothing hides its keys" if move.unmasked or "softmax" in move.operation else \
            "padding leaks into the output: the mask is not handed on"  # fmt: skip
        fix = advice(f"Give the mask of the padding to this call: `{move.not_given}=`.")
    elif move.unmasked and site is not None and site.library:
        title = "padding takes part in an attention: nothing hides its keys"
        fix = advice("Put the mask of the padding into the batch: `attention_mask` for models of `transformers`, 1 at words and 0 at padding." if move.padded_site is not None else
                     "Give this call the mask of its padding: `attention_mask=` for models of `transformers`, 1 at words and 0 at padding.")
    elif move.unmasked or _hides_queries(move):
        title = "padding takes part in an attention: nothing hides its keys"
        whole = " (`memory_key_padding_mask=` for what a decoder of `nn.Transformer` reads)" if move.unmasked == "key_padding_mask" else ""
        fix = advice(f"Give it the padding of what it attends to: `{move.unmasked}=`{whole}." if move.unmasked else
                     "Let the mask lie along the keys, the last axis of the scores: `mask[:, None, None, :]` for [batch, heads, queries, keys].")  # fmt: skip
    elif move.samples_axis:
        title = "the mask of each sample is laid along another axis of the scores, and padding leaks into the output"
        fix = astray_fix(move)
    elif move.multiplied:
        title = "scores are multiplied with the mask before the softmax, and padding keeps its weight"
        fix = advice("Fill the scores of padded keys instead of multiplying them: `scores.masked_fill(mask == 0, float('-inf'))`.")
    elif move.filled:
        title = f"scores of padded keys are filled with {move.filled} before the softmax, and keep a weight"
        fix = advice("Fill them with `float('-inf')` (or `-1e9`), whose weight is 0.")
    elif move.hollow:
        title = f"the mask made of {made_of} hides nothing, and padding leaks into the output"
        fix = advice("Add a large negative number to the scores of padded keys, such as `-1e9` or `torch.finfo(scores.dtype).min`."
                     if "too little" in move.hollow else "Make a mask that differs between real and padded positions: lengths must be counted in the "
                     "steps that the mask is laid along (after a subsampling, in its steps)." if move.mask_name and not move.mask_of_ids else
                     f"Compare the ids with the id that stands at padded positions: {move.pad_id}.")  # fmt: skip
    elif move.mask_axis:
        title = "the softmax runs along another axis than the one along which the mask hides padding"
        fix = advice(f"Let the softmax run along the axis where the mask lies, that of the keys: `dim={move.mask_axis}`.")
    elif move.repeated:
        title = "the mask's rows stand in another order than the samples, and padding leaks into the output"
        fix = advice(f"Repeat each row of the mask: `mask.repeat_interleave({move.repeated}, 0)`.")
    elif move.of_other:
        title = f"the padding of `{move.of_other}` is hidden where that of `{move.sequence}` stands, and padding leaks into the output"
        fix = advice(f"Give this {'call' if move.handed else 'operation'} the mask of `{move.sequence}`, whose padding it is, in the place of " + (f"`{move.handed}`." if move.handed else f"that of `{move.of_other}`."))
    elif move.aside:
        title = "the mask hides other positions than the padding, and padding leaks into the output"
        fix = advice(f"Give this call the mask of `{move.sequence}`, whose padding it is, in the place of `{move.handed}`." if move.handed else
                     "Make a mask that hides the padding, all of it and nothing else (of lengths: `torch.arange(n) >= lengths[:, None]` is True there), laid out like what it is applied to.")  # fmt: skip
    elif move.declares is not None:
        title = f"the model takes id {move.declares} for padding, and padded positions hold {move.pad_id}"
        fix = advice(f"Set `model.config.pad_token_id = {move.pad_id}`, or pad with {move.declares}.")
    elif move.read:
        title = "a padded position is read for a row's last one"
        fix = advice("Read each row at `length - 1`: positions are counted from 0.")
    elif move.carried:
        title = "the state of a loop goes on through padded steps, and padding leaks into the output"
        fix = advice("Keep each row's state where its steps are padding: `state = torch.where(mask[:, t, None], new_state, state)`.")
    elif move.kind in ("padding-length", "padding-shorter"):
        title = "the output depends on how much padding a row has"
        fix = advice(remedy or _ANYHOW)
    elif move.pooled:
        title = f"padding leaks into the pooled output{through}"
        fix = advice(remedy or "Leave padded positions out where positions are combined: a masked sum over the number of real positions, "
                     "the step at `length - 1`, or the mask given to the attention.")  # fmt: skip
    else:
        title = f"padding leaks into the output{'s at real positions' if 'position' in move.where else ''}{through}"
        fix = advice(remedy or (f"Make the operation that combines positions leave out what `{move.mask_name}` marks as padding." if move.mask_name else
                                "Give the padding mask to the operation that combines positions."))  # fmt: skip
    explanation = (
        "Positions that hold no data must not influence those that do. Here they do, so the result for a row depends on "
        "the length of its neighbours in the batch, and differs between training and inference."
    )
    confidence = Confidence.LIKELY if move.assumed or move.kind in ("padding-length", "padding-shorter") else Confidence.CERTAIN
    return Diagnosis(PaddingLeak.name, title, confidence, tuple(culprits), recomputed(*facts), explanation, (fix,))

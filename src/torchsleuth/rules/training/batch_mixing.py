"""Samples of a batch that influence one another."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Move, Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, again, astray_fix, astray_mask, astray_words, culprit, expression_of, module_words, number, recomputed
from torchsleuth.model import Confidence, Diagnosis, Role

_VIEWS = {"view", "reshape", "flatten", "unflatten", "view_as", "reshape_as"}
_NORMALISING = {"softmax", "log_softmax", "mean", "std", "var", "norm", "layer_norm", "normalize", "cumsum", "sum", "max", "amax", "min", "amin",
                "median", "prod", "logsumexp", "cumprod", "logcumsumexp"}  # fmt: skip
_RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}
_ATTENTION = {"multi_head_attention_forward", "scaled_dot_product_attention"}


class BatchMixing(AuditRule):
    """One sample of the batch changes the outputs of the others.

    What happened
    -------------
    torchsleuth changed one sample and nothing else, with the same random numbers. Outputs of other
    samples moved. The expression named is the first whose result moved for other samples.

    Why
    ---
    Samples of a batch are independent: each must get the result it would get alone. They mix when
    `view` or `reshape` is used where `transpose` was meant (the sizes fit, the contents are read in the
    wrong order), when a softmax, mean or norm runs over the batch axis, or when a layer that wants time
    first is given the batch first. BatchNorm in train mode links samples by design; torchsleuth holds
    it still for this test and says so.

    Example
    -------
    `view` does not exchange axes. This prints [[0, 10, 1], [11, 2, 12]], where the samples (0, 1, 2 and
    10, 11, 12) are mixed, and then the right [[0, 1, 2], [10, 11, 12]]:

        import torch

        x = torch.tensor([[0, 10], [1, 11], [2, 12]])  # (time, batch)
        print(x.view(2, 3).tolist())
        print(x.transpose(0, 1).tolist())

    Fix
    ---
    `x.transpose(0, 1)` or `permute` to exchange axes, `view` only to split or join neighbouring ones;
    `dim=-1` (or the class axis) for softmax; `batch_first=True` for recurrent layers and attention that
    are given (batch, time, features).

    Common false explanations
    -------------------------
    "The shape is right, so the data is": a view keeps the order of the elements and re-reads it.
    "Dropout makes the outputs differ": both runs used the same random numbers.
    """

    name = "batch-mixing"
    order = 11

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for move in observation.moves:
            if move.kind != "mixing" or (move.mask_name and any(one.kind == "features" for one in observation.broadcasts)):
                continue  # or it is by that that the neighbours' masks count
            if move.rank and any(one.kind in ("features", "reduced") for one in observation.broadcasts):
                continue  # a table with the samples along both axes cannot be put right in part
            site = move.site or observation.call
            culprits = []
            second = move.setting == "batch_first=True"
            taken = "it runs over the samples" if move.setting.startswith("dim=") else f"it takes the {'second' if second else 'first'} axis for time"
            if move.built_site is not None:
                culprits.append(culprit(move.built_site, Role.CREATE, f"built here with `{move.setting}`: {taken}"))
            astray = astray_mask(move)
            culprits += astray
            if site is not None and not astray:
                culprits.append(culprit(site, Role.CALL if site.library else Role.CREATE, _what(move)))
            if move.begun_site is not None:
                culprits.append(culprit(move.begun_site, Role.CREATE, "begins once, before the loop over the samples"))
            if move.made_site is not None and not move.samples_axis:
                culprits.append(culprit(move.made_site, Role.CREATE, "makes a table of all pairs of samples"))
            fix = "Keep the batch axis out of this operation."
            if move.reordered:
                fix = "Put the results back in the order of the samples: `result[order.argsort()]` (`pack_padded_sequence(…, enforce_sorted=False)` sorts, and puts back, by itself)."
            elif move.begun_site is not None:
                fix = f"Begin anew for each sample: move `{expression_of(move.begun_site)}` into the loop over the samples."
            elif move.mask_name:
                fix = f"Count what `{move.mask_name}` says of each sample on its own (along `dim=1`, with `keepdim=True` where it is divided by), not of all of them together."
            elif move.operation in _VIEWS:
                fix = f"Write `{move.written}`: `view` and `reshape` only re-read the elements in their old order." if move.written else \
                    "Exchange axes with `transpose` or `permute`, and take an axis apart in the order in which it was put together; `view` and `reshape` only re-read the elements in their old order."
            elif move.operation in _NORMALISING:
                fix = f"Give `{move.operation}` the axis of the classes or features, not that of the batch."
            elif move.operation in _RECURRENT | _ATTENTION and not move.setting:
                fix = f"Give it the samples along its axis for samples: here all of them are positions of one sequence (its result is {list(move.operation_shape)})."
            elif move.operation in _RECURRENT | _ATTENTION:
                fix = "Build the layer without `batch_first=True`, or give it (batch, time, features)." if second else \
                    "Build the layer with `batch_first=True`, or give it (time, batch, features)."  # fmt: skip
            where = module_words(move.site)
            yield Diagnosis(
                self.name, "the mask of each sample is laid along another axis of the scores, and hides positions of others" if move.samples_axis else
                "the samples are mixed, and the output depends on none of them" if move.unheard else
                "the results stand in another order than the samples" if move.reordered else
                "a state goes on from one sample to the next" if move.begun_site is not None else "one sample changes the outputs of others", Confidence.CERTAIN, tuple(culprits),
                recomputed(
                    f"{again(move)}{move.changed} moved {move.where} by {number(move.distance)}; rounding explains {number(move.rounding)}",
                    f"the first result that moved for other samples is that of `{move.operation}` in `{expression_of(move.site)}`, "
                    f"shape {f'{list(move.operation_input)} read off as ' * (move.operation in _VIEWS and bool(move.operation_input))}{list(move.operation_shape)}{', ' + where if where else ''}" if move.operation and move.site and not move.samples_axis else "",
                    astray_words(move),
                    f"the layer has `{move.setting}`: {taken}" if move.setting else "",
                    "the changed sample's own output did not move" if move.reordered else "",
                    "no output moved, not even the changed sample's own: what the samples hold goes to others, and is not used" if move.unheard else "",
                ),
                "What a position holds goes to the same position of other samples, not to the other positions of its own; what is read off at the end "
                "holds nothing of the input, and is the same for all samples." if move.unheard else
                "The samples are put in another order, and their results are not put back: each is compared with the label of another sample." if move.reordered else
                "Each sample must get the result it would get alone; here the next one begins with what the last one left." if move.begun_site is not None else
                "Each sample must get the result it would get alone; here it depends on its neighbours, so the same input gives "
                "different answers in different batches.",
                (astray_fix(move) if move.samples_axis else advice(fix),),
            )  # fmt: skip


def _what(move: Move) -> str:
    if move.reordered:
        return "puts the samples in another order"
    if move.crossed:
        return "takes the state that an earlier sample has left" if move.begun_site is not None else "one sample meets another one's results"
    return "mixes the samples" if move.operation else ""

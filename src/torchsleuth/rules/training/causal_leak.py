"""Later tokens that change earlier outputs of a model trained to predict the next token."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import WIDENED, Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, again, culprit, module_words, number, recomputed
from torchsleuth.model import Confidence, Diagnosis, Role

_RECURRENT = "Use a recurrent layer that runs forward only (`bidirectional=False`)."
_CONVOLUTION = "Pad on the left only (`F.pad(x, (kernel_size - 1, 0))`), so that a convolution sees no later position."
_STATISTICS = "Take statistics over the features of one position, or over what came before it (`cumsum`), not over all positions."
_TURN = "Turn the mask round: `tril` where True (or 1) keeps a key, `triu(diagonal=1)` where True hides it."
_POOLING = "Let it see the position itself and earlier ones only: pad on the left (`F.pad(x, (k - 1, 0))`) and not on the right."
_FIXES = {
    "lstm": _RECURRENT, "gru": _RECURRENT, "rnn_tanh": _RECURRENT, "rnn_relu": _RECURRENT, "conv1d": _CONVOLUTION,
    **dict.fromkeys(("mean", "var", "std", "var_mean", "std_mean", "sum", "norm", "layer_norm", "group_norm", "instance_norm", "max", "amax"), _STATISTICS),
    **dict.fromkeys(("roll", "__getitem__", "flip", "cat", "gather", "index_select", "cumsum"), "Let each position see itself and earlier ones only."),
    **dict.fromkeys(("avg_pool1d", "max_pool1d", "conv2d", "unfold"), _POOLING),
}  # fmt: skip


class CausalLeak(AuditRule):
    """A later token changes the prediction at an earlier position.

    What happened
    -------------
    The model is trained to predict the next token (its loss compares position t with token t + 1), or
    it builds a triangular mask. torchsleuth changed one token, and outputs at earlier positions moved.

    Why
    ---
    A model that predicts token t + 1 must not see token t + 1. If attention has no causal mask, or one
    that is off by one, the training loss falls quickly because the answer is part of the input, and
    generation, where there is no later token to look at, is nonsense.

    Example
    -------
    `triu(diagonal=2)` hides only what lies two steps ahead. This prints a weight above zero for the
    next token, which position 0 must not see:

        import torch

        scores = torch.zeros(3, 3)
        hidden = torch.ones(3, 3).triu(diagonal=2).bool()
        weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), -1)
        print(weights[0, 1].item())

    Fix
    ---
    `is_causal=True` in `scaled_dot_product_attention`, or a mask that is `-inf` strictly above the
    diagonal: `torch.ones(L, L).triu(diagonal=1)`. Convolutions over time need padding on the left only;
    recurrent networks must not be bidirectional.

    Common false explanations
    -------------------------
    "A very low loss means the model is good": at the start of training it means that it copies. "The
    labels are shifted, so nothing can leak": shifting decides what is predicted, not what is seen.
    """

    name = "causal-leak"
    order = 10

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for move in observation.moves:
            if move.kind != "causal":
                continue
            site = move.site or observation.call
            culprits = []
            ahead = f"{move.ahead} position{'s' * (move.ahead > 1)} ahead" if move.ahead > 0 else ""
            turned = move.ahead < 0
            widened = move.setting.startswith(WIDENED)
            if move.built_site is not None:
                label = "zeros are put after the last position here" if widened else f"built here with `{move.setting}`"
                culprits.append(culprit(move.built_site, Role.CREATE, label))
            if move.not_given and move.made_site is not None:
                culprits.append(culprit(move.made_site, Role.CALL, f"`{move.not_given}` is not given here"))
            made = [(move.made_site, "this mask is the wrong way round where it is used" if turned else "this hides nothing" if move.hollow else f"this mask leaves {ahead} visible" if ahead else "this mask shows some positions what lies ahead of them" if move.shows else "a mask that hides what lies ahead is combined here with one that shows it")]
            applied = [(move.mask_site, f"{'it' if move.hollow else 'the mask'} is applied here" + ", and hides earlier positions instead of later ones" * turned)]
            for place, label in applied + made if turned else made + applied:
                if place is not None and not any(c.span == place.span for c in culprits):
                    culprits.append(culprit(place, Role.CREATE, label))
            if site is not None and not any(c.span == site.span for c in culprits):
                label = f"`{move.operation}` lets a later token in" if move.operation else "a later token shows in its result"
                culprits.append(culprit(site, Role.CALL if site.library else Role.CREATE, label))
            where = module_words(move.site)
            yield Diagnosis(
                self.name, "an earlier position sees a later token", Confidence.CERTAIN, tuple(culprits),
                recomputed(
                    f"{again(move)}{move.changed} moved {move.where} by {number(move.distance)}; rounding explains {number(move.rounding)}",
                    f"the first result that moved too early is that of `{move.operation}`, shape {list(move.operation_shape)}"
                    f"{' ' + where if where else ''}" if move.operation else "",
                    f"what is applied to the scores hides nothing: {move.hollow}" if move.hollow else "",
                    f"the mask in use hides what lies further ahead, but lets each position see {ahead}" if ahead else "",
                    f"`{move.operation}` looks at all positions: the `{move.not_given}` that could hide later ones is not given" if move.not_given else "",
                    "the mask in use is the wrong way round: it shows later positions and hides earlier ones" if turned else "",
                    f"its input was widened with `{move.setting}` (before, after)" if widened else f"the layer has `{move.setting}`" if move.setting else "",
                ),
                f"{move.intent} When it generates, later tokens are not there yet: what it learned from them is lost.",
                (advice(_TURN if turned else f"Give this call a mask that hides everything strictly above the diagonal: `{move.not_given}=`." if move.not_given else _FIXES.get(move.operation, "Hide everything strictly above the diagonal (`is_causal=True`, or a mask made with `triu(diagonal=1)`).")),),
            )  # fmt: skip

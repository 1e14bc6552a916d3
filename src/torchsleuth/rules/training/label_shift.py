"""Labels that are compared with the wrong position."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import LabelShift as Seen
from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.observation_parts import Site
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class LabelShift(AuditRule):
    """The loss of a causal model compares position t with token t, t + 2 or t - 1 instead of t + 1.

    What happened
    -------------
    torchsleuth compared the labels that reached the loss with the token ids that went into the model,
    position by position. They match at the wrong distance.

    Why
    ---
    In a causal model the output at position t has seen token t. Comparing it with token t asks it to
    copy; comparing it with token t + 2 asks it to skip one. Models of the `transformers` library shift
    the labels themselves: labels that were shifted beforehand are shifted twice.

    Example
    -------
    Labels that equal the inputs are learned by copying. This prints True, because the prediction at
    each position is compared with the very token that stands there:

        import torch

        ids = torch.tensor([[5, 3, 8, 1]])
        logits = torch.nn.functional.one_hot(ids, 10).float() * 20
        loss = torch.nn.functional.cross_entropy(logits.view(-1, 10), ids.view(-1))
        print(loss.item() < 1e-3)

    Fix
    ---
    `cross_entropy(logits[:, :-1].reshape(-1, V), ids[:, 1:].reshape(-1))` in your own loss;
    `labels=input_ids` (unshifted) for a `transformers` model that computes the loss itself.

    Common false explanations
    -------------------------
    "The loss went to zero, the model has learned the data": it has learned to repeat its input.
    """

    name = "label-shift"
    order = 12

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for shift in observation.shifts:
            if shift.shown_site is not None:
                yield _shown(shift, shift.shown_site)
                continue
            if shift.offset in (0, -1) and not shift.causal:
                continue  # an auto-encoder, a tagger: it may well be asked for the token it sees
            rows = "" if shift.time_first else ":, "
            once = f"Compare `logits[{rows}:-1]` with `ids[{rows}1:]`."
            cut = f"Cut inputs and labels one token apart: `tokens[{rows}:-1]` goes into the model, `tokens[{rows}1:]` is what it is asked for."
            alone = len(shift.labels_sites) < 2 and not shift.site.library  # one cut is seen, and nothing that is known to shift by itself
            decoder = shift.site.library and shift.input_name.startswith("decoder_")
            if decoder and shift.offset == 0:
                once = f"Leave `{shift.input_name}` out: the model makes it of the labels, one position later and with a start token first."
            elif shift.input_name.startswith("decoder_"):
                once = f"Give the model `{shift.input_name}` one position later, with a start token first: `cat([start, labels[:, :-1]], 1)`."
            elif shift.site.library and shift.offset == 0:
                once = f"This model compares position t with label t and shifts nothing: give it `ids[{rows}:-1]` as inputs and `ids[{rows}1:]` as labels."
            elif shift.inputs_site is not None:
                once = cut
            title, fix = {
                0: ("the labels are not shifted: each position is asked for the token it was given",
                    once),
                2: (f"the labels are shifted {'by two' if alone else 'twice'}: each position is asked for the token after the next",
                    "Shift by one in all: the label of position t is token t + 1." if alone else "Shift once: leave one of the two cuts out." if len(shift.labels_sites) > 1 else
                    "Shift once: pass unshifted labels to a model that shifts them itself."),
                -1: ("the labels are shifted the wrong way: each position is asked for the token before it",
                     cut if shift.inputs_site is None else "Move the inputs the other way, with a start token first: `cat([start, labels[:, :-1]], 1)`."),
            }[shift.offset]  # fmt: skip
            token = {0: "token t", 2: "token t + 2", -1: "token t - 1"}[shift.offset]
            facts = [f"the loss compares the prediction at position t with {token} of `{shift.input_name}`: "
                     f"{shift.matched} of {shift.compared} counted labels match it"]  # fmt: skip
            if shift.causal:
                facts.append("changing a later token moved no earlier output: the model is causal, so it is there to predict the next token")
            label = "compares each prediction with the wrong token"
            culprits = []
            if shift.inputs_site is not None:
                culprits.append(culprit(shift.inputs_site, Role.CREATE, "the inputs are cut here, and leave out the token before their first"))
            made = f"the labels are made here: at position t stands {token}"
            if shift.offset == 2:
                made = "the labels are cut here" if len(shift.labels_sites) > 1 or alone else "the labels are shifted here already"
            culprits += [culprit(site, Role.CREATE, made) for site in shift.labels_sites if not decoder]
            if shift.predictions_site is not None and not any(c.span == shift.predictions_site.span for c in culprits):
                culprits.append(culprit(shift.predictions_site, Role.CREATE, "the first predictions are left out here"))
            # Labels that were cut were cut wrongly; tokens that are whole are still to be cut, where they are compared.
            compared = culprit(shift.site, Role.CALL if shift.site.library else Role.OPERAND, label)
            culprits.insert(len(culprits) if shift.labels_cut or shift.inputs_site is not None or shift.offset else 0, compared)
            yield Diagnosis(
                self.name, title, Confidence.CERTAIN if shift.causal else Confidence.LIKELY, tuple(culprits), observed(*facts),
                "A causal model has seen token t at position t and is there to predict token t + 1.", (advice(fix),),
            )  # fmt: skip


def _shown(shift: Seen, called: Site) -> Diagnosis:
    compared = culprit(shift.site, Role.OPERAND, "asks for tokens that the model was shown")
    return Diagnosis(
        LabelShift.name, "the model is shown the tokens that it is asked for", Confidence.LIKELY,
        (culprit(called, Role.CALL, f"`{shift.input_name}` holds them"), *((compared,) if compared.span != called.span else ())),
        observed(f"{shift.compared} labels count, at most half of the tokens; each of them is the token that stands in `{shift.input_name}` at the very same position",
                 "the outputs move with these tokens: the model does not hide them itself"),
        "A model that is to fill in chosen tokens must not see them: here it only has to repeat them, and learns nothing else.",
        (advice(f"Give the model the ids in which the chosen tokens are replaced (by the mask token), and not the ones the labels were made of, as `{shift.input_name}`."),),
    )  # fmt: skip

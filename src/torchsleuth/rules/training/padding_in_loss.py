"""Padded positions that count in the loss."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, observed
from torchsleuth.model import Confidence, Diagnosis, Known, Role


class PaddingInLoss(AuditRule):
    """Labels at padded positions count in the loss, or `ignore_index` drops labels that should count.

    What happened
    -------------
    The labels that reached the loss were compared with the mask of the inputs: at padded positions they
    are not `ignore_index`, so they count; or real positions hold the ignored label. Targets that are numbers
    are zero at all padded positions and at no others, and predictions there are compared with them. Or
    log-probabilities of labels that are picked by hand are averaged over padded positions, too; `ctc_loss` is
    given the padded length for every row; or the id that ends a text also pads, and is left out everywhere.

    Why
    ---
    `cross_entropy` leaves out labels equal to `ignore_index`, which is -100 unless told otherwise. A pad
    label of 0 is a class like any other: the model is rewarded for predicting it at positions that hold
    nothing, and with much padding that is most of the loss. The reverse, `ignore_index=0` where 0 is also
    a real class, never trains that class.

    Example
    -------
    Two of four labels are padding. This prints two different losses, of which the second is right:

        import torch
        import torch.nn.functional as F

        torch.manual_seed(0)
        scores, labels = torch.randn(4, 3), torch.tensor([2, 1, 0, 0])
        print(F.cross_entropy(scores, labels).item())
        print(F.cross_entropy(scores, torch.tensor([2, 1, -100, -100])).item())

    Fix
    ---
    `labels.masked_fill(mask == 0, -100)`, or `ignore_index=` set to a pad label that is no class. Numbers:
    `loss(prediction[mask], target[mask])`.

    Common false explanations
    -------------------------
    "The attention mask takes care of the loss": it only concerns the model.
    """

    name = "padding-in-loss"
    order = 17

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        seen = set()
        for loss in observation.losses:
            if not loss.padded_counted or loss.site.span in seen:
                continue
            seen.add(loss.site.span)
            classes = loss.ignore_index is not None
            label = "label" if classes else "target"
            culprits = [culprit(loss.site, Role.CALL if loss.site.library else Role.OPERAND, f"{label} {loss.pad_label} at padded positions counts")]
            if loss.labels_made is not None and loss.labels_made.span != loss.site.span:
                made = culprit(loss.labels_made, Role.CREATE, f"the {label}s are made here, with {loss.pad_label} at padded positions")
                culprits.insert(0 if loss.pad_label_real or loss.site.library else 1, made)  # it is the only place where one can be told from the other
            if loss.built is not None and classes and not loss.pad_label_real:
                culprits.insert(0, culprit(loss.built, Role.CREATE, f"is made without `ignore_index={loss.pad_label}`", Known.INFERRED))
            yield Diagnosis(
                self.name, f"{loss.padded_counted} padded positions count in the loss", Confidence.CERTAIN if classes else Confidence.LIKELY,
                tuple(culprits),
                observed(
                    f"{loss.padded_counted} of {loss.counted} {label}s that count stand at padded positions; all of them are {loss.pad_label}",
                    f"{loss.pad_label} is also the label of {loss.pad_label_real} real positions" if loss.pad_label_real and classes else "",
                    f"`ignore_index` is {loss.ignore_index}" if classes else
                    "what is predicted there is not zero" + ("" if loss.function.startswith("binary") else ", and the targets of real positions are not"),
                ),
                f"The model is trained to predict the pad {label} where there is nothing, and the loss is an average over positions that hold no data.",
                (advice(f"Set labels at padded positions to {loss.ignore_index}: as `ignore_index`, {loss.pad_label} would drop real labels, too." if classes and loss.pad_label_real else
                        f"Set labels at padded positions to {loss.ignore_index} before the call: `labels.masked_fill(labels == {loss.pad_label}, {loss.ignore_index})`." if classes and loss.site.library else
                        "Set labels at padded positions to -100, or pass the pad label as `ignore_index`." if classes else
                        "Compare real positions only (`loss(prediction[mask], target[mask])`), or multiply by the mask with `reduction=\"none\"` and divide by its sum."),),
            )  # fmt: skip
        for fact in observation.inputs:
            if fact.kind == "padded-frames" and fact.site is not None:
                made = [culprit(fact.made, Role.CREATE, f"says {fact.value} frames for every row")] if fact.made is not None and fact.made.span != fact.site.span else []
                yield Diagnosis(
                    self.name, f"`ctc_loss` aligns {fact.count} padded frames", Confidence.CERTAIN,
                    (*made, culprit(fact.site, Role.OPERAND, "takes padded frames for frames of the recording")), observed(fact.text),
                    "`ctc_loss` sums over all ways to spread the labels over `input_lengths` frames: those that hold nothing are aligned and trained like the others.",
                    (advice("Give `input_lengths` the real number of frames of each row, after the layers that make fewer of them."),),
                )  # fmt: skip
            place = fact.made or observation.call
            if fact.kind == "end-never-asked" and place is not None:
                yield Diagnosis(
                    self.name, f"no label asks for the end of a text: {fact.value} pads, too", Confidence.LIKELY,
                    (culprit(place, Role.CREATE if fact.made is not None else Role.CALL, "these labels leave the end out along with the padding"),), observed(fact.text),
                    "A model that is never asked for the end of a text does not learn to stop: it goes on generating until it is cut off.",
                    (advice("Leave padding out by the mask, not by its id: `labels[attention_mask == 0] = -100`; or give padding an id of its own."),),
                )  # fmt: skip
            if fact.kind == "padding-picked" and fact.site is not None:
                picks = [culprit(fact.made, Role.OPERAND, "log-probabilities of the labels are picked here, of the padded ones, too")] if fact.made is not None and fact.made.span.line != fact.site.span.line else []
                yield Diagnosis(
                    self.name, f"`{fact.name}` counts the log-probabilities of {fact.count} padded labels", Confidence.CERTAIN,
                    (culprit(fact.site, Role.CREATE, "runs over all positions of a row, also those that hold no token"), *picks),
                    observed(fact.text, f"what is picked goes into `{fact.name}` whole: no mask is applied on the way"),
                    "The model is trained to predict the pad token where there is nothing, and what a row gives depends on how long the others are.",
                    (advice("Leave padded labels out: `(picked * real).sum(1) / real.sum(1)` with `real = labels != pad`, or `(picked * real).sum(1)` for a sum."),),
                )  # fmt: skip
            if fact.kind == "ignored-class" and fact.site is not None:
                yield Diagnosis(
                    self.name, f"`ignore_index={fact.value}` drops labels of real {'positions' if fact.position else 'samples'}", Confidence.LIKELY,
                    (*([culprit(fact.made, Role.CREATE, f"is made with `ignore_index={fact.value}`", Known.INFERRED)] if fact.made is not None else []),
                     culprit(fact.site, Role.CALL if fact.site.library else Role.OPERAND)), observed(fact.text),
                    "A label that is both a class and the sign for padding is never trained." if fact.position else "The loss of these samples is left out: their class is never learned.",
                    (advice("Use a label that is no class for padding, such as -100." if fact.position else "Leave `ignore_index` out, or use a number that is no class, such as -100."),),
                )  # fmt: skip

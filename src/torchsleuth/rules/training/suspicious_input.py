"""Inputs that are wrong, or look wrong, before the model has done anything."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import InputFact, Observation
from torchsleuth.auditor.observation_parts import Polarity, Site
from torchsleuth.auditor.verdicts import ADDING, AuditRule, advice, culprit, observed, turned_mask, turned_title, turned_words, turning
from torchsleuth.model import Confidence, Diagnosis, Role

# kind: (title, explanation, fix, confidence)
_KINDS = {
    "not-finite": ("`{name}` holds NaN or infinite values", "NaN spreads through every operation that touches it; the loss and all gradients become NaN.",
                   "Clean the data: drop or fill these values before they reach the model.", Confidence.CERTAIN),
    "constant": ("all elements of `{name}` are equal", "A constant input carries no information: all samples look the same to the model.",
                 "Check how the batch is made.", Confidence.POSSIBLE),
    "equal-samples": ("all samples of `{name}` are the same, and different answers are asked of them", "Equal inputs get equal outputs: the best that can be learned is the average of the "
                      "answers.", "Check how a sample is picked: by its index, or always the same one.", Confidence.LIKELY),
    "one-piece": ("all samples of `{name}` are the same piece of one tensor", "The loader asked for different numbers and got one sample for all of them: a batch of it teaches as much as the sample alone.",
                  "Check how a sample is picked: by the index that `__getitem__` is given.", Confidence.LIKELY),
    "unscaled-image": ("the images in `{name}` are not scaled", "Weights are initialised for inputs of about unit size; with values up to 255 "
                       "everything up to the next normalisation, its gradients too, is hundreds of times too large.", "Divide by 255 and normalise, before the model.", Confidence.LIKELY),
    "stretched-image": ("the images in `{name}` are bytes, normalised with constants for values between 0 and 1", "A mean and a spread for values from 0 to 1 make bytes larger, not "
                        "smaller: everything up to the next normalisation, its gradients too, is hundreds of times too large.", "Divide by 255 before the mean is taken off.", Confidence.LIKELY),
    "channels-last": ("the images in `{name}` have their channels last", "Convolutions take (batch, channels, height, width).",
                      "`images.permute(0, 3, 1, 2)`.", Confidence.CERTAIN),
    "length-too-long": ("`{name}` says more positions than there are", "A length beyond the end reads past the data or fails later.",
                        "Compute the lengths from the data that is passed along with them.", Confidence.CERTAIN),
    "length-empty": ("a row of `{name}` has no valid position", "A mean over no positions is 0/0, and a softmax over nothing is NaN.",
                     "Drop empty rows before they are batched.", Confidence.LIKELY),
    "lengths-reordered": ("the lengths `{name}` stand in another order than the rows", "Each row is read as long as another one is: some lose their end, and padding is read in others.",
                          "Give each row its own length: take the lengths in the order of the rows, or sort both alike (`enforce_sorted=False` sorts, and puts back, by itself).", Confidence.CERTAIN),
    "mask-shape": ("the mask `{name}` does not fit the ids", "A mask must have one entry for each position of each row.",
                   "Make the mask from the ids it belongs to.", Confidence.CERTAIN),
    "mask-transposed": ("the mask is transposed: its rows are the positions, and its columns the samples", "There are as many samples as positions, so torch cannot tell. Each sample is shown "
                        "what the mask says of others, and its own padding is not hidden.", "Make the mask [samples, positions], as the ids are laid; leave out what transposes it.", Confidence.CERTAIN),
    "mask-empty": ("the mask `{name}` hides everything", "With every position hidden, attention has nothing to attend to: the result is NaN or a mean over padding.",
                   "Check the polarity of the mask: 1 keeps a position, 0 hides it.", Confidence.LIKELY),
    "mask-row-empty": ("a row of the mask `{name}` hides everything", "With every position hidden, attention has nothing to attend to: the result is NaN.",
                       "Drop empty rows before they are batched.", Confidence.LIKELY),
    "mask-row-counted": ("a row of the mask `{name}` hides everything, and its label counts", "With every position hidden, attention has nothing to attend to: the result is "
                         "NaN or a mean over padding, and this is what the loss compares with the label.",
                         "Drop empty rows before they are batched, and check the polarity of the mask: 1 keeps a position, 0 hides it.", Confidence.LIKELY),
    "mask-polarity": ("the mask `{name}` hides the words and keeps the padding", "1 keeps a position and 0 hides it. Here it is the other way round: the model reads "
                      "padding only.", "Invert the mask: `1 - mask`, or `ids != pad_id`.", Confidence.CERTAIN),
    "too-long": ("the sequences in `{name}` are longer than the model allows", "A model with learned positions has one row for each position up to its maximum; "
                 "there is none for the rest.", "Cut the sequences (`truncation=True, max_length=…`) or build the model for longer ones.", Confidence.CERTAIN),
    "pad-is-token": ("the pad id is also a real token", "The embedding of `padding_idx` is zero and is never trained, so this token means nothing to the model.",
                     "Use an id for padding that no word has.", Confidence.LIKELY),
    "float-ids": ("token ids are not integers", "An embedding is a table; its row numbers must be integers.", "`ids.long()`.", Confidence.CERTAIN),
    "float-labels": ("class labels are not integers", "Labels that name a class must be integers; floating point labels are read as probabilities for each class.",
                     "`labels.long()`.", Confidence.CERTAIN),
    "short-labels": ("class labels are not of dtype int64", "Labels that name a class must be int64 here.", "`labels.long()`.", Confidence.CERTAIN),
    "one-hot-labels": ("class labels are integers of the same shape as the scores", "Labels of the scores' shape are read as a probability for each class, and these are "
                       "floating point; class numbers have no axis for the classes.", "`labels.float()` for one-hot labels, or the class numbers: `labels.argmax(1)`.", Confidence.CERTAIN),
    "label-column": ("class labels have an axis of size 1 too many", "Labels have the shape of the scores without the axis of the classes.", "`labels.squeeze(1)`.", Confidence.CERTAIN),
    "double-input": ("`{name}` is float64, the weights are float32", "NumPy's numbers are float64 by default; a product of both is not defined.", "`x.float()`.", Confidence.CERTAIN),
    "integer-target": ("targets must be floating point here", "This loss compares probabilities, not class numbers.", "`target.float()`.", Confidence.CERTAIN),
    "integer-input": ("`{name}` holds integers where floating point is needed", "Weights are floating point; a product with integers is not defined.",
                      "`x.float()` (and scale it, if these are pixels).", Confidence.CERTAIN),
    "inverted-integers": ("`~` of zeros and ones does not exchange them", "On integers `~` exchanges every bit: only on bool it is `not`. As a factor the result is neither 0 nor 1.",
                          "Make it bool first, `~flags.bool()`; or `1 - flags`.", Confidence.CERTAIN),
    "wrapped-integers": ("bytes wrap around before they are made floating point", "uint8 holds 0 to 255; what lies outside starts over at the other end, so that dark becomes bright.",
                         "Convert first, then compute: `x.float()`.", Confidence.CERTAIN),
    "collapsed-integers": ("many different numbers are made whole, and (nearly) all become the same", "Making numbers whole cuts off what stands behind the point: of numbers between 0 and 1 nothing is left.",
                           "Look at what it is divided by; or compute in floating point (`x.float() / 255`), and make whole only what is to be counted.", Confidence.LIKELY),
    "stored-changed": ("the data set changes its samples where it stores them", "An index gives a view: what is written into it stays in the data, and the next epoch is computed from "
                       "what this one has left.", "Compute a new tensor (`x = x - mean`), or write into a copy (`x = self.data[i].clone()`).", Confidence.LIKELY),
    "additive-mask": ("a mask of zeros and ones is added to the attention scores", "A floating point mask is added: 0 and 1 hide nothing. Only a bool mask selects.",
                      "Pass a bool mask (`mask.bool()`), or 0 and -inf.", Confidence.CERTAIN),
}  # fmt: skip

_HANDLED = {"not-finite", "length-empty", "mask-row-empty"}  # only wrong if it spoils the result


class SuspiciousInput(AuditRule):
    """The batch itself is wrong: values, dtype, layout, lengths or mask do not fit what the model does with them.

    What happened
    -------------
    Before the forward pass torchsleuth looked at the tensors of the batch: NaN and infinite values,
    inputs that are all equal (or all samples of them, where different answers are asked), pixels from 0 to 255 that go straight into a convolution, channels in the
    last axis, lengths beyond the data or in another order than the rows, masks of another shape, transposed, or that hide everything, ids or labels
    that are not integers, a pad id that is also a word, samples that `__getitem__` changes where they are stored; and results of integers that are taken for numbers: bytes that wrap
    around, `~` of zeros and ones, many numbers that all become one when they are made whole.

    Why
    ---
    Most of these do not crash. A model fed with constant or unscaled data trains, badly; a NaN in one
    sample makes every weight NaN after one step.

    Example
    -------
    One NaN is enough. This prints nan:

        import torch

        x = torch.ones(4, 2)
        x[3, 1] = float("nan")
        print(torch.nn.Linear(2, 1)(x).mean().item())

    Fix
    ---
    Put the batch right where it is made; each finding says what to change.

    Common false explanations
    -------------------------
    "The learning rate is too high": with NaN in the data every learning rate is.
    """

    name = "suspicious-input"
    order = 3

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for fact in observation.inputs:
            if fact.kind in _HANDLED and observation.finite:
                continue  # the model takes care of it: the loss and the gradients are finite
            if fact.polarity is not None:
                yield _inverted(fact, fact.polarity, fact.site or observation.call)
            elif fact.kind in _KINDS:
                yield _diagnosis(observation, fact)


def _inverted(fact: InputFact, way: Polarity, taker: Site | None) -> Diagnosis:
    why = "What is far below zero hides a position where it is added to the scores, and this mask is so at every position that holds data: the model reads padding only." if way.parameter in ADDING else \
          (f"True {'hides' if way.hides else 'keeps'} a position in `{way.parameter}`, and this mask is {'True' if way.hides else 'False'} at every position that holds data: "
           "the model reads padding only.")  # fmt: skip
    return Diagnosis(
        SuspiciousInput.name, turned_title(way), Confidence.CERTAIN,
        tuple(turned_mask(way, taker)), observed(fact.text, turned_words(way)), why, (turning(way),),
    )  # fmt: skip


def _diagnosis(observation: Observation, fact: InputFact) -> Diagnosis:
    title, why, fix, confidence = _KINDS[fact.kind]
    site = fact.site or observation.call
    culprits = []
    if fact.made is not None:
        culprits.append(culprit(fact.made, Role.CREATE, f"`{fact.name}` is made here" if fact.name else "it is made here"))
    if site is not None and not any(c.span == site.span for c in culprits):
        culprits.append(culprit(site, Role.OPERAND if fact.site is not None and not site.library else Role.CALL, (f"`{fact.name}` is given here" if fact.name else "it is given here") * bool(culprits)))
    title = title.format(name=fact.name) if fact.name else title.replace("`{name}`", "the input").replace(" in the input", "")
    return Diagnosis(SuspiciousInput.name, title, confidence, tuple(culprits), observed(fact.text), why, (advice(fix),))

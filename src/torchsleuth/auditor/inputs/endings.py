"""Labels of a language model that is never asked for the end of a text, because the same id pads: left out of the loss wherever it stands."""

from __future__ import annotations

import torch

from torchsleuth.auditor.inputs.batch import Call
from torchsleuth.auditor.observation import InputFact

FEWEST = 3  # rows
IGNORED = -100  # what models of `transformers` leave out


def end_never_asked(call: Call) -> list[InputFact]:
    """Of a `transformers` model that is given ids, their mask and labels: no label asks for `eos_token_id`, which the mask calls a word, and which pads."""
    config, given = getattr(call.model, "config", None), {leaf.name: leaf for leaf in call.leaves}
    end = getattr(config, "eos_token_id", None)
    if not isinstance(end, int) or getattr(config, "is_encoder_decoder", False) or not {"input_ids", "attention_mask", "labels"} <= given.keys():
        return []
    ids, mask, labels = (given[name].values for name in ("input_ids", "attention_mask", "labels"))
    if ids.dim() != 2 or mask.shape != ids.shape or labels.shape != ids.shape or mask.is_floating_point():
        return []
    real, ends, asked = mask != 0, ids == end, labels != IGNORED
    closing = real & ends & torch.nn.functional.pad(asked[:, :-1] & ~ends[:, :-1], (1, 0))  # what stands before it is asked for
    if bool(real.all()) or not bool(ends[~real].all()) or bool((asked & ends).any()) or int(closing.any(1).sum()) < FEWEST:
        return []
    row, position = closing.nonzero()[0].tolist()
    text = (f"`input_ids` holds {end}, the `eos_token_id` of the configuration, at {int((real & ends).sum())} positions that `attention_mask` calls words, the first at "
            f"[{row}, {position}], and at all {int((~real).sum())} padded ones; `labels` is {IGNORED} at every one of them")  # fmt: skip
    return [InputFact("end-never-asked", "labels", text, end, (row, position), count=int((real & ends).sum()))]

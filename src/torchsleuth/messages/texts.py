"""Messages about text where numbers are wanted: a string for an index or a value, and tokenizers whose sequences do not make one."""

from __future__ import annotations

from torchsleuth.messages import Found, Reading, raising, reads, running


@reads(
    r"new\(\): invalid data type '(?P<kind>str|bytes|numpy\.str_)'",
    example="TypeError: new(): invalid data type 'str'",
)
def text_for_numbers(found: Found) -> Reading:
    return Reading(
        "text where a tensor takes numbers",
        "A tensor was indexed with a string, or `torch.tensor` was given one. No dtype of torch holds text, and the dimensions of a tensor have no names to be asked by.",
        (
            "`x['y']` where `x` is a tensor and not the dictionary that was meant: the batch was unpacked already, or a model returned a tensor. (A name with more "
            "letters than the tensor has dimensions reads \"too many indices\": it is taken for a sequence.)",
            "A label or token was not turned into a number: `torch.tensor('cat')`, the key of a dictionary instead of its value.",
            "A number was read from a file and is still text: `'3.5'` of a CSV file, a JSON string, `input()`.",
        ),
        raising("batch = torch.zeros(4, 8)", "batch['y']", raises="TypeError: new(): invalid data type 'str'"),
        (
            "Print `type(x)` before the line: where it is a tensor, take it as it is, or index it with whole numbers.",
            "Give each name a number (`index = {name: n for n, name in enumerate(sorted(set(names)))}`), and convert text that is a number with `float(...)` or `int(...)`.",
        ),
        running(
            "names = ['cat', 'dog', 'cat']",
            "index = {name: n for n, name in enumerate(sorted(set(names)))}",
            "print(torch.tensor([index[name] for name in names]).tolist())",
            prints="[0, 1, 0]",
        ),
    )


@reads(
    r"Unable to create tensor, you should probably activate (?:truncation and/or )?padding(?: with 'padding=True')?",
    example="ValueError: Unable to create tensor, you should probably activate truncation and/or padding with 'padding=True' 'truncation=True' to have "
    "batched tensors with the same length.",
    fragments=(r"unable to create tensor, you should probably activate",),
)
def tokens_of_several_lengths(found: Found) -> Reading:
    return Reading(
        "the sequences of a batch have different lengths, or hold something else than ids",
        "A tokenizer (or `DataCollator`, `tokenizer.pad`) was asked for tensors, and its lists do not form a rectangle. Every row of a tensor has the same length.",
        (
            "The tokenizer was called on several texts with `return_tensors='pt'` and without `padding=True`.",
            "The labels of a token classification have the lengths of their sentences, and the collator pads `input_ids` only: `DataCollatorForTokenClassification` "
            "and `DataCollatorForSeq2Seq` pad labels, too.",
            "A column of text is still in the dataset, or a sample is nested one list too deep: each was tokenized with `return_tensors='pt'`, which adds a batch dimension.",
        ),
        None,
        (
            "`tokenizer(texts, padding=True, truncation=True, return_tensors='pt')`; the lengths differ where it fails, so `truncation=True` alone does not help.",
            "Leave `return_tensors` out where single samples are tokenized and let the collator of the DataLoader pad them.",
        ),
        running(
            "from torch.nn.utils.rnn import pad_sequence",
            "rows = [[5, 6, 7], [8]]",
            "print(pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=0).tolist())",
            prints="[[5, 6, 7], [8, 0, 0]]",
            says="The same by hand:",
        ),
    )


@reads(
    r"Asking to pad but the tokenizer does not have a padding token",
    example="ValueError: Asking to pad but the tokenizer does not have a padding token.",
)
def no_padding_token(found: Found) -> Reading:
    return Reading(
        "the tokenizer has no token to pad with",
        "The tokenizers of GPT-2, Llama and other decoders were trained without padding, so `pad_token` is None and `padding=True` has nothing to write.",
        ("A decoder's tokenizer is used for a batch of texts.",),
        None,
        (
            "`tokenizer.pad_token = tokenizer.eos_token`, with the attention mask handed to the model, and the padded labels set to -100.",
            "Or a token of its own: `tokenizer.add_special_tokens({'pad_token': '[PAD]'})` and then `model.resize_token_embeddings(len(tokenizer))`; without the second "
            "the new id lies past the end of the embedding table.",
            "For a classification set `model.config.pad_token_id`, too: the model looks for the last token that is no padding.",
        ),
    )

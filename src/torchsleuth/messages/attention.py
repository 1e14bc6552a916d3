"""Messages of attention layers about masks and widths."""

from __future__ import annotations

from torchsleuth.messages import OLD_WORDS, Falsehood, Found, Reading, call, dtype, raising, reads, running, shape


@reads(
    r"The shape of the (?P<dims>[23])D attn_mask is torch\.Size\(\[(?P<got>[\d, ]*)\]\), but should be \((?P<want>[\d, ]*)\)",
    example="RuntimeError: The shape of the 2D attn_mask is torch.Size([4, 4]), but should be (5, 5).",
    fragments=(r"shape of the [23]D attn_mask",),
)
def attn_mask_shape(found: Found) -> Reading:
    got, want, dims = found.ints("got"), found.ints("want"), found.int("dims")
    target, source = want[-2:]
    story = []
    if dims == 3 and got[1:] == want[1:] and want[0] % got[0] == 0:
        story.append(
            f"The mask has one matrix per sample ({got[0]}); one per sample and head is needed ({want[0]}): "
            f"`mask.repeat_interleave({want[0] // got[0]}, dim=0)`."
        )
    program = None
    if dims == 2:
        program = raising(
            "layer = torch.nn.MultiheadAttention(8, 2)",
            f"query, key = torch.zeros({target}, 3, 8), torch.zeros({source}, 3, 8)       # [time, batch, features]",
            f"layer(query, key, key, attn_mask=torch.zeros({call(got)}))",
            raises=f"The shape of the 2D attn_mask is torch.Size({shape(got)}), but should be ({call(want)}).",
        )
    elif want[0] % 2 == 0:
        program = raising(
            "layer = torch.nn.MultiheadAttention(8, 2)",
            f"query, key = torch.zeros({target}, {want[0] // 2}, 8), torch.zeros({source}, {want[0] // 2}, 8)",
            f"layer(query, key, key, attn_mask=torch.zeros({call(got)}))",
            raises=f"The shape of the 3D attn_mask is torch.Size({shape(got)}), but should be ({call(want)}).",
        )
    return Reading(
        f"an attention mask of {shape(got)} where {shape(want)} is needed",
        f"`attn_mask` says which key each query may see: [queries, keys] = [{target}, {source}] for all"
        + (", or [batch x heads, queries, keys]" if dims == 2 else f", or [batch x heads, queries, keys] = {shape(want)}")
        + f". This one is {shape(got)}.",
        (
            *story,
            "The mask was made for another sequence length: before a [CLS] token was added, or for the maximal length.",
            "`batch_first` is not what the data is: the layer then takes the batch for the sequence.",
            "A padding mask [batch, keys] was passed as `attn_mask`; it belongs in `key_padding_mask`.",
        ),
        program,
        ("Make it from the input: `nn.Transformer.generate_square_subsequent_mask(x.shape[time])`; pass paddings as `key_padding_mask`.",),
    )


@reads(
    r"Expected key_padd(?:ed|ing)_mask\.shape\[(?P<dim>\d)\] to be (?P<want>\d+), but got (?P<got>\d+)",
    example="AssertionError: Expected key_padded_mask.shape[0] to be 3, but got 5",
    fragments=(r"Expected key_padd(ed|ing)_mask",),
)
def key_padding_mask(found: Found) -> Reading:
    dim, want, got = found.int("dim"), found.int("want"), found.int("got")
    what = "the batch" if dim == 0 else "the number of keys"
    return Reading(
        f"a padding mask whose dimension {dim} is {got}, not {want}",
        f"`key_padding_mask` is [batch, keys], True where a key is padding. Dimension {dim} is {what}, {want} here; the mask has {got}.",
        (
            "`batch_first=True` is missing: the layer reads [time, batch, features] and takes the sequence length for the batch.",
            "The mask is transposed, or was made before truncation or before a special token was added.",
        ),
        raising(
            "layer = torch.nn.MultiheadAttention(8, 2)",
            f"x = torch.zeros(7, {want}, 8)                      # read as [time, batch, features]",
            f"layer(x, x, x, key_padding_mask=torch.zeros({got}, 7, dtype=torch.bool))",
            raises=f"to be {want}, but got {got}",
        )
        if dim == 0
        else None,
        ("Make the layer with `batch_first=True` for [batch, time, features] data; build the mask from the ids: `ids == pad_id`.",),
        running(
            "layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)",
            "x = torch.zeros(3, 7, 8)",
            "print(tuple(layer(x, x, x, key_padding_mask=torch.zeros(3, 7, dtype=torch.bool))[0].shape))",
            prints="(3, 7, 8)",
        ),
        falsehoods=(
            Falsehood(
                "True in `key_padding_mask` means: a real token.",
                "In `nn.MultiheadAttention` True means ignore; the attention masks of transformers models mean the opposite (1 = keep). "
                "The wrong way round raises nothing.",
                running(
                    "layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)",
                    "x = torch.randn(1, 2, 8)",
                    "_, weights = layer(x, x, x, key_padding_mask=torch.tensor([[False, True]]))",
                    "print(weights[0, 0, 1].item())",
                    prints="0.0",
                ),
            ),
        ),
    )


@reads(
    r"expecting key_padding_mask shape of \((?P<want>[\d, ]+)\), but got torch\.Size\(\[(?P<got>[\d, ]*)\]\)",
    example="AssertionError: expecting key_padding_mask shape of (3, 7), but got torch.Size([7, 3])",
)
def key_padding_mask_shape(found: Found) -> Reading:
    want, got = found.ints("want"), found.ints("got")
    turned = got == want[::-1] and got != want
    return Reading(
        f"a padding mask of {shape(got)} where {shape(want)} is needed",
        f"`key_padding_mask` is [batch, keys], True where a key is padding: the layer sees a batch of {want[0]} and {want[1]} keys. The mask is {shape(got)}.",
        (
            *(("The sizes are the other way round: `batch_first=True` is missing, so the layer reads [time, batch, features]; or the mask is transposed.",) if turned else ()),
            "The mask was made before truncation, or before a special token was added.",
            *(() if turned else ("`batch_first` is not what the data is: the layer takes the batch for the sequence.",)),
        ),
        raising(
            "layer = torch.nn.MultiheadAttention(8, 2)",
            f"x = torch.zeros({want[1]}, {want[0]}, 8)                      # read as [time, batch, features]",
            f"layer(x, x, x, key_padding_mask=torch.zeros({call(got)}, dtype=torch.bool))",
            raises="AssertionError: ",
            says=OLD_WORDS,
        )
        if len(got) == 2
        else None,
        ("Make the layer with `batch_first=True` for [batch, time, features] data; build the mask from the ids: `ids == pad_id`.",),
    )


@reads(
    r"was expecting embedding dimension of (?P<want>\d+), but got (?P<got>\d+)",
    example="AssertionError: was expecting embedding dimension of 8, but got 6",
)
def attention_width(found: Found) -> Reading:
    want, got = found.int("want"), found.int("got")
    return Reading(
        f"attention of width {want} got {got} features",
        f"`embed_dim={want}` must be the last size of the query; it is {got}.",
        ("The width of the embedding is another.", "The features are not last."),
        raising(
            f"layer = torch.nn.MultiheadAttention({want}, 1)",
            f"layer(*[torch.zeros(5, 3, {got})] * 3)",
            raises=f"was expecting embedding dimension of {want}, but got {got}",
        ),
        ("Use one width throughout, or project first (`nn.Linear`).",),
    )


@reads(
    r"embed_dim must be divisible by num_heads",
    example="AssertionError: embed_dim must be divisible by num_heads",
)
def heads_divide(found: Found) -> Reading:
    return Reading(
        "the number of heads does not divide the width",
        "Each head gets `embed_dim / num_heads` features, which must be whole.",
        ("The width or the number of heads was changed alone.",),
        raising("torch.nn.MultiheadAttention(8, 3)", raises="embed_dim must be divisible by num_heads"),
        ("Choose a divisor: 8 heads for 512, 12 for 768.",),
    )


@reads(
    r"only bool and floating types of attn_mask are supported",
    r"Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask\.dtype: (?P<mask>[\w: ]+?) and\s+query\.dtype: "
    r"(?P<query>[\w:]+)",
    example="RuntimeError: Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: long int and  "
    "query.dtype: float instead.",
    fragments=(r"attn_mask dtype", r"attn_mask are supported"),
)
def attn_mask_dtype(found: Found) -> Reading:
    kind = f" ({dtype(found['mask'])})" if found.has("mask") else ""
    return Reading(
        f"an attention mask of whole numbers{kind}",
        "A mask is either bool (which keys may be seen) or float (added to the scores: 0 or -inf). Whole numbers 0 and 1 could mean either.",
        ("A tokenizer's `attention_mask` (int64) was passed as it is.", "The mask was built with `torch.tensor([[1, 0]])`."),
        raising(
            "q = torch.zeros(5, 3, 8)",
            "mask = torch.ones(5, 5, dtype=torch.long)",
            "torch.nn.MultiheadAttention(8, 2)(q, q, q, attn_mask=mask)",
            raises=found.match[0],
        )
        if not found.has("mask")
        else raising(
            "q = torch.zeros(2, 4, 5, 8)",
            "mask = torch.ones(5, 5, dtype=torch.long)",
            "torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)",
            raises="RuntimeError: Expected attn_mask dtype to be bool or float",
        ),
        (
            "`mask.bool()`. Mind the meaning: in `scaled_dot_product_attention` True means may be seen, in `nn.MultiheadAttention` True means hidden.",
        ),
        falsehoods=(
            Falsehood(
                "`mask.float()` is the same.",
                "A float mask is added to the scores: 0 and 1 then hide nothing.",
                running(
                    "q, v = torch.zeros(1, 2, 4), torch.tensor([[[1.0], [5.0]]]).expand(1, 2, 4)",
                    "attend = torch.nn.functional.scaled_dot_product_attention",
                    "keep = torch.tensor([[1, 0], [1, 0]])",
                    "print(attend(q, q, v, keep.bool())[0, 0, 0].item(), attend(q, q, v, keep.float())[0, 0, 0].item() > 1.5)",
                    prints="1.0 True",
                ),
            ),
        ),
    )


@reads(
    r"Expected query, key, and value to have the same dtype, but got query\.dtype: (?P<q>[\w: ]+?) key\.dtype: (?P<k>[\w: ]+?) and value\.dtype: "
    r"(?P<v>[\w:]+(?: int)?)",
    example="RuntimeError: Expected query, key, and value to have the same dtype, but got query.dtype: float key.dtype: double and value.dtype: "
    "float instead.",
)
def attention_dtypes(found: Found) -> Reading:
    q, k, v = (dtype(found[g]) for g in "qkv")
    odd = "query" if k == v else "key" if q == v else "value" if q == k else ""
    return Reading(
        "query, key and value have different dtypes",
        f"They are {q}, {k} and {v}." + (f" The {odd} is the odd one out." if odd else ""),
        ("A cached key or value, a rotary or positional table, or a numpy array is kept in another precision.",),
        raising(
            f"q, k, v = (torch.zeros(1, 2, 4, dtype=d) for d in ({q}, {k}, {v}))",
            "torch.nn.functional.scaled_dot_product_attention(q, k, v)",
            raises="RuntimeError: Expected query, key, and value to have the same dtype",
        ),
        ("Convert the odd one: `k.to(q.dtype)`, best where it is made.",),
    )


@reads(
    r"the batch number of src and tgt must be equal",
    r"the feature number of src and tgt must be equal to d_model",
    example="RuntimeError: the batch number of src and tgt must be equal",
)
def transformer_inputs(found: Found) -> Reading:
    batch = "batch" in found.match[0]
    return Reading(
        "source and target of `nn.Transformer` do not fit" if batch else "the features are not `d_model` wide",
        "Source and target need the same batch size. Without `batch_first=True` dimension 1 is the batch and dimension 0 the time."
        if batch
        else "The last size of source and target must be `d_model`.",
        (
            "`batch_first=True` is missing: sequence lengths, which may differ, are compared as batches."
            if batch
            else "The embedding has another width, or ids were passed without an embedding.",
        ),
        raising(
            "model = torch.nn.Transformer(8, 2, 1, 1, 8)",
            "model(torch.zeros(3, 5, 8), torch.zeros(3, 4, 8))" if batch else "model(torch.zeros(5, 3, 6), torch.zeros(5, 3, 6))",
            raises="RuntimeError: " + found.match[0],
        ),
        ("Make the model with `batch_first=True` for [batch, time, features]." if batch else "Use `nn.Embedding(vocabulary, d_model)`.",),
    )

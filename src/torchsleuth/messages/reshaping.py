"""Messages of view, reshape, permute, split, cat, stack and pad."""

from __future__ import annotations

import math

from torchsleuth.messages import OLD_WORDS, Falsehood, Found, Reading, call, count, raising, reads, running, shape


@reads(
    r"shape '\[(?P<shape>[-\d, ]*)\]' is invalid for input of size (?P<size>\d+)",
    r"size '\[(?P<shape>[-\dx ]*)\]' is invalid for input with (?P<size>\d+) elements",
    example="RuntimeError: shape '[32, 10]' is invalid for input of size 70",
    fragments=(r"shape '?\[.{0,40}is invalid for input of size", r"is invalid for input of size"),
)
def invalid_shape(found: Found) -> Reading:
    wanted, size = found.ints("shape"), found.int("size")
    known = math.prod(n for n in wanted if n != -1)
    story: list[str] = []
    if -1 in wanted:
        rest = [n for n in wanted if n != -1]
        meaning = (
            f"The tensor has {size} elements; `-1` would have to be {size} / {known} "
            f"({' x '.join(map(str, rest)) or '1'}), which is not whole."
            if known
            else f"The tensor has {size} elements, and -1 cannot be found beside a size of 0."
        )
    else:
        product = f"{' x '.join(map(str, wanted))} = " if len(wanted) > 1 else ""
        meaning = f"The shape {shape(wanted)} holds {product}{count(known, 'element')}; the tensor has {size}."
    for place, fixed in enumerate(wanted):
        others = math.prod(n for i, n in enumerate(wanted) if i != place and n != -1)
        if fixed > 1 and -1 not in wanted and others and size % others == 0 and size // others > 0:
            said = f"With {size // others} instead of {fixed} in place {place} it would fit"
            if place == 0 and size // others < fixed:
                story.append(f"{said}: a last partial batch of {size // others} rows meets a hard-coded batch size of {fixed}.")
            elif place == 0:
                story.append(f"{said}: a batch of {size // others} rows meets a hard-coded {fixed}.")
            else:
                story.append(f"{said}: is {fixed} a fixed number that the data has outgrown?")
    flat = f"torch.zeros({size})"
    return Reading(
        f"{count(size, 'element')} cannot be arranged as {shape(wanted)}",
        meaning + " A view rearranges elements; it neither drops nor adds any.",
        (
            *story[:2],
            *(() if story or wanted[:1] == (-1,) else ("The batch size is hard-coded, and the last batch is smaller (or evaluation uses another).",)),
            "The size after convolutions and pooling is not the one the `view` was written for: another image size, padding or stride.",
            "The tensor has dimensions the code does not know of (several channels, heads, directions).",
        ),
        raising(f"x = {flat}", f"x.view({call(wanted)})", raises=f"RuntimeError: shape '{shape(wanted)}' is invalid for input of size {size}",
                says=OLD_WORDS if "elements" in found.match[0] else ""),
        (
            "Take sizes from the tensor: `x.view(x.shape[0], -1)`, `x.flatten(1)`; `drop_last=True` only if dropping samples is meant.",
        ),
        falsehoods=(
            Falsehood(
                "`reshape` instead of `view` helps.",
                "`reshape` copies where the memory layout asks for it; the number of elements must be the same all the same.",
                raising(f"x = {flat}", f"x.reshape({call(wanted)})", raises=f"RuntimeError: shape '{shape(wanted)}' is invalid for input of size {size}"),
            ),
        ),
    )  # fmt: skip


@reads(
    r"view size is not compatible with input tensor's size and stride",
    example="RuntimeError: view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
    "contiguous subspaces). Use .reshape(...) instead.",
)
def view_stride(found: Found) -> Reading:
    return Reading(
        "`view` cannot join dimensions that do not lie one after the other in memory",
        "`view` never copies. After `transpose`, `permute`, `expand` or a strided slice the elements are not in memory in the order that "
        "the new shape would read them, so it refuses.",
        ("A `transpose`/`permute` shortly before: heads moved in front in attention, channels-last images.", "A slice such as `x[:, ::2]`."),
        raising("x = torch.zeros(3, 4).t()", "x.view(12)", raises="RuntimeError: view size is not compatible with input tensor's size and stride"),
        ("`x.reshape(...)` (copies where it must), or `x.contiguous().view(...)`. Check that the order after the transpose is the one meant: "
         "both read the elements in the transposed order.",),
        running("x = torch.zeros(3, 4).t()", "print(tuple(x.reshape(12).shape))", prints="(12,)"),
        falsehoods=(
            Falsehood(
                "`view` needs a contiguous tensor.",
                "It needs the joined dimensions to be contiguous with each other; splitting or leaving alone works on any tensor.",
                running("x = torch.zeros(3, 4).t()", "print(x.is_contiguous(), tuple(x.view(2, 2, 3).shape))", prints="False (2, 2, 3)"),
            ),
        ),
    )  # fmt: skip


@reads(
    r"Provided sizes \[(?P<sizes>[-\d, ]*)\] don't multiply up to the size of dim (?P<dim>\d+) \((?P<size>\d+)\)",
    example="RuntimeError: unflatten: Provided sizes [3, 4] don't multiply up to the size of dim 1 (10) in the input tensor",
)
def unflatten(found: Found) -> Reading:
    sizes, dim, size = found.ints("sizes"), found.int("dim"), found.int("size")
    return Reading(
        f"a dimension of {size} cannot be split into {shape(sizes)}",
        f"Dimension {dim} has {size} elements; {' x '.join(map(str, sizes))} makes {math.prod(sizes)}.",
        ("The number of heads does not divide the width, or is not the one the projection was made for.", "The wrong dimension."),
        raising(
            f"torch.zeros({call((2,) * dim + (size,))}).unflatten({dim}, {tuple(sizes)})",
            raises=f"Provided sizes {shape(sizes)} don't multiply up to the size of dim {dim} ({size})",
        ),
        ("Let one size be -1, and check that the others divide the dimension.",),
    )


@reads(r"only one dimension can be inferred", example="RuntimeError: only one dimension can be inferred")
def two_unknowns(found: Found) -> Reading:
    return Reading(
        "-1 stands twice in a shape",
        "-1 means: whatever is left. With two of them there is no single answer.",
        ("A size computed elsewhere is -1 (a failed `find`, a default).", "Two -1 written by hand."),
        raising("torch.zeros(3, 4).view(-1, -1)", raises="RuntimeError: only one dimension can be inferred"),
        ("Name all sizes but one: `x.view(x.shape[0], -1)`.",),
    )


@reads(
    r"Sizes of tensors must match except in dimension (?P<dim>\d+)\. Expected size (?P<want>\d+) but got size (?P<got>\d+) for tensor number "
    r"(?P<number>\d+) in the list",
    r"Sizes of tensors must match except in dimension (?P<dim>\d+)\. Got (?P<want>\d+) and (?P<got>\d+) in dimension (?P<at>\d+)(?: \(The offending index is (?P<number>\d+)\))?",
    example="RuntimeError: Sizes of tensors must match except in dimension 0. Expected size 4 but got size 5 for tensor number 1 in the list.",
    fragments=(r"sizes of tensors must match except in dimension",),
)
def cat(found: Found) -> Reading:
    dim, want, got, number = (found.int(g) if found.has(g) else 1 for g in ("dim", "want", "got", "number"))
    place = found.int("at") if found.has("at") else 1 if dim == 0 else 0
    if place == dim:
        raise ValueError("the dimension that is joined may differ")
    which = f"tensor number {number} (counted from 0)" if found.has("number") else "another tensor"
    where = f"dimension {place}" if found.has("at") else "such a dimension"
    def sizes(n: int) -> str:
        return call(tuple(n if d == place else 3 for d in range(max(place, dim) + 1)))
    one = " one" if abs(want - got) == 1 else ""
    return Reading(
        f"`cat` along dimension {dim}: {f'tensor {number}' if found.has('number') else 'another tensor'} has {got} where the first has {want}",
        f"Concatenating along dimension {dim} leaves all other sizes as they are, so they must be equal. {which[0].upper()}{which[1:]} "
        f"has {got} in {where}, the first one {want}.",
        (
            "Skip connections of a U-Net: an odd size was halved and doubled, so the two differ by one." if one else
            "The tensors come from branches with different strides, crops or lengths.",
            "`dim` is wrong: to put features side by side use `dim=-1` (or `dim=1` for channels-first images), for more rows `dim=0`.",
            "Sequences of different lengths: pad them first (`torch.nn.utils.rnn.pad_sequence`).",
        ),
        raising(
            f"parts = [torch.zeros({sizes(want)})] * {number} + [torch.zeros({sizes(got)})]",
            f"torch.cat(parts, dim={dim})",
            raises=f"RuntimeError: Sizes of tensors must match except in dimension {dim}. Expected size {want} but got size {got} for tensor "
            f"number {number} in the list.",
            says=OLD_WORDS if found.has("at") else "",
        ),
        ("Crop or pad to the same size (`F.pad`, `F.interpolate(x, size=skip.shape[2:])`), or concatenate along the dimension that differs.",),
    )  # fmt: skip


@reads(
    r"Tensors must have same number of dimensions: got (?P<dims>\d+) and (?P<given>\d+)",
    r"zero-dimensional tensor \(at position (?P<at>\d+)\) cannot be concatenated",
    example="RuntimeError: Tensors must have same number of dimensions: got 2 and 1",
)
def cat_dims(found: Found) -> Reading:
    a, b = (found.int("dims"), found.int("given")) if found.has("dims") else (0, 0)
    if not found.has("dims"):
        return Reading(
            "scalars cannot be concatenated",
            f"The tensor at position {found['at']} has no dimensions (shape `[]`), and `cat` joins along an existing one.",
            ("Losses or other scalars are collected in a list.",),
            raising("torch.cat([torch.tensor(1.0), torch.tensor(2.0)])", raises="RuntimeError: zero-dimensional tensor (at position 0) cannot"),
            ("`torch.stack(values)` makes a new dimension.",),
            running("print(torch.stack([torch.tensor(1.0), torch.tensor(2.0)]).tolist())", prints="[1.0, 2.0]"),
        )
    return Reading(
        f"`cat` of tensors with {a} and {b} dimensions",
        f"`cat` joins along a dimension that all have; one tensor has {count(a, 'dimension')}, another {count(b, 'dimension')}. It adds none.",
        ("One of them lost or lacks a dimension: an integer index, a `squeeze()`, a single sample beside a batch.",),
        raising(
            f"torch.cat([torch.zeros({call((3,) * a)}), torch.zeros({call((3,) * b)})])",
            raises=f"RuntimeError: Tensors must have same number of dimensions: got {a} and {b}",
        ),
        ("`unsqueeze` the smaller one (`row.unsqueeze(0)`), or `torch.stack` tensors of equal shape.",),
    )


@reads(
    r"stack expects each tensor to be equal size, but got \[(?P<a>[\d, ]*)\] at entry (?P<i>\d+) and \[(?P<b>[\d, ]*)\] at entry (?P<j>\d+)",
    example="RuntimeError: stack expects each tensor to be equal size, but got [3] at entry 0 and [4] at entry 1",
    fragments=(r"stack expects each tensor to be equal size",),
)
def stack(found: Found) -> Reading:
    a, b, i, j = found.ints("a"), found.ints("b"), found.int("i"), found.int("j")
    loader = "collate" in found.text or "DataLoader" in found.text
    return Reading(
        f"`stack` got {shape(a)} and {shape(b)}",
        f"`stack` makes a new dimension and needs equal shapes: entry {i} has {shape(a)}, entry {j} has {shape(b)} (entries count from 0"
        + (f"; in a batch, entry {j} is the sample at place {j} of the batch)." if loader else ")."),
        (
            "A `DataLoader` puts samples of different lengths or image sizes into one batch (its default `collate_fn` stacks)"
            + ("." if loader else ", if it appears in the traceback."),
            "One sample has other channels (a grey or RGBA image), or is transposed.",
            "A list collects results of a loop whose last step is smaller.",
        ),
        raising(
            f"parts = [torch.zeros({call(a)})] * {j} + [torch.zeros({call(b)})]",
            "torch.stack(parts)",
            raises=f"RuntimeError: stack expects each tensor to be equal size, but got {shape(a)} at entry {i} and {shape(b)} at entry {j}",
        ),
        (
            "Sequences: a `collate_fn` with `torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)`. Images: resize or crop to one size "
            "and convert to the same mode in `__getitem__`.",
        ),
        running(
            "from torch.nn.utils.rnn import pad_sequence",
            "print(tuple(pad_sequence([torch.zeros(3), torch.zeros(4)], batch_first=True).shape))",
            prints="(2, 4)",
        ),
    )


@reads(
    r"expected a non-empty list of Tensors",
    r"stack expects a non-empty TensorList",
    example="ValueError: torch.cat(): expected a non-empty list of Tensors",
)
def empty_list(found: Found) -> Reading:
    return Reading(
        "`cat` or `stack` got an empty list",
        "The list holds no tensor, so there is no shape to start from.",
        ("A loop that fills it never ran: an empty loader, a filter that keeps nothing, detections of none.",),
        raising("torch.stack([])" if "stack" in found.match[0] else "torch.cat([])", raises=found.match[0]),
        ("Handle the empty case: `torch.cat(parts) if parts else torch.empty(0, width)`; find out why nothing was collected.",),
    )


@reads(
    r"split_with_sizes expects split_sizes to sum exactly to (?P<size>\d+) \(input tensor's size at dimension (?P<dim>-?\d+)\), but got "
    r"split_sizes=\[(?P<parts>[\d, ]*)\]",
    example="RuntimeError: split_with_sizes expects split_sizes to sum exactly to 10 (input tensor's size at dimension 0), but got "
    "split_sizes=[3, 3]",
)
def split(found: Found) -> Reading:
    size, dim, parts = found.int("size"), found.int("dim"), found.ints("parts")
    lead = (2,) * max(dim, 0)
    return Reading(
        f"parts of {shape(parts)} do not add up to {size}",
        f"The parts sum to {sum(parts)}; dimension {dim} has {size}. (`split(n)` with one number allows a smaller last part, a list does not.)",
        ("The wrong `dim`.", "Sizes computed for another width: q, k, v of one projection, a last chunk."),
        raising(
            f"torch.zeros({call((*lead, size))}).split({list(parts)}, dim={dim})",
            raises=f"expects split_sizes to sum exactly to {size} (input tensor's size at dimension {dim}), but got split_sizes={shape(parts)}",
        ),
        ("Make the parts sum to `x.shape[dim]`, or use `split(n, dim)`/`chunk(k, dim)`.",),
    )


@reads(
    r"number of dimensions in the tensor input does not match the length of the desired ordering of dimensions i\.e\. input\.dim\(\) = "
    r"(?P<dims>\d+) is not equal to len\(dims\) = (?P<given>\d+)",
    example="RuntimeError: permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering "
    "of dimensions i.e. input.dim() = 2 is not equal to len(dims) = 3",
    fragments=(r"number of dims don't match in permute",),
)
def permute(found: Found) -> Reading:
    dims, given = found.int("dims"), found.int("given")
    return Reading(
        f"`permute` got {given} places for {count(dims, 'dimension')}",
        f"`permute` names every dimension once: the tensor has {dims}, {given} were named. (The word sparse_coo in the message has no "
        "meaning for ordinary tensors.)",
        ("A batch dimension is missing or extra: one image [H, W, C] instead of a batch [N, H, W, C]; a grey image [H, W].",),
        raising(
            f"torch.zeros({call((2,) * dims)}).permute({call(tuple(range(given)))})",
            raises=f"input.dim() = {dims} is not equal to len(dims) = {given}",
        ),
        ("Add the missing dimension with `unsqueeze`, or use `x.movedim(-1, -3)` (channels last to first), which works with and without batch.",),
        running("print(tuple(torch.zeros(5, 6, 3).movedim(-1, -3).shape))", prints="(3, 5, 6)"),
    )


@reads(
    r"too many values to unpack \(expected (?P<expected>\d+)(?:, got \d+)?\)",
    r"not enough values to unpack \(expected (?P<least>\d+), got (?P<got>\d+)\)",
    example="ValueError: too many values to unpack (expected 2)",
)
def unpacking(found: Found) -> Reading:
    many = found.has("expected")
    names = found.int("expected") if many else found.int("least")
    has = names + 1 if many else found.int("got")
    targets = ", ".join("abcdefgh"[:names]) + ("," if names == 1 else "")
    return Reading(
        f"{names} names on the left, {'more' if many else found['got']} values on the right",
        f"This is Python's own message: the right side gives {'more than ' + str(names) if many else found['got']} values. A tensor is unpacked "
        "along its first dimension, a shape into as many numbers as the tensor has dimensions.",
        (
            "`b, t, d = x.shape` for a tensor with another number of dimensions (a missing or an extra batch dimension).",
            "A module returns more than was thought: an LSTM gives `(output, (h, c))`, attention `(output, weights)`, a transformers model an object.",
            "A tensor was unpacked where a tuple was meant: `a, b = x` splits `x` along dimension 0.",
        ),
        raising(f"{targets} = torch.zeros({call((2,) * has)}).shape", raises=f"ValueError: {'too many' if many else 'not enough'} values to unpack")
        if names <= 8 and has <= 8
        else None,
        ("Print the value before unpacking it; `*lead, d = x.shape` takes any number of leading dimensions.",),
    )  # fmt: skip


@reads(
    r"Padding length should be less than or equal to two times the input dimension but got padding length (?P<pad>\d+) and input of "
    r"dimension (?P<dims>\d+)",
    r"Padding size should be less than the corresponding input dimension, but got: padding \((?P<pads>[-\d, ]+)\) at dimension (?P<dim>\d+) of "
    r"input \[(?P<size>[\d, ]*)\]",
    r"(?P<too>Padding length too large)",
    example="RuntimeError: Argument #4: Padding size should be less than the corresponding input dimension, but got: padding (5, 5) at "
    "dimension 2 of input [1, 2, 3]",
)
def padding(found: Found) -> Reading:
    if found.has("too"):
        return Reading(
            "more sizes to pad by than the input has dimensions",
            "`F.pad` takes two numbers per dimension, from the last dimension backwards: `(left, right)`, `(left, right, top, bottom)`. There are more pairs than dimensions.",
            ("The batch or channel dimension is missing.", "The sizes of all dimensions were given, from the first one on, for an input that has fewer."),
            raising("F.pad(torch.zeros(3), (1, 1, 1, 1))", raises="Padding length should be less than or equal to two times the input dimension", says=OLD_WORDS),
            ("Print `x.shape`; two numbers for each dimension that is padded, the last one first.",),
        )
    if found.has("pads"):
        pads, dim, size = found.ints("pads"), found.int("dim"), found.ints("size")
        return Reading(
            f"cannot reflect {max(pads)} elements out of {size[dim]}",
            f"Reflection repeats the elements next to the border, so it needs more than it pads: dimension {dim} has {size[dim]}, padding {pads}.",
            ("The input is smaller than the kernel was made for.",),
            raising(
                f"torch.nn.functional.pad(torch.zeros({call(size)}), {tuple(pads)}, mode='reflect')",
                raises=f"padding ({call(pads)}) at dimension {dim} of input {shape(size)}",
            )
            if len(size) == 3 and dim == 2
            else None,
            ("Pad less, or with `mode='replicate'` or zeros, which take any amount.",),
        )
    pad, dims = found.int("pad"), found.int("dims")
    return Reading(
        f"{pad} paddings for a tensor of {count(dims, 'dimension')}",
        f"`F.pad` takes a pair per dimension, from the last one backwards: at most {2 * dims} numbers here, {pad} were given.",
        ("A batch or channel dimension is missing.", "Pairs were written from the first dimension on."),
        raising(f"torch.nn.functional.pad(torch.zeros({call((3,) * dims)}), {(1,) * pad})", raises=f"got padding length {pad} and input of dimension {dims}"),
        ("`F.pad(x, (left, right))` pads the last dimension, `(left, right, top, bottom)` the last two.",),
    )  # fmt: skip


@reads(
    r"Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor",
    example="RuntimeError: Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor",
)
def repeat_dims(found: Found) -> Reading:
    return Reading(
        "`repeat` got fewer numbers than the tensor has dimensions",
        "`repeat` takes how often to repeat along each dimension (1 keeps one); more numbers than dimensions add leading ones, fewer are refused.",
        ("Only the dimension to repeat was named.", "`repeat_interleave` (each element several times in a row) was meant."),
        raising("torch.zeros(3, 4).repeat(2)", raises=found.match[0]),
        ("`x.repeat(2, 1)` repeats the rows.",),
        running("print(tuple(torch.zeros(3, 4).repeat(2, 1).shape))", prints="(6, 4)"),
    )


@reads(
    r"t\(\) expects a tensor with <= 2 dimensions, but self is (?P<dims>\d+)D",
    example="RuntimeError: t() expects a tensor with <= 2 dimensions, but self is 3D",
)
def transpose_dims(found: Found) -> Reading:
    dims = found.int("dims")
    return Reading(
        f"`.t()` of a tensor with {dims} dimensions",
        f"`.t()` is for matrices; this tensor has {dims} dimensions, so it must be said which two to swap.",
        ("A batch dimension was added since.",),
        raising(f"torch.zeros({call((2,) * dims)}).t()", raises=found.match[0]),
        ("`x.transpose(-2, -1)` or `x.mT` swaps the last two.",),
    )

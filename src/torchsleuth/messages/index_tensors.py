"""Messages about indexing with tensors: masks, dtypes, shapes that do not fit together."""

from __future__ import annotations

import re

from torchsleuth.messages import Falsehood, Found, Reading, call, raising, reads, running, shape


@reads(
    r"The shape of the mask \[(?P<mask>[\d, ]*)\] at index (?P<at>\d+) does not match the shape of the indexed tensor "
    r"\[(?P<size>[\d, ]*)\] at index (?P<dim>\d+)",
    example="IndexError: The shape of the mask [4] at index 0 does not match the shape of the indexed tensor [3, 4] at index 0",
    fragments=(r"the shape of the mask", r"mask .{0,40}does not match the shape of the indexed tensor"),
)
def mask_shape(found: Found) -> Reading:
    mask, size, at, dim = found.ints("mask"), found.ints("size"), found.int("at"), found.int("dim")
    start = dim - at
    before = ", ".join([":"] * start)
    index = f"{before}, mask" if start else "mask"
    return Reading(
        f"a mask of shape {shape(mask)} does not fit a tensor of shape {shape(size)}",
        f"A boolean (or uint8) index says keep or drop for each position, so its sizes must equal those of the dimensions it "
        f"stands for. Here its dimension {at} has {mask[at]} and dimension {dim} of the tensor has {size[dim]}. "
        "Masks are not broadcast.",
        (
            "The mask was made from another tensor, or before padding, cropping or a last partial batch changed the sizes.",
            "The mask stands for another dimension: `x[:, mask]` applies it to dimension 1, `x[mask]` to dimension 0.",
            "uint8 numbers were meant as indices: a uint8 tensor is taken as a mask. Use `.long()` for indices.",
        ),
        raising(
            f"x = torch.zeros({call(size)})",
            f"mask = torch.ones({call(mask)}, dtype=torch.bool)",
            f"x[{index}]",
            raises=f"IndexError: The shape of the mask {shape(mask)} at index {at} does not match the shape of the indexed tensor "
            f"{shape(size)} at index {dim}",
        ),
        ("Build the mask from the tensor it indexes (`x > 0`), put it at the right place (`x[:, mask]`), or use "
         "`torch.where`/`masked_fill`, which do broadcast.",),
        falsehoods=(
            Falsehood(
                "A uint8 tensor of 0 and 1 indexes rows 0 and 1.",
                "It is a mask (deprecated): it keeps positions where it is not 0. An int64 tensor indexes.",
                running(
                    "x = torch.arange(3)",
                    "picks = torch.tensor([0, 1, 1])",
                    "print(x[picks].tolist(), x[picks.to(torch.uint8)].tolist())",
                    prints="[0, 1, 1] [1, 2]",
                ),
            ),
        ),
    )  # fmt: skip


@reads(
    r"tensors used as indices must be long(?:, int)?, byte or bool tensors",
    r"(?:index_select|gather|scatter)\(\): Expected dtype int32(?:/| or )int64 for index",
    r"dtype of indices should be Long but got (?P<dtype>\w+)",
    example="IndexError: tensors used as indices must be long, int, byte or bool tensors",
    fragments=(r"tensors used as indices must be",),
)
def index_dtype(found: Found) -> Reading:
    said = found.match[0]
    use = (
        "x.index_select(0, ids)" if said.startswith("index_select") else
        "x.gather(0, ids)" if said.startswith("gather") else
        "x.scatter_(0, ids, 1.0)" if said.startswith("scatter") else
        "torch.take_along_dim(x, ids, 0)" if said.startswith("dtype of") else
        "x[ids]"
    )  # fmt: skip
    return Reading(
        "an index tensor holds floats",
        "Positions are whole numbers: an index tensor must be int64 (`long`) or int32, or bool/uint8, which are masks. This one "
        "has a floating-point dtype, whatever its values.",
        (
            "It comes from a computation in floats (`x / 2`, `torch.linspace`, `torch.Tensor([...])`, which makes float32, or an "
            "empty `torch.tensor([])`).",
            "It was read from floats: a numpy float array, a column of a data frame.",
            "A mask was multiplied or converted: comparisons give bool, `.float()` undoes that.",
        ),
        raising("x = torch.zeros(3)", "ids = torch.tensor([0.0, 1.0])", use, raises=said),
        ("Make it whole where it is made (`//` instead of `/`, `torch.arange`, `dtype=torch.long`), or convert: `ids.long()`. "
         "For a mask use `.bool()`: `.long()` would turn it into positions 0 and 1.",),
        falsehoods=(
            Falsehood(
                "The index must require grad, or be detached.",
                "An integer tensor never requires grad; nothing flows to an index. Detaching a float index leaves it a float.",
                raising(
                    "ids = torch.tensor([0.0, 1.0], requires_grad=True)",
                    "torch.zeros(3)[ids.detach()]",
                    raises="IndexError: tensors used as indices must be long",
                ),
            ),
        ),
    )  # fmt: skip


@reads(
    r"indexing tensors could not be broadcast together with shapes (?P<shapes>\[[\d, ]*\](?:, \[[\d, ]*\])*)",
    example="IndexError: shape mismatch: indexing tensors could not be broadcast together with shapes [2], [3]",
    fragments=(r"indexing tensors could not be broadcast",),
)
def index_tensors_broadcast(found: Found) -> Reading:
    shapes = [tuple(map(int, re.findall(r"\d+", part))) for part in re.findall(r"\[([\d, ]*)\]", found["shapes"])]
    zeros = ", ".join(f"torch.zeros({call(s)}, dtype=torch.long)" for s in shapes)
    listed = ", ".join(map(shape, shapes))
    return Reading(
        "the index tensors have shapes that do not fit together",
        f"`x[a, b]` with index tensors pairs them element by element (`x[a[0], b[0]]`, `x[a[1], b[1]]`, ...), so their shapes "
        f"({listed}) must be equal or broadcast.",
        (
            "A block was meant (these rows and these columns): that needs `x[rows[:, None], cols]`.",
            "The lists of indices have different lengths: one was filtered, or a batch was partial.",
            "Two masks with different numbers of True: each becomes a list of positions as long as its True values.",
        ),
        raising(
            f"x = torch.zeros({call((5,) * len(shapes))})",
            f"x[{zeros}]",
            raises=f"IndexError: shape mismatch: indexing tensors could not be broadcast together with shapes {listed}",
        ),
        ("For a block: `x[rows[:, None], cols]` or `x[rows][:, cols]`. For pairs: make the lists equally long.",),
        running(
            "x = torch.zeros(5, 5)",
            "rows, cols = torch.tensor([0, 1]), torch.tensor([0, 1, 2])",
            "print(x[rows[:, None], cols].shape)",
            prints="torch.Size([2, 3])",
        ),
    )


@reads(
    r"value tensor of shape \[(?P<value>[\d, ]*)\] cannot be broadcast to indexing result of shape \[(?P<result>[\d, ]*)\]",
    example="RuntimeError: shape mismatch: value tensor of shape [3, 4] cannot be broadcast to indexing result of shape [2, 4]",
    fragments=(r"cannot be broadcast to indexing result",),
)
def assigned_shape(found: Found) -> Reading:
    value, result = found.ints("value"), found.ints("result")
    picked = result[0] if result else 1
    return Reading(
        f"values of shape {shape(value)} were assigned to a place of shape {shape(result)}",
        f"In `x[ids] = v` the right side must have, or broadcast to, the shape of `x[ids]`. That is {shape(result)} here, and the "
        f"value has {shape(value)}.",
        (
            "The number of indices (or of True in the mask) is not the number of values.",
            "The value still has a dimension that the indexing removed, or lacks one.",
        ),
        raising(
            f"x = torch.zeros({call((picked + 3, *result[1:]))})",
            f"ids = torch.arange({picked})",
            f"x[ids] = torch.ones({call(value)})",
            raises=f"RuntimeError: shape mismatch: value tensor of shape {shape(value)} cannot be broadcast to indexing result of "
            f"shape {shape(result)}",
        ),
        ("Compare `x[ids].shape` with `v.shape`; index the value the same way (`x[mask] = v[mask]`).",),
    )

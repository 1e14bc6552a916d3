"""Messages about shapes that do not broadcast: elementwise operations, expand, in-place results."""

from __future__ import annotations

from torchsleuth.messages import Falsehood, Found, Reading, call, raising, reads, running, shape


@reads(
    r"The size of tensor a \((?P<a>\d+)\) must match the size of tensor b \((?P<b>\d+)\) at non-singleton dimension (?P<dim>\d+)",
    example="RuntimeError: The size of tensor a (5) must match the size of tensor b (6) at non-singleton dimension 1",
    fragments=(r"size of tensor a\b.{0,20}must match", r"non-singleton dimension"),
)
def broadcast(found: Found) -> Reading:
    a, b, dim = found.int("a"), found.int("b"), found.int("dim")
    lead = (2,) * dim
    near = [
        f"Sizes {a} and {b} differ by one: a special token ([CLS], <s>) counted once and not the other time, `x[1:]` against `x`, "
        "a convolution without padding, a history with and without the current step."
    ] if abs(a - b) == 1 else []  # fmt: skip
    return Reading(
        f"sizes {a} and {b} meet in dimension {dim}, and neither is 1",
        "An elementwise operation lines the two shapes up from the right; each pair of sizes must be equal, or one of them 1 (or "
        f"missing). In dimension {dim} of the result the first operand (\"a\") has {a} and the second (\"b\") {b}. Count the "
        f"dimension in the operand with more dimensions. A size of 1 would have been stretched; {min(a, b)} is not.",
        (
            *near,
            "The operands are lined up differently from what was meant: a per-row vector of shape [n] meets the last dimension; "
            "it needs `v.unsqueeze(1)` (shape [n, 1]) to meet the first.",
            "One of the sizes is a fixed number somewhere (a mask, a positional table, a buffer for 32 rows) and the other comes "
            "from the data: a longer sequence, a last partial batch.",
            "Two branches of the model changed the size differently: a skip connection around a strided or unpadded convolution, "
            "an odd size halved and doubled.",
            "A loss compares predictions and targets of different lengths.",
        ),
        raising(
            f"a = torch.zeros({call((*lead, a))})",
            f"b = torch.zeros({call((*lead, b))})",
            "a + b",
            raises=f"RuntimeError: The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton dimension {dim}",
        ),
        (
            "Print both shapes on the line that fails, align them from the right, and follow the wrong size back to where it was "
            "made; `torchsleuth run your_script.py` names that expression.",
            "Insert the missing dimension (`unsqueeze`), or cut or pad to the same length.",
        ),
        falsehoods=(
            Falsehood(
                "The operands must have the same shape.",
                "Sizes of 1 and missing leading dimensions are stretched.",
                running(
                    f"a = torch.zeros({call((*lead, a))})",
                    "b = torch.zeros(1)",
                    "print((a + b).shape == a.shape)",
                    prints="True",
                ),
            ),
            Falsehood(
                "A mask of the wrong dtype causes it, and `.float()` helps.",
                "dtypes are promoted; only the sizes count.",
                running(
                    "x = torch.ones(2, 3)",
                    "mask = torch.tensor([[1], [0]])                   # int64",
                    "print((x * mask == x * mask.float()).all().item())",
                    prints="True",
                ),
            ),
        ),
    )


@reads(
    r"The expanded size of the tensor \((?P<want>-?\d+)\) must match the existing size \((?P<have>\d+)\) at non-singleton dimension "
    r"(?P<dim>\d+)\.\s+Target sizes: \[(?P<target>[-\d, ]*)\]\.\s+Tensor sizes: \[(?P<sizes>[\d, ]*)\]",
    example="RuntimeError: The expanded size of the tensor (5) must match the existing size (4) at non-singleton dimension 1.  Target "
    "sizes: [3, 5].  Tensor sizes: [3, 4]",
    fragments=(r"expanded size of the tensor(?! \(-1\) isn't)",),
)
def expand(found: Found) -> Reading:
    want, have, dim, target, sizes = found.int("want"), found.int("have"), found.int("dim"), found.ints("target"), found.ints("sizes")
    return Reading(
        f"a tensor of shape {shape(sizes)} cannot be stretched to {shape(target)}",
        f"Stretching repeats dimensions of size 1 and adds leading ones. In dimension {dim} of the target {want} is wanted, and the "
        f"tensor has {have} there (shapes are lined up from the right).",
        (
            "Assignment: `x[i] = v` stretches `v` to the shape of `x[i]`, and so reports a value of the wrong size this way.",
            "An attention mask or positional encoding of a fixed length meets a longer input.",
            "`expand` was meant to repeat: it only stretches size 1; `repeat` copies.",
        ),
        raising(
            f"x = torch.zeros({call(sizes)})",
            f"x.expand({call(target)})",
            raises=f"RuntimeError: The expanded size of the tensor ({want}) must match the existing size ({have}) at non-singleton "
            f"dimension {dim}.  Target sizes: {shape(target)}.  Tensor sizes: {shape(sizes)}",
        ),
        ("Make the sizes equal, or `unsqueeze` the dimension that is to be stretched: `v.unsqueeze(1).expand(-1, n)`.",),
        running("v = torch.zeros(3)", "print(v.unsqueeze(1).expand(-1, 5).shape)", prints="torch.Size([3, 5])"),
    )


@reads(
    r"the number of sizes provided \((?P<given>\d+)\) must be greater or equal to the number of dimensions in the tensor \((?P<dims>\d+)\)",
    example="RuntimeError: expand(torch.FloatTensor{[3, 4]}, size=[4]): the number of sizes provided (1) must be greater or equal to "
    "the number of dimensions in the tensor (2)",
)
def expand_dims(found: Found) -> Reading:
    given, dims = found.int("given"), found.int("dims")
    return Reading(
        f"a tensor of {dims} dimensions cannot be expanded or assigned to {given}",
        f"`expand` can add leading dimensions but not remove any: {dims} dimensions do not fit into {given}.",
        (
            "Assignment: in `x[i] = v` the value has more dimensions than the place, often a leading one of size 1: `v.squeeze(0)`.",
            "`expand` was given only the new sizes; it takes all of them (-1 keeps one).",
        ),
        raising(
            f"torch.zeros({call((3,) * dims)}).expand({call((3,) * given) if given else '()'})",
            raises=f"the number of sizes provided ({given}) must be greater or equal to the number of dimensions in the tensor ({dims})",
        ),
        ("Remove the extra dimension from the value (`squeeze(0)`, `[0]`), or give `expand` a size for each dimension.",),
    )


@reads(
    r"output with shape \[(?P<out>[\d, ]*)\] doesn't match the broadcast shape \[(?P<full>[\d, ]*)\]",
    example="RuntimeError: output with shape [4, 1] doesn't match the broadcast shape [4, 5]",
    fragments=(r"doesn't match the broadcast shape",),
)
def inplace_broadcast(found: Found) -> Reading:
    out, full = found.ints("out"), found.ints("full")
    return Reading(
        f"an in-place operation would have to grow {shape(out)} to {shape(full)}",
        f"`x += y` writes into `x`, whose shape {shape(out)} cannot change; together the operands broadcast to {shape(full)}.",
        (
            "A one-channel image is normalised with three means and deviations (`Normalize` works in place).",
            "`x += y` where `x` is the smaller operand; or a missing `unsqueeze` made the result a table instead of a vector.",
        ),
        raising(
            f"x = torch.zeros({call(out)})",
            f"x += torch.zeros({call(full)})",
            raises=f"RuntimeError: output with shape {shape(out)} doesn't match the broadcast shape {shape(full)}",
        ),
        ("`x = x + y` makes a new, larger tensor, if that is what you mean; else put the shape of `y` right.",),
        running(
            f"x = torch.zeros({call(out)})", f"x = x + torch.zeros({call(full)})", "print(tuple(x.shape))", prints=str(tuple(full))
        ),
    )

"""Messages of matrix products: linear layers, matmul, bmm, einsum."""

from __future__ import annotations

import math

from torchsleuth.messages import OLD_WORDS, Falsehood, Found, Program, Reading, call, raising, reads, running


@reads(
    r"mat1 and mat2 shapes cannot be multiplied \((?P<n>\d+)x(?P<k>\d+) and (?P<l>\d+)x(?P<m>\d+)\)",
    r"size mismatch, m1: \[(?P<n>\d+) x (?P<k>\d+)\], m2: \[(?P<l>\d+) x (?P<m>\d+)\]",
    r"a and b must have same reduction dim, but got \[(?P<n>\d+), (?P<k>\d+)\] X \[(?P<l>\d+), (?P<m>\d+)\]",
    example="RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x64 and 128x10)",
    fragments=(r"mat1 and mat2 shapes", r"size mismatch, m1: .{0,40}", r"mat1 dim 1 must match mat2 dim 0"),
)
def mat1_mat2(found: Found) -> Reading:
    n, k, l, m = (found.int(g) for g in "nklm")
    story = []
    if n == l:
        story.append(f"The input seems transposed: {n} equals the {l} that is expected as its last size. Linear layers take the features last.")
    if k and l and l % k == 0 and l > k > 1:
        ratio, side = l // k, math.isqrt(l // k)
        grid = f" ({k} channels of {side}x{side} pixels, for instance)" if side * side == ratio else ""
        story.append(f"{l} is {ratio} x {k}: the layer was made for {ratio} times as many features{grid}; the image is smaller than planned, was pooled further, or was not flattened.")
    elif k and l and k % l == 0 and k > l > 1:
        story.append(f"{k} is {k // l} x {l}: {k // l} times as many features arrive as the layer was made for: a larger image, a pooling that is missing, two things concatenated, or flattened "
                     "over one dimension too many.")  # fmt: skip
    elif k and l and n * k % l == 0 and n != l:
        story.append(f"The input has {n} x {k} = {n * k} numbers, which is {n * k // l} rows of {l}: a flatten that mixes the batch into the features (or leaves features in the rows) would look like "
                     "this.")  # fmt: skip
    return Reading(
        f"{k} features arrive where {l} are expected",
        f"A matrix product needs as many columns on the left as rows on the right: {n}x{k} times {l}x{m}. For a linear layer this "
        f"is `nn.Linear(in_features={l}, out_features={m})` getting inputs whose last size is {k} ({n} rows, all leading dimensions "
        "multiplied together).",
        (
            *story,
            f"The size of the features changed: another image size, embedding width or number of channels than the {l} the layer was made for.",
            "Layers do not follow on each other: `out_features` of one is not `in_features` of the next.",
            "The features are not in the last dimension: channels-first data, sequence and feature dimensions swapped.",
        ),
        raising(
            f"layer = torch.nn.Linear({l}, {m})",
            f"layer(torch.zeros({n}, {k}))",
            raises=f"mat1 and mat2 shapes cannot be multiplied ({n}x{k} and {l}x{m})",
            says=OLD_WORDS if "m1:" in found.match[0] else "Without torch.compile this raises:" if "reduction dim" in found.match[0] else "",
        ),
        (
            f"Make the layer for what arrives (`nn.Linear({k}, {m})`) if {k} is right, or put right what makes {k} of it.",
            "Print `x.shape` before the layer; after convolutions use `nn.Flatten()`/`flatten(1)` and `nn.LazyLinear` or an adaptive pooling.",
        ),
        running(f"layer = torch.nn.Linear({k}, {m})", f"print(tuple(layer(torch.zeros({n}, {k})).shape))", prints=f"({n}, {m})"),
        falsehoods=(
            Falsehood(
                "The batch size is wrong.",
                f"The number of rows ({n}) may be anything; only the columns must fit.",
                running(f"layer = torch.nn.Linear({l}, {m})", f"print(tuple(layer(torch.zeros({n + 1}, {l})).shape))", prints=f"({n + 1}, {m})"),
            ),
        ),
    )  # fmt: skip


@reads(
    r"size mismatch, got input \((?P<n>\d+)\), mat \((?P<mat>\d+x\d+)\), vec \((?P<vec>\d+)\)",
    example="RuntimeError: size mismatch, got input (4), mat (4x5), vec (6)",
)
def mat_vec(found: Found) -> Reading:

    rows, columns = (int(part) for part in found["mat"].split("x"))
    vec = found.int("vec")
    return Reading(
        f"a {rows}x{columns} matrix cannot be applied to a vector of {vec}",
        f"Matrix times vector needs one number per column: {columns}; the vector has {vec}.",
        (
            f"The matrix is meant transposed (`m.t() @ v`, {columns}x{rows})." if vec == rows else "One of the two has another width than was meant.",
            "A batch was reduced to a single vector, or features are missing.",
        ),
        raising(
            f"torch.zeros({rows}, {columns}) @ torch.zeros({vec})",
            raises=f"RuntimeError: size mismatch, got input ({rows}), mat ({rows}x{columns}), vec ({vec})",
        ),
        ("Compare `m.shape[1]` with `len(v)`; transpose the matrix if its rows should meet the vector.",),
    )  # fmt: skip


@reads(
    r"inconsistent tensor size, expected tensor \[(?P<a>\d+)\] and src \[(?P<b>\d+)\] to have the same number of elements",
    example="RuntimeError: inconsistent tensor size, expected tensor [3] and src [4] to have the same number of elements, but got 3 "
    "and 4 elements respectively",
)
def dot(found: Found) -> Reading:
    a, b = found.int("a"), found.int("b")
    return Reading(
        f"a dot product of vectors with {a} and {b} elements",
        f"`a @ b` of two vectors, or `torch.dot`, multiplies element by element and sums: both need the same length, not {a} and {b}.",
        ("The vectors come from different layers, tables or feature sets.", "An outer product was meant: `torch.outer(a, b)`."),
        raising(
            f"torch.dot(torch.zeros({a}), torch.zeros({b}))",
            raises=f"RuntimeError: inconsistent tensor size, expected tensor [{a}] and src [{b}] to have the same number of elements",
        ),
        ("Make the lengths equal, or use `torch.outer`.",),
        running(f"print(tuple(torch.outer(torch.zeros({a}), torch.zeros({b})).shape))", prints=f"({a}, {b})"),
    )


@reads(
    r"Expected size for first two dimensions of batch2 tensor to be: \[(?P<want>\d+, \d+)\] but got: \[(?P<got>\d+, \d+)\]",
    example="RuntimeError: Expected size for first two dimensions of batch2 tensor to be: [2, 4] but got: [2, 5].",
    fragments=(r"first two dimensions of batch2",),
)
def bmm(found: Found) -> Reading:
    (batch, k), (got_batch, got_k) = found.ints("want"), found.ints("got")
    wrong = []
    if batch != got_batch:
        wrong.append(f"the batches differ ({batch} and {got_batch} matrices)")
    if k != got_k:
        wrong.append(f"the inner sizes differ (the left matrices have {k} columns, the right ones {got_k} rows)")
    return Reading(
        f"batched product: expected [{batch}, {k}, ...] on the right, got [{got_batch}, {got_k}, ...]",
        f"Each of {batch} matrices on the left is multiplied by its partner on the right; {' and '.join(wrong) or 'the sizes do not fit'}.",
        (
            "The right operand is not transposed: attention scores are `q @ k.transpose(-2, -1)`, and `.transpose(1, 2)` is wrong once "
            "there is a dimension of heads.",
            "Batch and sequence are swapped in one of the operands, or heads were folded into the batch in only one.",
        ),
        raising(
            f"torch.bmm(torch.zeros({batch}, 3, {k}), torch.zeros({got_batch}, {got_k}, 3))",
            raises=f"RuntimeError: Expected size for first two dimensions of batch2 tensor to be: [{batch}, {k}] but got: "
            f"[{got_batch}, {got_k}].",
        ),
        ("Print both shapes; transpose the last two dimensions of the right operand with `.transpose(-2, -1)`, or `.mT`.",),
        running("q, k = torch.zeros(2, 3, 4), torch.zeros(2, 5, 4)", "print(tuple((q @ k.mT).shape))", prints="(2, 3, 5)"),
    )


@reads(
    r"einsum\(\): subscript (?P<letter>\w) has size (?P<size>\d+) for operand (?P<operand>\d+) which does not broadcast with previously "
    r"seen size (?P<seen>\d+)",
    example="RuntimeError: einsum(): subscript j has size 5 for operand 1 which does not broadcast with previously seen size 4",
    fragments=(r"einsum\(\): subscript",),
)
def einsum_size(found: Found) -> Reading:
    letter, size, operand, seen = found["letter"], found.int("size"), found.int("operand"), found.int("seen")
    other = "a" if letter != "a" else "b"
    end = "c" if letter != "c" else "d"
    program = None
    if operand == 1:
        program = raising(
            f"torch.einsum('{other}{letter},{letter}{end}->{other}{end}', torch.zeros(2, {seen}), torch.zeros({size}, 2))",
            raises=f"RuntimeError: einsum(): subscript {letter} has size {size} for operand 1 which does not broadcast with previously "
            f"seen size {seen}",
        )
    return Reading(
        f"in einsum, `{letter}` stands for {seen} in one operand and for {size} in operand {operand}",
        f"A letter stands for one size throughout the equation. `{letter}` was {seen} in an earlier operand (they count from 0) and is "
        f"{size} in operand {operand}.",
        (
            "Two letters are swapped in the equation, or the operands are in another order than its terms.",
            f"A tensor's dimensions are in another order than the letters say ({size} where {seen} belongs).",
        ),
        program,
        ("Write the sizes beside the letters of each operand; rename the letter where two different dimensions were meant.",),
    )


@reads(
    r"einsum\(\): the number of subscripts in the equation \((?P<letters>\d+)\) does not match the number of dimensions \((?P<dims>\d+)\) "
    r"for operand (?P<operand>\d+)",
    example="RuntimeError: einsum(): the number of subscripts in the equation (2) does not match the number of dimensions (3) for "
    "operand 0 and no ellipsis was given",
)
def einsum_letters(found: Found) -> Reading:
    letters, dims, operand = found.int("letters"), found.int("dims"), found.int("operand")
    return Reading(
        f"einsum: operand {operand} has {dims} dimensions and {letters} letters",
        f"Each dimension needs a letter (or `...` for any number of leading ones): {dims} dimensions, {letters} letters.",
        ("The batch or head dimension has no letter.", "The tensor was squeezed or has an extra dimension of size 1."),
        raising(
            f"torch.einsum('{'abcdefgh'[:letters]}->{'abcdefgh'[:letters]}', torch.zeros({call((2,) * dims)}))",
            raises=f"RuntimeError: einsum(): the number of subscripts in the equation ({letters}) does not match the number of "
            f"dimensions ({dims}) for operand 0",
        )
        if letters <= 8
        else None,
        ("Add the missing letter, or `...`: `torch.einsum('...ij,...jk->...ik', a, b)`.",),
    )


def _dimensions_program(found: Found) -> Program | None:
    which = next((found[group] for group in ("which", "old") if found.has(group)), "")
    program = {
        "self": "torch.mm(torch.zeros(2, 3, 4), torch.zeros(4, 5))",
        "mat2": "torch.mm(torch.zeros(3, 4), torch.zeros(2, 4, 5))",
        "batch1": "torch.bmm(torch.zeros(3, 4), torch.zeros(2, 4, 5))",
        "batch2": "torch.bmm(torch.zeros(2, 3, 4), torch.zeros(4, 5))",
    }.get(which, "")
    if found.has("a"):
        program = f"torch.dot(torch.zeros({call((3,) * found.int('a'))}), torch.zeros({call((3,) * found.int('b'))}))"
    elif found.has("c"):
        program = f"torch.zeros({call((3,) * found.int('c'))}) @ torch.zeros({call((3,) * found.int('d'))})"
    if found.has("old"):
        return raising(program, raises=" must be a ", says=OLD_WORDS) if program else None
    return raising(program, raises=found.match[0]) if program else None


@reads(
    r"(?P<which>self|mat1|mat2|batch1|batch2) must be a (?P<kind>matrix|3D tensor|2D tensor)",
    r"Expected \d-dimensional tensor, but got \d-dimensional tensor for argument #\d '(?P<old>batch1|batch2|mat1|mat2|self)' \(while checking arguments for (?:bmm|mm|addmm|baddbmm)\)",
    r"1D tensors expected, but got (?P<a>\d+)D and (?P<b>\d+)D tensors",
    r"both arguments to matmul need to be at least 1D, but they are (?P<c>\d+)D and (?P<d>\d+)D",
    example="RuntimeError: self must be a matrix",
)
def product_dims(found: Found) -> Reading:
    return Reading(
        "a product got an operand with the wrong number of dimensions",
        f"{found.match[0]}. `mm` takes two matrices, `bmm` two batches of matrices (3 dimensions), `dot` two vectors, `linear` and "
        "`matmul` (`@`) anything from one dimension up; only `matmul` broadcasts leading dimensions.",
        ("A batch dimension is there that `mm` does not expect, or missing where `bmm` does.", "A squeeze removed a dimension of size 1."),
        _dimensions_program(found),
        ("Use `a @ b` (`torch.matmul`), or add the missing dimension with `unsqueeze`.",),
        running("print(tuple((torch.zeros(2, 3, 4) @ torch.zeros(4, 5)).shape))", prints="(2, 3, 5)"),
    )


@reads(
    r"X1 and X2 must have the same number of columns\. X1: (?P<one>\d+) X2: (?P<two>\d+)",
    example="RuntimeError: X1 and X2 must have the same number of columns. X1: 10 X2: 8",
)
def distances(found: Found) -> Reading:
    one, two = found.int("one"), found.int("two")
    return Reading(
        f"distances between rows of {one} and rows of {two} numbers",
        f"`torch.cdist` takes the distance of each row of the one to each row of the other; their last sizes, {one} and {two}, must be the same.",
        ("Features and centres (a codebook, anchors) were built with different widths.", "The features are not in the last dimension."),
        raising(f"torch.cdist(torch.zeros(3, {one}), torch.zeros(4, {two}))", raises=f"X1: {one} X2: {two}"),
        ("Give both the same last size, or bring the features to the last dimension (`movedim`).",),
    )


@reads(
    r"bilinear\(\): input(?P<which>[12]) size does not match weight size: got (?P<have>\d+) but expected (?P<want>\d+)",
    example="RuntimeError: bilinear(): input2 size does not match weight size: got 6 but expected 5",
)
def bilinear_width(found: Found) -> Reading:
    which, have, want = found.int("which"), found.int("have"), found.int("want")
    sizes, given = ((want, 3), (have, 3)) if which == 1 else ((3, want), (3, have))
    return Reading(
        f"input {which} of a bilinear layer has {have} features; {want} are taken",
        f"`nn.Bilinear(in1, in2, out)` was built for in{which} = {want} features, and input {which} has {have} at its last dimension.",
        ("The two inputs are swapped.", "The layer that makes this input has another number of outputs."),
        raising(
            f"layer = torch.nn.Bilinear({call(sizes)}, 2)",
            f"layer(torch.zeros(4, {given[0]}), torch.zeros(4, {given[1]}))",
            raises=f"input{which} size does not match weight size: got {have} but expected {want}",
        ),
        (f"Build it with `in{which}_features={have}`, or give it {want} features.",),
    )

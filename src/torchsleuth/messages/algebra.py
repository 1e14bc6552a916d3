"""Messages of linear algebra and random draws: matrices that are not square or not finite, contractions, standard deviations."""

from __future__ import annotations

from torchsleuth.messages import NO_RULE, Found, Reading, call, raising, reads, running


@reads(
    r"(?P<name>linalg\.\w+): A must be batches of square matrices, but they are (?P<rows>\d+) by (?P<columns>\d+) matrices",
    example="RuntimeError: linalg.solve: A must be batches of square matrices, but they are 3 by 4 matrices",
)
def not_square(found: Found) -> Reading:
    rows, columns = found.int("rows"), found.int("columns")
    return Reading(
        f"`{found['name']}` of a {rows} x {columns} matrix",
        f"The last two dimensions of its argument must be equal; they are {rows} and {columns}.",
        ("The data matrix itself was passed, not its covariance `x.T @ x`.", "The dimensions are in another order: the matrices must be in the last two."),
        raising(f"torch.linalg.inv(torch.zeros({rows}, {columns}))", raises=f"A must be batches of square matrices, but they are {rows} by {columns} matrices"),
        ("`torch.linalg.lstsq` or `pinv` for a system that is not square.",),
    )


@reads(
    r"(?P<name>linalg\.\w+): (?:\(Batch element \d+\): )?The algorithm failed to converge because the input matrix contained non-finite values",
    example="_LinAlgError: linalg.svd: The algorithm failed to converge because the input matrix contained non-finite values.",
    fragments=(r"input matrix contained non-finite values",),
)
def matrix_not_finite(found: Found) -> Reading:
    return Reading(
        f"`{found['name']}` of a matrix with inf or NaN",
        "At least one element of the matrix is inf or NaN, so there is no decomposition to find.",
        (
            "The training diverged before: the matrix is made of features or weights that are NaN already.",
            "A division or logarithm of 0 on the way to the matrix (a covariance of one sample, a normalisation by a zero norm).",
            "The backward pass of an earlier decomposition: where two singular values or eigenvalues are equal its gradient is infinite.",
        ),
        raising("torch.linalg.svd(torch.full((2, 2), float('nan')))", raises="linalg.svd: The algorithm failed to converge because the input matrix contained non-finite values"),
        ("Look where the first NaN comes from: `torch.isfinite(x).all()` step by step, `torch.autograd.set_detect_anomaly(True)` for gradients.",),
    )


@reads(
    r"contracted dimensions need to match, but first has size (?P<a>\d+) in dim (?P<i>-?\d+) and second has size (?P<b>\d+) in dim (?P<j>-?\d+)",
    example="RuntimeError: contracted dimensions need to match, but first has size 4 in dim -1 and second has size 5 in dim 0",
)
def contraction(found: Found) -> Reading:
    a, b = found.int("a"), found.int("b")
    return Reading(
        f"`tensordot` sums over sizes {a} and {b}",
        f"Dimension {found['i']} of the first ({a}) and dimension {found['j']} of the second ({b}) are summed over together and must be equal.",
        ("`dims=n` takes the last n dimensions of the first and the first n of the second; name others as lists: `dims=([1], [0])`.",),
        raising(f"torch.tensordot(torch.zeros(2, {a}), torch.zeros({b}, 3), dims=1)", raises=f"contracted dimensions need to match, but first has size {a}") if a != b else None,
        ("Name the dimensions, or use `einsum`, which names them by letters.",),
    )


@reads(
    r"normal expects (?:all elements of )?std >= 0\.0",
    example="RuntimeError: normal expects all elements of std >= 0.0",
)
def negative_deviation(found: Found) -> Reading:
    return Reading(
        "a negative (or NaN) standard deviation",
        "A standard deviation is 0 or more; at least one here is not.",
        ("A layer's raw output is used as the deviation: `softplus` or `exp` (of a log deviation) keeps it positive.", "It is NaN: an earlier update was too large."),
        raising("torch.normal(torch.zeros(3), -torch.ones(3))", raises="RuntimeError: normal expects all elements of std >= 0.0"),
        ("`std = F.softplus(raw) + 1e-6`, or `std = (0.5 * log_variance).exp()`.",),
        running("print(torch.normal(torch.zeros(3), F.softplus(-torch.ones(3))).shape)", prints="torch.Size([3])"),
    )


@reads(
    r"cannot sample n_sample > prob_dist\.size\(-1\) samples without replacement",
    example="RuntimeError: cannot sample n_sample > prob_dist.size(-1) samples without replacement",
)
def too_many_draws(found: Found) -> Reading:
    return Reading(
        "more draws than there are choices",
        "`torch.multinomial` draws without putting back unless told, so at most as many as the last dimension is long.",
        ("`replacement=True` is meant.", "The probabilities are in another dimension: the last one is the choices."),
        raising("torch.multinomial(torch.ones(2), 3)", raises="RuntimeError: cannot sample n_sample > prob_dist.size(-1) samples without replacement"),
        ("`torch.multinomial(p, n, replacement=True)`, or `min(n, p.shape[-1])`.",),
        running("print(torch.multinomial(torch.ones(2), 3, replacement=True).shape)", prints="torch.Size([3])"),
    )


@reads(
    r"stft requires the return_complex parameter be given for real inputs",
    example="RuntimeError: stft requires the return_complex parameter be given for real inputs, and will further require that return_complex=True in a future PyTorch release.",
)
def stft_complex(found: Found) -> Reading:
    return Reading(
        "`torch.stft` was not told what to return",
        "Code for older releases got real and imaginary parts in a last dimension of size 2; today it has to be asked for.",
        ("The code, or the library that calls it, was written for PyTorch before 1.8.",),
        raising("torch.stft(torch.zeros(100), n_fft=40)", raises="RuntimeError: stft requires the return_complex parameter"),
        ("`torch.stft(x, n_fft, return_complex=True)`; `torch.view_as_real(...)` of that gives the two parts as before.",),
    )


@reads(
    r"masked_fill_? only supports a 0-dimensional value tensor, but got tensor with (?P<dims>\d+) dimension",
    example="RuntimeError: masked_fill_ only supports a 0-dimensional value tensor, but got tensor with 1 dimension(s).",
)
def fill_of_a_tensor(found: Found) -> Reading:
    dims = found.int("dims")
    return Reading(
        f"`masked_fill` with a tensor of {dims} dimension{'s' if dims != 1 else ''}",
        "`masked_fill` writes one number wherever the mask is True.",
        ("Values of a tensor are to be taken where the mask is True: that is `torch.where`.",),
        raising(f"torch.zeros(3, 4).masked_fill(torch.ones(3, 4) > 0, torch.zeros({call((1,) * dims)}))", raises=found.match[0]) if 0 < dims < 9 else None,
        ("`torch.where(mask, values, x)`, with `values` of a shape that broadcasts to `x`.",),
    )


@reads(
    r"Got unsupported ScalarType (?P<dtype>\w+)",
    example="TypeError: Got unsupported ScalarType BFloat16",
)
def no_such_numpy(found: Found) -> Reading:
    bf16 = found["dtype"].lower() == "bfloat16"
    return Reading(
        f"NumPy has no {found['dtype']}",
        f"`.numpy()` shares the memory, and NumPy knows no type of {found['dtype']}.",
        ("The model runs in bfloat16 (autocast, `torch_dtype=torch.bfloat16`), and its output goes to NumPy, a metric or a plot." if bf16 else "A type that only PyTorch has.",),
        raising("torch.zeros(3).bfloat16().numpy()", raises="TypeError: Got unsupported ScalarType BFloat16") if bf16 else None,
        ("`x.float().numpy()` (with `.detach().cpu()` where needed).",),
        running("print(torch.zeros(3).bfloat16().float().numpy().dtype)", prints="float32") if bf16 else None,
    )


@reads(
    r"~ \(operator\.invert\) is only implemented on integer and Boolean-type tensors",
    example="TypeError: ~ (operator.invert) is only implemented on integer and Boolean-type tensors",
)
def inverted_floats(found: Found) -> Reading:
    return Reading(
        "`~` of a mask of floats",
        "`~` turns True into False, or the bits of whole numbers around; floats have no such thing.",
        ("The mask is kept as floats (0.0 and 1.0), to multiply with.",),
        raising("~torch.zeros(3)", raises="TypeError: ~ (operator.invert) is only implemented on integer and Boolean-type tensors"),
        ("`~mask.bool()`, or `1 - mask` for floats.",),
        falsehoods=(),
    )


@reads(
    r"linalg\.solve: Incompatible shapes of A and B for the equation AX = B \((?P<a>\d+)x(?P<b>\d+) and (?P<c>\d+)x(?P<d>\d+)\)",
    example="RuntimeError: linalg.solve: Incompatible shapes of A and B for the equation AX = B (3x3 and 4x1)",
)
def right_hand_side(found: Found) -> Reading:
    n, rows, columns = found.int("a"), found.int("c"), found.int("d")
    return Reading(
        f"{n} equations and {rows} right-hand sides",
        f"`A` is {n} x {found['b']}, so the right-hand side needs {n} rows; it has {rows}" + (" (a vector counts as one column)." if columns == 1 else "."),
        (f"Several right-hand sides lie in rows: [{rows}, {n}] instead of [{n}, {rows}]." if columns == n else "The right-hand side belongs to another system, or was cut differently.",
         "A batch of vectors [batch, n] is read as a matrix: it needs a last dimension, `b.unsqueeze(-1)`."),
        raising(f"torch.linalg.solve(torch.eye({n}), torch.zeros({rows}, {columns}))", raises=f"({n}x{n} and {rows}x{columns})"),
        ("`torch.linalg.solve(A, b.unsqueeze(-1)).squeeze(-1)` for a batch of vectors; `b.mT` where rows are columns.",),
        rule=NO_RULE,
    )  # fmt: skip

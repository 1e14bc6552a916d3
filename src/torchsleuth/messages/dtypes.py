"""Messages about dtypes that do not fit together, or that an operation does not take."""

from __future__ import annotations

from torchsleuth.messages import NO_RULE, Falsehood, Found, Reading, dtype, raising, reads, running


def _named(found: Found, *pairs: tuple[str, str]) -> tuple[str, str]:
    for a, b in pairs:
        if found.has(a):
            return dtype(found[a]), dtype(found[b])
    return "torch.float32", "torch.float64"


def _causes(first: str, second: str) -> tuple[str, ...]:
    kinds = {first, second}
    causes = []
    if "torch.float64" in kinds:
        causes.append("float64 comes from numpy: `torch.from_numpy`/`torch.tensor` of a numpy array keep its float64; layers are float32.")
    if kinds & {"torch.float16", "torch.bfloat16"}:
        causes.append("Mixed precision: the model (or a part of it) was converted with `.half()`/`.to(torch.bfloat16)` and the input was not, or an "
                      "`autocast` block ends before this line.")  # fmt: skip
    if kinds & {"torch.int64", "torch.int32", "torch.uint8", "torch.bool"}:
        causes.append("Whole numbers (ids, labels, pixel values 0 to 255, a mask) were passed without converting them to floats.")
    return (*causes, "A tensor was made with a fixed `dtype=` or under another `torch.set_default_dtype`.")


NUMBERS = Falsehood(
    "Values that happen to be whole are converted where needed.",
    "Elementwise operations promote dtypes; products and layers do not, whatever the values.",
    running(
        "a, b = torch.ones(2, 2), torch.ones(2, 2, dtype=torch.float64)",
        "print((a + b).dtype)",
        prints="torch.float64",
        says="This runs, since `+` promotes, and prints torch.float64:",
    ),
)


@reads(
    r"(?:mat1|self) and mat2 must have the same dtype, but got (?P<a>\w+) and (?P<b>\w+)",
    r"expected m1 and m2 to have the same dtype, but got: (?P<c>[\w:]+(?: int)?) != (?P<d>[\w:]+(?: int)?)",
    r"expected both vectors to have same dtype, but found (?P<e>\w+) and (?P<f>\w+)",
    example="RuntimeError: mat1 and mat2 must have the same dtype, but got Double and Float",
    fragments=(r"mat1 and mat2 must have the same dtype", r"expected m1 and m2 to have the same dtype"),
)
def product_dtypes(found: Found) -> Reading:
    first, second = _named(found, ("a", "b"), ("c", "d"), ("e", "f"))
    layer = found.has("a")
    addmm = found.match[0].startswith("self")
    return Reading(
        f"a product of {first} and {second}",
        f"The left operand is {first}, the right one {second}."
        + (" In a linear layer the left one is the input and the right one the weight." if layer and not addmm else "")
        + " Products do not convert.",
        _causes(first, second),
        raising(
            f"torch.addmm(torch.zeros(2, 2, dtype={first}), torch.zeros(2, 3, dtype={first}), torch.zeros(3, 2, dtype={second}))",
            raises=found.match[0],
        )
        if addmm
        else raising(
            f"layer = torch.nn.Linear(3, 2, dtype={second})",
            f"layer(torch.zeros(4, 3, dtype={first}))",
            raises=f"RuntimeError: mat1 and mat2 must have the same dtype, but got {found['a']} and {found['b']}",
        )
        if layer
        else raising(f"torch.zeros(3{'' if found.has('e') else ', 3'}, dtype={first}) @ torch.zeros(3, dtype={second})"
                     if found.has("e") else
                     f"torch.zeros(2, 3, dtype={first}) @ torch.zeros(3, 2, dtype={second})", raises=found.match[0]),
        ("Convert the input where it is made: `x.float()`, or `x.to(layer.weight.dtype)`; numpy: `torch.as_tensor(a, dtype=torch.float32)`.",),
        running(
            f"layer = torch.nn.Linear(3, 2, dtype={second})",
            f"x = torch.zeros(4, 3, dtype={first})",
            "print(layer(x.to(layer.weight.dtype)).dtype)",
            prints=second,
        )
        if second in ("torch.float32", "torch.float64")
        else None,
        falsehoods=(NUMBERS,),
    )  # fmt: skip


@reads(
    r"Input type \((?P<a>[\w:. ]+?)\) and (?P<which>bias|weight) type \((?P<b>[\w:. ]+?)\) should be the same",
    example="RuntimeError: Input type (double) and bias type (float) should be the same",
    fragments=(r"input type .{0,40}should be the same",),
)
def conv_dtypes(found: Found) -> Reading:
    raw_a, raw_b = found["a"], found["b"]
    if ("cuda" in raw_a) != ("cuda" in raw_b):
        on, off = ("input", "weights") if "cuda" in raw_a else ("weights", "input")
        return Reading(
            f"the {on} of a convolution are on the GPU and the {off} on the CPU".replace("input of a convolution are", "input of a convolution is"),
            f"`{raw_a}` is the input, `{raw_b}` the {found['which']}: torch.cuda.… is memory of the GPU. Both must be on one device.",
            ("`model.to(device)` was forgotten, or a layer was made later or kept in a plain list (use `nn.ModuleList`), so `.to` does not reach it."
             if on == "input" else "`x.to(device)` was forgotten; it returns a new tensor: `x = x.to(device)`.",),
            None,
            ("Move both: `model.to(device)` once, `x = x.to(device)` for each batch.",),
            falsehoods=(
                Falsehood(
                    "`x.to(device)` moves the tensor.",
                    "It returns a moved copy and leaves `x` where it is; only modules are moved in place.",
                    running("x = torch.zeros(3)", "x.to('meta')", "print(x.device)", prints="cpu"),
                ),
            ),
        )  # fmt: skip
    first, second = dtype(raw_a), dtype(raw_b)
    return Reading(
        f"a convolution with {second} weights got a {first} input",
        f"The input is {first}, the {found['which']} {second}. Convolutions do not convert.",
        _causes(first, second),
        raising(
            f"layer = torch.nn.Conv2d(3, 8, 3, dtype={second}{'' if found['which'] == 'bias' else ', bias=False'})",
            f"layer(torch.zeros(1, 3, 8, 8, dtype={first}))",
            raises="should be the same",
        )
        if second.startswith(("torch.float", "torch.bfloat"))
        else None,
        ("Images: `x.float() / 255`; else `x.to(layer.weight.dtype)`.",),
        falsehoods=(NUMBERS,),
    )


@reads(
    r"expected scalar type (?P<want>(?!Long)\w+) but found (?P<got>\w+)",
    r"Found dtype (?P<got2>\w+) but expected (?P<want2>\w+)",
    r"mixed dtype \(CPU\): (?:all inputs must share same datatype|expect parameter to have scalar type of Float)",
    example="RuntimeError: expected scalar type Float but found Double",
    fragments=(r"expected scalar type",),
)
def scalar_type(found: Found) -> Reading:
    mixed = not found.has("want") and not found.has("want2")
    want, got = ("torch.float32", "torch.float64") if mixed else _named(found, ("want", "got"), ("want2", "got2"))
    if mixed:
        program = raising("torch.nn.LayerNorm(4)(torch.zeros(2, 4, dtype=torch.float64))", raises="RuntimeError: mixed dtype (CPU)")
    elif found.has("want2") and want in ("torch.float32", "torch.float64"):
        program = raising(
            f"torch.nn.functional.binary_cross_entropy(torch.tensor([0.5], dtype={want}), torch.tensor([1], dtype={got}))",
            raises=found.match[0],
        )
    elif found.has("want2"):
        program = None
    else:
        program = raising(
            f"torch.bmm(torch.zeros(1, 2, 3, dtype={want}), torch.zeros(1, 3, 2, dtype={got}))",
            raises=found.match[0],
        )
    return Reading(
        "the inputs of a layer have different dtypes" if mixed else f"{got} where {want} was expected",
        "An operation got tensors of different dtypes and does not convert them"
        + (" (usually a normalisation layer: float32 weights and an input of another precision)." if mixed else f": it expected {want}, from its first operand, and found {got}."),
        _causes(want, got),
        program,
        ("Convert the odd one out where it is made: `.float()`, `.to(other.dtype)`.",),
        falsehoods=(NUMBERS,),
    )  # fmt: skip


@reads(
    r"RNN input dtype \((?P<a>torch\.\w+)\) does not match weight dtype \((?P<b>torch\.\w+)\)",
    example="ValueError: RNN input dtype (torch.float64) does not match weight dtype (torch.float32). Convert input: input.to(torch.float32), "
    "or convert model: model.to(torch.float64)",
)
def rnn_dtype(found: Found) -> Reading:
    a, b = found["a"], found["b"]
    return Reading(
        f"a recurrent layer with {b} weights got a {a} input",
        f"Input {a}, weights {b}: recurrent layers do not convert.",
        _causes(a, b),
        raising(f"torch.nn.LSTM(4, 8, dtype={b})(torch.zeros(5, 3, 4, dtype={a}))", raises=f"ValueError: RNN input dtype ({a}) does not match"),
        (f"`x.to({b})` where the input is made.",),
    )


@reads(
    r"\"(?P<kernel>\w+)\" not implemented for '(?P<dtype>\w+)'",
    example="NotImplementedError: \"softmax_lastdim_kernel_impl\" not implemented for 'Long'",
    fragments=(r"not implemented for '(Half|Long|Int|Bool|BFloat16|Byte|Float|Double|Short|Char|ComplexFloat)'",),
)
def kernel_dtype(found: Found) -> Reading:
    kernel, kind = found["kernel"], dtype(found["dtype"])
    half = kind in ("torch.float16", "torch.bfloat16")
    known = {
        "softmax_lastdim_kernel_impl": "torch.zeros(3, dtype={}).softmax(0)",
        "log_softmax_lastdim_kernel_impl": "torch.zeros(3, dtype={}).log_softmax(0)",
        "bitwise_and_cpu": "torch.zeros(3, dtype={0}) & torch.zeros(3, dtype={0})",
    }
    if "nll_loss" in kernel and "index" in kernel:
        return Reading(
            f"targets of dtype {kind} where class numbers are expected",
            f"The kernel `{kernel}` picks a class by the target, which must be int64 (`torch.long`); these are {kind}.",
            ("The labels come from numpy or pandas as float or int32, or from `torch.Tensor(labels)`, which makes float32.",),
            None,
            ("`targets.long()`, or `dtype=torch.long` where they are made.",),
        )
    whole = kind in ("torch.int64", "torch.int32", "torch.uint8", "torch.bool", "torch.int16", "torch.int8")
    bits = kernel.startswith(("bitwise", "lshift", "rshift", "__"))
    return Reading(
        f"`{kernel}` does not exist for {kind}",
        f"torch has no code for this operation on {kind} tensors on this device. The name in quotes is that of the kernel; the operation is "
        "the one on the line that failed.",
        (
            ("Half precision on the CPU: some CPU operations exist only for float32 and float64.",)
            if half
            else ("Whole numbers (ids, labels, pixels, a mask) where floats are meant.",)
            if whole
            else ("An operation for booleans or whole numbers (`&`, `|`, `<<`) got floats: compare first, `(a > 0) & (b > 0)`.",)
            if bits
            else ("An operation for whole numbers (a count, an id, a position) got floats: they come from NumPy, pandas or `torch.Tensor(...)`.",)
        ),
        raising(known[kernel].format(kind), raises="not implemented for '" + found["dtype"] + "'") if kernel in known else None,
        ("Use float32 on the CPU (`model.float()`), and half precision on the GPU." if half else "Convert first: `.float()`." if whole else
         "Use booleans or whole numbers: comparisons give them." if bits else "Convert first where the numbers are whole: `.long()`.",),
    )  # fmt: skip


@reads(
    r"could not infer output dtype\. Input dtype must be either a floating point or complex dtype\. Got: (?P<dtype>\w+)",
    r"Expected a floating point or complex tensor as input\. Got (?P<dtype2>\w+)",
    example="RuntimeError: mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: Long",
    fragments=(r"could not infer output dtype",),
)
def mean_of_ints(found: Found) -> Reading:
    kind = dtype(found["dtype"] if found.has("dtype") else found["dtype2"])
    call = "mean()" if found.has("dtype") else "norm()"
    return Reading(
        f"a mean, norm or deviation of a {kind} tensor",
        f"The result would not be whole, and torch does not choose a float dtype for {kind}.",
        ("Accuracy from comparisons: `(predicted == labels).mean()` is of bool.", "Counts, labels or pixel values."),
        raising(f"torch.zeros(3, dtype={kind}).{call}", raises=found.match[0]),
        ("`x.float().mean()`.",),
        running(f"print(torch.zeros(3, dtype={kind}).float().mean().item())", prints="0.0"),
    )


@reads(
    r"result type (?P<result>\w+) can't be cast to the desired output type (?P<output>\w+)",
    example="RuntimeError: result type Float can't be cast to the desired output type Long",
)
def inplace_cast(found: Found) -> Reading:
    result, output = dtype(found["result"]), dtype(found["output"])
    return Reading(
        f"an in-place operation on {output} would give {result}",
        f"`x += y` keeps the dtype of `x` ({output}); the result is {result} and would lose what {output} cannot hold.",
        ("A counter or buffer was made from whole numbers: `torch.tensor([0, 0])` is int64.", "`x /= n` on whole numbers.",
         "A loss got int64 targets where it computes in place on floats (`binary_cross_entropy_with_logits`)."),
        raising(f"x = torch.ones(3, dtype={output})", f"x += torch.ones(3, dtype={result})", raises=found.match[0]),
        ("Make `x` float from the start (`torch.zeros(n)`, `0.0`), or work out of place: `x = x + y`.",),
        running(f"x = torch.ones(3, dtype={output})", f"x = x + torch.ones(3, dtype={result})", "print(x.dtype)", prints=result),
    )  # fmt: skip


@reads(
    r"Only Tensors of floating point (?:and complex )?dtype can require gradients",
    example="RuntimeError: Only Tensors of floating point and complex dtype can require gradients",
)
def integer_requires_grad(found: Found) -> Reading:
    return Reading(
        "a whole-number tensor cannot require grad",
        "A derivative needs values that can change by a little; integers and booleans cannot.",
        ("`torch.tensor([1, 2], requires_grad=True)`: numbers written without a point make int64.", "Ids, labels or a mask were marked as learnable."),
        raising(
            "torch.tensor([1, 2], requires_grad=True)" if "complex" in found.match[0] else "torch.tensor([1, 2]).requires_grad_()",
            raises=found.match[0],
        ),
        ("Write `1.0`, or `dtype=torch.float32`. A learned choice of an index needs scores and a softmax instead.",),
        running("print(torch.tensor([1.0, 2.0], requires_grad=True).requires_grad)", prints="True"),
    )


@reads(
    r"masked_fill_? only supports boolean masks, but got mask with dtype (?P<dtype>[\w: ]+)",
    r"where expected condition to be a boolean tensor, but got a tensor with dtype (?P<dtype2>\w+)",
    example="RuntimeError: masked_fill_ only supports boolean masks, but got mask with dtype float",
    fragments=(r"only supports boolean masks",),
)
def boolean_mask(found: Found) -> Reading:
    raw = found["dtype"] if found.has("dtype") else found["dtype2"]
    kind = dtype(raw)
    return Reading(
        f"a mask of dtype {kind} where a boolean one is needed",
        f"`masked_fill` and `where` choose by True and False; this mask is {kind}.",
        ("The tokenizer's mask of 0 and 1, or a mask kept as floats to multiply with.",),
        raising(f"torch.zeros(3).masked_fill(torch.ones(3, dtype={kind}), 1.0)", raises="masked_fill_ only supports boolean masks")
        if found.has("dtype")
        else raising(f"torch.where(torch.ones(3, dtype={kind}), 1.0, 0.0)", raises="where expected condition to be a boolean tensor"),
        ("`mask.bool()`, or a comparison: `mask == 0` for the positions to hide.",),
        running(f"print(torch.zeros(2).masked_fill(torch.ones(2, dtype={kind}).bool(), 1.0).tolist())", prints="[1.0, 1.0]"),
    )


@reads(
    r"(?:Subtraction|Negation), the `-` operator, (?:with two bool tensors|with a bool tensor|on a bool tensor) is not supported",
    example="RuntimeError: Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use the `~` or "
    "`logical_not()` operator instead.",
)
def bool_minus(found: Found) -> Reading:
    if "two bool" in found.match[0]:
        return Reading(
            "`-` between two boolean masks",
            "Comparisons give bool, for which minus has no meaning: what is meant may be one of several things.",
            ("What is in the one and not in the other is wanted.", "Masks or predictions are to be counted or compared: `(pred == target) - ...`."),
            raising("mask = torch.tensor([True, False])", "mask - mask", raises=found.match[0]),
            ("`a & ~b` for what only `a` has, `a ^ b` for where they differ, `a.float() - b.float()` for numbers.",),
            running("a, b = torch.tensor([True, True]), torch.tensor([True, False])", "print((a & ~b).tolist())", prints="[False, True]"),
        )
    return Reading(
        "`-` on a boolean mask",
        "Comparisons give bool, for which minus has no meaning.",
        ("`1 - mask` to invert a mask (right when masks were uint8).",),
        raising(
            "mask = torch.tensor([True, False])",
            "-mask" if "Negation" in found.match[0] else "1 - mask",
            raises=found.match[0],
        ),
        ("`~mask` inverts; `1 - mask.float()` where a number is needed.",),
        running("mask = torch.tensor([True, False])", "print((~mask).tolist())", prints="[False, True]"),
    )


@reads(
    r"Expected tensor for argument #1 'indices' to have (?:one of the following scalar types: Long, Int|scalar type Long); but got torch\.(?:cuda\.)?"
    r"(?P<dtype>\w+)Tensor",
    example="RuntimeError: Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got "
    "torch.FloatTensor instead (while checking arguments for embedding)",
    fragments=(r"argument #1 'indices' to have one of the following scalar types",),
)
def embedding_dtype(found: Found) -> Reading:
    kind = dtype(found["dtype"])
    return Reading(
        f"an embedding got ids of dtype {kind}",
        f"Ids are rows of a table: int64 or int32. These are {kind}.",
        ("`torch.Tensor(ids)` makes float32; `torch.tensor(ids)` keeps whole numbers.", "Features and ids were put into one float array.",
         "The output of another layer was passed to the embedding."),
        raising(f"torch.nn.Embedding(5, 3)(torch.zeros(2, dtype={kind}))", raises="Expected tensor for argument #1 'indices'"),
        ("`ids.long()`.",),
        running(f"print(tuple(torch.nn.Embedding(5, 3)(torch.zeros(2, dtype={kind}).long()).shape))", prints="(2, 3)"),
    )  # fmt: skip


@reads(
    r"value cannot be converted to type (?P<kind>(?:at|c10)::(?:Half|BFloat16)|u?int\d*_t|int) without overflow",
    example="RuntimeError: value cannot be converted to type c10::Half without overflow",
)
def number_too_large(found: Found) -> Reading:
    half = found["kind"].lower().endswith("half")
    kind = "torch.float16" if half else "torch.bfloat16" if "BFloat16" in found["kind"] else f"the type `{found['kind']}`"
    return Reading(
        f"a number is too large for {kind}",
        "float16 ends at 65504." if half else f"The number does not fit in {kind}.",
        ("Scores are masked with -1e9 (or -1e20), and mixed precision has made them float16." if half else "A constant was written for another dtype.",),
        raising("scores = torch.zeros(2, dtype=torch.float16)", "scores.masked_fill(torch.tensor([True, False]), -1e9)", raises="without overflow") if half else None,
        ("`scores.masked_fill(mask, float('-inf'))`, or `torch.finfo(scores.dtype).min`, which is right in every dtype.",) if half else ("Use a number that fits: `torch.finfo(x.dtype).max` or `torch.iinfo(x.dtype).max`.",),
        running("scores = torch.zeros(2, dtype=torch.float16)", "print(scores.masked_fill(torch.tensor([True, False]), torch.finfo(scores.dtype).min).softmax(0))", prints="tensor([0., 1.]") if half else None,
        rule=NO_RULE,
    )  # fmt: skip


@reads(
    r"binary_cross_entropy and torch\.nn\.BCELoss are unsafe to autocast",
    example="RuntimeError: torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.",
)
def unsafe_to_autocast(found: Found) -> Reading:
    return Reading(
        "`BCELoss` on probabilities inside of autocast",
        "Under autocast the probabilities may be float16, where everything close to 0 or 1 is rounded away before the logarithm is taken. So torch refuses to compute this loss there.",
        ("The model ends in a sigmoid, and the loss is `nn.BCELoss`.",),
        None,
        (
            "Take the sigmoid out of the model and use `nn.BCEWithLogitsLoss`, which autocast takes; `torch.sigmoid` for predictions only.",
            "Where the probabilities must stay: leave autocast for the loss, `with torch.autocast('cuda', enabled=False): loss = criterion(p.float(), target)`.",
        ),
        running(
            "with torch.autocast('cpu', dtype=torch.bfloat16):",
            "    logits = torch.nn.Linear(3, 1)(torch.zeros(2, 3))",
            "    print(torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.ones(2, 1)).dtype)",
            prints="torch.float32",
        ),
        rule=NO_RULE,
    )

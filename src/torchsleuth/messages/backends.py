"""Messages about operators that exist, and not for this kind of tensor: sparse, quantised, on a device an extension was not built for."""

from __future__ import annotations

from torchsleuth.messages import NO_RULE, Found, Reading, raising, reads, running


@reads(
    r"Could not run '(?P<operator>[\w:.]+)' with arguments from the '(?P<backend>\w+)' backend",
    example="NotImplementedError: Could not run 'aten::view' with arguments from the 'SparseCPU' backend.",
)
def operator_not_for_these(found: Found) -> Reading:
    operator, backend = found["operator"], found["backend"]
    package, _, name = operator.partition("::")
    if backend.startswith("Sparse"):
        kind, causes = "sparse tensors", ("The tensor is sparse (`to_sparse`, `torch.sparse_coo_tensor`, gradients of `nn.Embedding(sparse=True)`), and few operations know that layout.",)
        program = raising("torch.zeros(2, 2).to_sparse().view(4)", raises=f"Could not run '{operator}'") if (operator, backend) == ("aten::view", "SparseCPU") else None
        fixes = ("`x.to_dense()` in front of it; for a product `torch.sparse.mm`.",)
        remedy = running("print(torch.eye(2).to_sparse().to_dense().view(4))", prints="tensor([1., 0., 0., 1.])")
    elif backend.startswith("Quantized"):
        kind, causes = "quantised tensors", ("The tensor holds 8-bit numbers with a scale, and this operation was written for plain ones only.",)
        program, remedy = None, None
        fixes = ("Leave quantisation before that step (`DeQuantStub`, `x.dequantize()`), or replace it by an operation of `torch.ao.nn.quantized`.",)
    elif package == "quantized":
        kind, causes = f"plain tensors of {backend}", ("A quantised layer got a float tensor: the model was converted, and its input is not quantised (`QuantStub` is missing, or not called in `forward`).",)
        program = raising("torch.ops.quantized.add(torch.zeros(2), torch.zeros(2), 1.0, 0)", raises=f"Could not run '{operator}'") if (operator, backend) == ("quantized::add", "CPU") else None
        fixes, remedy = ("Call `self.quant(x)` at the beginning of `forward` and `self.dequant(x)` at its end; convert the whole model or none of it.",), None
    else:
        kind = f"tensors of {backend}"
        causes = (f"`{package}` is an extension that was built without {backend}." if package != "aten" else f"Nobody has written `{name}` for {backend}.",)
        program, remedy = None, None
        fixes = ("Install the build of the extension that belongs to this build of torch." if package != "aten" else "Do that step on another device or with other operations.",)
    return Reading(
        f"`{operator}` does not exist for {kind}",
        f"torch chooses an operator's code by the kind of the tensors it gets. `{operator}` has none for {backend}. Shapes and values have no part in it. (The list of backends in the message says what it has code for.)",
        causes,
        program,
        fixes,
        remedy,
        rule=NO_RULE,
    )


@reads(r"The MPS backend is supported on MacOS (?P<version>[\d.]*\d)\+", example="RuntimeError: The MPS backend is supported on MacOS 14.0+. Current OS version can be queried using `sw_vers`")
def mps_system(found: Found) -> Reading:
    return Reading(
        f"this torch needs macOS {found['version']} for the GPU",
        "torch uses Apple's GPU through libraries of the system, and this release asks for newer ones than this system has.",
        ("The system is older.",),
        None,
        ("Update macOS, install an earlier torch, or choose the device by `torch.backends.mps.is_available()`, which is False here.",),
        running("print('mps' if torch.backends.mps.is_available() else 'cpu')"),
        rule=NO_RULE,
    )


@reads(
    r"Storage size calculation overflowed with sizes=\[(?P<sizes>[\d, ]+)\]",
    example="RuntimeError: Storage size calculation overflowed with sizes=[100000000000, 100000000000]",
)
def size_overflows(found: Found) -> Reading:
    sizes = found.ints("sizes")
    total = 1
    for n in sizes:
        total *= n
    return Reading(
        f"a tensor of {' x '.join(map(str, sizes))} has more elements than can be counted",
        f"That is {total:.3g} elements, and the number of bytes does not fit in 64 bits. No machine has a part of that memory.",
        ("A size is not a size: a product or a power of sizes, an id or a time stamp, a value read from memory or from a damaged file.", "A comparison of all pairs of all elements instead of all rows."),
        raising(f"torch.empty({', '.join(map(str, sizes))})", raises="Storage size calculation overflowed with sizes="),
        ("Print the sizes where they are computed.",),
        rule=NO_RULE,
    )

"""Messages of tracing and of export to ONNX: what a trace fixes for good, and operators that a file format does not have."""

from __future__ import annotations

from torchsleuth.messages import NO_RULE, Found, Reading, raising, reads, running


@reads(
    r"Converting a tensor to a (?:Python|NumPy) (?P<kind>boolean|integer|float|number|index|list|array) might cause the trace to be incorrect",
    r"(?P<loop>Iterating over a tensor) might cause the trace to be incorrect",
    r"(?P<constant>torch\.tensor results are registered as constants in the trace)",
    example="TracerWarning: Converting a tensor to a Python boolean might cause the trace to be incorrect. We can't record the data flow of Python values, so this value will be treated as a constant in the future.",
    fragments=(r"TracerWarning",),
)
def traced_constant(found: Found) -> Reading:
    kind = found["kind"].lower() if found.has("kind") else ""
    what = (
        "the path that the example took is the only one in the trace" if kind == "boolean"
        else "the number of turns of a loop is that of the example" if found.has("loop")
        else "a number of the example stays in the trace for good"
    )  # fmt: skip
    return Reading(
        what,
        "Tracing (`torch.jit.trace`, `torch.onnx.export`) runs the model once and records torch operations. What Python decides or computes from a tensor's values is not recorded: it is as the "
        "example had it, for every later input.",
        (
            "`if x.sum() > 0:` or `assert` on a tensor: one branch is kept."
            if kind == "boolean"
            else "`for row in tensor`: as many turns as the example had rows."
            if found.has("loop")
            else "`int(...)`, `float(...)`, `.item()`, `len(x)`, `x.numpy()` or `torch.tensor(...)` of something computed.",
            "It only says *might*: a check of a shape that never changes does no harm.",
        ),
        None,
        ("For a choice by values `torch.where`; for sizes `x.shape[0]` used by torch operations only, and `dynamic_axes` (or `dynamic_shapes`); `torch.export` or `torch.jit.script` where control flow must stay.",
         "Compare the exported model with the original on an input of another size and other values."),
        running(
            "traced = torch.jit.trace(lambda x: x if x.sum() > 0 else -x, torch.ones(2))",
            "print(traced(-torch.ones(2)))",
            prints="tensor([-1., -1.])",
            says="This keeps the branch of the example, and gives [-1, -1] where the function itself gives [1, 1]:",
        ),
        rule=NO_RULE,
    )  # fmt: skip


@reads(
    r"Encountering a (?P<container>dict|list) at the output of the tracer might cause the trace to be incorrect",
    r"Tracer cannot infer type of",
    r"(?P<other>Only tensors, lists, tuples of tensors, or dictionary of tensors can be output from traced functions)",
    example="RuntimeError: Encountering a dict at the output of the tracer might cause the trace to be incorrect, this is only valid if the container structure does not change based on the module's inputs.",
)
def traced_output(found: Found) -> Reading:
    mixed = not found.has("container") and not found.has("other")
    return Reading(
        "what the model returns cannot be recorded in a trace",
        "A trace returns tensors and tuples of tensors. " + ("A dictionary must hold values of one kind; here they are of several (tensors, lists, None)." if mixed else
        "A dictionary or list could change with the input, so it has to be asked for." if found.has("container") else "This is an object of another class."),
        ("The model returns a dictionary, a dataclass or a model output of transformers.",),
        raising("torch.jit.trace(lambda x: {'logits': x, 'hidden': [x]}, torch.ones(2))" if mixed else "torch.jit.trace(lambda x: {'logits': x}, torch.ones(2))" if found.has("container")
                else "torch.jit.trace(lambda x: object(), torch.ones(2))", raises=found.match[0].split(" a list")[0] if not found.has("container") else "Encountering a dict"),
        ("Return a tuple: a small wrapper module whose `forward` picks the tensors, or `return_dict=False` (transformers: `torchscript=True`). `strict=False` allows a dictionary of tensors.",),
        running("traced = torch.jit.trace(lambda x: {'logits': x}, torch.ones(2), strict=False)", "print(traced(torch.zeros(2))['logits'])", prints="tensor([0., 0.])"),
        rule=NO_RULE,
    )  # fmt: skip


@reads(
    r"Exporting the operator '?(?P<operator>[\w:.]+)'? to ONNX opset version (?P<version>\d+) is not supported(?:\. Support for this operator was added in version (?P<since>\d+))?",
    example="UnsupportedOperatorError: Exporting the operator 'aten::unflatten' to ONNX opset version 12 is not supported.",
)
def not_in_onnx(found: Found) -> Reading:
    operator, version = found["operator"], found["version"]
    since = f" It has been there since version {found['since']}." if found.has("since") else ""
    return Reading(
        f"there is no translation of `{operator}` to ONNX version {version}",
        f"The exporter writes each torch operator in ONNX operators of one version (`opset_version`), and for `{operator}` it knows none in version {version}.{since} The model itself runs.",
        ("The version is older than the operator: it was set by hand for an old runtime.", "The exporter that works by tracing (`dynamo=False`) has no translation of it in any version.",
         "The operator is from an extension (torchvision, a custom op)."),
        None,
        (f"`opset_version={found['since']}` or later." if found.has("since") else "A later `opset_version`, or the newer exporter: `torch.onnx.export(..., dynamo=True)`.",
         "Write that step with other operations (`reshape` for `unflatten`), or register a translation (`torch.onnx.register_custom_op_symbolic`)."),
        rule=NO_RULE,
    )  # fmt: skip

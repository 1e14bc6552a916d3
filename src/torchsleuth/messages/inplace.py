"""Messages about writing into tensors that autograd still needs or does not allow to be written."""

from __future__ import annotations

from torchsleuth.messages import Falsehood, Found, Reading, call, count, dtype, raising, reads, running, shape

# For each node that saves its own result: a line that makes such a result, so that the program shows the same node.
SAVES_RESULT = {
    "Exp": "torch.exp({})", "Sigmoid": "torch.sigmoid({})", "Tanh": "torch.tanh({})", "Sqrt": "torch.sqrt({})",
    "Relu": "torch.relu({})", "Softmax": "torch.softmax({}, -1)", "LogSoftmax": "torch.log_softmax({}, -1)",
}  # fmt: skip

DETECT_ANOMALY = Falsehood(
    "Anomaly detection (`torch.autograd.set_detect_anomaly(True)`), which the hint recommends, shows the line that overwrote the tensor.",
    "It shows the forward line of the operation that *saved* it, never the line that *wrote* into it. `torchsleuth run` names both.",
    running(
        "import warnings",
        "torch.autograd.set_detect_anomaly(True)",
        "x = torch.ones(3, requires_grad=True)",
        "h = x * 2",
        "y = h ** 2                           # saves h",
        "h += 1                               # writes into it",
        "with warnings.catch_warnings(record=True) as shown:",
        "    warnings.simplefilter('always')",
        "    try:",
        "        y.sum().backward()",
        "    except RuntimeError:",
        "        report = str(shown[-1].message)",
        "print('y = h ** 2' in report, 'h += 1' in report)",
        prints="True False",
    ),
)


@reads(
    r"modified by an inplace operation: \[torch\.(?:cuda\.)?(?P<dtype>\w+)Tensor \[(?P<size>[\d, ]*)\]\](?:, which is output (?P<output>\d+) of "
    r"(?P<node>\w+))?,? is at version (?P<now>\d+); expected version (?P<then>\d+)",
    example="RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation: [torch.FloatTensor "
    "[3]], which is output 0 of Exp, is at version 1; expected version 0 instead. Hint: enable anomaly detection to find the operation that "
    "failed to compute its gradient, with torch.autograd.set_detect_anomaly(True, check_nan=False).",
    fragments=(r"modified by an in-?place operation", r"variables? needed for gradient computation"),
)
def saved_tensor_overwritten(found: Found) -> Reading:
    size, now, then = found.ints("size"), found.int("now"), found.int("then")
    node = (found["node"] or "").removesuffix("Backward0").removesuffix("Backward1").removesuffix("Backward") if found.has("node") else ""
    writes = now - then
    where = f" The tensor is output {found['output']} of `{node}`" if node else " The tensor was not made by an operation autograd recorded"
    hints = {
        "AsStrided": ": usually the transposed weight of a linear layer, written by `optimizer.step()` (or a manual update) between forward and backward.",
        "T": ": usually the transposed weight of a linear layer, written by `optimizer.step()` between forward and backward.",
        "Relu": ": an in-place operation after a ReLU, which needs its own result.",
        "CopySlices": ": a tensor that was assigned into (`x[...] = ...`); that assignment may be the write itself.",
        "Select": ": a slice `x[i]`; writing into any part of `x` counts for all its views.",
        "Slice": ": a slice of a tensor; writing into any part of that tensor counts for all its views.",
    }
    recorded = ". Autograd names the operation that made the tensor what it is now: where the write was recorded, that is the write itself (`h += 1` appears as Add)."
    own = "." if node in SAVES_RESULT else recorded
    where += hints.get(node, own if node else " (a leaf, an input, a buffer or a parameter).")
    rows, columns = (size if len(size) == 2 else (0, 0))
    weight = node in ("AsStrided", "T", "Transpose") and bool(columns)
    causes = (
        "`x += y`, `x[i] = v`, `x.relu_()`, `inplace=True` or `torch.add(..., out=x)` after an operation that saved `x` or made it.",
        "`optimizer.step()` between a forward pass and a backward pass through the old weights: GAN-style training, two losses, a kept hidden state.",
    )
    if node in SAVES_RESULT and size and writes > 0 and then == 0:
        made = raising(
            f"x = torch.ones({call(size)}, requires_grad=True)",
            f"h = {SAVES_RESULT[node].format('x')}             # saves its result, at version 0",
            *["h += 1" + ("                            # writes into it" if i == 0 else "") for i in range(min(writes, 3))],
            "h.sum().backward()",
            raises=f"[torch.FloatTensor {shape(size)}], which is output 0 of {node}, is at version {min(writes, 3)}; expected version 0 instead",
        )
    elif node in ("AsStrided", "T") and columns:
        made = raising(
            f"layer = torch.nn.Linear({rows}, {columns})",
            "optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)",
            f"x = torch.ones(2, {rows}, requires_grad=True)",
            "loss = layer(x).sum()                # saves the weight: the gradient of x needs it",
            "torch.nn.functional.mse_loss(layer(x.detach()), torch.zeros(2, " + str(columns) + ")).backward()",
            "optimizer.step()                     # writes into the weight",
            "loss.backward()",
            raises=f"[torch.FloatTensor {shape(size)}], which is output 0 of",
        )
    else:
        made = raising(
            f"x = torch.ones({call(size)}, requires_grad=True)",
            "h = x * 2",
            "y = h ** 2                           # saves h",
            *["h += 1" + ("                               # writes into it" if i == 0 else "") for i in range(max(1, min(writes, 3)))],
            "y.sum().backward()",
            raises=f"[torch.FloatTensor {shape(size)}]",
        )
    return Reading(
        f"a saved tensor of shape {shape(size)} was overwritten {count(writes, 'time')} before backward",
        f"An operation kept a {dtype(found['dtype'])} tensor of shape {shape(size)} for its derivative when it was at version {then}; now it is at version "
        f"{now}, so {'one write' if writes == 1 else f'{writes} writes'} went into its memory in between (views count together)." + where,
        (
            *(causes if not weight else reversed(causes)),
            "A buffer or a running state updated in place in `forward`, also under `no_grad`.",
            "A forward pass run twice (a shared module with a buffer, DataParallel/DDP) before one backward.",
        ),
        made,
        (
            "Write into a new tensor (`x = x + y`, `torch.where`, `inplace=False`), or let the saving operation work on `x.clone()`.",
            "Call `optimizer.step()` after the last backward through the old weights.",
        ),
        falsehoods=(DETECT_ANOMALY,),
    )


@reads(
    r"(?P<view>a view of )?a leaf Variable that requires grad (?:is being|has been) used in an in-place operation",
    example="RuntimeError: a leaf Variable that requires grad is being used in an in-place operation.",
    fragments=(r"leaf Variable", r"\bleaf\b.{0,40}in-?place", r"in-?place.{0,40}\bleaf\b"),
)
def leaf_written(found: Found) -> Reading:
    view = found.has("view")
    write = "x[0] = 1.0" if view else "x += 1"
    return Reading(
        "an in-place write into " + ("a part (a view) of " if view else "") + "a tensor whose gradient you asked for",
        "`x` was created with `requires_grad=True` (a leaf: an input or a parameter). Its gradient is asked for at the value it has now, so autograd "
        "does not let recorded code overwrite it"
        + (": `x[0] = ...` and operations on `x.view(...)` write into a view of `x`." if view else "."),
        (
            "Parameters updated by hand (`w -= lr * w.grad`) outside `torch.no_grad()`.",
            "An input with `requires_grad=True` is changed in place: `x += noise`, `x[mask] = 0`, `x.index_put_(...)`, `x.clamp_()`.",
            "Initialisation by assignment: `layer.weight[0] = ...`.",
        ),
        raising(
            "x = torch.zeros(3, requires_grad=True)",
            write,
            raises=f"RuntimeError: {'a view of ' if view else ''}a leaf Variable that requires grad is being used in an in-place operation.",
        ),
        (
            "To compute with a changed copy: `y = x.clone()` and write into `y`, or out of place: `y = x + 1`, `x.index_put(...)`, `torch.where`.",
            "To change the values themselves (initialise, update): `with torch.no_grad(): x += 1`.",
        ),
        running(
            "x = torch.zeros(3, requires_grad=True)",
            "y = x.clone()",
            "y[0] = 1.0",
            "y.sum().backward()",
            "print(x.grad.tolist())",
            prints="[0.0, 1.0, 1.0]",
        ),
        falsehoods=(
            Falsehood(
                "The indices must be detached.",
                "Indices are whole numbers and carry no gradient; the same error comes with detached ones. It is about `x`.",
                raising(
                    "x = torch.randn(5, requires_grad=True)",
                    "indices = torch.argmax(torch.randn(5)).detach().reshape(1)",
                    "x.index_put_((indices,), torch.tensor([1.0]))",
                    raises="RuntimeError: a leaf Variable that requires grad",
                ),
            ),
            Falsehood(
                "In-place operations are not differentiable.",
                "They are, on tensors that are not leaves.",
                running(
                    "x = torch.ones(3, requires_grad=True)",
                    "y = x * 2",
                    "y += 1",
                    "y.sum().backward()",
                    "print(x.grad.tolist())",
                    prints="[2.0, 2.0, 2.0]",
                ),
            ),
        ),
    )


@reads(
    r"Output (?P<output>\d+) of (?P<node>\w+) is a view and is being modified inplace\. This view is the output of a function that returns multiple "
    r"views",
    example="RuntimeError: Output 0 of Unbind is a view and is being modified inplace. This view is the output of a function that returns multiple "
    "views. Such functions do not allow the output views to be modified inplace. You should replace the inplace operation by an out-of-place one.",
    fragments=(r"function that returns multiple views", r"is a view and is being modified in-?place"),
)
def one_of_several_views(found: Found) -> Reading:
    node, output = found["node"].removesuffix("Backward0"), found.int("output")
    how = {"Unbind": "x.unbind()", "Split": "x.split(1)", "SplitWithSizes": "x.split([1, 1, 1])"}
    made = how.get(node, "x.unbind()")
    exact = node in how and output < 3
    indexed = node in ("Select", "Slice", "AsStrided")          # the piece was indexed once more: a[0] = ... of a, b = x
    return Reading(
        f"one of several views (output {output} of `{node}`) was written into",
        f"`unbind`, `split`, `chunk` and unpacking or iterating a tensor (`a, b = x`, `for row in x`) give several views of one tensor at once. Writing "
        f"into one of them changes the tensor under all the others, and autograd has no rule for that; view number {output} was written.",
        (
            "`for row in x: row += 1`, `a, b = x` and then `a[...] = ...`, `q, k, v = x.chunk(3)` and then `q *= scale`.",
            "A library function that works in place got such a piece.",
        ),
        raising(
            "x = torch.zeros(3, 2, requires_grad=True) * 1",
            f"{', '.join('ab'[i] if i != output else 'piece' for i in range(2)) if output < 2 else 'a, b'}, "
            f"{'c' if output < 2 else 'piece'} = {made}",
            "piece[0] += 1" if indexed else "piece += 1",
            raises=f"RuntimeError: Output {output if exact else ''}",
        ),
        (
            "Out of place: `piece = piece + 1`, and put the pieces together again with `torch.stack`/`cat`.",
            "Or write through the whole tensor, by index: `x[0] += 1` (a single view) is allowed.",
        ),
        running(
            "x = torch.zeros(3, 2, requires_grad=True) * 1",
            "x[0] += 1",
            "x.sum().backward()",
            "print(x[0].tolist())",
            prints="[1.0, 1.0]",
        ),
        falsehoods=(
            Falsehood(
                "Modifying pieces of a tensor always breaks the graph.",
                "A single slice can be written, and the gradient is right; the restriction is on views that come several at a time.",
                running(
                    "x = torch.ones(3, requires_grad=True)",
                    "y = x * 2",
                    "y[0] = 0.0",
                    "y.sum().backward()",
                    "print(x.grad.tolist())",
                    prints="[0.0, 2.0, 2.0]",
                ),
            ),
        ),
    )


@reads(
    r"A view was created in (?P<mode>no_grad|inference) mode and is being modified inplace with grad mode enabled",
    example="RuntimeError: A view was created in no_grad mode and is being modified inplace with grad mode enabled. Given that this use case is "
    "ambiguous and error-prone, it is forbidden. You can clarify your code by moving both the view and the inplace either both inside the no_grad "
    "block (if you don't want the inplace to be tracked) or both outside (if you want the inplace to be tracked).",
    fragments=(r"view was created in (no_grad|inference) mode",),
)
def view_made_under_no_grad(found: Found) -> Reading:
    return Reading(
        "a view made under `no_grad` was written into outside of it",
        "The view does not know its history, since it was made while nothing was recorded; a recorded write into it would have to be recorded for its "
        "base, too. torch cannot tell which is meant.",
        ("A slice or `view` taken inside `with torch.no_grad():` (or in a function decorated with it) and updated after the block.",),
        raising(
            "x = torch.zeros(3, requires_grad=True) * 1",
            "with torch.no_grad():",
            "    part = x[:2]",
            "part += 1",
            raises="RuntimeError: A view was created in no_grad mode and is being modified inplace",
        ),
        ("Take the view where it is written: both inside the block (not tracked) or both outside (tracked); or write into `part.clone()`.",),
    )


@reads(
    r"more than one element of the written-to tensor refers to a single memory location",
    r"some elements of the input tensor and the written-to tensor refer to a single memory location",
    example="RuntimeError: unsupported operation: more than one element of the written-to tensor refers to a single memory location. Please clone() "
    "the tensor before performing the operation.",
)
def overlapping_memory(found: Found) -> Reading:
    own = "more than one element" in found.match[0]
    return Reading(
        "a write into memory that is shared with itself" if own else "an in-place operation reads the memory it writes",
        "`expand` repeats elements without copying, so several places are one memory cell and a write would not be well defined."
        if own
        else "Source and target overlap (`x[1:] += x[:-1]`), so the result would depend on the order of the elements.",
        ("A tensor from `expand`, `broadcast_to` or `expand_as` is changed in place." if own else "A shift or scan written with slices of one tensor.",),
        raising("x = torch.zeros(3).expand(2, 3)", "x += 1", raises="more than one element of the written-to tensor refers")
        if own
        else raising("x = torch.zeros(5)", "x[1:] += x[:-1]", raises="some elements of the input tensor and the written-to tensor refer"),
        ("`x = x.clone()` first (or `repeat` instead of `expand`)." if own else "Copy the source: `x[1:] += x[:-1].clone()`.",),
    )


@reads(
    r"Inplace update to inference tensor outside InferenceMode is not allowed",
    r"Inference tensors cannot be saved for backward",
    r"Setting requires_grad=True on inference tensor outside InferenceMode is not allowed",
    example="RuntimeError: Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation "
    "tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` "
    "instead of `torch.inference_mode()`.",
    fragments=(r"inference tensors?\b",),
)
def inference_tensor(found: Found) -> Reading:
    said = found.match[0]
    lines = ["with torch.inference_mode():", "    features = torch.ones(3)"]
    if said.startswith("Inplace"):
        lines.append("features += 1")
    elif said.startswith("Setting"):
        lines.append("features.requires_grad_()")
    else:
        lines += ["w = torch.ones(3, requires_grad=True)", "w * features"]
    return Reading(
        "a tensor made under `torch.inference_mode()` is used in training",
        "Such tensors have no version counter and can never take part in autograd, also after the block.",
        ("Features, a cache or a frozen model's outputs were computed under `inference_mode` and then used in a loss.",
         "Evaluation code under `inference_mode` created or replaced buffers or a state that training uses."),
        raising(*lines, raises="RuntimeError: " + said),
        ("Use `torch.no_grad()` there, or `features.clone()` outside the block to get an ordinary tensor.",),
        running("with torch.no_grad():", "    features = torch.ones(3)", "w = torch.ones(3, requires_grad=True)", "(w * features).sum().backward()",
                "print(w.grad.tolist())", prints="[1.0, 1.0, 1.0]"),
        falsehoods=(
            Falsehood(
                "`detach()` makes an ordinary tensor of it.",
                "A detached inference tensor is still one; `clone()` outside the block is not.",
                running("with torch.inference_mode():", "    x = torch.ones(3)", "print(x.detach().is_inference(), x.clone().is_inference())", prints="True False"),
            ),
        ),
    )  # fmt: skip

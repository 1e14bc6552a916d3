"""Messages of backward about the graph: freed, missing, not scalar, not differentiable."""

from __future__ import annotations

from torchsleuth.messages import Falsehood, Found, Reading, call, raising, reads, running, shape


@reads(
    r"Trying to backward through the graph a second time",
    r"directly access saved tensors after they have already been freed",
    example="RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need "
    "to backward through the graph a second time or if you need to access saved tensors after calling backward.",
    fragments=(r"backward through the (same )?graph (a )?(second time|twice)", r"retain_graph"),
)
def second_backward(found: Found) -> Reading:
    return Reading(
        "backward went through a part of the graph whose saved values were already freed",
        "The first backward frees what the operations had saved. A second backward reached operations of that earlier graph.",
        (
            "A state is carried from one iteration to the next (the hidden state of an RNN, a running average, a memory, a cached embedding), so the "
            "new loss hangs on the old graph.",
            "A loss is summed over iterations (`total = total + loss`) and backward is called on the sum each time.",
            "Two losses share a part of the forward pass and each calls backward.",
            "Something that should be recomputed each step is computed once, before the loop (a penalty, a transformed weight, a prior).",
        ),
        raising(
            "w = torch.ones(3, requires_grad=True)",
            "state = torch.ones(3)",
            "for step in range(2):",
            "    state = (state * w).tanh()           # hangs on the previous step's graph",
            "    state.sum().backward()",
            raises="RuntimeError: Trying to backward through the graph a second time",
        ),
        (
            "Cut the old graph off: `state = state.detach()` at the start of each step; log `loss.item()`, not `loss`.",
            "Two losses: `(loss1 + loss2).backward()` once. Compute in the loop what depends on the weights.",
        ),
        running(
            "w = torch.ones(3, requires_grad=True)",
            "state = torch.ones(3)",
            "for step in range(2):",
            "    state = (state.detach() * w).tanh()",
            "    state.sum().backward()",
            "print(w.grad is not None)",
            prints="True",
        ),
        falsehoods=(
            Falsehood(
                "`retain_graph=True`, as the message says, is the fix.",
                "It is right for two backward calls through one forward pass. For a carried state it keeps every earlier step's graph: each step is "
                "slower than the one before, and once the optimizer has changed the weights in place another error follows.",
                raising(
                    "layer = torch.nn.Linear(3, 3)",
                    "optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)",
                    "state = torch.ones(1, 3)",
                    "for step in range(3):",
                    "    state = layer(state).tanh()",
                    "    state.sum().backward(retain_graph=True)",
                    "    optimizer.step()",
                    raises="modified by an inplace operation",
                ),
            ),
        ),
    )


@reads(
    r"element (?P<element>\d+) of tensors does not require grad and does not have a grad_fn",
    example="RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
    fragments=(r"does not require grad and does not have a grad_fn", r"does not have a grad_fn", r"element \d+ of tensors does not require grad"),
)
def no_grad_fn(found: Found) -> Reading:
    element = found.int("element")
    which = "the tensor backward was called on" if element == 0 else f"tensor number {element} (from 0) of those backward was called on"
    return Reading(
        "backward was called on something that hangs on no parameter",
        f"{which[0].upper()}{which[1:]} has no recorded history: nothing that requires grad went into it, or the connection was cut on the way.",
        (
            "The value left torch or was rebuilt: `torch.tensor(loss)`, `.item()`, `float(...)`, `.data`, `.detach()`, a trip through numpy or a list.",
            "An operation without a gradient: `argmax`, a comparison (`>`, `==`), `.long()`, `round().int()`: accuracy cannot be trained.",
            "Everything ran under `torch.no_grad()`, `inference_mode()` or a decorator with them (an evaluation function), or gradients were switched off "
            "with `set_grad_enabled(False)`.",
            "All parameters are frozen (`requires_grad=False`), and no input requires grad.",
        ),
        raising(
            "w = torch.ones(3, requires_grad=True)",
            "loss = torch.tensor((w * 2).sum().item())      # only the number, not its history",
            "loss.backward()",
            raises="RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
        ),
        ("Find the first tensor on the way whose `requires_grad` is False: print it after each step; `torchsleuth run your_script.py` names the expression.",
         "Stay in tensors until after backward; use a differentiable stand-in for argmax (softmax, cross-entropy)."),
        running("w = torch.ones(3, requires_grad=True)", "loss = (w * 2).sum()", "loss.backward()", "print(w.grad.tolist())", prints="[2.0, 2.0, 2.0]"),
        falsehoods=(
            Falsehood(
                "`loss.requires_grad_()` (or `requires_grad = True` on the loss) fixes it.",
                "It silences the error: backward runs and no parameter gets a gradient.",
                running(
                    "w = torch.ones(3, requires_grad=True)",
                    "loss = torch.tensor((w * 2).sum().item()).requires_grad_()",
                    "loss.backward()",
                    "print(w.grad)",
                    prints="None",
                ),
            ),
        ),
    )  # fmt: skip


@reads(
    r"grad can be implicitly created only for scalar outputs",
    example="RuntimeError: grad can be implicitly created only for scalar outputs",
    fragments=(r"only for scalar outputs",),
)
def not_scalar(found: Found) -> Reading:
    return Reading(
        "backward was called on a tensor with more than one element",
        "backward starts from the derivative of the result by itself, 1, which is clear only for a single number. For several it needs one weight each.",
        ("The loss is per sample: `reduction='none'`, or a hand-written loss without `.mean()`.", "backward was called on the model's output instead of the loss.",
         "DataParallel returns one loss per device: `loss.mean()`."),
        raising("x = torch.ones(3, requires_grad=True)", "(x * 2).backward()", raises="RuntimeError: grad can be implicitly created only for scalar outputs"),
        ("Reduce: `loss.mean().backward()`; or give the weights: `y.backward(torch.ones_like(y))`, which is `y.sum().backward()`.",),
        running("x = torch.ones(3, requires_grad=True)", "(x * 2).mean().backward()", "print(x.grad.sum().item())", prints="2.0"),
        falsehoods=(
            Falsehood(
                "The loss must have no dimensions.",
                "One element is enough, whatever the shape.",
                running("x = torch.ones(1, 1, requires_grad=True)", "(x * 2).backward()", "print(x.grad.tolist())", prints="[[2.0]]"),
            ),
        ),
    )  # fmt: skip


@reads(
    r"Mismatch in shape: grad_output\[(?P<i>\d+)\] has a shape of torch\.Size\(\[(?P<grad>[\d, ]*)\]\) and output\[\d+\] has a shape of "
    r"torch\.Size\(\[(?P<out>[\d, ]*)\]\)",
    example="RuntimeError: Mismatch in shape: grad_output[0] has a shape of torch.Size([4]) and output[0] has a shape of torch.Size([3]).",
    fragments=(r"mismatch in shape: grad_output",),
)
def grad_output_shape(found: Found) -> Reading:
    grad, out = found.ints("grad"), found.ints("out")
    return Reading(
        f"weights of shape {shape(grad)} for a result of shape {shape(out)}",
        f"`backward(weights)` and `autograd.grad(..., grad_outputs=)` take one weight per element of the result: {shape(out)}, not {shape(grad)}.",
        ("The weights were made for another tensor (the input's shape, a batch of another size).",),
        raising(
            f"y = torch.ones({call(out)}, requires_grad=True) * 2",
            f"y.backward(torch.ones({call(grad)}))",
            raises=f"has a shape of torch.Size({shape(grad)}) and output[0] has a shape of torch.Size({shape(out)})",
        ),
        ("`torch.ones_like(y)`.",),
    )


@reads(
    r"The differentiated Tensor at index (?P<i>\d+) appears to not have been used in the graph",
    r"One of the differentiated Tensors (?:appears to not have been used in the graph|does not require grad)",
    example="RuntimeError: The differentiated Tensor at index 0 appears to not have been used in the graph. Set allow_unused=True if this is the "
    "desired behavior.",
    fragments=(r"to not have been used in the graph",),
)
def unused_in_graph(found: Found) -> Reading:
    requires = "does not require grad" in found.match[0]
    return Reading(
        "`autograd.grad` was asked for a tensor that does not require grad" if requires else "`autograd.grad` was asked for a tensor the result does not depend on",
        "Gradients are known only with respect to tensors with `requires_grad=True` that were so when the result was computed." if requires else
        "The result was not computed from this very tensor object. A copy, a slice or a view of it that was made before or beside is another one.",
        (
            "`requires_grad_()` was called after the forward pass, or not at all." if requires else
            "`x` was replaced after use, or the graph uses another object: `x.clone()`, `x[0]`, `x.view(...)` made for the call of `grad` itself.",
            "The branch that uses it was not taken, or the model ignores it.",
        ),
        raising("x = torch.ones(3, requires_grad=True)", "z = torch.ones(3)", "torch.autograd.grad((x * 2).sum(), z)", raises="One of the differentiated Tensors does not require grad")
        if requires else
        raising("x = torch.ones(3, requires_grad=True)", "y = (x * 2).sum()", "torch.autograd.grad(y, x[0])          # x[0] is a new tensor",
                raises="appears to not have been used in the graph"),
        ("Ask for the tensor that the forward pass used: `torch.autograd.grad(y, x)[0][0]`." if not requires else "Mark it before the forward pass.",),
        falsehoods=(
            Falsehood(
                "`allow_unused=True` is the fix.",
                "It returns None for that tensor: right only where not depending on it is expected.",
                running(
                    "x = torch.ones(3, requires_grad=True)",
                    "print(torch.autograd.grad((x * 2).sum(), x[0], allow_unused=True))",
                    prints="(None,)",
                ),
            ),
        ) if not requires else (),
    )  # fmt: skip


INDEX_PUT_TRUTH = Falsehood(
    "`index_put_` raises \"derivative not implemented\" when its indices were computed in the graph (by `argmax`, say), and detaching them is the fix.",
    "It never raises that. Indices are integers, which cannot require grad; `argmax` returns an integer tensor without history. Indices computed so work, "
    "and the gradient of base and values is right.",
    running(
        "x = torch.zeros(5, requires_grad=True)",
        "y = torch.randn(5, requires_grad=True)",
        "indices = torch.argmax(y).reshape(1)              # int64, no grad_fn",
        "out = x.clone().index_put_((indices,), torch.tensor([1.0]))",
        "out.sum().backward()",
        "print(indices.requires_grad, int(x.grad.sum()), y.grad)",
        prints="False 4 None",
    ),
)


@reads(
    r"the derivative for '(?P<what>[^']+)' is not implemented",
    r"derivative for (?P<what2>aten::\w+|'[^']+') is not implemented",
    r"function '(?P<function>\w+)' is not differentiable with respect to argument '(?P<argument>\w+)'",
    example="NotImplementedError: the derivative for 'igamma: input' is not implemented.",
    fragments=(r"derivative (is )?not implemented", r"derivative for .{0,40}not implemented", r"not differentiable with respect to"),
)
def no_derivative(found: Found) -> Reading:
    about_indices = "index_put" in found.text or "indices" in found.text
    argument = found["argument"] if found.has("argument") else ""
    what = f"argument `{argument}` of `{found['function']}`" if argument else f"`{found['what'] if found.has('what') else found['what2']}`"
    if about_indices:
        return Reading(
            "`index_put_` does not fail this way: its indices have no derivative to implement",
            "In PyTorch today (tried with 2.13) no program gets \"derivative not implemented\" for the indices of `index_put_`. Indices are integers and cannot require grad; float "
            "indices are refused earlier (IndexError: tensors used as indices must be long, int, byte or bool tensors). Programs said to show this error "
            "fail for another reason: they write into `x` itself, which requires grad: \"a leaf Variable that requires grad is being used in an in-place "
            "operation\".",
            (
                "The tensor written into is a leaf that requires grad (the usual case): `x = x.clone()` first, or the out-of-place `x.index_put(...)`.",
                "The index tensor is of floats: the IndexError above; `.long()`.",
                "Nothing raises and `y.grad` is None: `argmax` passes no gradient to the scores it was taken from. That is the true limitation.",
            ),
            raising(
                "x = torch.randn(5, requires_grad=True)",
                "indices = torch.argmax(torch.randn(5, requires_grad=True)).reshape(1)",
                "x.index_put_((indices,), torch.tensor([1.0]))",
                raises="RuntimeError: a leaf Variable that requires grad is being used in an in-place operation.",
                says="This is what such a program raises instead:",
            ),
            (
                "Write into a copy: `x.clone().index_put_((indices,), values)`, or `x.index_put((indices,), values)`.",
                "If the choice of the index is to be learned, make it soft: `torch.softmax(scores, -1)` as weights, a straight-through or Gumbel softmax.",
            ),
            running(
                "x = torch.zeros(5, requires_grad=True)",
                "out = x.index_put((torch.tensor([1, 3]),), torch.tensor([1.0, 2.0]))",
                "out.sum().backward()",
                "print(x.grad.tolist())",
                prints="[1.0, 0.0, 1.0, 0.0, 1.0]",
            ),
            falsehoods=(
                INDEX_PUT_TRUTH,
                Falsehood(
                    "`index_put_` on `x` with static indices works.",
                    "Not on a leaf: it raises the same error as with computed ones.",
                    raising(
                        "x = torch.zeros(5, requires_grad=True)",
                        "x.index_put_((torch.tensor([1, 3]),), torch.tensor([1.0, 2.0]))",
                        raises="RuntimeError: a leaf Variable that requires grad",
                    ),
                ),
            ),
            rule="inplace-on-leaf",
        )
    return Reading(
        f"torch has no derivative formula for {what}",
        f"{what[0].upper()}{what[1:]} cannot be differentiated by torch, and something that requires grad went into it.",
        (
            "A second derivative is asked for: `create_graph=True`, `torch.autograd.functional.hessian`, a gradient penalty, MAML. The operation has a first derivative, and that has none.",
            "A fused kernel was chosen (attention, grid_sample, a cuDNN RNN) where the plain formula could be differentiated twice.",
        )
        if "_backward" in what
        else (
            "The operation is differentiable only in some of its arguments, and another one requires grad (class weights in a loss, `igamma`'s first argument).",
            "A rare special function or a fused kernel whose second derivative does not exist.",
        ),
        raising(
            "w = torch.ones(3, requires_grad=True)",
            "torch.nn.functional.cross_entropy(torch.zeros(4, 3), torch.zeros(4, dtype=torch.long), weight=w)",
            raises="is not differentiable with respect to argument 'weight'",
        )
        if argument
        else raising("x = torch.ones(3, requires_grad=True)", "torch.igamma(x, x).sum().backward()", raises="the derivative for 'igamma: input' is not implemented",
                     says="" if "igamma" in what else "An operation of that kind; this raises for `igamma`:"),
        ("Write that operation with plain differentiable ones, or choose another kernel: `with torch.nn.attention.sdpa_kernel(SDPBackend.MATH):` for attention, "
         "`with torch.backends.cudnn.flags(enabled=False):` for an RNN.",)
        if "_backward" in what
        else ("Detach that argument if it is a constant (`weight.detach()`), or write the formula with differentiable operations, or a custom Function.",),
    )  # fmt: skip


@reads(
    r"Function '(?P<node>\w+)' returned nan values in its (?P<output>\d+)th output",
    example="RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.",
    fragments=(r"returned nan values in its",),
)
def nan_gradient(found: Found) -> Reading:
    node = found["node"].rstrip("0123456789").removesuffix("Backward")
    known = {
        "Sqrt": ("sqrt at 0 has an infinite slope; times a gradient of 0 that is NaN", "torch.sqrt(x) * 0"),
        "Pow": ("a power below 1 at 0 has an infinite slope; times 0 that is NaN", "x ** 0.5 * 0"),
        "Log": ("log at 0 has an infinite slope; times 0 that is NaN", "torch.log(x) * 0"),
        "Div": ("a division by 0 gives inf or NaN", "x / x"),
    }
    why, expression = known.get(node, ("inf times 0, or an input that is already NaN", ""))
    return Reading(
        f"the gradient of `{node.lower()}` is NaN",
        f"Anomaly mode stopped at the first NaN in backward: the node `{found['node']}`; {why}. The operation of the forward pass is named in the warning "
        "above the error.",
        (
            "`torch.where(x > 0, torch.sqrt(x), 0)`: the branch not taken is differentiated as well, and 0 times infinity is NaN.",
            "A norm or standard deviation of zeros, `log(0)`, `0 / 0`, `acos(1)`.",
            "The NaN was there before: an input, or weights that have diverged.",
        ),
        raising("x = torch.zeros(3, requires_grad=True)", "with torch.autograd.set_detect_anomaly(True):", f"    ({expression}).sum().backward()",
                raises="returned nan values in its 0th output") if expression else None,
        ("Keep the argument away from the edge *before* the operation: `torch.sqrt(x.clamp(min=1e-12))`, `log(x + eps)`, `F.log_softmax`.",),
        falsehoods=(
            Falsehood(
                "`torch.where` protects from the bad branch.",
                "It does in the forward pass only.",
                running(
                    "x = torch.zeros(1, requires_grad=True)",
                    "torch.where(x > 0, torch.sqrt(x), torch.zeros(1)).sum().backward()",
                    "print(x.grad.item())",
                    prints="nan",
                ),
            ),
        ),
    )  # fmt: skip

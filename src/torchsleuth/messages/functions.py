"""Messages about custom autograd Functions, hooks, and gradients assigned by hand."""

from __future__ import annotations

from torchsleuth.messages import Falsehood, Found, Program, Reading, call, raising, reads, shape

CLASS = (
    "class {name}(torch.autograd.Function):",
    "    @staticmethod",
    "    def forward(ctx, {arguments}):",
    "        return {result}",
    "",
    "    @staticmethod",
    "    def backward(ctx, grad):",
    "        return {returns}",
    "",
)


def _function(name: str, arguments: str, result: str, returns: str, use: str, raises: str) -> Program:
    lines = (line.format(name=name, arguments=arguments, result=result, returns=returns) for line in CLASS)
    return raising(*lines, use, raises=raises)


def _missing(got: tuple[int, ...], want: tuple[int, ...]) -> list[int]:
    """The dimensions to take out of `want` to get `got`, where that is possible."""
    left, missing = list(got), []
    for d, size in enumerate(want):
        if left and left[0] == size:
            left.pop(0)
        else:
            missing.append(d)
    return missing if not left else []


@reads(
    r"Function (?P<name>\w+) returned an invalid gradient at index (?P<i>\d+) - got \[(?P<got>[\d, ]*)\] but expected shape compatible with "
    r"\[(?P<want>[\d, ]*)\]",
    example="RuntimeError: Function GBackward returned an invalid gradient at index 0 - got [3, 5] but expected shape compatible with [3, 4]",
    fragments=(r"returned an invalid gradient at index",),
)
def invalid_gradient(found: Found) -> Reading:
    got, want, i = found.ints("got"), found.ints("want"), found.int("i")
    name = found["name"].removesuffix("Backward")
    story = []
    gone = [d for d, (g, w) in enumerate(zip(got, want, strict=False)) if g != w] if len(got) == len(want) else _missing(got, want)
    if gone and (len(got) < len(want) or all(got[d] == 1 for d in gone)):
        restored = "grad" if len(got) == len(want) else f"grad.unsqueeze({gone[0]})" if len(gone) == 1 else "grad[..., None]"
        story.append(f"The forward pass reduced dimension {', '.join(map(str, gone))} (`sum`, `mean`): the gradient must be stretched back: `{restored}.expand_as(x)`, for `mean` divided "
                     "by the number of elements.")  # fmt: skip
    elif len(got) == len(want) and got != want and sorted(got) == sorted(want):
        story.append("The sizes are those expected in another order: a transpose is missing.")
    elif i > 0 or len(got) == len(want):
        story.append("The gradient of another argument was returned in this place.")
    return Reading(
        f"`{name}.backward` returned {shape(got)} for input {i}, which has {shape(want)}",
        f"The gradient of an input has the shape of that input (one that broadcasts down to it by summing is accepted). For argument {i} of `forward` "
        f"(counted from 0, without `ctx`) `backward` returned {shape(got)}; the input is {shape(want)}.",
        (*story, "The gradients are not in the order of the arguments of `forward`, or one is computed from the wrong tensor."),
        _function(name if name.isidentifier() else "G", "x", "x.sum()", f"torch.ones({call(got)})",
                  f"{name}.apply(torch.ones({call(want)}, requires_grad=True)).backward()",
                  f"returned an invalid gradient at index 0 - got {shape(got)} but expected shape compatible with {shape(want)}"),
        ("Return one gradient per argument, each of its argument's shape; `torchsleuth check` tests a Function against its derivative.",),
    )  # fmt: skip


@reads(
    r"Function (?P<name>\w+) returned an invalid gradient at index (?P<i>\d+) - expected (?P<what>device|type|dtype) (?P<want>[\w.:]+) but got (?P<got>[\w.:]+)",
    example="RuntimeError: Function MulBackward0 returned an invalid gradient at index 0 - expected device cpu but got cuda:0",
)
def gradient_device(found: Found) -> Reading:
    want, got, what = found["want"], found["got"], found["what"]
    name = found["name"].rstrip("0123456789")
    return Reading(
        f"`{name}` gave a gradient on {got} for an input on {want}" if what == "device" else f"`{name}` gave a gradient of {what} {got} for an input of {want}",
        f"A gradient must have the {what} of its input (number {found['i']}, from 0): {want}, not {got}.",
        (
            "Forward mixed a CPU scalar tensor with GPU tensors, which is allowed, or a tensor or parameter was moved between forward and backward.",
            "A custom `backward` creates tensors on a fixed device: use `torch.zeros_like(x)` or `device=x.device`.",
        )
        if what == "device"
        else ("A custom `backward` computes in another dtype, or a parameter was converted (`.half()`) between forward and backward.",),
        None,
        ("Move and convert before the forward pass, and leave the tensors alone until after backward.",),
    )


@reads(
    r"function (?P<name>\w+) returned an incorrect number of gradients \(expected (?P<want>\d+), got (?P<got>\d+)\)",
    example="RuntimeError: function GBackward returned an incorrect number of gradients (expected 2, got 1)",
    fragments=(r"incorrect number of gradients",),
)
def gradient_count(found: Found) -> Reading:
    want, got, name = found.int("want"), found.int("got"), found["name"].removesuffix("Backward")
    if max(want, got) > 1000:
        raise ValueError("no function takes so many: not torch's number")
    arguments = ", ".join(f"x{i}" for i in range(want))
    ones = ", ".join(["torch.ones(3, requires_grad=True)"] + ["torch.ones(3)"] * (want - 1))
    return Reading(
        f"`{name}.backward` returned {got} gradients for {want} arguments",
        f"`forward` took {want} arguments besides `ctx`; `backward` must return {want} values, None for those that need none (numbers, flags). It returned {got}.",
        ("An argument was added to `forward` (or removed) and `backward` was not changed.", "`ctx` was counted, or None was left out for a flag or a number."),
        _function(name, arguments, "x0 * 2", ", ".join(["grad * 2"] + ["None"] * (min(got, want) - 1) + ["grad"] * (got - want)),
                  f"{name}.apply({ones}).sum().backward()", f"returned an incorrect number of gradients (expected {want}, got {got})")
        if got >= 1 and want >= 1 and name.isidentifier()
        else None,
        (f"Return exactly {want}: `return grad_x{', None' * (want - 1)}`.",),
        falsehoods=(
            Falsehood(
                "Too many is as wrong as too few.",
                "Extra values are accepted as long as they are None.",
                Program(
                    _function("G", "x", "x * 2", "grad * 2, None", "G.apply(torch.ones(3, requires_grad=True)).sum().backward()\nprint('fine')", "").source,
                    prints="fine",
                ),
            ),
        ),
    )  # fmt: skip


@reads(
    r"expected Variable or None \(got (?P<kind>[\w.]+)\)",
    example="RuntimeError: expected Variable or None (got float)",
)
def gradient_type(found: Found) -> Reading:
    kind = found["kind"]
    value = {"float": "1.0", "int": "1", "tuple": "((grad,),)", "list": "[grad]"}.get(kind, "1.0")
    return Reading(
        f"a `backward` or hook returned a {kind} instead of a tensor",
        f"Each gradient must be a tensor or None; one is a {kind}.",
        ("A plain number was returned, or `.item()`/numpy was used in `backward`.", "A tuple inside a tuple."),
        _function("G", "x", "x.sum()", value, "G.apply(torch.ones(3, requires_grad=True)).backward()", f"expected Variable or None (got {kind})")
        if kind in ("float", "int")
        else None,
        ("Return tensors of the inputs' shapes: `torch.full_like(x, 1.0)`.",),
    )


@reads(
    r"You must implement either the backward or vjp method for your custom autograd\.Function",
    r"Legacy autograd function with non-static forward method is deprecated",
    r"trying to differentiate twice a function that was marked with @once_differentiable",
    r"save_for_backward can only save variables, but argument (?P<i>\d+) is of type (?P<kind>\w+)",
    r"Some elements marked as dirty during the forward method were not returned as output",
    example="RuntimeError: trying to differentiate twice a function that was marked with @once_differentiable",
)
def function_contract(found: Found) -> Reading:
    said = found.match[0]
    x = "torch.ones(3, requires_grad=True)"
    if "save_for_backward" in said:
        return Reading(
            f"`save_for_backward` got a {found['kind']}",
            f"It takes tensors only; argument {found['i']} is a {found['kind']}.",
            ("Numbers, shapes and flags were passed to it.",),
            raising("class G(torch.autograd.Function):", "    @staticmethod", "    def forward(ctx, x):", "        ctx.save_for_backward(3)", "        return x * 2",
                    "", f"G.apply({x})", raises="save_for_backward can only save variables"),
            ("Keep other values on the context: `ctx.scale = 3`. Tensors belong in `save_for_backward`, not on `ctx`.",),
        )  # fmt: skip
    if "dirty" in said:
        return Reading(
            "an input marked dirty is not returned",
            "`ctx.mark_dirty(x)` says that `x` itself is changed in place and returned; `forward` returned something else.",
            ("`return x * 1` instead of `return x`.",),
            raising("class G(torch.autograd.Function):", "    @staticmethod", "    def forward(ctx, x):", "        ctx.mark_dirty(x.mul_(2))", "        return x * 1",
                    "", f"G.apply({x} * 1)", raises="Some elements marked as dirty"),
            ("Return the very tensor that was changed, or do not change it.",),
        )  # fmt: skip
    if "Legacy" in said:
        return Reading(
            "a Function without `@staticmethod`",
            "`forward` and `backward` are static methods, called through `G.apply(...)`; there is no instance.",
            ("Code written before PyTorch 0.4.",),
            raising("class G(torch.autograd.Function):", "    def forward(ctx, x):", "        return x * 2", "", f"G()({x})", raises="Legacy autograd function"),
            ("Put `@staticmethod` before both, take `ctx` first, and call `G.apply(x)`.",),
        )
    if "implement" in said:
        return Reading(
            "a Function has no `backward`",
            "backward reached a custom Function that defines only `forward`.",
            ("`backward` is missing, misspelt, or indented into `forward`.",),
            raising("class G(torch.autograd.Function):", "    @staticmethod", "    def forward(ctx, x):", "        return x * 2", "", f"G.apply({x}).sum().backward()",
                    raises="You must implement either the backward or vjp method"),
            ("Write `backward(ctx, grad)`; or, for plain torch operations, no Function at all: autograd differentiates them.",),
        )  # fmt: skip
    return Reading(
        "a second derivative through `@once_differentiable`",
        "The Function's `backward` is declared not to be differentiable itself, and a gradient of a gradient went through it (`create_graph=True`).",
        ("A gradient penalty, a Hessian or meta-learning over a model that uses this Function.",),
        raising(
            "class G(torch.autograd.Function):",
            "    @staticmethod",
            "    def forward(ctx, x):",
            "        return x * 2",
            "",
            "    @staticmethod",
            "    @torch.autograd.function.once_differentiable",
            "    def backward(ctx, grad):",
            "        return grad * 2",
            "",
            f"x = {x}",
            "(grad,) = torch.autograd.grad((G.apply(x) ** 2).sum(), x, create_graph=True)",
            "grad.sum().backward()",
            raises="trying to differentiate twice a function that was marked with @once_differentiable",
        ),
        ("Remove the decorator if `backward` uses only differentiable torch operations on `grad` and saved tensors.",),
    )


@reads(
    r"hook '(?P<name>[^']+)' has changed the (?P<what>size|type) of value",
    r"cannot register a hook on a tensor that doesn't require gradient",
    example="RuntimeError: hook '<lambda>' has changed the size of value",
)
def hooks(found: Found) -> Reading:
    if not found.has("name"):
        return Reading(
            "a hook on a tensor without gradient",
            "`register_hook` is called when the gradient of the tensor is computed; this tensor will have none.",
            ("The tensor is an input, detached, or made under `no_grad`.",),
            raising("torch.ones(3).register_hook(print)", raises="cannot register a hook on a tensor that doesn't require gradient"),
            ("Register it on a tensor computed from parameters, inside the forward pass with gradients on.",),
        )
    return Reading(
        f"the hook `{found['name']}` returned a gradient of another {found['what']}",
        "What a hook returns takes the gradient's place, so it must have the same shape and dtype (or be None to leave it alone).",
        ("The hook reduces (`grad.mean()`), slices, or returns something by accident (the value of `list.append` is None and harmless).",),
        raising("y = torch.ones(3, requires_grad=True) * 2", "y.register_hook(lambda grad: torch.ones(4))", "y.sum().backward()",
                raises="has changed the size of value"),
        ("Return a tensor like `grad`, or nothing.",),
    )  # fmt: skip


@reads(
    r"attempting to assign a gradient of size '\[(?P<got>[\d, ]*)\]' to a tensor of size '\[(?P<want>[\d, ]*)\]'",
    example="RuntimeError: attempting to assign a gradient of size '[4]' to a tensor of size '[3]'. Please ensure that the gradient and the tensor "
    "are the same size",
)
def grad_assigned(found: Found) -> Reading:
    got, want = found.ints("got"), found.ints("want")
    return Reading(
        f"`.grad` of shape {shape(got)} for a tensor of shape {shape(want)}",
        f"A gradient has the shape of its tensor: {shape(want)}, not {shape(got)}.",
        ("Gradients were paired with the wrong parameters, or summed over a dimension.",),
        raising(f"x = torch.ones({call(want)}, requires_grad=True)", f"x.grad = torch.ones({call(got)})",
                raises=f"attempting to assign a gradient of size '{shape(got)}' to a tensor of size '{shape(want)}'"),
        ("Pair gradients and parameters in the same order, and keep their shapes.",),
    )  # fmt: skip


@reads(
    r"function (?P<name>\w+) returned a gradient different (?:than|from) None at position (?P<place>\d+), but the corresponding forward input was not a Variable",
    example="RuntimeError: function GBackward returned a gradient different than None at position 2, but the corresponding forward input was not a Variable",
    rule="custom-backward-returns",
)
def gradient_of_no_tensor(found: Found) -> Reading:
    name, place = found["name"].removesuffix("Backward"), found.int("place")
    return Reading(
        f"`{name}.backward` returned a gradient for its argument {place}, which is no tensor",
        f"`backward` returns one value per argument of `forward`, in their order. Argument {place}, counted from 1 and without `ctx`, was a number, a flag, None or another plain value: its place must hold None.",
        (
            "The returned values are in another order than the arguments of `forward`, or a None is missing in front of this one.",
            "The argument is sometimes a tensor and sometimes a number; here it was a number.",
        ),
        _function(
            name if name.isidentifier() else "G", ", ".join(("x", *(f"k{n}" for n in range(2, place + 1)))), f"x * k{place}", ", ".join(("grad * 2.0", *["None"] * (place - 2), "grad")),
            f"{name if name.isidentifier() else 'G'}.apply(torch.ones(2, requires_grad=True), {', '.join(['2.0'] * (place - 1))}).sum().backward()", f"at position {place}, but the corresponding",
        ) if 2 <= place <= 9 else None,
        (f"Return None in place {place}; for an argument that may be either, `grad if ctx.needs_input_grad[{place - 1}] else None`.",),
    )  # fmt: skip

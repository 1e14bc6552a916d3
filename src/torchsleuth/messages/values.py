"""Messages about making tensors of values, and values of tensors; and what a call was given."""

from __future__ import annotations

import re

from torchsleuth.messages import Found, Reading, raising, reads, running


@reads(
    r"Bool(?:ean)? value of Tensor with (?P<many>more than one value|no values) is ambiguous",
    example="RuntimeError: Boolean value of Tensor with more than one value is ambiguous",
    fragments=(r"boolean value of tensor",),
)
def truth_value(found: Found) -> Reading:
    empty = "no values" in found["many"]
    return Reading(
        "`if tensor:` with " + ("an empty tensor" if empty else "several values"),
        "Python wants one True or False, and the tensor has " + ("none." if empty else "more than one element."),
        ("`if x > 0:` on a whole tensor.", "`and`, `or`, `not` or `in` with tensors.", "`if x == other:`, also hidden in `list.index` or `x in list`.",
         "A loss class got tensors as constructor arguments: `nn.CrossEntropyLoss(output, target)`."),
        raising(f"x = torch.zeros({0 if empty else 2})", "if x > 0:", "    pass", raises="RuntimeError: Boolean value of Tensor with"),
        ("`(x > 0).any()` or `.all()`; `torch.where(cond, a, b)` for a choice per element; `&`, `|`, `~` for masks; `x is None` for None.",),
    )  # fmt: skip


@reads(
    r"a Tensor with (?P<n>\d+) elements cannot be converted to Scalar",
    r"only one element tensors can be converted to Python scalars",
    example="RuntimeError: a Tensor with 2 elements cannot be converted to Scalar",
)
def to_number(found: Found) -> Reading:
    n = found.int("n") if found.has("n") else 2
    made = found.has("n")
    return Reading(
        f"a tensor of {n} elements is not a number" if made else "a tensor of several elements is not a number",
        f"`.item()`, `float()` and `int()` take tensors with exactly one element{f'; this one has {n}' if made else ''}.",
        ("The loss is not reduced (`reduction='none'`).", "`torch.tensor([tensor, tensor])` of tensors with several elements: use `torch.stack`.",
         "A whole batch was converted where one entry was meant."),
        raising(f"torch.zeros({n}).item()", raises=f"RuntimeError: a Tensor with {n} elements cannot be converted to Scalar")
        if made
        else raising("torch.tensor([torch.zeros(2), torch.zeros(2)])", raises="ValueError: only one element tensors can be converted"),
        ("Reduce (`x.mean().item()`), index (`x[0].item()`), list (`x.tolist()`), or `torch.stack(list_of_tensors)`.",),
    )  # fmt: skip


@reads(
    r"expected sequence of length (?P<want>\d+) at dim (?P<dim>\d+) \(got (?P<got>\d+)\)",
    example="ValueError: expected sequence of length 2 at dim 1 (got 1)",
    fragments=(r"expected sequence of length",),
)
def ragged(found: Found) -> Reading:
    want, dim, got = found.int("want"), found.int("dim"), found.int("got")
    return Reading(
        f"lists of lengths {want} and {got} in one tensor",
        f"A tensor is rectangular: at depth {dim} the first list has {want} entries, another {got}.",
        ("Token ids or other sequences of different lengths: padding is missing (`tokenizer(..., padding=True, truncation=True)`).",),
        raising(f"torch.tensor([[0] * {want}, [0] * {got}])", raises=f"ValueError: expected sequence of length {want} at dim {dim} (got {got})")
        if dim == 1
        else None,
        ("Pad: `torch.nn.utils.rnn.pad_sequence([torch.tensor(r) for r in rows], batch_first=True)`.",),
        running(
            "rows = [[1, 2], [3]]",
            "print(torch.nn.utils.rnn.pad_sequence([torch.tensor(r) for r in rows], batch_first=True).tolist())",
            prints="[[1, 2], [3, 0]]",
        ),
    )


@reads(
    r"can't convert np\.ndarray of type numpy\.(?P<kind>\w+)",
    r"Could not infer dtype of (?P<thing>[\w.]+)",
    r"too many dimensions 'str'",
    example="TypeError: can't convert np.ndarray of type numpy.object_. The only supported types are: float64, float32, float16, complex64, complex128, "
    "int64, int32, int16, int8, uint64, uint32, uint16, uint8, and bool.",
)
def not_numbers(found: Found) -> Reading:
    kind = found["kind"] if found.has("kind") else found["thing"] if found.has("thing") else "str"
    return Reading(
        f"values of type {kind} cannot become a tensor",
        "Tensors hold numbers and booleans only.",
        ("`numpy.object_` comes from a data frame with text, missing values or columns of several types, or from rows of different lengths." if "object" in kind else
         "Text or None among the values: a column was not encoded, a sample is missing.",),
        raising("import numpy as np", "torch.from_numpy(np.array([1, 'a'], dtype=object))", raises="TypeError: can't convert np.ndarray of type numpy.object_")
        if found.has("kind")
        else raising("torch.tensor([None, 1])" if found.has("thing") else "torch.tensor(['a'])", raises="Could not infer dtype of NoneType" if found.has("thing") else "too many dimensions 'str'"),
        ("Encode text as numbers, fill what is missing, then `array.astype('float32')`.",),
    )  # fmt: skip


@reads(
    r"At least one stride in the given numpy array is negative",
    example="ValueError: At least one stride in the given numpy array is negative, and tensors with negative strides are not currently supported. (You "
    "can probably work around this by making a copy of your array  with array.copy().) ",
)
def negative_stride(found: Found) -> Reading:
    return Reading(
        "a flipped numpy array",
        "`array[::-1]` and `np.flip` are views that run backwards through memory, which tensors cannot.",
        ("Images flipped, or BGR turned to RGB, with `[..., ::-1]`.",),
        raising("import numpy as np", "torch.from_numpy(np.arange(3)[::-1])", raises="ValueError: At least one stride in the given numpy array is negative"),
        ("`array[::-1].copy()`, or flip the tensor: `x.flip(0)`.",),
        running("import numpy as np", "print(torch.from_numpy(np.arange(3)[::-1].copy()).tolist())", prints="[2, 1, 0]"),
    )


@reads(
    r"\b(?P<op>\w{1,80})\(\): argument '(?P<argument>\w+)' \(position (?P<position>\d+)\) must be (?P<want>[\w ]+?), not (?P<got>[\w.]+)",
    example="TypeError: linear(): argument 'input' (position 1) must be Tensor, not NoneType",
)
def argument_type(found: Found) -> Reading:
    op, argument, position, want, got = (found[g] for g in ("op", "argument", "position", "want", "got"))
    story = {
        "NoneType": "A function forgot its `return`, a `.grad` is None, or an optional value was not given.",
        "list": "A list of tensors or numbers: `torch.stack`, `torch.cat` or `torch.tensor` first.",
        "tuple": "A module returned several values (an LSTM: output and state): take the one meant.",
        "str": "Text where numbers are needed: a tokenizer's or a file's values were not converted.",
        "numpy.ndarray": "A numpy array: `torch.as_tensor(array, dtype=torch.float32)`.",
        "float": "A Python number: a value was taken out of torch with `.item()`.",
        "int": "A Python number where a tensor is needed.",
    }.get(got, "")
    program = None
    values = {"NoneType": "None", "list": "[1.0, 2.0]", "tuple": "(torch.zeros(3),)", "str": "'a'", "float": "1.0", "int": "1"}
    if op == "linear" and argument == "input" and got in values:
        program = raising(f"torch.nn.Linear(3, 2)({values[got]})", raises=f"TypeError: linear(): argument 'input' (position 1) must be Tensor, not {got}")
    return Reading(
        f"`{op}` got a {got} as `{argument}`",
        f"Argument {position} (`{argument}`) of `{op}` must be {want}; it is a {got}.",
        tuple(filter(None, (story, "Arguments in the wrong order."))),
        program,
        ("Print the value on the line that calls it, and follow it back.",),
    )


@reads(
    r"'Tensor' object is not callable",
    r"'Tensor' object has no attribute '(?P<attribute>\w+)'",
    example="TypeError: 'Tensor' object is not callable",
)
def tensor_misused(found: Found) -> Reading:
    if found.has("attribute"):
        name = found["attribute"]
        return Reading(
            f"tensors have no `{name}`",
            f"`.{name}` was asked of a tensor; it belongs to something else (a numpy array, a model's output object, an older or newer torch).",
            ("A model returned a tensor where an object with fields was expected (`outputs.logits`), or the reverse.", "A numpy or pandas method."),
            raising(f"torch.zeros(3).{name}", raises=f"'Tensor' object has no attribute '{name}'"),
            ("Print `type(x)` before the line.",),
        )
    return Reading(
        "a tensor was called like a function",
        "`x(...)` stands where `x` is a tensor.",
        ("A name holds a tensor and a function in turn (`loss = loss(...)`, `input`, `sum = ...`): the second round calls the tensor.",
         "Parentheses instead of brackets: `x(0)` for `x[0]`; `x.shape()`/`x.T()`: these are attributes."),
        raising("loss = torch.nn.MSELoss()", "for step in range(2):", "    loss = loss(torch.zeros(3), torch.zeros(3))", raises="TypeError: 'Tensor' object is not callable"),
        ("Give the result another name: `value = loss(...)`.",),
    )  # fmt: skip


@reads(
    r"(?:(?P<op>max|min|argmax|argmin)\(\): )?Expected reduction dim to be specified for input\.numel\(\) == 0",
    example="RuntimeError: max(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.",
)
def empty_reduction(found: Found) -> Reading:
    return Reading(
        "the maximum (or minimum, argmax) of nothing",
        "The tensor has no elements, and no elements have no maximum.",
        ("A mask or a threshold selected nothing; an empty batch, text or list of boxes.",),
        raising(f"torch.zeros(0).{found['op'] or 'max'}()", raises="Expected reduction dim to be specified for input.numel() == 0"),
        ("Handle the empty case: `if x.numel():`.",),
    )


@reads(
    r"probability tensor contains either `inf`, `nan` or element < 0",
    r"invalid multinomial distribution \(sum of probabilities <= 0\)",
    example="RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
)
def sampling(found: Found) -> Reading:
    zero = "sum" in found.match[0]
    return Reading(
        "sampling from probabilities that are none",
        "All probabilities are 0: there is nothing to choose." if zero else "Some probability is NaN, infinite or negative.",
        ("Everything was filtered out (top-k, top-p, a mask on all).",) if zero else
        ("The model's scores are NaN or infinite: half precision overflow, a row that is masked entirely (softmax of only -inf is NaN), diverged weights.",
         "Raw scores were passed without softmax."),
        raising(f"torch.multinomial(torch.tensor([{'0.0, 0.0' if zero else '-1.0, 2.0'}]), 1)", raises="RuntimeError: " + found.match[0][:30]),
        ("Sample from `torch.softmax(scores, -1)`; check `scores.isfinite().all()` first, and keep at least one choice unmasked.",),
    )  # fmt: skip


@reads(
    r"(?P<kind>list|tuple) index out of range",
    example="IndexError: list index out of range",
)
def list_index(found: Found) -> Reading:
    kind = found["kind"]
    made = "[torch.zeros(3)] * 2" if kind == "list" else "(torch.zeros(3),) * 2"
    return Reading(
        f"a {kind} has fewer entries than were asked for",
        f"This is Python's own message about a {kind}, not about a tensor: `items[i]` with i at or past `len(items)`.",
        (
            "A module returned fewer things than thought: `outputs[1]` of a model that gives one, `hidden_states` that were not asked for.",
            "A loop over one list indexes another, shorter one; or lists of layers and inputs differ in length.",
            "`dataset[i]` with an i past its end: `__len__` says more than there is.",
        ),
        raising(f"items = {made}", "items[2]", raises=f"IndexError: {kind} index out of range"),
        ("Print `len(items)` there; loop with `zip(..., strict=True)`, which says so when lengths differ.",),
    )


@reads(
    r"unsupported operand type\(s\) for (?P<op>[^:]+): '(?P<a>[\w.]+)' and '(?P<b>[\w.]+)'",
    example="TypeError: unsupported operand type(s) for +: 'Tensor' and 'NoneType'",
)
def operand_types(found: Found) -> Reading:
    op, a, b = found["op"].strip(), found["a"], found["b"]
    other = b if a in ("Tensor", "Parameter") else a
    story = {
        "NoneType": "`None`: a `.grad` that was never computed, a function without `return`, an optional value.",
        "str": "Text: a number was read and not converted.",
        "list": "A list: `torch.tensor(...)` or `torch.stack(...)` first.",
        "tuple": "A tuple: a module returned several values.",
        "dict": "A dictionary: take the entry meant.",
    }.get(other, f"A {other} where a tensor or number is needed.")
    values = {"Tensor": "torch.zeros(3)", "NoneType": "None", "dict": "{}"}
    return Reading(
        f"`{op}` between {a} and {b}",
        f"Python knows no `{op}` for these two.",
        (story,),
        raising(f"{values[a]} {op} {values[b]}", raises=f"TypeError: unsupported operand type(s) for {op}: '{a}' and '{b}'")
        if a in values and b in values and a != b and re.fullmatch(r"[-+*/@%]|\*\*", op) and op != "**"
        else None,
        ("Print the value that is not a tensor, and follow it back.",),
    )


@reads(
    r"functions with out=\.\.\. arguments don't support automatic differentiation, but one of the arguments requires grad",
    example="RuntimeError: add(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad.",
)
def out_argument(found: Found) -> Reading:
    return Reading(
        "`out=` with a tensor that requires grad",
        "Writing a result into a given tensor is not recorded, so it is refused where a gradient is wanted.",
        ("A buffer is reused to save memory.",),
        raising("x = torch.ones(3, requires_grad=True)", "torch.add(x, 1, out=torch.zeros(3))", raises=found.match[0]),
        ("Take the result: `y = torch.add(x, 1)`; or use `torch.no_grad()` where no gradient is needed.",),
    )


@reads(
    r"Only Tensors created explicitly by the user \(graph leaves\) support the deepcopy protocol at the moment",
    example="RuntimeError: Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  If you were attempting to "
    "deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, see https://github.com/pytorch/pytorch/pull/103001",
    fragments=(r"support the deepcopy protocol",),
)
def deepcopy(found: Found) -> Reading:
    return Reading(
        "a computed tensor was deep-copied",
        "A copy of a tensor with a history would need a copy of its graph. Only leaves (parameters, inputs) are copied.",
        ("`copy.deepcopy(model)` while an attribute of the model holds a result of the forward pass (a cached loss, attention weights, a hidden state).",
         "The module uses the old `weight_norm`/`spectral_norm`, whose weight is computed."),
        raising("import copy", "y = torch.ones(3, requires_grad=True) * 2", "copy.deepcopy(y)", raises=found.match[0]),
        ("Keep `y.detach()` on the module, not `y`; copy before the forward pass, or copy the `state_dict`.",),
        running("import copy", "y = torch.ones(3, requires_grad=True) * 2", "print(copy.deepcopy(y.detach()).tolist())", prints="[2.0, 2.0, 2.0]"),
    )  # fmt: skip


@reads(
    r"(?<![\w.])(?P<name>[\w.]{0,80}?forward)\(\) takes (?:from \d+ to )?(?P<takes>\d+) positional arguments? but (?P<given>\d+) were given",
    r"(?<![\w.])(?P<name2>[\w.]{0,80}?forward)\(\) (?:missing \d+ required positional arguments?: (?P<missing>'\w+'[^\n]*)|got an unexpected keyword argument '(?P<keyword>\w+)')",
    example="TypeError: Net.forward() takes 2 positional arguments but 3 were given",
)
def forward_arguments(found: Found) -> Reading:
    if found.has("takes"):
        name, takes, given = found["name"], found.int("takes"), found.int("given")
        owner = name.split(".")[0] if "." in name else "Net"
        arguments = ", ".join(f"x{i}" for i in range(1, takes))
        return Reading(
            f"`{name}` was called with {given - 1} arguments and takes {takes - 1}",
            f"Python counts `self`: {takes} with it are taken, {given} were given.",
            ("`nn.Sequential` and most layers take one input; a layer in it needs or gets more.", "`self` is missing in the definition of `forward`."),
            raising(
                f"class {owner}(torch.nn.Module):",
                f"    def forward(self{', ' + arguments if arguments else ''}):",
                "        return 0",
                "",
                f"{owner}()({', '.join(['0'] * (given - 1))})",
                raises=f"takes {found['takes']} positional argument",
            )
            if "from" not in found.match[0] and takes >= 1
            else None,
            ("Compare the call with the definition of `forward`.",),
        )
    what = f"the argument {found['missing']}" if found.has("missing") else f"no argument `{found['keyword']}`"
    return Reading(
        f"`{found['name2']}` {'needs' if found.has('missing') else 'knows'} {what}",
        f"The call and the definition of `forward` differ: it {'needs' if found.has('missing') else 'knows'} {what}.",
        ("A batch dictionary was unpacked (`model(**batch)`) with a key the model does not take, or lacks one." ,"Inputs and targets were packed into one object."),
        None,
        ("Compare the call with the definition of `forward`; drop extra keys from the batch.",),
    )


@reads(
    r"torch\.utils\.checkpoint: A different number of tensors was saved during the original forward and recomputation",
    r"torch\.utils\.checkpoint: Recomputed values for the following tensors have different metadata than during the forward pass",
    example="CheckpointError: torch.utils.checkpoint: A different number of tensors was saved during the original forward and recomputation.\nNumber of tensors "
    "saved during forward: 1\nNumber of tensors saved during recomputation: 0.",
)
def checkpoint_differs(found: Found) -> Reading:
    return Reading(
        "the checkpointed function did something else when it ran again",
        "Activation checkpointing runs the function a second time during backward and expects the same operations on the same shapes.",
        ("The function depends on something that changed: a counter, a flag, a cache, the training mode, random choices in Python.",
         "The function runs under another `autocast` or device setting in backward."),
        raising(
            "from torch.utils.checkpoint import checkpoint",
            "calls = []",
            "",
            "def function(x):",
            "    calls.append(1)",
            "    return x.exp() if len(calls) == 1 else x * 2",
            "",
            "x = torch.ones(3, requires_grad=True)",
            "checkpoint(function, x, use_reentrant=False).sum().backward()",
            raises="A different number of tensors was saved during the original forward and recomputation",
        )
        if "number" in found.match[0]
        else None,
        ("Make the function depend on its arguments only; pass what changes as an argument.",),
    )  # fmt: skip


@reads(
    r"'NoneType' object (?:has no attribute '(?P<attribute>\w+)'|is not (?P<use>callable|subscriptable|iterable))",
    example="AttributeError: 'NoneType' object has no attribute 'backward'",
)
def none_used(found: Found) -> Reading:
    if found.has("attribute"):
        what = f"`.{found['attribute']}` was asked of"
    else:
        what = {"callable": "something was called that is", "subscriptable": "something was indexed that is", "iterable": "something was looped over that is"}[found["use"]]
    grad = found.has("attribute") and found["attribute"] in ("zero_", "data", "norm", "clone", "detach", "mul_", "add_", "abs", "mean", "sum", "shape")
    causes = [
        "A function or a `forward` forgot its `return` (or returns in one branch only).",
        "A `.grad` that was never computed: backward was not called, the tensor is not a leaf, or nothing leads from the loss to it.",
        "A method that works in place and returns None (`list.append`, `dict.update`, `random.shuffle`).",
    ]
    if grad:
        causes = [causes[1], causes[0], causes[2]]
    return Reading(
        "a value is None where something else was expected",
        f"This is Python's own message: {what} `None`.",
        tuple(causes),
        raising(
            "class Net(torch.nn.Module):",
            "    def forward(self, x):",
            "        x.sum()                      # no return",
            "",
            f"Net()(torch.ones(3)).{found['attribute']}",
            raises=f"AttributeError: 'NoneType' object has no attribute '{found['attribute']}'",
        )
        if found.has("attribute")
        else None,
        ("Print what the value before the dot is made by, and give that a `return`.",),
    )


@reads(
    r"Trying to create tensor with negative dimension (?P<size>-\d+): \[(?P<sizes>[-\d, ]*)\]",
    r"Dimension size must be non-negative",
    example="RuntimeError: Trying to create tensor with negative dimension -1: [-1, 3]",
)
def negative_size(found: Found) -> Reading:
    return Reading(
        "a tensor of negative size",
        "A factory such as `torch.zeros` needs the sizes themselves" + (f", and got {found['size']} among [{found['sizes']}]." if found.has("size") else ", and one is negative."),
        ("-1 means \"whatever is left\" only in `view`, `reshape` and `expand`, not where a tensor is made.", "A difference of lengths came out negative: `max_len - len(x)` of a text that "
         "is too long."),
        raising("torch.zeros(-1, 3)", raises="imension", says="Today's words differ a little; this raises:"),
        ("Take the size from a tensor (`x.shape[0]`), truncate first, or `max(0, n)`.",),
    )  # fmt: skip

"""Messages about building modules: names, containers, what a layer's arguments may be, devices and dtypes by name."""

from __future__ import annotations

from torchsleuth.messages import Found, Reading, raising, reads, running


@reads(
    r"attribute '(?P<name>\w+)' already exists",
    example="KeyError: \"attribute 'weight' already exists\"",
)
def attribute_taken(found: Found) -> Reading:
    name = found["name"]
    return Reading(
        f"the module has an attribute `{name}` already",
        f"`register_buffer`, `register_parameter` and `add_module` refuse the name `{name}`: the module, or its class, has it for something else.",
        (
            f"`self.{name} = ...` stands above it in `__init__`.",
            "It is registered in every forward pass and not once in `__init__`.",
            "It is the name of a method or attribute of every module: `type`, `training`, `parameters`.",
        ),
        raising(
            "class Model(torch.nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            f"        self.{name} = None",
            f"        self.register_buffer({name!r}, torch.zeros(3))",
            "Model()",
            raises=f"attribute '{name}' already exists",
        )
        if name.isidentifier() and name not in ("training", "forward")
        else None,
        (f"Take another name, or remove the assignment before it: `self.register_buffer('{name}', x)` sets `self.{name}` itself.",),
    )


@reads(
    r"(?:module|parameter|buffer) name can\\?'t contain \\?[\"']\.\\?[\"']",
    example="KeyError: 'module name can\\'t contain \".\", got: layer.0'",
    fragments=(r"name can\\?'t contain \\?[\"']\.",),
)
def dot_in_name(found: Found) -> Reading:
    return Reading(
        "a module's or parameter's name holds a dot",
        "In a `state_dict` dots separate a module from what it holds, so no name may contain one.",
        ("The names are keys of other data: file names, layer names such as `layer.0`, versions.",),
        raising("torch.nn.ModuleDict({'layer.0': torch.nn.Linear(2, 2)})", raises="KeyError: 'module name can\\'t contain"),
        ("`name.replace('.', '_')`.",),
    )


@reads(
    r"(?P<what>[\w.]+) is not a Module subclass",
    example="TypeError: torch.nn.functional.relu is not a Module subclass",
)
def no_module(found: Found) -> Reading:
    what = found["what"]
    return Reading(
        f"`{what}` is no module",
        "`nn.Sequential`, `nn.ModuleList` and `add_module` take objects of `nn.Module`.",
        (
            "A function was put in where a layer is wanted: `F.relu` for `nn.ReLU()`.",
            "A list of layers was put in as it is: `nn.Sequential(*layers)`.",
            "A class was put in, not an object of it: `nn.ReLU` for `nn.ReLU()`.",
        ),
        raising("torch.nn.Sequential(torch.nn.Linear(2, 2), F.relu)", raises="relu is not a Module subclass"),
        ("`nn.ReLU()`; `nn.Sequential(*layers)`; for a function of your own a small module that calls it in `forward`.",),
        running("print(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())(torch.zeros(1, 2)).shape)", prints="torch.Size([1, 2])"),
    )


@reads(
    r"Padding_idx must be within num_embeddings",
    example="AssertionError: Padding_idx must be within num_embeddings",
)
def padding_index(found: Found) -> Reading:
    return Reading(
        "`padding_idx` is no row of the table",
        "`padding_idx` is the row whose gradient stays zero; it must be a row: 0 to `num_embeddings - 1` (or counted from the end with a minus).",
        ("The padding token was added to the vocabulary and not counted: `num_embeddings = len(vocabulary) + 1`.", "The arguments are in another order: `Embedding(rows, width, padding_idx)`."),
        raising("torch.nn.Embedding(10, 4, padding_idx=10)", raises="AssertionError: Padding_idx must be within num_embeddings"),
        ("Make the table one row larger, or use the id that the tokenizer has for padding.",),
    )


@reads(
    r"offsets has to be a 1D Tensor but got",
    example="ValueError: offsets has to be a 1D Tensor but got None",
)
def bag_offsets(found: Found) -> Reading:
    return Reading(
        "`EmbeddingBag` was not told where the bags begin",
        "Ids in one dimension are all bags one after the other, and `offsets` says where each begins; ids in two dimensions are one bag per row and need none.",
        ("One sample was passed as a flat list of ids.", "`nn.EmbeddingBag` was put in for `nn.Embedding`, which gives a row per id."),
        raising("torch.nn.EmbeddingBag(10, 4)(torch.tensor([1, 2, 3]))", raises="ValueError: offsets has to be a 1D Tensor"),
        ("`bag(ids, offsets=torch.tensor([0]))` for one bag, or `bag(ids[None])`.",),
        running("print(torch.nn.EmbeddingBag(10, 4)(torch.tensor([[1, 2, 3]])).shape)", prints="torch.Size([1, 4])"),
    )


@reads(
    r"dropout probability has to be between 0 and 1, but got (?P<p>[\w.+-]+)",
    example="ValueError: dropout probability has to be between 0 and 1, but got 1.5",
)
def dropout_probability(found: Found) -> Reading:
    return Reading(
        f"a dropout probability of {found['p']}",
        "`p` is the share of elements that are set to zero: between 0 and 1.",
        ("A percentage: 50 for 0.5.", "The arguments are in another order, and a size came to stand there: `nn.LSTM(input, hidden, layers, bias, batch_first, dropout)`."),
        raising("torch.nn.Dropout(1.5)", raises="ValueError: dropout probability has to be between 0 and 1, but got 1.5"),
        ("Pass a share, by name: `dropout=0.1`.",),
    )


@reads(
    r"Expected one of cpu, cuda, .*?device type at start of device string: (?P<device>\S+)",
    r"Invalid device string: '(?P<text>[^']*)'",
    example="RuntimeError: Invalid device string: 'float32'",
    fragments=(r"device type at start of device string", r"invalid device string"),
)
def device_name(found: Found) -> Reading:
    device = (found["device"] if found.has("device") else found["text"]).strip("'\"")
    dtypes = device in ("float32", "float64", "float16", "bfloat16", "int64", "float", "half", "long")
    hints = {"gpu": "The device is called `cuda`, not `gpu`.", "cude": "`cuda` is misspelt."}
    cause = f"A dtype was given as a text: `torch.{device}`, without quotes." if dtypes else hints.get(device, "The name is misspelt, or holds more than type and number (`cuda:0`).")
    return Reading(
        f"'{device}' is no device",
        "A text that is given to `.to(...)`, `device=` or `torch.device` names a device: `cpu`, `cuda`, `cuda:0`, `mps`.",
        (cause, "The text comes from a configuration or the command line: an empty value, quotes too many, `auto`."),
        raising(f"torch.zeros(3).to({device!r})", raises="RuntimeError: ") if device in ("float32", "gpu") else None,
        (f"`x.to(torch.{device})`." if dtypes else "`device = 'cuda' if torch.cuda.is_available() else 'cpu'`.",),
    )


@reads(
    r"Cannot copy out of meta tensor; no data!",
    example="NotImplementedError: Cannot copy out of meta tensor; no data!",
)
def meta_tensor(found: Found) -> Reading:
    return Reading(
        "a tensor on the device 'meta' has a shape and no values",
        "Tensors on 'meta' only tell shapes; there is nothing that could be copied to another device.",
        (
            "A large model was built without memory (`with torch.device('meta')`, `init_empty_weights()`, `low_cpu_mem_usage`, `device_map`), and some weights were never loaded: "
            "the checkpoint lacks them, or names them differently.",
            "`.to(device)` or `.cuda()` is called on a model that a loader has placed itself (`device_map=...`), with a part left out on disk.",
        ),
        raising("torch.nn.Linear(2, 2, device='meta').to('cpu')", raises="NotImplementedError: Cannot copy out of meta tensor; no data!"),
        (
            "Do not move a model that was loaded with `device_map`. See which are left: `[n for n, p in model.named_parameters() if p.is_meta]`.",
            "For a model that is to be filled afterwards: `model.to_empty(device='cpu')`, then load or initialise every parameter and buffer.",
        ),
    )


@reads(
    r"you can only change requires_grad flags of leaf variables",
    example="RuntimeError: you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a subgraph that doesn't require differentiation "
    "use var_no_grad = var.detach().",
)
def flag_of_a_result(found: Found) -> Reading:
    return Reading(
        "`requires_grad` cannot be taken from a result",
        "A tensor that was computed from others requires grad because they do; its flag says so and cannot be switched off.",
        ("A result (an output, a feature, a state) is to be held constant.", "Parameters are to be frozen, and the loop goes over something computed, not over `model.parameters()`."),
        raising("y = torch.ones(3, requires_grad=True) * 2", "y.requires_grad = False", raises="RuntimeError: you can only change requires_grad flags of leaf variables"),
        ("`y = y.detach()` for a constant of the same values; freeze parameters with `model.requires_grad_(False)`.",),
        running("y = (torch.ones(3, requires_grad=True) * 2).detach()", "print(y.requires_grad)", prints="False"),
    )


@reads(
    r"can't retain_grad on Tensor that has requires_grad=False",
    example="RuntimeError: can't retain_grad on Tensor that has requires_grad=False",
)
def nothing_to_retain(found: Found) -> Reading:
    return Reading(
        "this tensor will get no gradient, so there is none to keep",
        "`retain_grad()` keeps the gradient of a result that has one. This tensor does not require grad.",
        (
            "It was made under `torch.no_grad()`, after `.detach()`, or of inputs and parameters that all do not require grad.",
            "It is an input: `x.requires_grad_()` first, and a leaf needs no `retain_grad()`.",
        ),
        raising("torch.zeros(3).retain_grad()", raises="RuntimeError: can't retain_grad on Tensor that has requires_grad=False"),
        ("Call it on the result itself, before anything detaches it; for an input `x.requires_grad_()`.",),
    )


@reads(
    r"In order to use an autograd\.Function with functorch transforms",
    example="RuntimeError: In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it must override the setup_context staticmethod.",
)
def function_without_setup(found: Found) -> Reading:
    return Reading(
        "a custom Function without `setup_context` under `torch.func`",
        "`torch.func.grad`, `vmap`, `jacrev` and the like need `forward` without `ctx`, and a `setup_context(ctx, inputs, output)` that saves what backward needs.",
        ("The Function, yours or a library's, is written in the older style: `forward(ctx, x)`.",),
        raising(
            "class Twice(torch.autograd.Function):",
            "    @staticmethod",
            "    def forward(ctx, x):",
            "        return x * 2",
            "    @staticmethod",
            "    def backward(ctx, grad):",
            "        return grad * 2",
            "torch.func.grad(lambda x: Twice.apply(x).sum())(torch.ones(3))",
            raises="In order to use an autograd.Function with functorch transforms",
        ),
        ("Split it: `forward(x)` computes, `setup_context(ctx, inputs, output)` saves; `generate_vmap_rule = True` where `vmap` is used.",),
        running(
            "class Twice(torch.autograd.Function):",
            "    @staticmethod",
            "    def forward(x):",
            "        return x * 2",
            "    @staticmethod",
            "    def setup_context(ctx, inputs, output):",
            "        pass",
            "    @staticmethod",
            "    def backward(ctx, grad):",
            "        return grad * 2",
            "print(torch.func.grad(lambda x: Twice.apply(x).sum())(torch.ones(3)).tolist())",
            prints="[2.0, 2.0, 2.0]",
        ),
    )


@reads(
    r"vmap: called random operation while in randomness error mode",
    example="RuntimeError: vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' randomness flags on vmap or perform the "
    "randomness operation out of vmap",
)
def vmap_randomness(found: Found) -> Reading:
    return Reading(
        "a random number inside `vmap`",
        "`vmap` has to be told whether all samples are to get the same random numbers or each its own.",
        ("Dropout in training mode, or `torch.rand`, inside the mapped function.",),
        raising("torch.vmap(lambda x: x + torch.rand(()))(torch.zeros(3))", raises="vmap: called random operation while in randomness error mode"),
        ("`torch.vmap(f, randomness='different')`; for evaluation `model.eval()`.",),
        running("print(torch.vmap(lambda x: x + torch.rand(()), randomness='different')(torch.zeros(3)).shape)", prints="torch.Size([3])"),
    )

"""Messages about checkpoints, data loading, optimizers and modules."""

from __future__ import annotations

import re

from torchsleuth.messages import NO_RULE, Found, Reading, call, raising, reads, running, shape


@reads(
    r"size mismatch for (?P<name>[\w.]+): copying a param with shape torch\.Size\(\[(?P<saved>[\d, ]*)\]\) from checkpoint, the shape in current model is "
    r"torch\.Size\(\[(?P<model>[\d, ]*)\]\)",
    example="RuntimeError: Error(s) in loading state_dict for Linear:\n\tsize mismatch for weight: copying a param with shape torch.Size([8, 4]) from "
    "checkpoint, the shape in current model is torch.Size([10, 4]).",
    fragments=(r"size mismatch for \w+", r"copying a param with shape"),
)
def checkpoint_shape(found: Found) -> Reading:
    saved, model, name = found.ints("saved"), found.ints("model"), found["name"]
    differing = [d for d, (a, b) in enumerate(zip(saved, model, strict=False)) if a != b]
    exact = len(saved) == len(model) == 2
    return Reading(
        f"`{name}` is {shape(saved)} in the checkpoint and {shape(model)} in the model",
        f"The parameter `{name}` was saved with shape {shape(saved)}; the model built now has {shape(model)}"
        + (f" (different in dimension {', '.join(map(str, differing))})." if differing and len(saved) == len(model) else "."),
        (
            "The model was built with other numbers than the saved one: classes of the last layer, vocabulary (tokens added), width.",
            "The checkpoint belongs to another architecture.",
        ),
        raising(
            f"saved = torch.nn.Linear({saved[1]}, {saved[0]}, bias=False).state_dict()",
            f"torch.nn.Linear({model[1]}, {model[0]}, bias=False).load_state_dict(saved)",
            raises=f"copying a param with shape torch.Size({shape(saved)}) from checkpoint, the shape in current model is torch.Size({shape(model)})",
        )
        if exact
        else None,
        ("Build the model with the saved sizes; for fine-tuning load first and then replace the last layer, or leave that key out of the dictionary.",),
        falsehoods=(),
    )


@reads(
    r"Missing key\(s\) in state_dict: (?P<missing>\"[^\n]*?\")\. ?(?:\s*Unexpected key\(s\) in state_dict: (?P<unexpected>\"[^\n]*?\")\.)?",
    r"Unexpected key\(s\) in state_dict: (?P<only>\"[^\n]*?\")\.",
    example="RuntimeError: Error(s) in loading state_dict for Sequential:\n\tMissing key(s) in state_dict: \"0.weight\", \"0.bias\". \n\tUnexpected key(s) in "
    "state_dict: \"module.0.weight\". ",
    fragments=(r"(missing|unexpected) key\(s\) in state_dict", r"loading state_dict"),
)
def checkpoint_keys(found: Found) -> Reading:
    groups = found.match.groupdict()
    missing = re.findall(r'"([^"]+)"', groups.get("missing") or "")
    unexpected = re.findall(r'"([^"]+)"', groups.get("unexpected") or groups.get("only") or "")
    story = []
    rename = "Save and load with the same names: `{k.removeprefix('module.'): v for k, v in state.items()}` takes a prefix away."
    prefixes = {u[: -len(m)] for u in unexpected for m in missing if u.endswith("." + m)} | {m[: -len(u)] for u in unexpected for m in missing if m.endswith("." + u)}
    for prefix in sorted(prefixes, key=len)[:1]:
        wrapper = {"module.": "`DataParallel`/`DistributedDataParallel`", "_orig_mod.": "`torch.compile`"}.get(prefix, "a wrapping module")
        side = "checkpoint" if any(u.startswith(prefix) for u in unexpected) else "model"
        inside = "model.module" if prefix == "module." else "model._orig_mod" if prefix == "_orig_mod." else ""
        if side == "model":
            rename = f"Load into what is wrapped: `{inside}.load_state_dict(state)`, or load before wrapping" if inside else "Rename the checkpoint's keys"
            rename += f" (or rename: `{{{prefix!r} + k: v for k, v in state.items()}}`)."
        else:
            rename = f"Rename: `{{k.removeprefix({prefix!r}): v for k, v in state.items()}}`" + (f", or save `{inside}.state_dict()`." if inside else ".")
        story.append(f"The names differ by the prefix `{prefix}`, which {wrapper} adds, on the side of the {side}.")
    named = []
    if missing:
        named.append(f"The model has {', '.join(f'`{m}`' for m in missing[:3])}{' and more' if len(missing) > 3 else ''}, which the checkpoint lacks.")
    if unexpected:
        named.append(f"The checkpoint has {', '.join(f'`{u}`' for u in unexpected[:3])}{' and more' if len(unexpected) > 3 else ''}, which the model lacks.")
    return Reading(
        "the names in the checkpoint are not those of the model",
        " ".join(named),
        (*story, "The architecture or its attribute names changed since saving.", "A whole training state was saved (`{'model': ..., 'optimizer': ...}`): load its `'model'` entry."),
        raising(
            "model = torch.nn.Sequential(torch.nn.Linear(4, 2))",
            "model.load_state_dict({'module.0.weight': torch.zeros(2, 4)})",
            raises="Missing key(s) in state_dict",
        ),
        (f"{rename} `strict=False` only loads what matches and leaves the "
         "rest at its random start.",),
        running(
            "model = torch.nn.Sequential(torch.nn.Linear(4, 2))",
            "state = {'module.' + k: v for k, v in model.state_dict().items()}",
            "print(model.load_state_dict({k.removeprefix('module.'): v for k, v in state.items()}))",
            prints="<All keys matched successfully>",
        ),
    )  # fmt: skip


@reads(
    r"(?:default_collate: )?batch must contain tensors, (?:numpy arrays, )?numbers, dicts or lists; found <class '(?P<kind>[\w.]+)'>",
    example="TypeError: default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found <class 'NoneType'>",
)
def collate_kind(found: Found) -> Reading:
    kind = found["kind"]
    return Reading(
        f"a sample holds a {kind}, which cannot be put into a batch",
        f"The default `collate_fn` stacks tensors, arrays and numbers; `__getitem__` returned (somewhere inside) a {kind}.",
        ("`__getitem__` forgot `return`, or returns None for a broken sample." if kind == "NoneType" else
         "A PIL image without `transforms.ToTensor()`, or another object." ,),
        raising("list(torch.utils.data.DataLoader([None, None], batch_size=2))", raises="found <class 'NoneType'>") if kind == "NoneType" else None,
        ("Return tensors or numbers, or pass a `collate_fn` that leaves such samples out.",),
        rule=NO_RULE,
    )  # fmt: skip


@reads(
    r"can't optimize a non-leaf Tensor",
    r"optimizer got an empty parameter list",
    example="ValueError: can't optimize a non-leaf Tensor",
)
def optimizer_parameters(found: Found) -> Reading:
    empty = "empty" in found.match[0]
    return Reading(
        "the optimizer got no parameters" if empty else "the optimizer got a tensor that is the result of a computation",
        "`model.parameters()` is empty." if empty else "An optimizer updates leaves: tensors created with `requires_grad=True` and not computed from others.",
        ("The layers are kept in a plain list or dictionary (use `nn.ModuleList`/`nn.ModuleDict`), or the module has none.",
         "The generator `model.parameters()` was used up by an earlier loop.") if empty else
        ("`torch.randn(3, requires_grad=True).to(device)`, `* 0.1` or `.reshape(...)`: each gives a new, computed tensor.",),
        raising("torch.optim.SGD([], lr=0.1)", raises="ValueError: optimizer got an empty parameter list") if empty else
        raising("x = torch.ones(3, requires_grad=True) * 0.1", "torch.optim.SGD([x], lr=0.1)", raises="ValueError: can't optimize a non-leaf Tensor"),
        ("Register the layers with `nn.ModuleList`." if empty else "Compute first, then mark: `(torch.randn(3) * 0.1).to(device).requires_grad_()`, or `nn.Parameter`.",),
    )  # fmt: skip


@reads(
    r"cannot assign module before Module\.__init__\(\) call",
    r"cannot assign '(?P<kind>[\w.]+)' as parameter '(?P<name>\w+)' \(torch\.nn\.Parameter or None expected\)",
    example="AttributeError: cannot assign module before Module.__init__() call",
)
def module_attribute(found: Found) -> Reading:
    if found.has("name"):
        name = found["name"]
        return Reading(
            f"a plain tensor was assigned to the parameter `{name}`",
            f"`{name}` is registered as a parameter; a {found['kind']} would not be trained or saved.",
            ("Weights are to be initialised or tied by assignment.",),
            raising("layer = torch.nn.Linear(2, 2)", "layer.weight = torch.ones(2, 2)", raises="cannot assign 'torch.FloatTensor' as parameter 'weight'"),
            ("`layer.weight = nn.Parameter(w)`, or write the values: `with torch.no_grad(): layer.weight.copy_(w)`.",),
        )
    return Reading(
        "`super().__init__()` was not called",
        "A module can hold layers only after `nn.Module.__init__` has run.",
        ("The call is missing, or stands after the first layer.",),
        raising("class Net(torch.nn.Module):", "    def __init__(self):", "        self.layer = torch.nn.Linear(2, 2)", "", "Net()",
                raises="AttributeError: cannot assign module before Module.__init__() call"),
        ("Make `super().__init__()` the first line of `__init__`.",),
    )  # fmt: skip


@reads(
    r"vmap: It looks like you're (?P<what>calling \.item\(\) on a Tensor|attempting to use a Tensor in some data-dependent control flow)",
    r"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes \[(?P<sizes>[\d, ]*)\]",
    example="RuntimeError: vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't support that yet, please "
    "file an issue at https://github.com/pytorch/pytorch/issues .",
    fragments=(r"vmap: It looks like", r"vmap:"),
)
def vmapped(found: Found) -> Reading:
    if found.has("sizes"):
        sizes = found.ints("sizes")
        return Reading(
            f"`vmap` over sizes {' and '.join(map(str, sizes))}",
            "All mapped arguments are cut along their mapped dimension together, so those sizes must be equal.",
            ("An argument that is the same for all should not be mapped: `in_dims=(0, None)`.", "The mapped dimension is not dimension 0 everywhere: `in_dims`."),
            raising("torch.vmap(lambda a, b: a + b)(" + ", ".join(f"torch.zeros({n})" for n in sizes[:2]) + ")",
                    raises="vmap: Expected all tensors to have the same size in the mapped dimension")
            if len(sizes) == 2
            else None,
            ("Set `in_dims` for each argument.",),
        )  # fmt: skip
    item = "item" in found["what"]
    return Reading(
        "a value that differs per sample is needed inside `vmap`",
        "Under `vmap` a tensor stands for all samples at once: it has no single value to " + ("give to Python." if item else "decide an `if` or a loop by."),
        ("`.item()`, `float(x)`, `print(x)` formatting, or an index taken as a Python number." if item else "`if x > 0:`, `while`, or a boolean index inside the function.",),
        raising("torch.vmap(lambda x: " + ("x.item()" if item else "x if x > 0 else -x") + ")(torch.zeros(3))", raises="vmap: It looks like you're"),
        ("Keep it a tensor." if item else "`torch.where(x > 0, x, -x)`: both branches are computed, the values chosen per sample.",),
        running("print(torch.vmap(lambda x: torch.where(x > 0, x, -x))(torch.tensor([-1.0, 2.0])).tolist())", prints="[1.0, 2.0]"),
    )


@reads(
    r"Attempting to broadcast a dimension of length (?P<length>\d+) at (?P<dim>-?\d+)! Mismatching argument at index (?P<i>\d+) had torch\.Size\(\[(?P<got>[\d, ]*)\]\); "
    r"but expected shape should be broadcastable to \[(?P<want>[\d, ]*)\]",
    example="RuntimeError: Attempting to broadcast a dimension of length 6 at -1! Mismatching argument at index 1 had torch.Size([4, 6]); but expected shape "
    "should be broadcastable to [4, 5]",
    fragments=(r"attempting to broadcast a dimension",),
)
def fake_broadcast(found: Found) -> Reading:
    got, want, length, dim = found.ints("got"), found.ints("want"), found.int("length"), found.int("dim")
    other = want[dim] if -len(want) <= dim < len(want) else "another size"
    return Reading(
        f"shapes {shape(want)} and {shape(got)} do not broadcast",
        f"This is how `torch.compile` (on fake tensors) reports what eager mode calls \"The size of tensor a must match the size of tensor b\": counted from the "
        f"right, dimension {dim} is {other} in {shape(want)} and {length} in operand {found['i']} (from 0), {shape(got)}; neither is 1.",
        ("The same causes as in eager mode: operands lined up differently than meant, a fixed size against one from the data, a missing `unsqueeze`.",),
        raising(
            f"torch.zeros({call(want)}) + torch.zeros({call(got)})",
            raises="RuntimeError: The size of tensor a",
            says="Without `torch.compile` the same operation raises it in the usual words:",
        ),
        ("Run the function without `torch.compile` first: the traceback is then your own.",),
    )


@reads(
    r"DataLoader worker \(pid(?:\(s\))? (?P<pid>[\d, ]+)\) (?:is killed by signal: (?P<signal>[\w ]+)|exited unexpectedly)",
    example="RuntimeError: DataLoader worker (pid 1234) is killed by signal: Killed. ",
)
def worker_died(found: Found) -> Reading:
    signal = (found["signal"] or "").strip() if found.has("signal") else ""
    why = {
        "Killed": "\"Killed\" is the signal the operating system sends when memory runs out.",
        "Bus error": "\"Bus error\" here is usually shared memory (/dev/shm) that is full: in a container it is often only 64 MB.",
        "Segmentation fault": "\"Segmentation fault\" is a crash inside a native library used in the worker (image or video decoding, a fork after threads were started).",
    }.get(signal, "The worker process ended without an exception of its own that could be passed on.")
    return Reading(
        f"a data loading process died{': ' + signal if signal else ''}",
        f"A worker process of the DataLoader (pid {found['pid'].strip()}) ended. {why} The line in the main process only noticed it.",
        (
            "Memory: each worker holds its own copy of what the dataset keeps in Python lists; many workers, large batches, prefetching.",
            "Shared memory too small (containers): `--ipc=host` or a larger `--shm-size`.",
            "A native library that does not survive a fork: try `multiprocessing_context='spawn'`.",
        ),
        None,
        ("Run with `num_workers=0` once: an ordinary exception then shows itself. Then fewer workers, data in arrays or files instead of lists.",),
    )


@reads(
    r"Expected to have finished reduction in the prior iteration before starting a new one",
    r"Expected to mark a variable ready only once",
    example="RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your module has parameters "
    "that were not used in producing loss.",
    rule="unused-parameters",
)
def ddp_reduction(found: Found) -> Reading:
    twice = "once" in found.match[0]
    return Reading(
        "a parameter was reported twice in one backward" if twice else "some parameters got no gradient in the iteration before",
        "DistributedDataParallel waits for the gradient of every parameter exactly once per backward"
        + ("; one came twice." if twice else "; in the iteration before, some never came."),
        (
            ("Two backward passes through one forward, or re-entrant activation checkpointing together with unused parameters: use `use_reentrant=False`.",
             "A parameter shared between modules that DDP sees as two.")
            if twice
            else
            ("Parts of the model take no part in the loss (a head, a branch not taken, an output that is dropped).",
             "The forward pass was called on `model.module` instead of `model`.")
        ),
        None,
        ("Remove what is unused or let it take part in the loss; `find_unused_parameters=True` tolerates it, at some cost." if not twice else
         "One backward per forward; `static_graph=True` where the same graph runs each time.",),
    )  # fmt: skip


@reads(
    r"Weights only load failed",
    example="UnpicklingError: Weights only load failed. This file can still be loaded, to do so you have two options",
    fragments=(r"weights only load failed", r"was not an allowed global by default", r"weightsunpickler error"),
)
def weights_only(found: Found) -> Reading:
    told = re.search(r"Unsupported (?:global|class):? (?:GLOBAL )?([\w.]+)", found.text)
    name = told[1] if told else ""
    return Reading(
        f"the file holds `{name}`, which `torch.load` does not read unasked" if name else "the file holds more than tensors, which `torch.load` does not read unasked",
        "Since PyTorch 2.6 `torch.load` has `weights_only=True` as its default: it reads tensors, numbers, texts, lists and dictionaries, and calls nothing that a file "
        "names, since a pickle can run any code." + (f" This file names `{name}`." if name else ""),
        (
            "A whole model was saved (`torch.save(model, path)`) and not its `state_dict()`.",
            "The checkpoint holds other objects beside the weights: `argparse.Namespace`, a dataclass, numpy numbers (`best_loss = np.mean(...)`), a scheduler.",
            "The file was written for an older PyTorch, which loaded anything.",
        ),
        raising(
            "import argparse",
            "import io",
            "file = io.BytesIO()",
            "torch.save({'args': argparse.Namespace(lr=0.1)}, file)",
            "file.seek(0)",
            "torch.load(file)",
            raises="UnpicklingError: Weights only load failed",
        ),
        (
            "Save plain things: `model.state_dict()`, `vars(args)`, `float(loss)`.",
            "For a file of your own: `torch.load(path, weights_only=False)`, or allow the class alone: `with torch.serialization.safe_globals([Namespace]): torch.load(path)`. "
            "Not for a file from somewhere else: it can run any code.",
        ),
        running(
            "import argparse",
            "import io",
            "file = io.BytesIO()",
            "torch.save({'args': vars(argparse.Namespace(lr=0.1))}, file)",
            "file.seek(0)",
            "print(torch.load(file))",
            prints="{'args': {'lr': 0.1}}",
        ),
    )


@reads(r"Expected state_dict to be dict-like, got (?P<kind><class '[\w.<>]+'>)", example="TypeError: Expected state_dict to be dict-like, got <class 'torch.nn.modules.linear.Linear'>.")
def not_a_state_dict(found: Found) -> Reading:
    kind = found["kind"][8:-2].rpartition(".")[2]
    return Reading(
        f"`load_state_dict` was given a `{kind}`",
        "It takes the dictionary of names and tensors that `state_dict()` returns.",
        ("The file holds a whole model (`torch.save(model, path)`), not its state." if kind not in ("str", "PosixPath", "Path") else "The path was given, not what is in the file.",
         "The checkpoint holds several things, and another one of them was taken."),
        raising("model = torch.nn.Linear(2, 2)", "model.load_state_dict(torch.nn.Linear(2, 2))", raises="Expected state_dict to be dict-like, got <class 'torch.nn.modules.linear.Linear'>"),
        ("`model.load_state_dict(torch.load(path)['model'])`; of a whole model `.state_dict()`. Save states: `torch.save(model.state_dict(), path)`.",),
        rule=NO_RULE,
    )


@reads(r"No module named '(?!torch|triton)(?P<module>[\w.]+)'", example="ModuleNotFoundError: No module named 'models'")
def module_not_found(found: Found) -> Reading:
    module = found["module"]
    top = module.partition(".")[0]
    reading = any(word in found.text for word in ("torch.load", "torch/serialization", "Unpickler", "pickle_module", "find_class"))
    whole = "A checkpoint was saved as a whole object (`torch.save(model, path)`). Such a file names the class by its module and does not hold it, so that `torch.load` imports it."
    return Reading(
        f"python does not find `{module}`",
        f"`import {module}`, by this program or by what reads a file for it, looked in the folders of `sys.path` and found nothing of that name.",
        (
            *((whole,) if reading else ()),
            f"The package `{top}` is not installed in the environment that runs (its name on PyPI may be another), or a notebook's kernel uses another one.",
            f"`{top}` is a folder of the project, and the program was started from elsewhere.",
            *(() if reading else (f"If `torch.load` raised it: {whole[0].lower()}{whole[1:]}",)),
        ),
        None,
        (
            "`python -m pip install ...` with the python that runs the program; or start it where the folder is: `python -m package.train`.",
            "For a checkpoint: put the source it was written with on `PYTHONPATH`, load it once, and save `model.state_dict()`.",
        ),
        rule=NO_RULE,
    )

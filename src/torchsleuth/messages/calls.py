"""Messages of Python about calls in a wrong form, where torch's classes meet code that was written for others."""

from __future__ import annotations

from torchsleuth.messages import NO_RULE, Found, Reading, raising, reads, running


@reads(
    r"(?P<kind>(?:[A-Za-z_]\w*\.)?)__init__\(\) got an unexpected keyword argument '(?P<argument>\w+)'",
    example="TypeError: Net.__init__() got an unexpected keyword argument 'hidden'",
)
def constructor_argument(found: Found) -> Reading:
    kind, argument = found["kind"].rstrip("."), found["argument"]
    whose = f"`{kind}`" if kind else "the class"
    gone = kind in ("ReduceLROnPlateau", "StepLR", "LambdaLR", "CosineAnnealingLR", "OneCycleLR") and argument == "verbose"
    return Reading(
        f"{whose} takes no `{argument}`",
        f"The call that makes the object names an argument `{argument}` that its `__init__` does not have." + (" torch's schedules had it until it was taken out in torch 2.7." if gone else ""),
        ("The code was written for an earlier torch.",)
        if gone
        else (
            "The installed version of the library has another signature than the one the code was written for.",
            "A configuration is handed over whole (`Net(**config)`) and holds entries that are meant for something else.",
            f"`__init__` has no `**kwargs`, and a subclass or a wrapper passes `{argument}` on; or the name is misspelt.",
        ),
        raising("from torch import optim", "optimizer = optim.SGD([torch.zeros(1)], lr=0.1)", f"optim.lr_scheduler.{kind}(optimizer, verbose=True)",
                raises="got an unexpected keyword argument 'verbose'", says="On torch 2.7 or later this raises it:") if gone and kind == "ReduceLROnPlateau"
        else raising("class Net:", "    def __init__(self, width=8): ...", "Net(hidden=3)", raises="Net.__init__() got an unexpected keyword argument 'hidden'") if (kind, argument) == ("Net", "hidden")
        else None,
        ("Leave it out, and print `scheduler.get_last_lr()` where it is wanted.",) if gone
        else (f"`python -c \"import inspect; ...; print(inspect.signature({kind or 'Class'}))\"` shows what it takes; hand over only those.",),
        rule=NO_RULE,
    )  # fmt: skip


@reads(r"'DataLoader' object is not subscriptable", example="TypeError: 'DataLoader' object is not subscriptable")
def loader_indexed(found: Found) -> Reading:
    return Reading(
        "a DataLoader has no batch number 0",
        "It makes batches in turn, in an order that may be drawn anew each time. Samples have numbers in its dataset.",
        ("One batch or sample is wanted, to look at.",),
        raising("torch.utils.data.DataLoader([1, 2])[0]", raises="'DataLoader' object is not subscriptable"),
        ("One batch: `next(iter(loader))`. One sample: `loader.dataset[0]`.",),
        running("print(next(iter(torch.utils.data.DataLoader([1, 2]))))", prints="tensor([1])"),
        rule=NO_RULE,
    )


@reads(r"'module' object is not callable", example="TypeError: 'module' object is not callable")
def module_called(found: Found) -> Reading:
    return Reading(
        "a module of Python was called like a function or class",
        "A file and what is defined in it may have the same name; what was imported here is the file.",
        ("`import tqdm` and then `tqdm(loader)`; `import model` and then `model(x)`; `torch.utils.checkpoint(...)` for `torch.utils.checkpoint.checkpoint(...)`.",
         "A variable that held a network was overwritten by an import of the same name."),
        raising("torch.utils.data()", raises="'module' object is not callable"),
        ("`from tqdm import tqdm`; name the function or class behind the dot.",),
        rule=NO_RULE,
    )  # fmt: skip


@reads(r"optimizer can only optimize Tensors, but one of the params is (?P<kind>[\w.]+)", example="TypeError: optimizer can only optimize Tensors, but one of the params is str")
def not_parameters(found: Found) -> Reading:
    kind = found["kind"].rpartition(".")[2]
    return Reading(
        f"the optimizer was given a {kind} in the place of a parameter",
        "An optimizer takes tensors, or dictionaries with the key `params` that hold tensors.",
        ("`model.state_dict()` was given: going through a dictionary gives its keys, which are names.", "`model.named_parameters()` in a group gives pairs of a name and a parameter.")
        if kind in ("str", "tuple")
        else (f"A {kind} is in the list: `.parameters` without brackets, a list within the list, or a module instead of its `.parameters()`.",),
        raising("torch.optim.SGD(torch.nn.Linear(2, 1).state_dict(), lr=0.1)", raises="optimizer can only optimize Tensors, but one of the params is str") if kind == "str" else None,
        ("`model.parameters()`, or `[{'params': model.head.parameters(), 'lr': 1e-3}, ...]`.",),
        rule=NO_RULE,
    )


@reads(r"Can't get attribute '(?P<name>\w+)' on <module '(?P<module>[\w.]+)'", example="AttributeError: Can't get attribute 'Net' on <module '__main__' from 'eval.py'>")
def class_not_found_in_pickle(found: Found) -> Reading:
    name, module = found["name"], found["module"]
    return Reading(
        f"the file (or the message between processes) names `{name}` of `{module}`, which is not there",
        f"A pickle holds an object's values and the place of its class, not the class. Reading it, python looks for `{name}` in the module `{module}`"
        + (", which is the script that runs now." if module == "__main__" else "."),
        (
            "With `torch.save(model, path)` the whole model was saved, by another script, in which the class was defined.",
            "The class was renamed or moved since.",
            "In a notebook or under `spawn`: a class defined in the notebook, or below `if __name__ == '__main__'`, is not there in a worker process.",
        ),
        None,
        (f"Save and load weights: `torch.save(model.state_dict(), path)`. For this file: `from train import {name}` in the script that loads it, at its top level.",),
        rule=NO_RULE,
    )


@reads(r"Attempting to deserialize object on CUDA device (?P<device>\d+) but torch\.cuda\.device_count\(\) is (?P<count>\d+)",
       example="RuntimeError: Attempting to deserialize object on CUDA device 1 but torch.cuda.device_count() is 1.")  # fmt: skip
def saved_on_another_gpu(found: Found) -> Reading:
    device, count = found["device"], found["count"]
    return Reading(
        f"the checkpoint was saved on cuda:{device}, and there {'is' if count == '1' else 'are'} {count} here",
        f"Tensors are put back where they were. GPUs are numbered from 0, so with {count} the last one is cuda:{int(count) - 1}." if int(count) else "Tensors are put back where they were.",
        ("It was saved on a machine with more GPUs, by another rank than 0, or with another CUDA_VISIBLE_DEVICES.",),
        None,
        ("`torch.load(path, map_location='cpu')`, then `model.load_state_dict(...)` and `model.to(device)`.",),
        rule=NO_RULE,
    )


@reads(r"Error while deserializing header: (?P<what>\w+)", example="SafetensorError: Error while deserializing header: HeaderTooLarge")
def no_safetensors_file(found: Found) -> Reading:
    return Reading(
        "the file is no whole safetensors file",
        "Such a file begins with the length of its table of contents. What stands there makes no sense as a length, or the table is not readable.",
        ("It is a Git LFS pointer (a few lines of text) or a web page: the download gave something else.", "The download or copy is not complete.", "It is a checkpoint of another form (`.bin`, `.pt`) that was renamed."),
        None,
        ("Look at its size and its first bytes: `head -c 100 FILE`; download it anew (`git lfs pull`).",),
        rule=NO_RULE,
    )


@reads(r"Parent directory (?P<folder>\S+) does not exist", example="RuntimeError: Parent directory checkpoints does not exist.")
def no_such_folder(found: Found) -> Reading:
    folder = found["folder"]
    return Reading(
        f"`torch.save` was to write into `{folder}`, which is not there",
        "It makes the file and no folders. A relative path counts from the working directory, not from the script.",
        ("The folder was never made, or the script was started from another place.",),
        raising(f"torch.save({{}}, {folder + '/model.pt'!r})", raises=f"Parent directory {folder} does not exist") if folder == "checkpoints" else None,
        (f"`os.makedirs({folder!r}, exist_ok=True)` before.",),
        rule=NO_RULE,
    )


# What is no tensor, by the name that torch's message gives it, and how it got there.
NOT_TENSORS = {
    "numpy.ndarray": "A NumPy array: `torch.from_numpy(x)`, mostly with `.float()`.",
    "tuple": "A tuple: a layer that returns several things (an LSTM: output and state) was not unpacked; or a comma stands at the end of a line.",
    "list": "A list: `torch.stack(x)` for tensors of one shape, `torch.tensor(x)` for numbers.",
    "NoneType": "None: a function without `return`, or an option that was not set.",
    "str": "A text: a key where its value was meant.",
    "dict": "A dictionary: one of its values was meant.",
}
PLAIN = frozenset(("int", "float", "bool", "tuple", "str", "NoneType", "torch.dtype", "torch.device"))
# What takes a tensor first; `linspace`, `full` or `randint` do not.
ON_TENSORS = frozenset("conv1d conv2d conv3d conv_transpose1d conv_transpose2d linear max_pool2d avg_pool2d mm matmul bmm relu softmax log_softmax sum mean max min argmax exp log sqrt sigmoid tanh "
                       "abs clamp embedding layer_norm batch_norm dropout cat stack norm var std flatten reshape squeeze unsqueeze transpose permute".split())  # fmt: skip


@reads(
    r"(?P<function>\w+)\(\) received an invalid combination of arguments - got \((?P<got>[^)\n]*)\)",
    example="TypeError: conv2d() received an invalid combination of arguments - got (numpy.ndarray, Parameter, Parameter, tuple, tuple, tuple, int), but expected one of:",
)
def argument_kinds(found: Found) -> Reading:
    function, got = found["function"], [part.strip().rpartition("=")[2] for part in found["got"].split(",") if part.strip()]
    first = got[0] if got else ""
    odd = first if function in ON_TENSORS and first in NOT_TENSORS else ""
    return Reading(
        f"no form of `{function}` takes ({', '.join(got)})",
        f"torch compares the kinds of the arguments with each form of `{function}` that it knows; the message lists them below. None begins with these"
        + (f": the first argument has to be a tensor, and is a {odd}." if odd else "."),
        (NOT_TENSORS[odd],) if odd
        else (
            "An argument has the wrong kind: a float where a whole number is meant (`/` instead of `//`), a tensor where a number is, a list in a list.",
            "An argument is missing, or its name is one that this function does not know.",
            *((NOT_TENSORS[k] for k in dict.fromkeys(got) if k in ("numpy.ndarray", "NoneType", "dict"))),
        ),
        raising("import numpy as np", "torch.nn.Conv2d(3, 8, 3)(np.zeros((1, 3, 8, 8)))", raises="conv2d() received an invalid combination of arguments - got (numpy.ndarray")
        if (function, odd) == ("conv2d", "numpy.ndarray")
        else raising("torch.linspace(0, 1)", raises="linspace() received an invalid combination of arguments - got (int, int)") if (function, found["got"]) == ("linspace", "int, int")
        else None,
        ("Print the types of what is handed over, and compare them with the forms in the message.",),
        rule="not-a-tensor" if odd else NO_RULE,
    )  # fmt: skip


@reads(
    r"(?P<kind>\w+)\.__init__\(\) missing (?P<count>\d+) required (?:positional|keyword-only) arguments?: (?P<names>'\w+'(?:,? (?:and )?'\w+')*)",
    example="TypeError: Conv2d.__init__() missing 1 required positional argument: 'kernel_size'",
)
def constructor_incomplete(found: Found) -> Reading:
    kind, names = found["kind"], found["names"]
    return Reading(
        f"making a `{kind}` takes {names}",
        f"`{kind}(...)` was called without {names}, which {'has' if found['count'] == '1' else 'have'} no default.",
        ("The call leaves it out, or an argument in front of it.", "A subclass calls `super().__init__()` without handing on what the base class needs.", "The class was handed over where an object is expected, and something makes it without arguments."),
        raising("torch.nn.Conv2d(3, 8)", raises="missing 1 required positional argument: 'kernel_size'") if kind == "Conv2d" and names == "'kernel_size'" else None,
        (f"Give {names}; `help({kind})` shows the order of the arguments.",),
        rule=NO_RULE,
    )


@reads(r"expected np\.ndarray \(got (?P<kind>\w+)\)", example="TypeError: expected np.ndarray (got list)")
def not_an_array(found: Found) -> Reading:
    kind = found["kind"]
    return Reading(
        f"`from_numpy` was given a {kind}",
        "`torch.from_numpy` shares the memory of a NumPy array and takes nothing else.",
        ("The data is a plain list or a column of a table." if kind != "Tensor" else "It is a tensor already.",),
        raising("torch.from_numpy([1, 2])", raises="expected np.ndarray (got list)") if kind == "list" else None,
        ("`torch.tensor(x)` for numbers and lists; `torch.from_numpy(x.to_numpy())` for pandas." if kind != "Tensor" else "Use it as it is.",),
        rule=NO_RULE,
    )

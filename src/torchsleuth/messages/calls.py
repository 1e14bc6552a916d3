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

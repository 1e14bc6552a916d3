"""Messages about devices: two devices in one operation, CUDA's asynchronous errors, memory."""

from __future__ import annotations

import re

from torchsleuth.messages import Falsehood, Found, Reading, raising, reads, running

NOT_MOVED = Falsehood(
    "`x.to(device)` moves the tensor.",
    "It returns a moved copy and leaves `x` where it is: `x = x.to(device)`. (Only modules are moved in place.)",
    running("x = torch.zeros(3)", "x.to('meta')", "print(x.device)", prints="cpu"),
)


@reads(
    r"Expected all tensors to be on the same device, but found at least two devices, (?P<a>\w+(?::\d+)?) and (?P<b>\w+(?::\d+)?)!?"
    r"(?: \(when checking argument for argument (?P<argument>\w+) in method (?P<method>\w+)\))?",
    r"Expected all tensors to be on the same device, but got (?P<odd>\w+) is on (?P<c>\w+(?::\d+)?), different from other tensors on "
    r"(?P<d>\w+(?::\d+)?)(?: \(when checking argument in method (?P<method2>\w+)\))?",
    r"Tensor on device (?P<e>\w+(?::\d+)?) is not on the expected device (?P<f>\w+(?::\d+)?)",
    r"Expected object of (?:device type|backend) (?P<a>\w+) but got (?:device type|backend) (?P<b>\w+) for argument #\d+ '(?P<argument>\w+)'",
    r"expected device (?P<a>\w+(?::\d+)?) but got device (?P<b>\w+(?::\d+)?)",
    r"Expected object of type torch\.\w+Tensor but found type torch\.cuda\.\w+Tensor for argument #\d+ '(?P<argument>\w+)'",
    r"Expected object of type torch\.cuda\.\w+Tensor but found type torch\.\w+Tensor for argument #\d+ '(?P<argument>\w+)'",
    r"Input, output and indices must be on the current device",
    r"indices should be either on (?P<g>\w+) or on the same device as the indexed tensor \((?P<h>[\w:]+)\)",
    example="RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! (when checking argument "
    "for argument mat1 in method wrapper_CUDA_addmm)",
    fragments=(r"(expected )?all tensors to be on the same device", r"at least two devices"),
)
def two_devices(found: Found) -> Reading:
    groups = found.match.groupdict()
    first = next((groups[g].lower() for g in "aceg" if groups.get(g)), "the GPU")
    second = next((groups[g].lower() for g in "bdfh" if groups.get(g)), "the CPU")
    argument = groups.get("argument") or groups.get("odd") or ""
    method = re.sub(r"^wrapper_(CUDA_)?_?", "", groups.get("method") or groups.get("method2") or "")
    parts = {"mat1": "the input of a linear layer or the left factor", "mat2": "the weight of a linear layer or the right factor", "weight": "a layer's weight",
             "index": "the indices (an embedding's ids, for instance)", "target": "the targets of a loss", "bias": "a layer's bias"}  # fmt: skip
    which = ""
    if argument:
        which = f" The argument named is `{argument}`{' of `' + method + '`' if method else ''}"
        which += f": {parts[argument]}." if argument in parts else "."
    pair = f"One tensor is on {first}, another on {second}." if not groups.get("g") else f"The indexed tensor is on {second}, the indices on another device."
    return Reading(
        f"one operation got tensors on {first} and {second}" if not groups.get("g") else "the indices are on another device than the tensor",
        pair + which + " An operation runs on one device and does not move its operands (a CPU tensor without dimensions is the exception).",
        (
            "A tensor is created in `forward` without `device=`: a mask, `torch.arange` for positions, a hidden state, `torch.zeros(...)`.",
            "The batch (or the targets) was not moved: `.to(device)` returns a new tensor and its result was not used.",
            "A tensor kept as a plain attribute does not move with the module: register it with `register_buffer`; layers kept in a plain list need "
            "`nn.ModuleList`.",
            "Numbers collected for statistics are on the CPU, the new ones on the GPU.",
        ),
        raising(
            "a = torch.zeros(3, device='meta')              # stands for the GPU here, so that it runs anywhere",
            "a + torch.zeros(3)",
            raises="Tensor on device cpu is not on the expected device meta!",
            says="Mixing devices raises; without a GPU the message reads a little differently:",
        ),
        ("Create tensors where they are used on the device of the input (`device=x.device`, `torch.zeros_like(x)`), move each batch once, use buffers.",),
        falsehoods=(NOT_MOVED,),
    )


ASSERTIONS = (
    (r"srcIndex < srcSelectDimSize", "`srcIndex < srcSelectDimSize` is an embedding or `index_select` with an id at or past the size of its table."),
    (r"t >= 0 && t < n_classes", "`t >= 0 && t < n_classes` is a class number out of range in `cross_entropy`/`nll_loss`."),
    (r"cur_target >= 0", "`cur_target >= 0` is a class number out of range in `nll_loss`."),
    (r"-sizes\[i\] <= index", "`index out of bounds` with `-sizes[i] <= index` is an index tensor (`x[ids]`, `index_put_`) out of range."),
    (r"idx_dim >= 0|ScatterGather", "`idx_dim >= 0 && idx_dim < index_size` is `gather` or `scatter` with an index out of range."),
    (r"input_val >= zero|target_val >= zero", "`input_val` between 0 and 1: `binary_cross_entropy` got raw scores instead of probabilities."),
    (r"probability_?|probabilities", "A sampling assertion: probabilities negative, NaN or summing to 0."),
)


@reads(
    r"CUDA error: device-side assert triggered",
    r"block: \[[\d, ]+\],?(?: thread: \[[\d, ]+\])?:? Assertion `(?P<assertion>[^`]+)` failed",
    example="RuntimeError: CUDA error: device-side assert triggered",
    fragments=(r"device-side assert",),
)
def device_assert(found: Found) -> Reading:
    told = next((text for pattern, text in ASSERTIONS if re.search(pattern, found.text)), "")
    return Reading(
        "a kernel on the GPU found an index, a label or a probability out of range",
        "The GPU works behind the program: the check failed in an earlier kernel, and the error appears at some later line that waits for the GPU. "
        "That line is innocent. " + (told or "The lines that start with `Assertion` above the traceback say which check it was."),
        (
            "A class label at or past the number of classes, or -1, in `cross_entropy`.",
            "A token id at or past the vocabulary size, or a position past the maximum, in an embedding.",
            "An index tensor, `gather` or `scatter` out of range.",
            "Raw scores in `binary_cross_entropy`, NaN in a sampling.",
        ),
        raising(
            "embedding = torch.nn.Embedding(10, 3)",
            "embedding(torch.tensor([10]))",
            raises="IndexError: index out of range in self",
            says="On the CPU the same mistake is reported at its own line; this raises IndexError:",
        ),
        (
            "Run it under `torchsleuth run`: on the GPU it records what such kernels are given, and names the line and the value afterwards.",
            "Or run once on the CPU, or with the environment variable `CUDA_LAUNCH_BLOCKING=1`: the traceback then ends at the right line.",
            "After it the process cannot use the GPU any more: restart it (or the notebook's kernel).",
        ),
        falsehoods=(
            Falsehood(
                "It is a driver or installation problem.",
                "It is the data: the same values raise an ordinary IndexError on the CPU.",
                raising(
                    "torch.nn.functional.cross_entropy(torch.zeros(1, 3), torch.tensor([3]))",
                    raises="IndexError: Target 3 is out of bounds.",
                ),
            ),
        ),
    )


@reads(
    r"CUDA out of memory\. Tried to allocate (?P<want>[\d.]+ [KMG]iB)(?:.{0,200}?total capacity of (?P<total>[\d.]+ [KMG]iB))?"
    r"(?:.{0,200}?(?P<free>[\d.]+ [KMG]iB) (?:is )?free)?",
    example="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 7.79 GiB of which 12.06 MiB is free.",
    fragments=(r"cuda out of memory", r"OutOfMemoryError"),
)
def out_of_memory(found: Found) -> Reading:
    total = f" of {found['total']}" if found.has("total") else ""
    free = f"; {found['free']} were free" if found.has("free") else ""
    return Reading(
        f"the GPU has no {found['want']} left",
        f"An allocation of {found['want']} failed{', on a GPU' + total if total else ''}{free}. The line that failed is the last straw, not necessarily the one that "
        "takes most.",
        (
            "Batch, sequence or image are too large: activations kept for backward grow with them (attention with the square of the length).",
            "Something keeps graphs alive: `total_loss += loss` (use `loss.item()`), outputs collected in a list without `.detach()`, a carried state.",
            "Evaluation without `torch.no_grad()`.",
            "Another process, or a notebook's earlier cells, hold memory.",
        ),
        None,
        ("Smaller batches with gradient accumulation, `torch.autocast`, activation checkpointing, `no_grad` in evaluation; detach what is kept.",),
        falsehoods=(
            Falsehood(
                "`torch.cuda.empty_cache()` frees memory for your program.",
                "It hands cached, unused blocks back to the driver; torch would have used them itself. What a living tensor or graph holds stays: here every step's graph.",
                running(
                    "w = torch.ones(3, requires_grad=True)",
                    "total = 0",
                    "for step in range(100):",
                    "    total = total + (w * step).sum()              # keeps every step's graph",
                    "depth, node = 0, total.grad_fn",
                    "while node is not None:",
                    "    depth, node = depth + 1, node.next_functions[0][0] if node.next_functions else None",
                    "print(depth >= 100)",
                    prints="True",
                ),
            ),
        ),
    )


@reads(r"Torch not compiled with CUDA enabled", example="AssertionError: Torch not compiled with CUDA enabled", rule="device-unavailable")
def no_cuda_in_the_build(found: Found) -> Reading:
    return Reading(
        "the program asks for a GPU, and the installed torch is a build without CUDA",
        "The message is about the installed package: the CUDA part of torch is not in it. It says nothing about drivers, and they would not change it.",
        ("The build for the CPU was installed: it is what some package indexes, systems and `--index-url` choices give.", "Another environment than the one with the CUDA build is active: `which python`."),
        None,
        (
            "To use the CPU: choose the device at run time, `device = 'cuda' if torch.cuda.is_available() else 'cpu'`.",
            "To use a GPU: install a build with CUDA, as pytorch.org's selector names it for your system; `torch.version.cuda` is None until then.",
        ),
        running("device = 'cuda' if torch.cuda.is_available() else 'cpu'", "print(torch.zeros(3, device=device).shape)", prints="torch.Size([3])"),
    )


@reads(
    r"Found no NVIDIA driver on your system",
    r"Attempting to deserialize object on a CUDA device but torch\.cuda\.is_available\(\) is False",
    example="RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your storages to the CPU.",
)
def no_cuda(found: Found) -> Reading:
    if "deserialize" in found.match[0]:
        return Reading(
            "tensors of a checkpoint are to go to a GPU, and torch can use none here",
            "Saved tensors go back to where they were, or to where `map_location` says. `torch.cuda.is_available()` is False here.",
            ("The checkpoint was saved on a GPU, and is loaded without `map_location`.", "`map_location` names a GPU."),
            None,
            ("`torch.load(path, map_location='cpu')`, then `model.to(device)`.",),
        )
    return Reading(
        "the program asks for a GPU, and the system has no NVIDIA driver",
        "This build of torch has CUDA in it; the driver, through which it reaches a GPU, is not found.",
        ("The machine has no NVIDIA GPU, or its driver is not installed.", "The program runs in a container that was not given the GPUs (`docker run --gpus all`)."),
        None,
        ("Choose the device at run time: `device = 'cuda' if torch.cuda.is_available() else 'cpu'`.",),
        running("device = 'cuda' if torch.cuda.is_available() else 'cpu'", "print(torch.zeros(3, device=device).shape)", prints="torch.Size([3])"),
    )


@reads(
    r"can't convert (?P<device>[\w:]+) (?:device type )?tensor to numpy",
    r"Can't call numpy\(\) on Tensor that requires grad",
    example="RuntimeError: Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
)
def to_numpy(found: Found) -> Reading:
    if found.has("device"):
        return Reading(
            f"numpy cannot read memory of {found['device']}",
            "numpy arrays live in main memory; the tensor does not.",
            ("A result was passed to numpy, matplotlib or scikit-learn without moving it.",),
            None,
            ("`x.detach().cpu().numpy()`.",),
        )
    return Reading(
        "a tensor with a history was passed to numpy",
        "numpy would not record what happens to the values, so the gradient would be lost silently; torch asks you to say so.",
        ("Plotting, metrics or saving during training.", "numpy functions in the middle of a model: their gradient would be missing."),
        raising("torch.zeros(2, requires_grad=True).numpy()", raises="RuntimeError: Can't call numpy() on Tensor that requires grad"),
        ("For a metric or a plot: `x.detach().numpy()`. Inside a model: use torch's functions instead of numpy's.",),
        falsehoods=(
            Falsehood(
                "`.detach()` is always the right fix.",
                "Inside a model it silences the error and cuts the gradient.",
                running(
                    "import numpy as np",
                    "w = torch.ones(2, requires_grad=True)",
                    "y = torch.from_numpy(np.exp(w.detach().numpy()))",
                    "print(y.requires_grad)",
                    prints="False",
                ),
            ),
        ),
    )


@reads(
    r"CUBLAS_STATUS_(?P<status>NOT_INITIALIZED|ALLOC_FAILED|EXECUTION_FAILED|INVALID_VALUE)",
    example="RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
)
def cublas(found: Found) -> Reading:
    status = found["status"]
    return Reading(
        f"the GPU's matrix library reports {status}",
        "The message names no cause of its own: it says only that cuBLAS could not start or finish.",
        (
            ("The GPU's memory is full: cuBLAS needs some for itself.", "An index or label out of range in an earlier kernel left the GPU unusable (a device-side assert).")
            if status in ("NOT_INITIALIZED", "ALLOC_FAILED")
            else ("An index or label out of range in an earlier kernel: the error appears at a later product.", "Builds of torch, CUDA and driver that do not fit.")
        ),
        None,
        ("Run once on the CPU, which names an index or label out of range at its own line; then look at the memory (`nvidia-smi`), and try a smaller batch.",),
    )

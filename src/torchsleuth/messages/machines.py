"""Messages about the machine, not the model: CUDA's own statuses, Apple's GPU (MPS), main memory, forked processes."""

from __future__ import annotations

from torchsleuth.messages import Found, Reading, raising, reads, running

ON_ONE_DEVICE = "Move both: `model.to(device)` once, `x = x.to(device)` for each batch; make tensors in `forward` with `device=x.device`."

# What the driver says: title, meaning, causes, what to change.
STATUSES = {
    "out of memory": (
        "the GPU has no memory left",
        "This is the driver's own refusal, not that of torch's allocator: often not even the CUDA context, or a library's workspace, found room.",
        ("Another process, or a notebook's earlier run, holds the GPU's memory: `nvidia-smi` shows who.", "This process has filled it."),
        "End what holds it, choose another GPU (`CUDA_VISIBLE_DEVICES`), or make batches smaller.",
    ),
    "no kernel image is available": (
        "this build of torch has no code for this GPU",
        "torch brings compiled kernels for some generations of GPUs (`torch.cuda.get_arch_list()`); this GPU's (`torch.cuda.get_device_capability()`) is "
        "not among them. The program is not at fault, and the line that failed is only the first to run a kernel.",
        ("The GPU is newer than the installed torch or its CUDA version.", "The GPU is older than what current builds support.", "An extension (flash-attn, apex, a "
         "kernel of one's own) was compiled for another generation."),
        "Install a build of torch whose list holds this GPU; compile extensions anew with `TORCH_CUDA_ARCH_LIST` set to it.",
    ),
    "invalid device ordinal": (
        "the program names a GPU that is not there",
        "GPUs are numbered from 0 to `torch.cuda.device_count() - 1`, and only those that `CUDA_VISIBLE_DEVICES` shows count.",
        ("`cuda:1` (or a rank used as a device) on a machine with fewer GPUs.", "`CUDA_VISIBLE_DEVICES=3` renames that GPU to `cuda:0`.", "A checkpoint that was saved on another "
         "GPU, loaded without `map_location`."),
        "Use a number below `torch.cuda.device_count()`; `torch.load(path, map_location='cpu')`.",
    ),
    "all CUDA-capable devices are busy": (
        "no GPU is to be had",
        "The driver gave none to this process.",
        ("Another process has a GPU in exclusive mode.", "An earlier crash left the GPU or its driver in a bad state."),
        "See `nvidia-smi` for who holds it; end that process.",
    ),
    "unspecified launch failure": (
        "a kernel stopped, and the driver does not say why",
        "The kernel ran behind the program: the line that failed is the first that waited for it, and need not have anything to do with it.",
        ("A kernel of an extension or of one's own that reads where it must not.", "Hardware or driver: an unstable or overheated GPU."),
        "Run once with `CUDA_LAUNCH_BLOCKING=1`, which ends at the right line, and once on the CPU.",
    ),
    "the launch timed out and was terminated": (
        "a kernel ran longer than the system allows",
        "A GPU that also drives a screen must answer within a few seconds; the driver ends what takes longer.",
        ("One very large kernel on a desktop's only GPU.", "A kernel of an extension or of one's own that never ends."),
        "Smaller batches, or a GPU without a screen; on Windows the limit is TdrDelay.",
    ),
    "initialization error": (
        "CUDA could not be started in this process",
        "The process was most often forked from one that had used CUDA already: what the driver keeps does not survive a fork.",
        ("Something on the GPU (a model moved, `torch.cuda.device_count()` of some releases) ran before workers were forked.", "The driver was changed while the machine ran."),
        "Touch CUDA only in the workers, or start them by `multiprocessing.set_start_method('spawn')`.",
    ),
    "invalid configuration argument": (
        "a kernel was to be started with a size that the GPU does not take",
        "A grid or block of 0 or of too many parts was asked for.",
        ("An empty tensor, or one axis of very many entries (a batch times heads above 65,535), met an operator that does not provide for it.", "A kernel of an extension or of one's own that reckons its grid wrongly."),
        "Look at the shapes at that line with `CUDA_LAUNCH_BLOCKING=1`; divide the large axis into parts.",
    ),
    "operation not permitted when stream is capturing": (
        "a CUDA graph is being recorded, and this call cannot be part of one",
        "While a stream is captured, nothing may wait for the GPU or take memory from the system.",
        ("`.item()`, `.cpu()`, `print` of a tensor, boolean masks or `nonzero` within the captured part.", "A first call that sets a library up: warm up on a side stream before.",
         "Another thread (a loader that pins memory) uses CUDA at the same time."),
        "Take what waits out of the captured part; `capture_error_mode='thread_local'` where another thread is at fault.",
    ),
}  # fmt: skip


@reads(
    r"CUDA (?:runtime |driver )?error: (?:\(\d+\) ?:? ?)?(?P<status>out of memory|no kernel image is available|invalid device ordinal|all CUDA-capable devices are busy"
    r"|unspecified launch failure|the launch timed out and was terminated|initialization error|invalid configuration argument|operation not permitted when stream is capturing)",
    example="RuntimeError: CUDA error: no kernel image is available for execution on the device",
)
def cuda_status(found: Found) -> Reading:
    status = next(known for known in STATUSES if known.lower() == found["status"].lower())
    title, meaning, causes, fix = STATUSES[status]
    return Reading(title, meaning, causes, None, (fix,))


@reads(
    r"MPS backend out of memory(?: \(MPS allocated: (?P<own>[\d.]+ \w+), other allocations: (?P<other>[\d.]+ \w+), max allowed: (?P<most>[\d.]+ \w+)\))?"
    r"(?:\. Tried to allocate (?P<want>[\d.]+ \w+))?",
    example="RuntimeError: MPS backend out of memory (MPS allocated: 17.69 GB, other allocations: 400.77 MB, max allowed: 18.13 GB). Tried to allocate 64.00 MB "
    "on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause system failure).",
)
def mps_memory(found: Found) -> Reading:
    want = found["want"] if found.has("want") else ""
    held = f" torch holds {found['own']} there, {found['other']} are other allocations, and {found['most']} is the limit." if found.has("own") else ""
    return Reading(
        f"Apple's GPU has no {want} left for torch" if want else "Apple's GPU has no memory left for torch",
        f"An allocation{' of ' + want if want else ''} would pass the limit.{held} The GPU shares its memory with everything else on the machine.",
        (
            "Batch, sequence or image are too large: activations kept for backward grow with them.",
            "Something keeps graphs alive: `total_loss += loss` (use `loss.item()`), outputs collected in a list without `.detach()`.",
            "Evaluation without `torch.no_grad()`.",
        ),
        None,
        ("Smaller batches with gradient accumulation, `no_grad` in evaluation; detach what is kept. PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 takes the limit away, not the need.",),
    )


@reads(
    r"Placeholder storage has not been allocated on MPS device",
    example="RuntimeError: Placeholder storage has not been allocated on MPS device!",
    rule="device-mismatch",
)
def mps_placeholder(found: Found) -> Reading:
    return Reading(
        "one operand is on Apple's GPU and another on the CPU",
        "An operation on the `mps` device was given a tensor whose memory is not there.",
        ("The batch (or the targets) was not moved: `x.to('mps')` returns a new tensor.", "The model, or a layer kept in a plain list, was not moved.",
         "A tensor made in `forward` without `device=`: a hidden state, a mask, positions."),
        None,
        (ON_ONE_DEVICE,),
    )  # fmt: skip


@reads(
    r"Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64",
    example="TypeError: Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Please use float32 instead.",
    rule="dtype-mismatch",
)
def mps_float64(found: Found) -> Reading:
    return Reading(
        "Apple's GPU has no float64",
        "A float64 tensor was to be made on, or moved to, the `mps` device.",
        ("NumPy's arrays and pandas' columns are float64, and `torch.from_numpy` keeps that.", "`.double()`, `dtype=torch.float64` or `torch.set_default_dtype`."),
        None,
        ("Convert before moving: `x.float().to('mps')`.",),
        running("import numpy as np", "print(torch.from_numpy(np.zeros(3)).float().dtype)", prints="torch.float32"),
    )


@reads(
    r"The operator '(?P<operator>[\w:.]+)' is not currently (?:implemented|supported) (?:for|on) the (?P<device>\w+) (?:device|backend)",
    example="NotImplementedError: The operator 'aten::_ctc_loss' is not currently implemented for the MPS device.",
)
def operator_missing(found: Found) -> Reading:
    operator, device = found["operator"], found["device"]
    return Reading(
        f"`{operator}` has not been written for {device}",
        f"torch has no {device} code for this operator. Shapes and values of its operands have no part in it.",
        (f"The operator is one of those that {device} lacks, in this release of torch.",),
        None,
        ("Update torch, which adds operators with each release, or compute this step on the CPU and move the result back."
         + (" `PYTORCH_ENABLE_MPS_FALLBACK=1`, set before torch is imported, does so by itself, slowly." if device.upper() == "MPS" else ""),),
    )  # fmt: skip


@reads(
    r"DefaultCPUAllocator: (?:not enough memory|can't allocate memory): you tried to allocate (?P<bytes>\d+) bytes",
    example="RuntimeError: [enforce fail at alloc_cpu.cpp:119] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000000 bytes. "
    "Error code 12 (Cannot allocate memory)",
)
def main_memory(found: Found) -> Reading:
    size = found.int("bytes")
    units = next((f"{size / 1024**power:.4g} {name}" for power, name in ((4, "TiB"), (3, "GiB"), (2, "MiB")) if size >= 1024**power), f"{size} bytes")
    return Reading(
        f"main memory has no {units} left",
        f"One tensor of {size} bytes was asked for: {size // 4} numbers of float32. It is the computer's memory, not the GPU's."
        + (" No machine has that much: the shape is not what was meant." if size >= 1024**5 else ""),
        (
            "A shape that is not meant: `[n, 1]` against `[n]` makes an n x n table, `cdist` or a kernel matrix of all pairs does, too.",
            "A whole data set, or a whole image, as one batch.",
            "Graphs that are kept: `total += loss`, outputs collected without `.detach()`, evaluation without `torch.no_grad()`.",
        ),
        raising("torch.empty(10**15)", raises="DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000000 bytes",
                says="A tensor that no machine has room for raises:"),
        ("Look at the shapes on that line first; then smaller batches, or go over the data in parts.",),
    )  # fmt: skip


@reads(
    r"Cannot re-initialize CUDA in forked subprocess",
    example="RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method",
)
def forked_cuda(found: Found) -> Reading:
    return Reading(
        "a forked process cannot use the GPU that its parent has used",
        "CUDA does not survive `fork`: the main process has used the GPU, and a child made by `fork` asks for it.",
        (
            "A dataset's `__getitem__` or a `collate_fn` makes or moves tensors on the GPU, in a DataLoader's worker.",
            "The dataset holds tensors that are on the GPU already.",
            "`multiprocessing` with its default start method on Linux.",
        ),
        None,
        (
            "Keep datasets on the CPU and move the batch in the training loop (`pin_memory=True`, `.to(device, non_blocking=True)`).",
            "Else `multiprocessing_context='spawn'`, or `torch.multiprocessing.set_start_method('spawn')` before anything else.",
        ),
    )


@reads(
    r"operator torchvision::\w+ does not exist",
    r"Couldn't load custom C\+\+ ops",
    r"PyTorch and torchvision were compiled with different CUDA (?:major )?versions",
    example="RuntimeError: operator torchvision::nms does not exist",
)
def torchvision_of_another_torch(found: Found) -> Reading:
    return Reading(
        "torchvision was built for another torch",
        "The compiled part of torchvision is made for one release and one build (CPU, CUDA 12.x) of torch, and the one installed here is another. Your code has no part in it.",
        ("torch was upgraded or reinstalled alone (often as a dependency of another package), and torchvision stayed.", "One is the CPU build and the other a CUDA build, or one is from conda and the other from pip."),
        None,
        ("Install both in one command, from the same index, in releases that belong together: pytorch.org's previous-versions page lists the pairs. `pip list | grep torch` shows what is there.",),
    )


@reads(
    r"The NVIDIA driver on your system is too old \(found version (?P<version>\d+)\)",
    r"NVIDIA driver on your system is too old",
    example="RuntimeError: The NVIDIA driver on your system is too old (found version 10020).",
)
def driver_too_old(found: Found) -> Reading:
    number = found.int("version") if found.has("version") else 0
    knows = f" It knows CUDA up to {number // 1000}.{number % 1000 // 10}." if number else ""
    return Reading(
        "the driver is older than the CUDA that this torch was built with",
        f"torch brings its own CUDA libraries and needs a driver that knows their version.{knows} `torch.version.cuda` says what torch was built with, `nvidia-smi` what the driver knows.",
        ("A newer torch was installed than the driver serves.",),
        None,
        ("Upgrade the driver, or install a build of torch for an older CUDA.",),
    )


@reads(
    r"with CUDA capability sm_(?P<has>\d+) is not compatible with the current PyTorch installation",
    example="UserWarning: NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.",
)
def unsupported_gpu(found: Found) -> Reading:
    return Reading(
        f"this build of torch has no code for a GPU of capability sm_{found['has']}",
        "A build of torch holds kernels for a list of GPU generations, which the message goes on to name (`torch.cuda.get_arch_list()`), and this GPU is not among them. What follows is usually "
        "\"no kernel image is available for execution on the device\".",
        ("The GPU is newer than the build: a release of torch for a newer CUDA has it.", "The GPU is older than what this release still supports: an earlier release has it."),
        None,
        ("Install the build that lists it. No setting of the program mends it.",),
    )

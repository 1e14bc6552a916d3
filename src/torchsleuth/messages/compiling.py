"""Messages of `torch.compile`: compilers that are missing, code that it cannot follow, and what a CUDA graph overwrote."""

from __future__ import annotations

from torchsleuth.messages import NO_RULE, Found, Reading, reads

WITHOUT = "TORCHDYNAMO_DISABLE=1 runs the program without torch.compile: what fails then has nothing to do with it."


@reads(
    r"Failed to find C compiler",
    r"InvalidCxxCompiler",
    r"No working C\+\+ compiler found",
    r"Compiler: (?P<name>cl|g\+\+|gcc) is not found",
    example="InductorError: InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')",
)
def compiler_missing(found: Found) -> Reading:
    return Reading(
        "torch.compile needs a compiler, and finds none",
        "What torch.compile makes of a model is source code: C++ for the CPU, and for the GPU small C programs that start Triton's kernels. It is compiled on this machine.",
        ("A slim container or a cluster's node without gcc.", "On Windows the Visual C++ tools are not installed, or their environment is not set up (`vcvars64.bat`).", "CC or CXX name a compiler that is not there."),
        None,
        ("Install one (`apt-get install build-essential`, `conda install gxx`), or set CC and CXX to it. `torch.compile(model, backend='aot_eager')` needs none and is no faster.", WITHOUT),
        rule=NO_RULE,
    )


@reads(r"Cannot find a working triton installation", r"No module named 'triton'", example="RuntimeError: Cannot find a working triton installation.")
def triton_missing(found: Found) -> Reading:
    return Reading(
        "torch.compile makes GPU kernels with Triton, which is not there",
        "Triton comes with torch's wheels for CUDA on Linux. Without one that fits, nothing can be compiled for the GPU.",
        ("Windows: the package is called `triton-windows`.", "Triton was upgraded by itself, or removed: each torch wants one version of it.", "The GPU is older than compute capability 7.0, which Triton does not support."),
        None,
        ("Install torch anew, together with the triton it asks for (`pip install --force-reinstall torch`).", WITHOUT),
        rule=NO_RULE,
    )


@reads(
    r"out of resource: (?P<what>shared memory|registers|threads|tensor memory), Required: (?P<need>\d+), Hardware limit: (?P<limit>\d+)",
    example="OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376. Reducing block sizes or `num_stages` may help.",
)
def kernel_too_large(found: Found) -> Reading:
    what, need, limit = found["what"], found.int("need"), found.int("limit")
    return Reading(
        f"a Triton kernel needs {need:,} {'bytes of ' if 'memory' in what else ''}{what}, and this GPU has {limit:,}",
        f"Each block of a kernel keeps its tiles in {what}. This is not the GPU's main memory, and a smaller batch does not help: the need follows from the kernel's block sizes, its "
        "`num_stages` and the width of the data type.",
        ("The kernel was tuned for a larger GPU (an A100 or H100) and runs on a consumer's.", "float32 where it was written for 16 bits, or a head size that is larger than usual."),
        None,
        ("Smaller BLOCK sizes or fewer `num_stages`; 16-bit types; for a library's kernel its setting for this GPU, or the implementation in plain torch.",),
        rule=NO_RULE,
    )


@reads(
    r"(?:Windows|Python (?P<version>\d\.\d+)\+?) not yet supported for torch\.compile",
    r"torch\.compile is not supported on Python (?P<other>\d\.\d+)",
    r"Dynamo is not supported on Python (?P<third>\d\.\d+)",
    example="RuntimeError: Python 3.12+ not yet supported for torch.compile",
)
def not_supported_here(found: Found) -> Reading:
    version = next((found[name] for name in ("version", "other", "third") if found.has(name)), "")
    return Reading(
        f"this torch cannot compile under Python {version}" if version else "this torch cannot compile on Windows",
        "torch.compile reads Python's bytecode, which changes with every release of Python; each torch knows those up to its own time. The model runs all the same, only not compiled.",
        ("The python is newer than the torch.",) if version else ("The torch is older than 2.4 or so, which brought Windows.",),
        None,
        ("Upgrade torch, or leave `torch.compile` out.", WITHOUT),
        rule=NO_RULE,
    )


@reads(
    r"accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run",
    example="RuntimeError: Error: accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run.",
)
def overwritten_by_graph(found: Found) -> Reading:
    return Reading(
        "a result of a compiled function was used after the function ran again",
        "With `mode='reduce-overhead'` (or 'max-autotune') a compiled function writes its results into the same memory in every run. A result of the last run is gone once the next one begins.",
        ("Outputs are collected in a list over several calls.", "The model is called twice before `backward()` (two views, two critics, gradient accumulation of one loss).", "A state or cache is handed to the next call."),
        None,
        ("`.clone()` what is kept, outside of the compiled function; or call `torch.compiler.cudagraph_mark_step_begin()` before each step. `mode='default'` uses no CUDA graphs.",),
        rule=NO_RULE,
    )


@reads(
    r"Could not (?:guard on|extract specialized integer from) data-dependent (?:expression|symbol)(?: (?P<expression>[^\n(]*\([^)\n]*\)))?",
    r"Data-dependent branching",
    r"generic_jump TensorVariable",
    example="UserError: Could not guard on data-dependent expression Eq(u0, 1) (unhinted: Eq(u0, 1)).",
)
def depends_on_values(found: Found) -> Reading:
    return Reading(
        "what is compiled takes a path that depends on a tensor's values",
        "torch.compile and torch.export follow shapes, not values. An `if` on a tensor, or a size that comes out of one (`.item()`, `nonzero`, a boolean mask), is only known when the program "
        "runs: `u0` and the like in the message stand for such a number. torch.compile leaves the compiled code there; with `fullgraph=True`, and in torch.export, it may not.",
        ("`if x.sum() > 0:`, `assert (mask == 1).all()`, or `while` over a tensor.", "`int(lengths.max())`, `x[mask]` or `.tolist()` as a size or an index."),
        None,
        (
            "Both ways at once: `torch.where(condition, a, b)`; real branches by `torch.cond`. Say what is known of a size: `torch._check(n >= 2)`.",
            "Without `fullgraph=True` torch.compile goes on in plain Python at that place. " + WITHOUT,
        ),
        rule=NO_RULE,
    )

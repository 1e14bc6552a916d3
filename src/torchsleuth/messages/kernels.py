"""Messages of operators that have no kernel for what is asked: attention, convolutions, determinism."""

from __future__ import annotations

from torchsleuth.messages import NO_RULE, Found, Reading, reads


@reads(r"No available kernel\. +Aborting execution", example="RuntimeError: No available kernel. Aborting execution.")
def no_attention_kernel(found: Found) -> Reading:
    return Reading(
        "`scaled_dot_product_attention` may use none of its implementations",
        "It chooses among several (flash, memory-efficient, cuDNN, plain); those that are allowed here cannot do this call. Warnings above the error say for each one why not.",
        (
            "`with sdpa_kernel(SDPBackend.FLASH_ATTENTION)` (or `torch.backends.cuda.enable_math_sdp(False)`) leaves only some of them.",
            "Flash wants 16-bit types, a GPU of the Ampere generation or later, and no `attn_mask`.",
            "The three do not have the same dtype, or their last axis is not contiguous.",
        ),
        None,
        ("Allow `SDPBackend.MATH` beside it; or meet what the fast one wants: `.to(torch.bfloat16)`, `is_causal=True` in place of a mask.",),
        rule=NO_RULE,
    )


@reads(r"FlashAttention only supports (?P<least>\w+) GPUs or newer", example="RuntimeError: FlashAttention only supports Ampere GPUs or newer.")
def gpu_too_old_for_flash(found: Found) -> Reading:
    return Reading(
        f"this GPU is older than {found['least']}, which the package flash-attn needs",
        "flash-attn has no code for earlier generations (V100, T4, GTX and RTX 20 for Ampere). The model itself does not need it.",
        ("`attn_implementation='flash_attention_2'`, or a repository that imports flash_attn by itself, on such a GPU.",),
        None,
        ("`attn_implementation='sdpa'` (or 'eager'); in code of one's own `torch.nn.functional.scaled_dot_product_attention`.",),
        rule=NO_RULE,
    )


@reads(
    r"(?P<operator>\w+) does not have a deterministic implementation, but you set 'torch\.use_deterministic_algorithms\(True",
    r"this operation is not deterministic because it uses CuBLAS",
    example="RuntimeError: cumsum_cuda_kernel does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True)'.",
)
def not_deterministic(found: Found) -> Reading:
    cublas = not found.has("operator")
    return Reading(
        "cuBLAS must be told to be deterministic" if cublas else f"`{found['operator']}` has no deterministic form",
        "`torch.use_deterministic_algorithms(True)` refuses whatever could give other bits in another run. "
        + ("cuBLAS can, while it chooses its workspaces freely." if cublas else "This kernel adds in an order that differs from run to run."),
        ("The program, or a trainer's option `deterministic=True`, asked for it.",),
        None,
        ("Set CUBLAS_WORKSPACE_CONFIG=:4096:8 in the environment before CUDA is first used.",)
        if cublas
        else ("`torch.use_deterministic_algorithms(True, warn_only=True)`; or another operator for this step, or this step on the CPU.",),
        rule=NO_RULE,
    )


@reads(r"(?:GET was unable to find an engine to execute this computation|FIND was unable to find an engine to execute this computation)",
       example="RuntimeError: GET was unable to find an engine to execute this computation")  # fmt: skip
def no_convolution_engine(found: Found) -> Reading:
    return Reading(
        "cuDNN found no way to do this convolution",
        "cuDNN tries its implementations; each one needs memory for its work, and a type and layout it knows. None could be used.",
        (
            "The GPU's memory is nearly full: it is often an out-of-memory error in other words.",
            "The installed cuDNN is not the one that this torch was built with (LD_LIBRARY_PATH, another package that brings its own).",
            "A type that this GPU's convolutions do not know (bfloat16 on an older one, float16 in 3-D or with groups).",
        ),
        None,
        ("A smaller batch tells the first cause from the others; then float32; then `torch.backends.cudnn.enabled = False` for one try.",),
        rule=NO_RULE,
    )

"""Which code objects are recorded, and which of torch's functions end the exact log."""

from __future__ import annotations

import types

from torchsleuth.origin import Origin, origin_of_file
from torchsleuth.record.tracebacks import TRAMPOLINE_NAME

# A compiler looks at the stack of torch-function modes and would compile our log into its graph.
COMPILER_NAMES = frozenset({"compile", "script", "trace", "trace_module", "export", "symbolic_trace", "make_fx"})


def is_program_code(code: types.CodeType) -> bool:
    return origin_of_file(code.co_filename).is_program and code.co_name != TRAMPOLINE_NAME


def is_compiler(function: object) -> bool:
    if getattr(function, "__name__", None) not in COMPILER_NAMES:
        return False
    return str(getattr(function, "__module__", "")).split(".", 1)[0] == "torch"


def is_compiler_code(code: types.CodeType) -> bool:
    """As `is_compiler`, by code object. `re.compile` and the mark `torch.jit.export` (run when transformers is imported) are none."""
    if code.co_name not in COMPILER_NAMES or origin_of_file(code.co_filename) is not Origin.TORCH:
        return False
    return not code.co_filename.endswith("_jit_internal.py")

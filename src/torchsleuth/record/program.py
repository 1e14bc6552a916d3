"""Which code objects are recorded, and which of torch's functions end the exact log."""

from __future__ import annotations

import types

from torchsleuth.origin import Origin, origin_of_file
from torchsleuth.record.tracebacks import TRAMPOLINE_NAME

# A compiler looks at the stack of torch-function modes and would compile our log into its graph.
COMPILER_NAMES = frozenset({"compile", "script", "trace", "trace_module", "export", "symbolic_trace", "make_fx"})


def is_program_code(code: types.CodeType) -> bool:
    return origin_of_file(code.co_filename).is_program and code.co_name != TRAMPOLINE_NAME


def is_library_code(code: types.CodeType) -> bool:
    return origin_of_file(code.co_filename) is Origin.LIBRARY


# Where those functions live. Others of the same names (`re.compile`, a class body called `trace`, the mark
# `torch.jit.export`) run whenever a library such as transformers is imported, and compile nothing.
_COMPILER_FILES = ("torch/__init__.py", "jit/_script.py", "jit/_trace.py", "export/__init__.py", "_dynamo/eval_frame.py",
                   "fx/_symbolic_trace.py", "fx/experimental/proxy_tensor.py")  # fmt: skip


def is_compiler_code(code: types.CodeType) -> bool:
    """Whether this is one of torch's functions that compile or trace what they are given."""
    if code.co_name not in COMPILER_NAMES or origin_of_file(code.co_filename) is not Origin.TORCH:
        return False
    return code.co_filename.replace("\\", "/").endswith(_COMPILER_FILES)

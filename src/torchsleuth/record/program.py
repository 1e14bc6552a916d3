"""Which code objects are recorded, and which of torch's functions end the exact log."""

from __future__ import annotations

import types

from torchsleuth import source
from torchsleuth.env import COMPILED_WRAPPERS
from torchsleuth.origin import Origin, origin_of_file
from torchsleuth.record.tracebacks import TRAMPOLINE_NAME

# A compiler looks at the stack of torch-function modes and would compile our log into its graph. `torch.jit.script` reads
# the source alone and `torch.compile` only wraps: libraries do both to functions of theirs while they are imported.
COMPILER_NAMES = frozenset({"trace", "trace_module", "export", "symbolic_trace", "make_fx"})


def is_program_code(code: types.CodeType) -> bool:
    origin, filename = origin_of_file(code.co_filename), code.co_filename
    if origin is Origin.USER and (code.co_name == "<module>" or not source.is_remembered(filename)) and filename.endswith(".py"):
        source.remember_file(filename)  # as it is now: a module that is loaded again has another text
    return origin.is_program and code.co_name != TRAMPOLINE_NAME


def is_library_code(code: types.CodeType) -> bool:
    return origin_of_file(code.co_filename) is Origin.LIBRARY


# Where those functions live. Others of the same names (`re.compile`, a class body called `trace`, the mark
# `torch.jit.export`) run whenever a library such as transformers is imported, and compile nothing.
_COMPILER_FILES = ("jit/_trace.py", "export/__init__.py", "_dynamo/eval_frame.py", "fx/_symbolic_trace.py", "fx/experimental/proxy_tensor.py")
# What `torch.compile` has wrapped compiles when it is called. The wrapper of `torch.compiler.disable`, which compiles nothing,
# may have the same name, and is another class's.
_COMPILED_CALLS = tuple(f"_TorchDynamoContext.__call__.<locals>.{name}" for name in COMPILED_WRAPPERS)


def is_compiler_code(code: types.CodeType) -> bool:
    """Whether this is one of torch's functions that compile or trace what they are given, or call what has been compiled."""
    if (code.co_name not in COMPILER_NAMES and code.co_qualname not in _COMPILED_CALLS) or origin_of_file(code.co_filename) is not Origin.TORCH:
        return False
    return code.co_filename.replace("\\", "/").endswith(_COMPILER_FILES)

"""Facts about the Python and torch at hand, each a named value with its reason. No other module asks for versions."""

from __future__ import annotations

import platform
import sys
import types

CPYTHON = platform.python_implementation() == "CPython"

# PEP 669. `sys.monitoring` lets a tool ask for line events on chosen code objects only, so
# code that is not the program's costs nothing after its first call.
HAS_MONITORING = CPYTHON and sys.version_info >= (3, 12)

# Up to 3.12 `frame.f_locals` of a function is a snapshot that the frame keeps: reading it on a frame
# that goes on running would keep the tensors in it alive. From 3.13 on (PEP 667) it is a live proxy.
LOCALS_ARE_A_SNAPSHOT = sys.version_info < (3, 13)

# `return` inside `finally` and friends aside, bytecode positions (PEP 657) can be switched off with
# -X no_debug_ranges or PYTHONNODEBUGRANGES; then only line numbers are known.
HAS_POSITIONS = next(iter((lambda: 0).__code__.co_positions()), (None,) * 4)[2] is not None

# `sys.last_exc` beside `sys.last_value` and its like.
HAS_LAST_EXC = sys.version_info >= (3, 12)

# Up to 3.13 a program's `__main__` has an empty `__annotations__` from the start; later (PEP 649) a module makes them when asked,
# unless there is something of that name already.
MAIN_HAS_ANNOTATIONS = sys.version_info < (3, 14)

# Up to 3.11 the recursion limit counts calls of C functions (`exec`, `map`), too.
RECURSION_COUNTS_C_CALLS = sys.version_info < (3, 12)

# What `torch.compile` wraps a function into: `compile_wrapper` since torch 2.8 or so, `_fn` before.
COMPILED_WRAPPERS = ("compile_wrapper", "_fn")


def is_context_decorator(code: types.CodeType) -> bool:
    """torch's wrapper around a function under `@torch.no_grad()` and its like. Up to torch 2.13 it is called
    `decorate_context`, in 2.15 after the context that it enters; the file stays the same."""
    return code.co_filename.replace("\\", "/").endswith("torch/utils/_contextlib.py") and "func" in code.co_freevars


def saved_tensors_can_be_unpacked_one_by_one() -> bool:
    """torch 2.13's `SavedTensor` has `unpack()`; 2.11's has not, and a node's list of them is unpacked as a whole."""
    import torch

    return hasattr(torch._C._autograd.SavedTensor, "unpack")


def saved_tensors_show_their_data() -> bool:
    """torch 2.11's `SavedTensor` has `data`, the live tensor, overwritten or not; 2.6's has not, nor does it tell of hooks."""
    import torch

    return hasattr(torch._C._autograd.SavedTensor, "data")


def function_apply_is_native() -> bool:
    """Up to torch 2.13 `Function.apply` is a Python method that calls `super().apply`; in 2.15 it is the C++ one itself."""
    import torch

    return not isinstance(torch.autograd.Function.__dict__["apply"], classmethod)

"""What the bytecode of a line or function can do, so that the recorder may leave alone what cannot matter.

A line that only moves references about (an argument of a call on a line of its own, `if mask is None:`, `return x`)
makes no autograd node and writes into no tensor. Reading an attribute may do both: it may be a property.
"""

from __future__ import annotations

import opcode
import types

_INERT_NAMES = (
    "CACHE", "NOP", "RESUME", "RESERVED", "EXTENDED_ARG", "PUSH_NULL", "POP_TOP", "COPY", "SWAP", "KW_NAMES",
    "LOAD_CONST", "LOAD_SMALL_INT", "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW",
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW", "LOAD_DEREF", "LOAD_CLOSURE", "LOAD_GLOBAL", "LOAD_NAME",
    "STORE_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST", "STORE_DEREF", "STORE_GLOBAL",
    "BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP", "BUILD_SLICE", "MAKE_CELL", "COPY_FREE_VARS", "MAKE_FUNCTION",
    "SET_FUNCTION_ATTRIBUTE", "IS_OP", "TO_BOOL", "UNARY_NOT", "POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_NONE",
    "POP_JUMP_IF_NOT_NONE", "NOT_TAKEN", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "RETURN_VALUE", "RETURN_CONST",
)  # fmt: skip
_INERT = bytes(opcode.opmap[name] for name in _INERT_NAMES if opcode.opmap.get(name, 256) < 256)
_STORES = frozenset(opcode.opmap[name] for name in ("STORE_SUBSCR", "STORE_SLICE") if name in opcode.opmap)


def inert_lines(code: types.CodeType) -> set[int]:
    """Lines on which nothing can happen to a tensor."""
    instructions = code.co_code
    inert: set[int] = set()
    active: set[int] = set()
    for start, end, line in code.co_lines():
        if line is not None:
            # Every other byte is an operation, the rest their arguments.
            (active if instructions[start:end:2].translate(None, _INERT) else inert).add(line)
    return inert - active


def may_write(code: types.CodeType) -> bool:
    """Whether this function could write into a tensor by its own hand: `x[i] = …`, `x.data = …`, `x += …`, `x.add_(…)`."""
    instructions = code.co_code
    if not _STORES.isdisjoint(instructions[::2]):
        return True
    binary = opcode.opmap["BINARY_OP"]
    # Arguments from 13 on are the in-place forms: `+=` and the like.
    if any(instructions[at] == binary and instructions[at + 1] >= 13 for at in range(0, len(instructions), 2)):
        return True
    return any(name == "data" or name.endswith("_") and not name.endswith("__") for name in code.co_names)

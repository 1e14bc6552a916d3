"""A library's own check of sizes that raised in Python: the user's call, the tensors it was given, and where the numbers that
the library names came from.

Only where the check is about sizes, and one of the numbers it names is a size of a tensor at hand: what else a library
refuses is its own affair, and its message says it best.
"""

from __future__ import annotations

import ast
import re
import typing

import torch

from torchsleuth.capture.failure import Entry, Failure, is_module_call
from torchsleuth.capture.makers import module_node
from torchsleuth.capture.operands import Gathering
from torchsleuth.capture.origins import Origins
from torchsleuth.evidence_forward import FailedOperation, SizeOrigin
from torchsleuth.origin import Origin
from torchsleuth.probe.names import locals_of

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_KINDS = (ValueError, RuntimeError, AssertionError, IndexError)
_SIZE_WORDS = re.compile(
    r"\b(sizes?|shapes?|dim(ension)?s?|channels?|lengths?|width|height|features?|columns|tokens|positions|resolution|batch|ndim|rank|elements|heads|divisible|multiple)\b|_dim\b|"
    r"torch\.Size|\d+ ?[*x×] ?\d+", re.IGNORECASE
)  # fmt: skip
_MOST_NUMBERS = 12


def investigate(crash: Crash) -> FailedOperation | None:
    failure = Failure.at_the_users_call(crash) if isinstance(crash.error, _KINDS) else None
    if failure is None or failure.inner.origin is not Origin.LIBRARY or not failure.inner.raises_itself:
        return None
    place = failure.place()
    said = _numbers_said(failure.inner, crash.message)
    if place is None or not said or not isinstance(failure.program.node, ast.Call):
        return None
    origins = Origins(failure)
    gathering = Gathering(failure, origins)
    operands, call_operands = gathering.operands, gathering.user_call()
    if failure.inner.code.co_name == "__init__" and not operands and not call_operands:
        return _of_construction(crash, failure, origins, said)
    if not any(size in said for operand in (*operands, *call_operands) for size in operand.shape):
        return None
    module = _refusing(failure)
    return FailedOperation(
        type(module).__name__ if module is not None else failure.inner.code.co_name,
        place,
        operands,
        call_operands=call_operands,
        module=gathering.paths.modules.get(id(module), ""),
        module_type=type(module).__name__ if module is not None else "",
        type=type(crash.error).__name__,
        message=crash.message,
        raised_in_python=True,
        refused_by=_library(failure),
        said=said,
        said_made=_set_by_the_program(failure, origins, said),
    )


def _of_construction(crash: Crash, failure: Failure, origins: Origins, said: tuple[int, ...]) -> FailedOperation | None:
    """A model that could not be made of numbers that the program has set."""
    module, place, node = locals_of(failure.inner.frame).get("self"), failure.place(), failure.program.node
    found = [(number, origins.definitions.set_within(failure.program.code, node, number)) for number in said] if node is not None else []
    if not isinstance(module, torch.nn.Module) or place is None or all(made is None for _, made in found):
        return None
    return FailedOperation(
        type(module).__name__,
        place,
        (),
        module_type=type(module).__name__,
        type=type(crash.error).__name__,
        message=crash.message,
        raised_in_python=True,
        refused_by=_library(failure),
        said=said,
        said_made=tuple(SizeOrigin(-1, number, made) for number, made in found if made is not None),
    )


def _library(failure: Failure) -> str:
    return (failure.inner.frame.f_globals.get("__name__") or "the library").partition(".")[0]


def _numbers_said(entry: Entry, message: str) -> tuple[int, ...]:
    """The numbers of the message, or else of the comparison that a bare `assert` has made."""
    if _SIZE_WORDS.search(message):
        found = [int(number) for number in re.findall(r"(?<![\w.])\d{1,9}(?![\w.]*\w)", re.sub(r"(?<=\d)[x×](?=\d)", " ", message))]
        if found:
            return tuple(dict.fromkeys(found))[:_MOST_NUMBERS]
    test = entry.node.test if isinstance(entry.node, ast.Assert) else None
    if not isinstance(test, ast.Compare) or len(test.comparators) != 1:
        return ()
    sides = [entry.evaluator.value(side) for side in (test.left, *test.comparators)]
    numbers = [list(side) if isinstance(side, (tuple, list)) else [side] for side in sides]
    flat = [number for side in numbers for number in side]
    return tuple(dict.fromkeys(flat))[:_MOST_NUMBERS] if all(type(number) is int for number in flat) else ()


def _refusing(failure: Failure) -> torch.nn.Module | None:
    """The innermost module whose forward was running."""
    modules = (locals_of(entry.frame).get("self") for entry in reversed(failure.torch_entries) if is_module_call(entry))
    return next((module for module in modules if isinstance(module, torch.nn.Module)), None)


def _set_by_the_program(failure: Failure, origins: Origins, said: tuple[int, ...]) -> tuple[SizeOrigin, ...]:
    """Of the numbers that no tensor brought: where the program gave them to the model that it called."""
    called = next((locals_of(e.frame).get("self") for e in failure.torch_entries if is_module_call(e)), None)
    node = module_node(failure, origins.definitions, called) if isinstance(called, torch.nn.Module) else None
    if node is None:
        return ()
    found = []
    for number in said:
        made = origins.definitions.set_within(*node, number) if number > 1 else None
        if made is not None:
            found.append(SizeOrigin(-1, number, made))
    return tuple(found)

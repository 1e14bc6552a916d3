"""A checkpoint whose function is being run again in backward: which it is, what it kept to run it with, and where the program called it."""

from __future__ import annotations

import ast
import inspect
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.alignment import called_name
from torchsleuth.evidence import Place
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of
from torchsleuth.probe.graph import LEAF_SEQUENCE, Saved, hooks_of, saved_tensors, sequence_of, states_of
from torchsleuth.probe.names import locals_of
from torchsleuth.record.ring import Event

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash


def running_again(crash: Crash) -> typing.Any:
    """torch's own record of the checkpoint in the traceback, or None."""
    for frame, _ in reversed(crash.entries):
        if frame.f_code.co_name == "unpack_hook" and frame.f_code.co_filename.endswith("checkpoint.py") and origin_of(frame.f_code) is Origin.TORCH:
            return locals_of(frame).get("frame")
    return None


def function_of_checkpoint(checkpoint: typing.Any) -> typing.Any:
    """The function that it was given: what it runs again is a closure over it."""
    again = getattr(checkpoint, "recompute_fn", None)
    names = again.__code__.co_freevars if isinstance(again, types.FunctionType) else ()
    return again.__closure__[names.index("fn")].cell_contents if "fn" in names else None


def kept_inputs(checkpoint: typing.Any) -> list[Saved]:
    """From torch 2.13 on they lie in a list; before, a node that belongs to no graph has saved them."""
    raws = getattr(checkpoint, "saved_args", None)
    if raws is not None:
        return list(states_of("inputs", [raw for raw in raws if isinstance(raw, torch._C._autograd.SavedTensor)]))
    node = _input_node(checkpoint)
    return list(saved_tensors(node)) if node is not None else []


def place_of_checkpoint(crash: Crash, checkpoint: typing.Any) -> Place | None:
    event = line_of_checkpoint(crash, checkpoint)
    statement = source.statement_at(event.code.co_filename, event.where) if event is not None else None
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)] if statement is not None else []
    named = [call for call in calls if "checkpoint" in called_name(call)] or calls
    return source.place_of_node(event.code, named[0], Known.OBSERVED) if len(named) == 1 else None


def line_of_checkpoint(crash: Crash, checkpoint: typing.Any) -> Event | None:
    """Of the lines under way when the function was first run, the innermost that is not its own."""
    number, codes = _began(crash, checkpoint), _codes(function_of_checkpoint(checkpoint))
    if number is None or crash.recording is None:
        return None
    lines = list(crash.timeline.lines_under_way(number))
    inside = next((at for at, event in enumerate(lines) if event.code in codes), -1)
    while inside + 1 < len(lines) and lines[inside + 1].code in codes:
        inside += 1
    return lines[inside + 1] if inside + 1 < len(lines) else None


def _began(crash: Crash, checkpoint: typing.Any) -> int | None:
    """A node that was made just before its function was first run, or in the course of it."""
    node = _input_node(checkpoint)
    if node is not None:
        return sequence_of(node)
    own = [sequence_of(node) for node in crash.nodes if any(_is_hook_of(checkpoint, hook) for hook in hooks_of(node))]
    return min(own) if own and min(own) < LEAF_SEQUENCE else None


def _codes(function: typing.Any) -> set[types.CodeType]:
    functions = [type(module).forward for module in function.modules()] if isinstance(function, torch.nn.Module) else [function]
    found = (getattr(inspect.unwrap(getattr(item, "__func__", item)), "__code__", None) for item in functions)
    return {code for code in found if code is not None}


def _input_node(checkpoint: typing.Any) -> typing.Any:
    return getattr(getattr(checkpoint, "input_saver", None), "grad_fn", None)


def _is_hook_of(checkpoint: typing.Any, hook: typing.Any) -> bool:
    names = hook.__code__.co_freevars if isinstance(hook, types.FunctionType) else ()
    cells = [cell.cell_contents for cell in hook.__closure__ or ()] if names else []
    return any(item is checkpoint for item in cells) or any(_is_hook_of(checkpoint, item) for item in cells if isinstance(item, types.FunctionType))

"""What backward was called on: its shape, and the expression that made it."""

from __future__ import annotations

import ast
import dataclasses
import math
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.syntax import node_at, operand_expressions, returns_of
from torchsleuth.evidence import BackwardRoot, Place, TensorFact
from torchsleuth.probe.graph import operation_of
from torchsleuth.probe.tensors import storage_of, tensor_fact

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_REDUCTION_NONE = 0  # as torch's own `Reduction` numbers them


def investigate(crash: Crash) -> BackwardRoot | None:
    call = crash.place_of_failure()
    if "Expected f(*args)" in crash.message:
        return _of_function(crash, call)
    root = offending_root(crash)
    if call is None or root is None:
        return None
    made, made_by = made_at(crash, root)
    return BackwardRoot(root_fact(crash, root), call, made, made_by, _gradient(crash), unreduced=_unreduced(crash, root))


def _unreduced(crash: Crash, root: torch.Tensor) -> Place | None:
    """The loss with `reduction="none"` whose elements those of the root are: reached through nodes with just as many."""
    pending = [root.grad_fn]
    seen = set()
    while pending:
        node = pending.pop()
        if node is None or id(node) in seen or _elements(node) != root.numel():
            continue
        seen.add(id(node))
        if getattr(node, "_saved_reduction", None) == _REDUCTION_NONE:
            return crash.timeline.place_of_node(node)
        pending += [following for following, _ in node.next_functions]
    return None


def _elements(node: typing.Any) -> int:
    try:
        return math.prod(int(size) for size in node._input_metadata[0].shape)
    except (AttributeError, IndexError, RuntimeError):
        return -1


def _of_function(crash: Crash, call: Place | None) -> BackwardRoot | None:
    """What the function given to `torch.func.grad` returned: its `return`, and the shape that torch's frame still has."""
    output = crash.local("grad_and_value_impl", "output")
    function = crash.local("grad_and_value_impl", "func")
    if call is None or not isinstance(output, torch.Tensor):
        return None
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    returns = [item.value for item in returns_of(code) if item.value is not None] if isinstance(code, types.CodeType) else []
    made = source.place_of_node(code, returns[0]) if len(returns) == 1 else None
    mapped = any(frame.f_code.co_name in ("_flat_vmap", "vmap_impl") for frame, _ in crash.entries)
    return BackwardRoot(tensor_fact(output), call, made, "", mapped=mapped)


def offending_root(crash: Crash) -> torch.Tensor | None:
    """Of several roots, the one the message is about: "element 1 of tensors …", or the one that is no scalar."""
    roots = crash.roots
    if not roots:
        return None
    words = crash.message.split()
    if words[:1] == ["element"] and words[1].isdigit() and int(words[1]) < len(roots):
        return roots[int(words[1])]
    return next((root for root in roots if root.numel() != 1), roots[0])


def root_fact(crash: Crash, root: torch.Tensor) -> TensorFact:
    """By its name, or by the expression that backward was called on."""
    fact = crash.names.fact(root)
    entry = crash.user_entry()
    if fact.name or entry is None or len(crash.roots) != 1:
        return fact
    operands = operand_expressions(node_at(entry[0].f_code, entry[1]))
    text = ast.unparse(operands[0]) if operands else ""
    return dataclasses.replace(fact, name=text, kind="variable") if 0 < len(text) <= 40 else fact


def made_at(crash: Crash, tensor: torch.Tensor) -> tuple[Place | None, str]:
    timeline = crash.timeline
    if tensor.grad_fn is not None:
        place = timeline.place_of_node(tensor.grad_fn)
        if place is not None:
            return place, operation_of(tensor.grad_fn.name())
    producer = timeline.maker(id(tensor), storage_of(tensor))
    if producer is None:
        return None, ""
    return timeline.place_of_operation(producer), producer.name


def _gradient(crash: Crash) -> TensorFact | None:
    given = crash.local("backward", "grad_tensors", "__init__.py")
    if given is None:
        given = crash.local("grad", "grad_outputs", "__init__.py")
    if isinstance(given, torch.Tensor):
        given = (given,)
    for item in given or ():
        if isinstance(item, torch.Tensor):
            return crash.names.fact(item)
    return None



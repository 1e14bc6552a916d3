"""A custom autograd Function (or hook) in whose backward things went wrong: its class, its return, its forward call."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.hooks import hooked_tensor
from torchsleuth.capture.syntax import function_of, returns_of
from torchsleuth.evidence import CustomBackward, Place, ReturnedGradient, TensorFact
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of
from torchsleuth.probe.graph import sequence_of
from torchsleuth.probe.names import locals_of
from torchsleuth.probe.tensors import dtype_name, tensor_fact
from torchsleuth.record.ring import Kind

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_NAMED = re.compile(r"[Ff]unction (\w+)Backward returned")
_HOOK = re.compile(r"hook '([^']*)' has (?:changed|returned)|but hook returned '")
_MODULE_HOOK = "hook"  # torch's own function around what `register_full_backward_hook` was given
_KINDS = re.compile(r"expected Variable or None")


def investigate(crash: Crash) -> CustomBackward | None:
    inside = _raised_inside(crash)
    if inside is not None:
        return inside
    hook = _HOOK.search(crash.message)
    if hook is not None:
        return _returned_by_hook(crash, hook[1] or "")
    named = _NAMED.search(crash.message)
    if named is None and not _KINDS.search(crash.message):
        return None
    nodes = [node for node in crash.nodes if hasattr(type(node), "_forward_cls")]
    if named is not None:
        nodes = [node for node in nodes if node.name() == f"{named[1]}Backward"]
    if not nodes:
        return None
    node = max(nodes, key=sequence_of)
    return _described(crash, type(node)._forward_cls, node, None)


def _raised_inside(crash: Crash) -> CustomBackward | None:
    """The traceback goes through the engine into Python code: a custom backward, or a hook."""
    entered = False
    for position, (frame, lasti) in enumerate(crash.entries):
        code = frame.f_code
        if code.co_name == "_engine_run_backward" and origin_of(code) is Origin.TORCH:
            entered = True
            continue
        if not entered:
            continue
        if code.co_name == "apply" and code.co_filename.endswith("function.py") and origin_of(code) is Origin.TORCH:
            node = locals_of(frame).get("self")
            cls = getattr(type(node), "_forward_cls", None)
            if cls is not None and position + 1 < len(crash.entries):
                return _described(crash, cls, node, _innermost(crash, position + 1))
            if cls is not None:
                return _not_begun(crash, cls, node, locals_of(frame).get("args", ()))
        if origin_of(code).is_program:
            return dataclasses.replace(_hook(crash, frame, _innermost(crash, position)), **_hooked_module(crash, crash.entries[position - 1][0]))
    return None


def _not_begun(crash: Crash, cls: type, node: typing.Any, given: typing.Any) -> CustomBackward | None:
    """It was called with more or fewer gradients than it takes: one comes for each of forward's outputs."""
    code = getattr(inspect.unwrap(cls.backward), "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARARGS or not isinstance(given, tuple) or not isinstance(crash.error, TypeError):
        return None
    takes, optional = code.co_varnames[1 : code.co_argcount], len(inspect.unwrap(cls.backward).__defaults__ or ())
    if len(takes) - optional <= len(given) <= len(takes):
        return None
    found = _described(crash, cls, node, None)
    return dataclasses.replace(found, raised_inside=True, raised_at=found.definition, given=len(given), takes=takes)


def _hooked_module(crash: Crash, caller: types.FrameType) -> dict[str, typing.Any]:
    """What torch's own frame around a module's backward hook knows: the module, and the gradients it hands over."""
    if origin_of(caller.f_code) is not Origin.TORCH or not caller.f_code.co_filename.endswith("hooks.py"):
        return {}
    scope = locals_of(caller)
    module, gradients = getattr(scope.get("self"), "module", None), scope.get("grad_inputs")
    if not isinstance(module, torch.nn.Module):
        return {}
    paths = (f"{name}.{path}" if path else name for name, root in crash.names.modules for path, inner in root.named_modules() if inner is module)
    known = f"`{next(paths, '')}` ({type(module).__name__})".removeprefix("`` ")
    missing = tuple(position for position, gradient in enumerate(gradients) if gradient is None) if isinstance(gradients, tuple) else ()
    return {"module": known, "missing_inputs": missing}


def _innermost(crash: Crash, first: int) -> Place | None:
    """The program's innermost expression at or below an entry of the traceback."""
    for frame, lasti in reversed(crash.entries[first:]):
        if origin_of(frame.f_code).is_program:
            return source.place_of_instruction(frame.f_code, lasti)
    return None


def _hook(crash: Crash, frame: types.FrameType, raised_at: Place | None) -> CustomBackward:
    forward = None
    for named in crash.names.all():
        hooks = getattr(named.tensor, "_backward_hooks", None) or {}
        if any(getattr(hook, "__code__", None) is frame.f_code for hook in hooks.values()) and named.tensor.grad_fn is not None:
            forward = crash.timeline.place_of_node(named.tensor.grad_fn)
    return CustomBackward(
        frame.f_code.co_name, forward, None, (), None, (), (), raised_inside=True, raised_at=raised_at, is_hook=True
    )


def _returned_by_hook(crash: Crash, name: str) -> CustomBackward | None:
    """What a hook returned was refused: it is the function of the program that returned last."""
    if crash.recording is None:
        return None
    unwound = {frame.f_code for frame, _ in crash.entries}  # `sys.settrace` calls the end of these a return, too
    returns = (event for event in crash.recording.ring.newest_first() if event.kind is Kind.RETURN)
    event = next((event for event in returns if event.code not in unwound), None)
    if event is None or name not in ("", _MODULE_HOOK, event.code.co_name):
        return None
    place = source.place_of_instruction(event.code, event.where)
    if place is None:
        return None
    found = CustomBackward(event.code.co_name, None, None, (), place, (), (), raised_inside=False, is_hook=True)
    return dataclasses.replace(found, **hooked_tensor(crash, event.code))


def _described(crash: Crash, cls: type, node: typing.Any, raised_at: Place | None) -> CustomBackward:
    code = getattr(inspect.unwrap(cls.backward), "__code__", None)
    parameters = _forward_parameters(cls)
    returned, elements = _return(crash, code, parameters) if code is not None else (None, ())
    definition = source.place(code, _definition_range(code)) if code is not None else None
    return CustomBackward(
        cls.__name__,
        crash.timeline.place_of_node(node),
        definition,
        elements,
        returned,
        _inputs(node, parameters),
        parameters,
        raised_inside=raised_at is not None,
        raised_at=raised_at,
        needs_grad=tuple(bool(flag) for flag in getattr(node, "needs_input_grad", ())),
        tensors_saved=_tensors_saved(node),
        set_on_context=tuple(getattr(node, "__dict__", ())),
    )


def _tensors_saved(node: typing.Any) -> int | None:
    try:
        return len(node._raw_saved_tensors)
    except (AttributeError, RuntimeError):
        return None


def _inputs(node: typing.Any, parameters: tuple[str, ...]) -> tuple[TensorFact | None, ...]:
    """Forward's inputs as far as the graph knows them: the shape of each one that a gradient flows to."""
    found: list[TensorFact | None] = []
    for position, (following, output) in enumerate(node.next_functions):
        name = parameters[position] if position < len(parameters) else ""
        try:
            variable = getattr(following, "variable", None)
            if variable is not None:
                found.append(tensor_fact(variable, name))
            else:
                metadata = following._input_metadata[output]
                shape = tuple(int(size) for size in metadata.shape)
                found.append(TensorFact(name, shape, dtype_name(metadata.dtype), str(metadata.device), True, False))
        except Exception:
            found.append(None)
    return tuple(found)


def _forward_parameters(cls: type) -> tuple[str, ...]:
    try:
        names = list(inspect.signature(cls.forward).parameters)
    except (TypeError, ValueError):
        return ()
    own_setup = cls.setup_context is not torch.autograd.Function.setup_context
    return tuple(names if own_setup else names[1:])


def _definition_range(code: types.CodeType) -> tuple[int, int, int, int] | None:
    tree = source.tree_of(code.co_filename)
    if tree is None:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
            first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
            if first == code.co_firstlineno or node.lineno == code.co_firstlineno:
                line = source.lines_of(code.co_filename)[node.lineno - 1]
                return node.lineno, len(line) - len(line.lstrip()), node.lineno, len(line.rstrip())
    return None


def _return(
    crash: Crash, code: types.CodeType, parameters: tuple[str, ...]
) -> tuple[Place | None, tuple[ReturnedGradient, ...]]:
    """The return that ran last, and its elements matched with forward's arguments."""
    statement = _return_statement(crash, code)
    if statement is None:
        return None, ()
    place = source.place_of_node(code, statement, Known.OBSERVED)
    value = statement.value
    items = value.elts if isinstance(value, ast.Tuple) else [value] if value is not None else []
    elements = []
    for position, item in enumerate(items):
        if isinstance(item, ast.Starred):
            break
        name = parameters[position] if position < len(parameters) else ""
        elements.append(ReturnedGradient(position, name, ast.unparse(item), source.place_of_node(code, item, Known.OBSERVED), _computed(code, item)))
    return place, tuple(elements)


def _computed(code: types.CodeType, item: ast.expr) -> Place | None:
    """The one assignment of this function to a returned variable; `grad_x = grad_w = None` at its top is none."""
    function = function_of(code)
    if not isinstance(item, ast.Name) or function is None:
        return None
    values = []
    for node in ast.walk(function):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, (ast.AugAssign, ast.AnnAssign)) else []
        if any(isinstance(inner, ast.Name) and inner.id == item.id for target in targets for inner in ast.walk(target)):
            if not (isinstance(node.value, ast.Constant) and node.value.value is None):
                values.append(node)
    return source.place_of_node(code, values[0], Known.INFERRED) if len(values) == 1 else None


def _return_statement(crash: Crash, code: types.CodeType) -> ast.Return | None:
    returns = returns_of(code)
    if len(returns) <= 1:
        return returns[0] if returns else None
    if crash.recording is not None:
        for event in crash.recording.ring.newest_first():
            if event.code is code and event.kind is Kind.RETURN:
                where = source.instruction_range(code, event.where)
                if where is not None:
                    return next((r for r in returns if r.lineno <= where[0] <= (r.end_lineno or r.lineno)), None)
    return None

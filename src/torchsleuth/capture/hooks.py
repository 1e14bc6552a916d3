"""A tensor's hook: which tensor it hangs on, where it was hung there, and the shape of what it returns, computed again on shapes alone."""

from __future__ import annotations

import ast
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.bindings import function_node
from torchsleuth.capture.alignment import called_name
from torchsleuth.capture.evaluate import Evaluator
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash


def hooked_tensor(crash: Crash, code: types.CodeType) -> dict[str, typing.Any]:
    """Facts for `CustomBackward`; about the tensor only if it hangs on one in sight."""
    found = []
    for named in crash.names.all():
        hooks = getattr(named.tensor, "_backward_hooks", None) or {}
        found += [(named.tensor, hook) for hook in hooks.values() if getattr(hook, "__code__", None) is code]
    registered = _registered(crash, code)
    if len(found) != 1:
        return {"registered": registered}
    tensor, hook = found[0]
    made = crash.timeline.place_of_node(tensor.grad_fn) if tensor.grad_fn is not None and registered is None else None
    return {"forward_call": made, "hooked": crash.names.fact(tensor), "registered": registered, "returned_shape": _returned_shape(hook, code, tensor)}


def _registered(crash: Crash, code: types.CodeType) -> typing.Any:
    """The one `x.register_hook(name)` in the files of the program that ran, or the one around a lambda."""
    files = {code.co_filename, *(frame.f_code.co_filename for frame, _ in crash.entries if origin_of(frame.f_code) is Origin.USER)}
    files |= {event.code.co_filename for event in crash.timeline.events() if origin_of(event.code) is Origin.USER}
    own = function_node(code)
    found = []
    for filename in sorted(files):
        tree = source.tree_of(filename)
        for call in ast.walk(tree) if tree is not None else ():
            if isinstance(call, ast.Call) and called_name(call) == "register_hook" and len(call.args) == 1:
                hook = call.args[0]
                if hook is own or isinstance(hook, (ast.Name, ast.Attribute)) and ast.unparse(hook).rsplit(".", 1)[-1] == code.co_name:
                    found.append((filename, call))
    if len(found) != 1:
        return None
    running = next((event.code for event in crash.timeline.events() if event.code.co_filename == found[0][0]), None)
    inner = [running, *_codes(running)] if running is not None else []
    around = next((item for item in inner if function_node(item) is not None and any(part is found[0][1] for part in ast.walk(function_node(item)))), running)
    return source.place_of_node(around, found[0][1], Known.INFERRED) if around is not None else None


def _codes(code: types.CodeType) -> list[types.CodeType]:
    inner = [item for item in code.co_consts if isinstance(item, types.CodeType)]
    return [part for item in inner for part in (*_codes(item), item)]


def _returned_shape(hook: typing.Any, code: types.CodeType, tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The hook's assignments to variables and its one `return`, on a tensor without values; None where anything else stands there
    but what is put away elsewhere: `grads[name] = grad`, `print(grad.norm())`."""
    scope = function_node(code)
    if not isinstance(hook, types.FunctionType) or code.co_argcount < 1:
        return None
    gradient = torch.empty(tuple(tensor.shape), dtype=tensor.dtype, device="meta")
    defaults = hook.__defaults__ or ()
    scope_values = dict(zip(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount], defaults))
    enclosed = {name: cell.cell_contents for name, cell in zip(code.co_freevars, hook.__closure__ or ()) if _is_filled(cell)}
    evaluator = Evaluator.of({**enclosed, code.co_varnames[0]: gradient, **scope_values}, hook.__globals__)
    if isinstance(scope, ast.Lambda):
        return _shape(evaluator.value(scope.body))
    for statement in scope.body if isinstance(scope, ast.FunctionDef) else ():
        if isinstance(statement, ast.Return):
            return _shape(evaluator.value(statement.value))
        target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        if isinstance(target, ast.Name):
            evaluator.bind(target.id, evaluator.value(statement.value))
        elif not isinstance(statement, ast.Expr) and not isinstance(target, (ast.Subscript, ast.Attribute)):
            return None
    return None


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _shape(value: object) -> tuple[int, ...] | None:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None

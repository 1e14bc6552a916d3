"""Whether gradients are recorded where a function runs, as far as its file shows: by its role, its body, its callers.

A function that copies or averages weights usually runs under `torch.no_grad()` of a caller, often in another file.
"""

from __future__ import annotations

import ast
import typing

from torchsleuth.linter.events import Frame
from torchsleuth.linter.training import OPTIMIZER

if typing.TYPE_CHECKING:
    from torchsleuth.linter.lintrule import View

# `reset_parameters` is not among them: where only a framework calls it (FSDP, from the meta device), it does so under no_grad
RECORDED = frozenset({"__init__", "forward", "training_step", "compute_loss"})
DEEPEST = 5
SERVING = frozenset({"vllm", "sglang", "lmdeploy", "tensorrt_llm", "aphrodite"})  # they run models, and never record


def is_shown_to_record(frame: Frame, view: View) -> bool:
    """True where the file shows that recording is on while this frame runs; False where it is off or unknown."""
    if frame.no_grad or only_serves(view):
        return False
    if frame.is_script or frame.inlined:
        return True
    return _records(frame.node, view, ())


def only_serves(view: View) -> bool:
    """The file is part of an engine that runs finished models, as what it imports says."""
    return any(v.kind == "path" and v.path.partition(".")[0] in SERVING for v in view.interpreter.globals.values())


def _records(function: ast.AST, view: View, seen: tuple[int, ...]) -> bool:
    if isinstance(function, ast.Module):
        return True
    if id(function) in seen or len(seen) > DEEPEST or view.interpreter.no_grad_decorator(function) is not None:
        return False
    # A model's forward also runs where nothing is recorded: that says something of its own lines, not of what it calls.
    if (function.name in RECORDED and not (seen and function.name == "forward")) or _trains(function):
        return True
    calls = _callers(view).get(function.name, [])
    outside = [(caller, silent) for caller, silent in calls if caller is not function]
    return bool(outside) and all(not silent and _records(caller, view, (*seen, id(function))) for caller, silent in outside)


def _trains(function: ast.AST) -> bool:
    return any(isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "backward" for n in ast.walk(function))


def _callers(view: View) -> dict[str, list[tuple[ast.AST, bool]]]:
    """For each name that is called or handed on: the functions that do it, and whether recording is off there."""
    if view.callers is not None:
        return view.callers
    found: dict[str, list[tuple[ast.AST, bool]]] = {}
    pending: list[tuple[ast.AST, ast.AST, bool]] = [(view.interpreter.tree, view.interpreter.tree, False)]
    while pending:
        node, function, silent = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function, silent = node, False
        elif isinstance(node, ast.With):
            silent = silent or any("no_grad" in ast.unparse(i.context_expr) or "inference_mode" in ast.unparse(i.context_expr) for i in node.items)
        elif isinstance(node, ast.Lambda):
            silent = True  # it runs later, nobody knows where
        elif isinstance(node, ast.Call):
            applied = node.args if isinstance(node.func, ast.Attribute) and node.func.attr == "apply" else []
            for used in (node.func, *applied):  # `model.apply(init)` calls `init`, too
                name = used.id if isinstance(used, ast.Name) else used.attr if isinstance(used, ast.Attribute) else ""
                if name == "step" and isinstance(used, ast.Attribute) and OPTIMIZER.search(ast.unparse(used.value)):
                    continue  # the optimizer's own
                if name:
                    found.setdefault(name, []).append((function, silent))
        pending += [(child, function, silent) for child in ast.iter_child_nodes(node)]
    view.callers = found
    return found

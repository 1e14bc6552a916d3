"""What a checkpoint ran again in backward, and what in that function can differ from one run to the next."""

from __future__ import annotations

import ast
import types
import typing

import torch

from torchsleuth import source
from torchsleuth.capture.alignment import called_name
from torchsleuth.capture.checkpoints import function_of_checkpoint, place_of_checkpoint, running_again
from torchsleuth.capture.syntax import function_of
from torchsleuth.evidence import Place, Recomputation
from torchsleuth.model import Known
from torchsleuth.origin import Origin, origin_of

if typing.TYPE_CHECKING:
    from torchsleuth.capture.crash import Crash

_CHANGING = {"append", "extend", "insert", "pop", "popleft", "appendleft", "update", "add", "clear", "setdefault"}
_RANDOM = {"random", "np.random", "numpy.random"}  # whose state a checkpoint does not keep, unlike torch's


def investigate(crash: Crash) -> Recomputation | None:
    checkpoint = running_again(crash)
    call, function = crash.place_of_failure(), function_of_checkpoint(checkpoint)
    if call is None or function is None:
        return None
    target = function.forward if isinstance(function, torch.nn.Module) else function
    code = getattr(getattr(target, "__func__", target), "__code__", None)
    if not isinstance(code, types.CodeType) or origin_of(code) is not Origin.USER:
        return None
    definition = function_of(code)
    own = list(ast.walk(definition)) if definition is not None else []
    return Recomputation(
        call,
        code.co_qualname,
        source.place_of_node(code, definition.args.args[-1], Known.OBSERVED) if definition is not None and definition.args.args else None,
        place_of_checkpoint(crash, checkpoint) or _checkpoint(crash, code),
        tuple(_changes(code, own)),
        tuple(place for node in own if _draws(node) and (place := source.place_of_node(code, node, Known.INFERRED)) is not None),
    )


def _checkpoint(crash: Crash, code: types.CodeType) -> Place | None:
    """The one `checkpoint(...)` in the program's files that are in sight."""
    codes = {frame.f_code.co_filename: frame.f_code for frame, _ in crash.entries if origin_of(frame.f_code) is Origin.USER}
    codes.setdefault(code.co_filename, code)
    found = []
    for name, owner in codes.items():
        tree = source.tree_of(name)
        calls = ast.walk(tree) if tree is not None else ()
        found += [(owner, node) for node in calls if isinstance(node, ast.Call) and called_name(node) == "checkpoint"]
    return source.place_of_node(*found[0], Known.INFERRED) if len(found) == 1 else None


def _changes(code: types.CodeType, own: list[ast.AST]) -> typing.Iterator[tuple[str, Place]]:
    """Changes of what the function also reads: a cache by `self.cache.append(...)`, which is no reading of it."""
    changers = {id(node.func.value) for node in own if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING}
    read = {ast.unparse(node) for node in own if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in changers}
    for node in own:
        changed: ast.expr | None = None
        if isinstance(node, ast.AugAssign):
            changed = node.target
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            changed = node.targets[0]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING:
            changed = node.func.value
        while isinstance(changed, ast.Subscript):
            changed = changed.value
        name = ast.unparse(changed) if isinstance(changed, ast.Attribute) else ""
        if name.startswith("self.") and name in read:
            place = source.place_of_node(code, node, Known.INFERRED)
            if place is not None:
                yield name, place


def _draws(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) in _RANDOM

"""Which expression on a line made an autograd node: by the kind of node and the order of evaluation.

The ring knows the line; a line may hold several operations. Each operation in the syntax, in order of evaluation, is compared with the node's name; where that
leaves more than one, or none, the answer is the whole statement and says so.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

_BINARY = {
    ast.Add: {"add"}, ast.Sub: {"sub", "rsub"}, ast.Mult: {"mul"}, ast.Div: {"div", "reciprocal", "mul"}, ast.Pow: {"pow"},
    ast.Mod: {"remainder"}, ast.FloorDiv: {"notimplemented"},  # torch has no derivative of floor_divide: its node is of this kind
    ast.MatMult: {"mm", "bmm", "mv", "dot", "unsafeview", "view", "expand", "reshapealias", "squeeze", "unsqueeze", "addmm"},
}  # fmt: skip
_INDEXING = {"select", "slice", "index", "unsqueeze", "squeeze", "alias", "permute", "asstrided", "view"}
_STORING = {"copyslices", "copy", "indexput", "indexputimpl", "maskedfill", "fill", "slicescatter"}
_CALLS = {
    "linear": {"addmm", "mm", "t", "view", "unsafeview", "add", "expand", "linear", "mv", "addmv"},
    "matmul": _BINARY[ast.MatMult], "floordivide": _BINARY[ast.FloorDiv],
    "crossentropy": {"nllloss", "nllloss2d", "logsoftmax", "mul", "sum", "mean"},
    "norm": {"linalgvectornorm", "norm"},
    "float": {"tocopy"}, "half": {"tocopy"}, "double": {"tocopy"}, "to": {"tocopy"}, "bfloat16": {"tocopy"}, "type": {"tocopy"},
    "reshape": {"view", "unsafeview", "reshapealias", "clone"}, "flatten": {"view", "unsafeview", "reshapealias", "clone"},
    "viewas": {"view"}, "expandas": {"expand"}, "mseloss": {"mseloss"}, "layernorm": {"nativelayernorm"},
    "batchnorm": {"nativebatchnorm", "cudnnbatchnorm"}, "dropout": {"mul", "div", "nativedropout", "fuseddropout"},
    "einsum": {"bmm", "mm", "permute", "view", "unsafeview", "unsqueeze", "squeeze", "sum", "mul", "reshapealias"},
    "backward": set(),
}  # fmt: skip


def expression_of_node(node_name: str, statement: ast.stmt, occurrence: int = 0) -> ast.AST | None:
    """The expression in the statement that makes nodes of this kind; `occurrence` counts equal nodes before it.

    None where the syntax does not decide.
    """
    kind = normal_kind(node_name)
    candidates = list(operations_of(statement))
    exact = [item for item in candidates if kind in kinds_of(item)]
    if len(exact) == 1:
        return exact[0]
    if exact:
        return exact[occurrence] if occurrence < len(exact) else None
    unknown = [item for item in candidates if isinstance(item, ast.Call) and _is_opaque(item)]
    return unknown[0] if len(unknown) == 1 else None


def normal_kind(node_name: str) -> str:
    base = node_name.rpartition("::")[2]  # torch::autograd::CopySlices
    return re.sub(r"Backward\d*$", "", base).replace("_", "").lower()


def operations_of(statement: ast.AST) -> Iterator[ast.AST]:
    """Operations in the order Python evaluates them, not entering nested functions or bodies."""
    if isinstance(statement, ast.AugAssign):
        yield from _inner(statement.value)
        target = statement.target
        if isinstance(target, ast.Subscript):  # read here; what writes it back is the statement
            target = ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
        if not isinstance(target, ast.Name):
            yield from _inner(target)
        yield statement
        return
    if isinstance(statement, ast.Assign):
        yield from _inner(statement.value)
        for target in statement.targets:
            if isinstance(target, ast.Subscript):
                yield from _inner(target.value)
                yield from _inner(target.slice)
                yield target
        return
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        yield from _inner(statement.iter)
        return
    if isinstance(statement, (ast.While, ast.If)):
        yield from _inner(statement.test)
        return
    if isinstance(statement, ast.With):
        for item in statement.items:
            yield from _inner(item.context_expr)
        return
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
        return
    yield from _inner(statement)


def _inner(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, (ast.Lambda, ast.FunctionDef)):
        return
    for child in ast.iter_child_nodes(node):
        yield from _inner(child)
    if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Call, ast.Compare, ast.Subscript)):
        yield node


def kinds_of(node: ast.AST) -> set[str]:
    if isinstance(node, (ast.BinOp, ast.AugAssign)):
        writes = set() if isinstance(node, ast.BinOp) else _STORING if isinstance(node.target, ast.Subscript) else {"copyslices"}
        return _BINARY.get(type(node.op), set()) | writes
    if isinstance(node, ast.UnaryOp):
        return {"neg"} if isinstance(node.op, ast.USub) else set()
    if isinstance(node, ast.Subscript):
        return _STORING if isinstance(node.ctx, ast.Store) else _INDEXING
    if isinstance(node, ast.Call):
        if called_name(node) == "apply":  # a custom Function: its node is named after the class
            owner = node.func.value if isinstance(node.func, ast.Attribute) else None
            return {ast.unparse(owner).rsplit(".", 1)[-1].replace("_", "").lower()} if owner is not None else set()
        name = called_name(node).replace("_", "").lower()
        return _CALLS.get(name, {name})
    return set()


def called_name(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _is_opaque(call: ast.Call) -> bool:
    """A call of something that is no single torch operation as far as the syntax tells: a module, a helper."""
    return called_name(call) not in _MAKES_NO_NODE


_MAKES_NO_NODE = {
    "range", "len", "print", "zip", "enumerate", "int", "float", "list", "tuple", "dict", "str", "isinstance", "getattr",
    "randn", "rand", "zeros", "ones", "empty", "full", "arange", "linspace", "eye", "randint", "randperm", "tensor",
    "zeros_like", "ones_like", "randn_like", "rand_like", "empty_like", "full_like", "manual_seed", "size", "dim", "item",
    "parameters", "append", "zero_grad", "step", "no_grad",
}  # fmt: skip

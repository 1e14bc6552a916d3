"""How values flow: what two branches leave behind, what comes from what, and what shows an argument to be a tensor."""

from __future__ import annotations

import ast
import copy
import typing

from torchsleuth.linter.events import Frame, FunctionNode
from torchsleuth.linter.values import TENSOR_ONLY, UNKNOWN, Storage, Value

if typing.TYPE_CHECKING:
    from torchsleuth.linter.expressions import Expressions

TENSOR_ANNOTATIONS = frozenset({"Tensor", "FloatTensor", "LongTensor", "BoolTensor", "IntTensor"})
# Libraries with tensors and kernels of their own: what is theirs is not torch's.
FOREIGN = frozenset(
    "cutlass tinygrad jax mindspore paddle tensorflow mxnet mlx oneflow cupy triton tvm ttnn keras jittor openvino onnx chainer numba taichi "
    "warp tilelang helion pallas flax equinox haiku brainstate megengine numpy dask xarray sympy".split()
)
TAKES_TENSOR = frozenset(
    "zeros_like ones_like empty_like rand_like randn_like full_like sum mean exp log sqrt abs sigmoid tanh relu softmax "
    "log_softmax matmul bmm mm norm max min argmax clamp where_ gelu silu cumsum std var flatten transpose unsqueeze squeeze "
    "sin cos pow square linear layer_norm dropout cross_entropy mse_loss nll_loss normalize".split()
)


def exclusive(arms: tuple[tuple[int | str, int], ...], frame: Frame) -> bool:
    """True where code in these arms and the code being read now never run in the same pass."""
    now = dict(frame.arms)
    return any(now.get(node, arm) != arm or (node, arm) in frame.dead for node, arm in arms)


def asked_of(test: ast.expr) -> tuple[str, bool]:
    """`not self.flag` -> ("self.flag", False): two `if` that ask the same exclude one another where the answers differ."""
    holds = True
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, holds = test.operand, not holds
    text = ast.unparse(test) if isinstance(test, (ast.Name, ast.Attribute)) else ""
    return text, holds


def comes_from(value: Value, origin: Value, limit: int = 400) -> bool:
    pending, seen = [value], set()
    while pending and len(seen) < limit:
        current = pending.pop()
        if current is origin:
            return True
        if id(current) in seen:
            continue
        seen.add(id(current))
        if current.op != "detach" and current.kind != "number" and current.dtype not in ("int", "bool"):
            pending.extend(current.inputs)
            pending.extend(current.items or ())
    return False


def merged(a: Value, b: Value) -> Value:
    """What is true of both."""
    if a is b:
        return a
    if a.kind != b.kind or a.kind not in ("tensor", "module", "number", "optimizer", "path", "list"):
        return UNKNOWN
    if a.kind == "path":
        return a if a.path == b.path else UNKNOWN
    if a.kind == "list":
        return a
    out = Value(a.kind, a.node, a.path if a.path == b.path else "")
    out.op, out.inputs = a.op if a.op == b.op else "either", (a, b)
    out.dtype = a.dtype if a.dtype == b.dtype else None
    out.grad = a.grad if a.grad == b.grad else None
    out.ndim = a.ndim if a.ndim == b.ndim else None
    out.leaf = a.leaf and b.leaf
    out.assumed = a.assumed or b.assumed
    out.storage = a.storage if a.storage is b.storage else Storage()
    return out


def merged_env(first: dict[str, Value], second: dict[str, Value], prefer_first: bool = False) -> dict[str, Value]:
    out = dict(first)
    for name, value in second.items():
        mine = out.get(name)
        if mine is None:
            out[name] = value
        elif mine is not value:
            out[name] = merged(mine, value)
            if prefer_first and out[name] is UNKNOWN and mine.kind in ("tensor", "module") and value.kind in ("number", "none"):
                out[name] = mine
    return out


def clone_value(value: Value) -> Value:
    if not value.is_tensor:
        return value
    fresh = copy.copy(value)
    fresh.storage = Storage()
    return fresh


def is_self_attribute(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def root_name(node: ast.AST | None) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def is_tensor_annotation(node: ast.AST | None, names: Expressions) -> bool:
    """`torch.Tensor`, `Tensor`, `"torch.Tensor"`; not a `Tensor` that is imported from some other library."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        root, _, _ = node.value.partition(".")
        return node.value.split(".")[-1] in TENSOR_ANNOTATIONS and not is_foreign(names.dotted(ast.Name(root, ast.Load())))
    if isinstance(node, (ast.Name, ast.Attribute)):
        return (node.id if isinstance(node, ast.Name) else node.attr) in TENSOR_ANNOTATIONS and not is_foreign(names.dotted(node))
    return False


def is_foreign(path: str) -> bool:
    return path.partition(".")[0] in FOREIGN


def tensor_evidence(node: FunctionNode, names: Expressions) -> dict[str, bool]:
    """Arguments that the body uses as only tensors can be used; the value says whether that settles it.

    What follows `beta = torch.tensor(beta)` says nothing about the argument: uses count up to where its name is set anew.
    """
    found: dict[str, bool] = {}
    arguments = {a.arg for a in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]}
    last_use = _first_rebinding(node, arguments)
    called = {id(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)}  # `.size` of an array is a number
    for child in ast.walk(node):
        if isinstance(child, (ast.Attribute, ast.Call)) and last_use:
            name = child.value if isinstance(child, ast.Attribute) else child.args[0] if child.args else None
            if isinstance(name, ast.Name) and (name.lineno, name.col_offset) > last_use.get(name.id, (name.lineno, name.col_offset)):
                continue
        if isinstance(child, ast.Attribute) and isinstance(child.value, ast.Name) and child.value.id in arguments:
            if child.attr in TENSOR_ONLY or (child.attr == "size" and id(child) in called):
                found[child.value.id] = True
        elif isinstance(child, ast.Call) and child.args and isinstance(child.args[0], ast.Name):
            name = child.args[0].id
            if name in arguments and isinstance(child.func, ast.Attribute):
                path = names.dotted(child.func)
                if path.startswith(("torch.nn.functional.", "torch.")) and path.count(".") <= 3 and path.rsplit(".", 1)[-1] in TAKES_TENSOR:
                    found[name] = True
    return found


def _first_rebinding(function: FunctionNode, arguments: set[str]) -> dict[str, tuple[int, int]]:
    """Where each argument's name first gets another value: the end of that statement, its own right-hand side included."""
    found: dict[str, tuple[int, int]] = {}
    for node in ast.walk(function):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets, end = node.targets, (node.end_lineno, node.end_col_offset)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            targets, end = [node.target], (node.iter.end_lineno, node.iter.end_col_offset)
        for target in targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store) and name.id in arguments:
                    found[name.id] = min(found.get(name.id, end), end)
    return found

"""What torch's operations make of abstract values: results, constructed tensors, modules and their calls."""

from __future__ import annotations

import ast

from torchsleuth.linter import values as v
from torchsleuth.linter.values import UNKNOWN, Value, tensor

LOSSES = frozenset(
    "mse_loss l1_loss cross_entropy nll_loss binary_cross_entropy binary_cross_entropy_with_logits smooth_l1_loss kl_div "
    "huber_loss ctc_loss cosine_embedding_loss margin_ranking_loss triplet_margin_loss".split()
)
SAME_SHAPE = frozenset(
    "exp log sqrt abs neg sigmoid tanh relu softmax log_softmax clone detach contiguous float double half long int bool sin "
    "cos gelu silu clamp pow square rsqrt floor ceil round sign to dropout masked_fill cumsum erf elu leaky_relu softplus "
    "type_as cuda cpu layer_norm normalize tril triu nan_to_num logical_not expm1 log1p reciprocal requires_grad_ data".split()
)
ELEMENTWISE = frozenset("add sub mul div pow maximum minimum where remainder rsub rdiv rpow eq ne lt gt le ge".split())
FLOAT_RESULT = frozenset("exp log sqrt sigmoid tanh softmax log_softmax mean std var norm div linear relu sin cos".split())


class Results:
    """Mixed into `Interpreter`, which holds the state."""

    def result(self, node, op: str, tensors: tuple[Value, ...], has_dim=False, with_number=False, unknown_inputs=False,
               sources: tuple[Value, ...] = ()) -> Value:  # fmt: skip
        out = tensor(node, op, sources or tensors)
        if unknown_inputs:
            out.extra = {"more": True}
        if op in v.INT_RESULT:
            out.dtype, out.grad = "int", False
        elif op in v.BOOL_RESULT:
            out.dtype, out.grad = "bool", False
        elif self.frame.no_grad or op == "detach":
            out.grad = False
            if op != "detach" and self.frame.no_grad and any(t.grad or t.unrecorded is not None for t in tensors):
                out.unrecorded = self.frame.no_grad_at
        else:
            grads = [t.grad for t in tensors]
            out.grad = True if True in grads else None if None in grads or unknown_inputs or not tensors else False
            kinds = {t.dtype for t in tensors}
            out.dtype = "float" if "float" in kinds or op in FLOAT_RESULT else kinds.pop() if len(kinds) == 1 else None
        if tensors:
            known = [t.ndim for t in tensors if t.ndim is not None]
            if op in ELEMENTWISE and len(known) == len(tensors) and known and not unknown_inputs:
                out.ndim = max(known)
                out.shape = next((t.shape for t in tensors if t.ndim == out.ndim), None)
            if op in SAME_SHAPE:
                out.ndim, out.shape = tensors[0].ndim, tensors[0].shape
            out.assumed = any(t.assumed for t in tensors)
            if not unknown_inputs or op in v.SAVED:
                self.keep(node, op, out, tensors, has_dim, with_number)
        return out

    def construct(self, node, name: str, args, kwargs) -> Value:
        first = args[0] if args else UNKNOWN
        inputs = (first,) if first.kind in ("tensor", "number", "list", "numpy") and name in ("tensor", "as_tensor", "from_numpy") else ()
        if name == "as_tensor" and first.is_tensor:
            return first
        out = tensor(node, name, inputs)
        wanted = self.constant(node, "requires_grad")
        out.grad = bool(wanted) if "requires_grad" not in kwargs or wanted is not None else None
        if out.grad and self.frame.no_grad is not None:
            out.leaf = True
        dtype = next((self.dotted(k.value) for k in node.keywords if k.arg == "dtype"), "")
        if "int" in dtype or "long" in dtype or name in v.INT_RESULT:
            out.dtype = "int"
        elif "bool" in dtype or name == "BoolTensor":
            out.dtype = "bool"
        elif "float" in dtype or "double" in dtype or "half" in dtype or name in ("randn", "rand", "FloatTensor"):
            out.dtype = "float"
        if name in v.LIKE and first.is_tensor:
            out.ndim, out.shape = first.ndim, first.shape
        elif name in ("rand", "randn", "zeros", "ones", "empty", "full"):
            given = node.args
            if given and isinstance(given[0], (ast.Tuple, ast.List)):
                given = given[0].elts
            elif name == "full":
                given = []
            if given and is_sizes(given, self):
                out.ndim, out.shape = len(given), tuple(size_name(g) for g in given)
        elif name in ("arange", "randperm", "linspace"):
            out.ndim = 1
        elif name == "tensor" and node.args and isinstance(node.args[0], (ast.List, ast.Constant, ast.UnaryOp)):
            shape = literal_shape(node.args[0])
            if shape is not None:
                out.ndim, out.shape = len(shape), shape
        return out

    def nn_value(self, node: ast.Call, path: str, args: list[Value] | None = None) -> Value:
        last = path.rsplit(".", 1)[-1]
        if last == "Parameter":
            out = tensor(node, "Parameter")
            flag = next((k.value for k in node.keywords if k.arg == "requires_grad"), node.args[1] if len(node.args) > 1 else None)
            out.grad = True if flag is None else flag.value if isinstance(flag, ast.Constant) else None  # `requires_grad=trainable`
            out.leaf, out.dtype = bool(out.grad), "float"
            if args and args[0].is_tensor:
                out.ndim, out.shape = args[0].ndim, args[0].shape
            return out
        out = Value("module", node, path)
        if last in ("Sequential", "ModuleList"):
            elements = node.args
            if last == "ModuleList" and node.args and isinstance(node.args[0], (ast.List, ast.Tuple)):
                elements = node.args[0].elts
            if not any(isinstance(e, ast.Starred) for e in elements):
                out.items = [self.made_by(e) for e in elements]
        return out

    def module_call(self, node, module: Value, args, kwargs) -> Value:
        last = module.path.rsplit(".", 1)[-1]
        info = self.classes.get(module.path)
        first = args[0] if args else UNKNOWN
        if info is not None:
            forward = info.methods.get("forward")
            if forward is not None and (self.frame.is_script or self.frame.inlined):
                return self.inline(forward, info, args, kwargs, Value("self"))
            return UNKNOWN
        if last == "Sequential" and module.items:
            value = first
            for child in module.items:
                if child.kind != "module":
                    return UNKNOWN
                value = self.module_call(node, child, [value], {})
            return value
        if last in v.LOSS_MODULES:
            out = self.result(node, last, tuple(a for a in args if a.is_tensor), unknown_inputs=True)
            out.extra = {"loss": True, "prediction": first}
            return out
        if last in v.TUPLE_MODULES:
            out = Value("tuple", node)
            hidden = tensor(node, last, (first,))
            hidden.grad = None if self.frame.no_grad is None else not self.frame.no_grad
            hidden.extra = {"module": module}
            out.items = [hidden, UNKNOWN]
            return out
        name = v.MODULE_FUNCTION.get(last)
        if name is None and last not in v.PARAMETRIC:
            return UNKNOWN
        base = first if first.is_tensor else None
        if name in v.INPLACE_CAPABLE and isinstance(module.node, ast.Call) and base is not None:
            if self.constant(module.node, "inplace") is True:
                return self.wrote(node, base, node.args[0] if node.args else None, "module", name, ())
        out = tensor(node, name or last, (first,) if base is not None else ())
        out.dtype = "float"
        if last in v.PARAMETRIC:
            out.grad = not self.frame.no_grad
            out.unrecorded = self.frame.no_grad_at if self.frame.no_grad else None
        else:
            out.grad = False if self.frame.no_grad else base.grad if base is not None else None
        if base is not None:
            out.ndim = base.ndim + 1 if last == "Embedding" and base.ndim is not None else base.ndim if last not in ("Embedding", "Flatten") else None
            if base.shape is not None and last not in ("Embedding", "Flatten") and not last.startswith(("Conv", "MaxPool", "AvgPool")):
                out.shape = (*base.shape[:-1], None) if last in ("Linear", "LazyLinear") else base.shape
            tensors = (base,)
            if last in v.PARAMETRIC:
                weight = tensor(node, "parameter")
                weight.grad = True
                tensors = (base, weight)
            if name:
                self.keep(node, name, out, tensors, False, False)
        out.extra = {"module": module}
        return out

    def mark_requires_grad(self, value: Value) -> None:
        value.grad = True
        if not value.inputs and value.op in v.CONSTRUCTORS:
            value.leaf = True

    def constant(self, node: ast.Call, name: str, position: int | None = None):
        for keyword in node.keywords:
            if keyword.arg == name and isinstance(keyword.value, ast.Constant):
                return keyword.value.value
        if position is not None and position < len(node.args) and isinstance(node.args[position], ast.Constant):
            return node.args[position].value
        if name == "inplace" and node.args and len(node.args) == 1 and isinstance(node.args[0], ast.Constant):
            # nn.ReLU(True)
            return node.args[0].value if node.args[0].value is True else None
        return None


def product_rank(left: Value, right: Value) -> int | None:
    """How many dimensions a matrix product has, where both operands are matrices or stacks of them."""
    ranks = (left.ndim, right.ndim)
    return max(ranks) if None not in ranks and min(ranks) > 1 else None


def is_integer_text(node: ast.expr, names: Results) -> bool:
    if isinstance(node, ast.UnaryOp):
        return is_integer_text(node.operand, names)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int)
    if isinstance(node, ast.Name):
        value = names.frame.env.get(node.id)
        return value is not None and value.kind == "number"
    if isinstance(node, ast.BinOp):
        return is_integer_text(node.left, names) and is_integer_text(node.right, names)
    return False


def is_sizes(nodes: list[ast.expr], names: Results) -> bool:
    """Every argument is one size: none of them is a tuple or a shape in disguise."""
    for node in nodes:
        if isinstance(node, ast.Starred):
            return False
        if isinstance(node, (ast.Name, ast.Attribute)) and len(nodes) == 1:
            value = names.frame.env.get(node.id) if isinstance(node, ast.Name) else None
            if value is None or value.kind != "number":
                return False
        if isinstance(node, ast.Attribute) and node.attr == "shape":
            return False
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size" and not node.args:
            return False
    return True


def size_name(node: ast.expr):
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    return node.id if isinstance(node, ast.Name) else None


def single_dim(node: ast.Call, given: int) -> bool:
    for keyword in node.keywords:
        if keyword.arg == "dim":
            return isinstance(keyword.value, (ast.Constant, ast.UnaryOp))
    return given > 1


def literal_shape(node: ast.expr) -> tuple | None:
    if isinstance(node, (ast.Constant, ast.UnaryOp)):
        return ()
    if isinstance(node, ast.List):
        inner = {literal_shape(e) for e in node.elts[:50]}
        if len(inner) == 1 and None not in inner:
            return (len(node.elts), *inner.pop())
    return None

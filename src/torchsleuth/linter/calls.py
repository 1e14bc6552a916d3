"""Calls of the interpreter: what is called, with what, and what comes of it; every call is told to the rules."""

from __future__ import annotations

import ast
import re

from torchsleuth.linter import values as v
from torchsleuth.linter.events import Call
from torchsleuth.linter.results import LOSSES, SAME_SHAPE, Results, is_sizes, product_rank, single_dim, size_name
from torchsleuth.linter.values import NONE, UNKNOWN, Value, number, tensor

MODEL_NAME = re.compile(r"^(model|net|network|classifier|encoder|decoder|critic|actor|policy|generator|discriminator|student)$")
NO_GRAD_CALLS = {"torch.no_grad": "off", "torch.inference_mode": "off", "torch.autograd.no_grad": "off",
                 "torch.enable_grad": "on", "torch.autograd.enable_grad": "on"}  # fmt: skip
HAS_DIM_FIRST = frozenset(
    "sum mean max min std var norm median prod argmax argmin softmax log_softmax cumsum cumprod amax amin any all logsumexp "
    "cummax cummin mode sort topk".split()
)
ONLY_TENSORS_HAVE = frozenset(
    "unsqueeze masked_fill masked_fill_ softmax log_softmax sigmoid requires_grad_ new_zeros new_ones index_select "
    "scatter_add_ scatter_ bmm logsumexp".split()
)
REDUCTIONS = frozenset("sum mean max min std var norm median prod argmax argmin amax amin any all logsumexp".split())


class Calls(Results):
    """Mixed into `Interpreter`, which holds the state."""

    def _call(self, node: ast.Call) -> Value:
        self.budget -= 1
        args = [self.ev(a.value if isinstance(a, ast.Starred) else a) for a in node.args]
        kwargs = {k.arg or "**": self.ev(k.value) for k in node.keywords}
        func = node.func
        receiver = None
        module = None
        if isinstance(func, ast.Attribute):
            owner = self.ev(func.value)
            name = func.attr
            if owner.kind == "path":
                path = f"{owner.path}.{name}"
                result = self._path_call(node, path, args, kwargs)
            else:
                path, receiver = "", owner
                result, module = self._method_call(node, owner, name, args, kwargs)
        else:
            callee = self.ev(func)
            path = callee.path if callee.kind == "path" else ""
            name = path.rsplit(".", 1)[-1] if path else func.id if isinstance(func, ast.Name) else ""
            if path:
                result = self._path_call(node, path, args, kwargs)
            else:
                result, module = self._value_call(node, callee, name, args, kwargs)
        if result is UNKNOWN or result.kind == "unknown":
            for value in (*args, *kwargs.values()):
                self.sink("argument", value)
        self.listener.call(Call(node, name, path, receiver, args, kwargs, result, self.frame, module))
        return result

    def _value_call(self, node, callee: Value, name: str, args, kwargs) -> tuple[Value, Value | None]:
        kind = callee.kind
        if kind == "module":
            return self.module_call(node, callee, args, kwargs), callee
        if kind == "class" and callee.path in self.classes:
            info = self.classes[callee.path]
            return (Value("module", node, callee.path) if info.is_module else UNKNOWN), None
        if kind in ("function", "method") and isinstance(callee.node, ast.FunctionDef):
            if self.frame.is_script or self.frame.inlined:
                this = Value("self") if kind == "method" else None
                return self.inline(callee.node, self.frame.cls if kind == "method" else None, args, kwargs, this), None
            return UNKNOWN, None
        if kind == "unknown":
            if MODEL_NAME.match(name):
                return self._model_output(node, args), None
            return self._builtin(node, name, args), None
        return UNKNOWN, None

    def _model_output(self, node, args) -> Value:
        """What a model of unknown class returns: most likely a tensor, and never more than assumed to be one."""
        out = tensor(node, "model", tuple(a for a in args if a.is_tensor))
        out.assumed = True
        out.grad = False if self.frame.no_grad else None
        out.unrecorded = self.frame.no_grad_at if self.frame.no_grad else None
        return out

    def _builtin(self, node, name: str, args) -> Value:
        first = args[0] if args else UNKNOWN
        if name == "range":
            return Value("range", node)
        if name == "len":
            return number(node, "len", (first,))
        if name in ("float", "int", "bool") and args:
            return number(node, "item", (first,)) if first.is_tensor else number(node)
        if name in ("sum", "abs", "min", "max", "round"):
            if first.is_tensor:
                return self.result(node, name, (first,))
            if name == "sum" and first.items and all(i.is_tensor for i in first.items):
                return self.result(node, "add", tuple(first.items))
        if name == "zip":
            out = Value("zip", node)
            out.items = list(args)
            return out
        if name == "enumerate" and args:
            out = Value("zip", node)
            out.items = [Value("range", node), first]
            return out
        if name in ("list", "tuple", "reversed", "sorted") and args:
            return first if first.kind in ("list", "tuple", "parameters") else UNKNOWN
        return UNKNOWN

    def _path_call(self, node, path: str, args, kwargs) -> Value:
        if not path.startswith("torch"):
            if path in self.classes and self.classes[path].is_module:
                return Value("module", node, path)
            return UNKNOWN
        if path in NO_GRAD_CALLS:
            value = Value("nograd", node, NO_GRAD_CALLS[path])
            asked = [*node.args[:1], *(k.value for k in node.keywords if k.arg == "mode")]
            if path == "torch.inference_mode" and asked and getattr(asked[0], "value", None) is not True:
                return UNKNOWN  # `inference_mode(mode=not training)`: sometimes
            return value
        if path in ("torch.set_grad_enabled", "torch.autograd.set_grad_enabled"):
            if node.args and isinstance(node.args[0], ast.Constant):
                return Value("nograd", node, "on" if node.args[0].value else "off")
            return UNKNOWN
        head, _, last = path.rpartition(".")
        if head == "torch.nn" and last[:1].isupper() or path == "torch.nn.parameter.Parameter":
            return self.nn_value(node, path, args)
        if head.startswith("torch.optim") and last[:1].isupper():
            kind = "scheduler" if ".lr_scheduler" in head else "optimizer"
            out = Value(kind, node, path)
            out.inputs = tuple(args)
            return out
        if last == "Variable":
            if args and args[0].is_tensor:
                return self.view_of(args[0], node, "Variable")
            return UNKNOWN
        if head == "torch" and last in v.CONSTRUCTORS:
            return self.construct(node, last, args, kwargs)
        if head == "torch.autograd" and last in ("grad", "backward"):
            for value in args[:1]:
                self.sink("backward", value)
            return Value("tuple", node)
        if head.startswith("torch.nn.init"):
            if args and args[0].is_tensor and last.endswith("_"):
                outer, self.frame.no_grad = self.frame.no_grad, True
                self.wrote(node, args[0], node.args[0], "method", last, ())
                self.frame.no_grad = outer
                return args[0]
            return UNKNOWN
        if head in ("torch", "torch.nn.functional", "torch.linalg", "torch.special", "torch.fft", "torch.Tensor"):
            return self._function_call(node, last, args, kwargs, head)
        return UNKNOWN

    def _function_call(self, node, name: str, args, kwargs, head: str) -> Value:
        tensors = tuple(a for a in args if a.is_tensor)
        if name.endswith("_") and not name.endswith("__") and tensors and args and args[0] is tensors[0]:
            return self.wrote(node, tensors[0], node.args[0], "method", name[:-1], tuple(args[1:]))
        if name in v.INPLACE_CAPABLE and self.constant(node, "inplace") is True and args and args[0].is_tensor:
            return self.wrote(node, args[0], node.args[0], "inplace-argument", name, ())
        if "out" in kwargs and kwargs["out"].is_tensor:
            expression = next(k.value for k in node.keywords if k.arg == "out")
            return self.wrote(node, kwargs["out"], expression, "method", name, tensors)
        if name in ("stack", "cat", "concat", "hstack", "vstack", "dstack") and args:
            parts = tuple(i for i in args[0].items or () if i.is_tensor) if args[0].kind in ("list", "tuple") else tensors
            out = self.result(node, name, parts, unknown_inputs=not parts or len(parts) < len(args[0].items or ()))
            out.ndim = None
            if name == "cat" and isinstance(node.args[0], (ast.ListComp, ast.GeneratorExp)) and is_flat(node.args[0].elt):
                out.ndim = 1
            elif parts and parts[0].ndim is not None:
                out.ndim = parts[0].ndim + (name == "stack")
            return out
        if name in v.NOT_OPERATIONS or name.startswith(("is_", "set_", "get_", "manual", "save", "load", "compile", "jit")):
            return UNKNOWN
        if name in ("unbind", "split", "chunk", "meshgrid", "broadcast_tensors", "unique", "topk", "sort", "mode", "kthvalue"):
            return self._several(node, name, tensors)
        if name not in v.TORCH_OPERATIONS and name not in v.TENSOR_METHODS and name not in LOSSES:
            return UNKNOWN
        unknown = sum(a.kind == "unknown" for a in (*args, *kwargs.values()))
        if not tensors and unknown == 1 and args and args[0].kind == "unknown" and name in v.SAVED:
            return self._of_unknown(node, name, args, kwargs)
        return self._operation(node, name, tensors, kwargs, bool(unknown), args)

    def _of_unknown(self, node, name: str, args, kwargs) -> Value:
        """`torch.sigmoid(outputs)`: what it is given must be a tensor, whatever made it; its result is one for certain."""
        given = tensor(node.args[0], "unknown")
        given.grad = False if self.frame.no_grad else None
        out = self._operation(node, name, (given,), kwargs, True, [given, *args[1:]])
        if out.is_tensor and self.frame.no_grad:
            out.unrecorded = self.frame.no_grad_at
        return out

    def _operation(self, node, name: str, tensors, kwargs, unknown: bool, args) -> Value:
        if not tensors:
            out = self.result(node, name, (), unknown_inputs=True)
            return out
        has_dim = "dim" in kwargs or (name in HAS_DIM_FIRST and len(args) > 1 and not args[1].is_tensor)
        if name in ("max", "min", "median", "mode", "cummax", "cummin") and has_dim:
            return self._several(node, name, tensors, has_dim=True)
        if name in v.VIEWS:
            return self._view(node, name, tensors[0], args)
        with_number = len(args) > 1 and args[1].kind == "number" and name in ("pow", "mul", "add", "sub", "div")
        out = self.result(node, name, tensors, has_dim, with_number, unknown)
        if name in SAME_SHAPE and tensors[0].ndim is not None:
            out.ndim, out.shape = tensors[0].ndim, tensors[0].shape
        elif name in REDUCTIONS:
            if not has_dim:
                out.ndim = 0 if len(args) < 2 else None
            elif tensors[0].ndim and self.constant(node, "keepdim") is not True and single_dim(node, len(args)):
                out.ndim = tensors[0].ndim - 1
        elif name in LOSSES:
            out.ndim = 0 if self.constant(node, "reduction") is None else None
            out.extra = {"prediction": args[0] if args else UNKNOWN}
        elif name == "linear":
            out.ndim = tensors[0].ndim
        elif name == "embedding" and tensors[0].ndim is not None:
            out.ndim = tensors[0].ndim + 1
        elif name == "matmul" and len(tensors) == 2:
            out.ndim = product_rank(tensors[0], tensors[1])
        elif name == "bmm":
            out.ndim = 3
        elif name == "flatten" and tensors[0].ndim and len(args) == 2:
            out.ndim = None
        return out

    def _view(self, node, name: str, base: Value, args) -> Value:
        if name in ("unbind", "split", "chunk", "tensor_split", "hsplit", "vsplit"):
            return self._several(node, name, (base,), view=True)
        out = self.view_of(base, node, name)
        if name in ("view", "expand"):  # both are told every size; `x.expand(n, *x.shape)` adds dimensions
            given = node.args[1:] if len(args) and args[0] is base and not isinstance(node.func, ast.Attribute) else node.args
            if len(given) == 1 and isinstance(given[0], (ast.Tuple, ast.List)):
                given = given[0].elts
            if given and not any(isinstance(g, ast.Starred) for g in given) and is_sizes(given, self):
                out.ndim = len(given)
                out.shape = tuple(size_name(g) for g in given)
                if name == "expand" and all(ast.unparse(g) in ("1", "-1") for g in given):
                    out.expanded = base.expanded  # dimensions of size one: nothing is repeated
        return out

    def _several(self, node, name: str, tensors, has_dim: bool = False, view: bool = False) -> Value:
        out = Value("tuple", node)
        if name in ("max", "min", "median", "mode", "cummax", "cummin", "topk", "sort", "kthvalue") and tensors:
            values = self.result(node, name, tensors, has_dim=True)
            places = self.result(node, "argmax", tensors)
            out.items = [values, places]
        elif tensors:
            part = self.view_of(tensors[0], node, name) if view or name in v.VIEWS else self.result(node, name, tensors)
            part.ndim = tensors[0].ndim if name not in ("unbind", "meshgrid", "broadcast_tensors", "unique") else None
            part.shape = self._split_shape(node, tensors[0]) if name in ("split", "chunk", "tensor_split") else None
            out.kind = "list"
            out.items = [part]
            out.extra = {"any": True}
            if name in ("split", "chunk", "unbind", "tensor_split"):
                out.items = [part] * 8
        return out

    def _split_shape(self, node: ast.Call, base: Value) -> tuple | None:
        """The sizes of a piece: those of the whole, the cut dimension unknown."""
        if base.shape is None:
            return None
        given = next((k.value for k in node.keywords if k.arg == "dim"), None)
        places = node.args[2:] if self.dotted(node.func).startswith("torch.") else node.args[1:]
        text = ast.unparse(given if given is not None else places[0]) if given is not None or places else "0"
        dim = int(text) if text.lstrip("-").isdigit() else len(base.shape)
        if not -len(base.shape) <= dim < len(base.shape):
            return None
        return tuple(None if place == dim % len(base.shape) else size for place, size in enumerate(base.shape))

    def _method_call(self, node, owner: Value, name: str, args, kwargs) -> tuple[Value, Value | None]:
        kind = owner.kind
        if kind == "tensor":
            return self._tensor_method(node, owner, name, args, kwargs), None
        if kind == "self":
            found = self.frame.attributes.get(name)
            if found is not None and found.kind == "module":
                return self.module_call(node, found, args, kwargs), found
            if self.frame.cls and name in self.frame.cls.methods and self.frame.inlined:
                method = self.frame.cls.methods[name]
                return self.inline(method, self.frame.cls, args, kwargs, owner), None
            if name in ("parameters",):
                return Value("parameters", node), None
            if MODEL_NAME.match(name) and found is None:
                return self._model_output(node, args), None
            return UNKNOWN, None
        if kind == "module":
            if name in ("to", "cuda", "cpu", "double", "float", "half", "train", "eval", "requires_grad_", "apply"):
                return owner, None
            if name == "parameters":
                return Value("parameters", node), None
            if name in ("forward", "__call__"):
                return self.module_call(node, owner, args, kwargs), owner
            return UNKNOWN, None
        if kind == "list":
            if name == "append" and args:
                if owner.items is None:
                    owner.items = []
                if len(owner.items) < 8:
                    owner.items.append(args[0])
                owner.extra = {"any": True}
                self.sink("store", args[0])
            return UNKNOWN, None
        if name == "backward":
            self.sink("backward", owner)
            return NONE, None
        if kind == "unknown" and name == "parameters":
            return Value("parameters", node), None
        if kind == "unknown" and name in ONLY_TENSORS_HAVE:
            # Not shown to be a tensor before, but only tensors have this method.
            base = tensor(node.func.value, "unknown")
            return self._tensor_method(node, base, name, args, kwargs), None
        return UNKNOWN, None

    def _tensor_method(self, node, owner: Value, name: str, args, kwargs) -> Value:
        if name == "backward":
            self.sink("backward", owner)
            return NONE
        if name in ("requires_grad_",):
            if self.constant(node, "requires_grad", 0) is not False:
                owner = self.on_this_path(owner)
                self.mark_requires_grad(owner)
            return owner
        if name == "detach_":
            owner = self.on_this_path(owner)
            owner.grad, owner.leaf, owner.inputs = False, False, ()
            return owner
        if name in ("retain_grad", "register_hook", "share_memory_", "zero_grad"):
            return owner if name.endswith("_") else UNKNOWN
        if name.endswith("_") and not name.startswith("_") and not name.endswith("__"):
            where = node.func.value
            if owner.extra and owner.extra.get("data"):
                base = owner.inputs[0]
                while isinstance(where, ast.Call) and isinstance(where.func, ast.Attribute):  # p.data.mul_(…).add_(…)
                    where = where.func.value
                self.wrote(node, base, where.value if isinstance(where, ast.Attribute) else where, "data", name[:-1], ())
                return owner
            return self.wrote(node, owner, where, "method", name[:-1], tuple(args))
        if name == "size":
            out = Value("number" if args else "size", node)
            out.op, out.inputs = "size", (owner,)
            out.extra = {"dim": node.args[0].value if args and isinstance(node.args[0], ast.Constant) else None}
            return out
        if name in ("dim", "numel", "ndimension", "element_size"):
            return number(node)
        if name in ("item", "tolist", "numpy"):
            out = number(node, name, (owner,)) if name == "item" else Value("numpy" if name == "numpy" else "list", node)
            out.op, out.inputs = name, (owner,)
            return out
        if name in v.NEW:
            return self.construct(node, name.removeprefix("new_"), args, kwargs)
        if name in v.NOT_OPERATIONS or name.startswith("is_"):
            return UNKNOWN
        tensors = (owner, *(a for a in args if a.is_tensor))
        if name in v.VIEWS:
            return self._view(node, name, owner, [owner, *args])
        if name in v.MAYBE_VIEWS:
            out = self.result(node, name, (owner,))
            out.extra = {"maybe_view": owner}
            if name in SAME_SHAPE:
                out.ndim, out.shape = owner.ndim, owner.shape
            if name == "reshape" and node.args and is_sizes(node.args, self) and not isinstance(node.args[0], (ast.Tuple, ast.List)):
                out.ndim, out.shape = len(node.args), tuple(size_name(g) for g in node.args)
            if is_flat(node):
                out.ndim = 1
            return out
        if name in v.TENSOR_METHODS or name in v.TORCH_OPERATIONS:
            unknown = any(a.kind == "unknown" for a in args)
            return self._operation(node, name, tensors, kwargs, unknown, [owner, *args])
        return UNKNOWN


def is_flat(node: ast.expr) -> bool:
    """`x.flatten()`, `x.ravel()`, `x.view(-1)`, `x.reshape(-1)`: one dimension, whatever `x` had."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.keywords:
        return False
    if node.func.attr in ("flatten", "ravel"):
        return not node.args
    return node.func.attr in ("view", "reshape") and len(node.args) == 1 and ast.unparse(node.args[0]) in ("-1", "(-1,)", "[-1]")

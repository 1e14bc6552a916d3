"""Expressions of the interpreter: from a syntax node to an abstract value, telling rules of every call."""

from __future__ import annotations

import ast
import re

from torchsleuth.linter import values as v
from torchsleuth.linter.events import Call
from torchsleuth.linter.values import BINARY_OPERATORS, NONE, UNKNOWN, Value, number, path_value, tensor

MODEL_NAME = re.compile(r"^(model|net|network|classifier|encoder|decoder|critic|actor|policy|generator|discriminator|student)$")
LOSSES = frozenset(
    "mse_loss l1_loss cross_entropy nll_loss binary_cross_entropy binary_cross_entropy_with_logits smooth_l1_loss kl_div "
    "huber_loss ctc_loss cosine_embedding_loss margin_ranking_loss triplet_margin_loss".split()
)
NO_GRAD_CALLS = {"torch.no_grad": "off", "torch.inference_mode": "off", "torch.autograd.no_grad": "off",
                 "torch.enable_grad": "on", "torch.autograd.enable_grad": "on"}  # fmt: skip
SAME_SHAPE = frozenset(
    "exp log sqrt abs neg sigmoid tanh relu softmax log_softmax clone detach contiguous float double half long int bool sin "
    "cos gelu silu clamp pow square rsqrt floor ceil round sign to dropout masked_fill cumsum erf elu leaky_relu softplus "
    "type_as cuda cpu layer_norm normalize tril triu nan_to_num logical_not expm1 log1p reciprocal requires_grad_ data".split()
)


class Expressions:
    """Mixed into `Interpreter`, which holds the state."""

    def ev(self, node: ast.expr) -> Value:
        method = DISPATCH.get(type(node))
        if method is not None:
            return method(self, node)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.ev(child)
        return UNKNOWN

    def dotted(self, node: ast.AST) -> str:
        """The imported path an expression stands for (`F.relu` -> `torch.nn.functional.relu`), or its own name."""
        if isinstance(node, ast.Name):
            value = self.frame.env.get(node.id) or self.globals.get(node.id)
            return value.path if value is not None and value.kind == "path" else node.id
        if isinstance(node, ast.Attribute):
            owner = self.dotted(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        if isinstance(node, ast.Subscript):
            return self.dotted(node.value)
        return ""

    # Atoms ------------------------------------------------------------------------------------

    def _name(self, node: ast.Name) -> Value:
        env = self.frame.env
        value = env.get(node.id)
        if value is None:
            value = self.globals.get(node.id)
            if value is None:
                return UNKNOWN
        return value

    def _constant(self, node: ast.Constant) -> Value:
        value = node.value
        if value is None:
            return NONE
        if isinstance(value, (int, float)):
            return number(node)
        return Value("str", node) if isinstance(value, str) else UNKNOWN

    def _attribute(self, node: ast.Attribute) -> Value:
        owner = self.ev(node.value)
        kind, attr = owner.kind, node.attr
        if kind == "path":
            return path_value(f"{owner.path}.{attr}")
        if kind == "tensor":
            if attr == "shape":
                out = Value("size", node)
                out.inputs = (owner,)
                return out
            if attr in ("ndim", "dtype", "device", "requires_grad", "is_leaf", "is_cuda", "grad_fn"):
                return number(node) if attr == "ndim" else UNKNOWN
            if attr in v.VIEWS:
                return self.view_of(owner, node, attr)
            if attr == "grad":
                out = tensor(node, "grad")
                out.grad, out.shape, out.ndim = False, owner.shape, owner.ndim
                return out
            if attr in ("values", "indices") and owner.items:
                return owner.items[0 if attr == "values" else -1]
            return UNKNOWN
        if kind == "self":
            known = self.frame.attributes.get(attr)
            if known is not None:
                return known
            if self.frame.cls and attr in self.frame.cls.methods:
                return Value("method", self.frame.cls.methods[attr], attr)
            return UNKNOWN
        if kind == "module" and owner.path in self.classes:
            return self.classes[owner.path].attributes.get(attr, UNKNOWN)
        if kind == "module" and attr in ("weight", "bias") and owner.path.rsplit(".", 1)[-1] in v.PARAMETRIC:
            out = tensor(node, "parameter")
            out.grad, out.leaf, out.dtype = True, True, "float"
            return out
        if kind == "tuple" and owner.items and attr in ("values", "indices"):
            return owner.items[0 if attr == "values" else -1]
        return UNKNOWN

    def _subscript(self, node: ast.Subscript) -> Value:
        base = self.ev(node.value)
        index = self.ev(node.slice)
        if base.is_tensor:
            return self.indexed(base, node, index)
        if base.kind in ("tuple", "list") and base.items and isinstance(node.slice, ast.Constant):
            place = node.slice.value
            if isinstance(place, int) and -len(base.items) <= place < len(base.items):
                return base.items[place]
        if base.kind == "size":
            out = number(node, "size", base.inputs)
            out.extra = {"dim": node.slice.value if isinstance(node.slice, ast.Constant) else None}
            return out
        return UNKNOWN

    def indexed(self, base: Value, node: ast.Subscript, index: Value) -> Value:
        entries = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        basic = all(
            isinstance(e, ast.Slice) or (isinstance(e, ast.Constant) and not isinstance(e.value, str)) or is_integer_text(e, self)
            for e in entries
        )  # fmt: skip
        if basic:
            out = self.view_of(base, node, "select")
            if base.ndim is not None and not any(isinstance(e, ast.Constant) and e.value in (None, ...) for e in entries):
                dropped = sum(not isinstance(e, ast.Slice) for e in entries)
                out.ndim = base.ndim - dropped if base.ndim >= dropped else None
            else:
                out.ndim = None
            out.shape = None
            return out
        out = tensor(node, "getitem", (base,))
        out.dtype, out.assumed = base.dtype, base.assumed
        out.grad = False if self.frame.no_grad else base.grad
        return out

    def view_of(self, base: Value, node: ast.AST, op: str) -> Value:
        out = tensor(node, op, (base,))
        out.storage, out.dtype, out.assumed, out.expanded = base.storage, base.dtype, base.assumed, base.expanded
        out.grad = False if op in ("detach", "data") or self.frame.no_grad else base.grad
        out.leaf = base.leaf and out.grad is True
        if op in v.EXPANDERS:
            out.expanded = True
        if op in ("transpose", "permute", "T", "mT", "t", "swapaxes", "expand", "detach", "data", "movedim"):
            out.ndim = base.ndim
        if op in ("detach", "data"):
            out.shape = base.shape
            if op == "data":
                out.extra = {"data": True}
        if op == "unsqueeze" and base.ndim is not None:
            out.ndim = base.ndim + 1
        return out

    def element_of(self, value: Value, node: ast.AST) -> Value:
        if value.is_tensor:
            out = self.view_of(value, node, "unbind")
            out.ndim = value.ndim - 1 if value.ndim else None
            return out
        if value.kind == "range":
            return number(node, "index")
        if value.kind == "parameters":
            out = tensor(node, "parameter")
            out.grad, out.leaf = True, True
            return out
        if value.kind == "list" and value.items:
            first = value.items[0]
            return first if all(i.kind == first.kind for i in value.items) and first.kind == "tensor" else UNKNOWN
        if value.kind == "zip" and value.items:
            out = Value("tuple", node)
            out.items = [self.element_of(i, node) for i in value.items]
            return out
        return UNKNOWN

    # Operators ----------------------------------------------------------------------------------

    def _binop(self, node: ast.BinOp) -> Value:
        left, right = self.ev(node.left), self.ev(node.right)
        return self.binary(node, BINARY_OPERATORS.get(type(node.op), ""), left, right)

    def binary(self, node: ast.AST, op: str, left: Value, right: Value) -> Value:
        if left.is_tensor or right.is_tensor:
            tensors = tuple(t for t in (left, right) if t.is_tensor)
            other = right if left.is_tensor else left
            with_number = other.kind == "number"
            name = op
            if with_number and not left.is_tensor:
                name = {"div": "rdiv", "pow": "rpow", "sub": "rsub"}.get(op, op)
            if len(tensors) < 2 and not with_number:
                # The other operand may be a tensor we know nothing of: what is kept is then not certain.
                return self.result(node, op, tensors, unknown_inputs=True)
            return self.result(node, name, tensors, with_number=with_number, sources=(left, right))
        if "numpy" in (left.kind, right.kind):
            out = Value("numpy", node)
            out.op, out.inputs = op, (left, right)
            return out
        if left.kind == right.kind == "number":
            return number(node, op, (left, right))
        return UNKNOWN

    def _unary(self, node: ast.UnaryOp) -> Value:
        operand = self.ev(node.operand)
        if operand.is_tensor:
            if isinstance(node.op, ast.Not):
                return UNKNOWN
            return self.result(node, "logical_not" if isinstance(node.op, ast.Invert) else "neg", (operand,))
        return operand if operand.kind == "number" else UNKNOWN

    def _compare(self, node: ast.Compare) -> Value:
        left = self.ev(node.left)
        rights = [self.ev(c) for c in node.comparators]
        name = v.COMPARISONS.get(type(node.ops[0]))
        if name and (left.is_tensor or rights[0].is_tensor) and len(rights) == 1:
            if "none" not in (left.kind, rights[0].kind):
                return self.result(node, name, tuple(t for t in (left, rights[0]) if t.is_tensor))
        return UNKNOWN

    def _boolop(self, node: ast.BoolOp) -> Value:
        for value in node.values:
            self.ev(value)
        return UNKNOWN

    def _ifexp(self, node: ast.IfExp) -> Value:
        self.ev(node.test)
        first, second = self.ev(node.body), self.ev(node.orelse)
        if first.is_tensor and second.is_tensor:
            out = tensor(node, "either", (first, second))
            out.grad = first.grad if first.grad == second.grad else None
            return out
        return UNKNOWN

    def _sequence(self, node: ast.Tuple | ast.List) -> Value:
        out = Value("tuple" if isinstance(node, ast.Tuple) else "list", node)
        out.items = [self.ev(e) for e in node.elts]
        return out

    def _dict(self, node: ast.Dict) -> Value:
        for child in [*node.keys, *node.values]:
            if child is not None:
                self.sink("store", self.ev(child))
        return Value("dict", node)

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Value:
        env = dict(self.frame.env)
        hidden = self.frame.env
        self.frame.env = env
        for generator in node.generators:
            self.bind(generator.target, self.element_of(self.ev(generator.iter), node), node)
            for test in generator.ifs:
                self.ev(test)
        element = self.ev(node.elt)
        self.frame.env = hidden
        out = Value("list", node)
        out.items = [element]
        out.extra = {"any": True}
        return out

    def _dictcomp(self, node: ast.DictComp) -> Value:
        env, hidden = dict(self.frame.env), self.frame.env
        self.frame.env = env
        for generator in node.generators:
            self.bind(generator.target, self.element_of(self.ev(generator.iter), node), node)
        self.ev(node.key)
        self.ev(node.value)
        self.frame.env = hidden
        return Value("dict", node)

    def _lambda(self, node: ast.Lambda) -> Value:
        return Value("function", node, "<lambda>")

    def _named(self, node: ast.NamedExpr) -> Value:
        value = self.ev(node.value)
        self.frame.env[node.target.id] = value
        return value

    def _await(self, node: ast.Await) -> Value:
        self.ev(node.value)
        return UNKNOWN

    # Calls --------------------------------------------------------------------------------------

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
            if path == "torch.inference_mode" and node.args and getattr(node.args[0], "value", True) is False:
                return UNKNOWN
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
            if parts and parts[0].ndim is not None:
                out.ndim = parts[0].ndim + (name == "stack")
            return out
        if name in v.NOT_OPERATIONS or name.startswith(("is_", "set_", "get_", "manual", "save", "load", "compile", "jit")):
            return UNKNOWN
        if name in ("unbind", "split", "chunk", "meshgrid", "broadcast_tensors", "unique", "topk", "sort", "mode", "kthvalue"):
            return self._several(node, name, tensors)
        if name not in v.TORCH_OPERATIONS and name not in v.TENSOR_METHODS and name not in LOSSES:
            return UNKNOWN
        unknown = sum(a.kind == "unknown" for a in (*args, *kwargs.values()))
        return self._operation(node, name, tensors, kwargs, bool(unknown), args)

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
        elif name == "matmul" and len(tensors) == 2 and None not in (tensors[0].ndim, tensors[1].ndim):
            out.ndim = max(tensors[0].ndim, tensors[1].ndim) if min(tensors[0].ndim, tensors[1].ndim) > 1 else None
        elif name == "bmm":
            out.ndim = 3
        elif name == "flatten" and tensors[0].ndim and len(args) == 2:
            out.ndim = None
        return out

    def _view(self, node, name: str, base: Value, args) -> Value:
        if name in ("unbind", "split", "chunk", "tensor_split", "hsplit", "vsplit"):
            return self._several(node, name, (base,), view=True)
        out = self.view_of(base, node, name)
        if name == "view":
            given = node.args[1:] if len(args) and args[0] is base and not isinstance(node.func, ast.Attribute) else node.args
            if len(given) == 1 and isinstance(given[0], (ast.Tuple, ast.List)):
                given = given[0].elts
            if given and not any(isinstance(g, ast.Starred) for g in given) and is_sizes(given, self):
                out.ndim = len(given)
                out.shape = tuple(size_name(g) for g in given)
        return out

    def _several(self, node, name: str, tensors, has_dim: bool = False, view: bool = False) -> Value:
        out = Value("tuple", node)
        if name in ("max", "min", "median", "mode", "cummax", "cummin", "topk", "sort", "kthvalue") and tensors:
            values = self.result(node, name, tensors, has_dim=True)
            places = self.result(node, "argmax", tensors)
            out.items = [values, places]
        elif tensors:
            part = self.view_of(tensors[0], node, name) if view or name in v.VIEWS else self.result(node, name, tensors)
            part.ndim = tensors[0].ndim if name != "unbind" else None
            out.kind = "list"
            out.items = [part]
            out.extra = {"any": True}
            if name in ("split", "chunk", "unbind", "tensor_split"):
                out.items = [part] * 8
        return out

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
                self.mark_requires_grad(owner)
            return owner
        if name in ("retain_grad", "register_hook", "detach_", "share_memory_", "zero_grad"):
            return owner if name.endswith("_") else UNKNOWN
        if name.endswith("_") and not name.startswith("_") and not name.endswith("__"):
            where = node.func.value
            if owner.extra and owner.extra.get("data"):
                base = owner.inputs[0]
                return self.wrote(node, base, where.value if isinstance(where, ast.Attribute) else where, "data", name[:-1], ())
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
            return out
        if name in v.TENSOR_METHODS or name in v.TORCH_OPERATIONS:
            unknown = any(a.kind == "unknown" for a in args)
            return self._operation(node, name, tensors, kwargs, unknown, [owner, *args])
        return UNKNOWN

    # What operations make -----------------------------------------------------------------------

    def result(self, node, op: str, tensors: tuple[Value, ...], has_dim=False, with_number=False, unknown_inputs=False,
               sources: tuple[Value, ...] = ()) -> Value:  # fmt: skip
        out = tensor(node, op, sources or tensors)
        if op in v.INT_RESULT:
            out.dtype, out.grad = "int", False
        elif op in v.BOOL_RESULT:
            out.dtype, out.grad = "bool", False
        elif self.frame.no_grad or op == "detach":
            out.grad = False
            if op != "detach" and any(t.grad for t in tensors):
                out.unrecorded = self.frame.no_grad_at
        else:
            grads = [t.grad for t in tensors]
            out.grad = True if True in grads else None if None in grads or unknown_inputs or not tensors else False
            kinds = {t.dtype for t in tensors}
            out.dtype = "float" if "float" in kinds or op in FLOAT_RESULT else kinds.pop() if len(kinds) == 1 else None
        if tensors:
            known = [t.ndim for t in tensors if t.ndim is not None]
            if op in ELEMENTWISE and len(known) == len(tensors) and known:
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
            if given and all(a.kind == "number" for a in args) or (given and is_sizes(given, self)):
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
            out.grad = self.constant(node, "requires_grad") is not False
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
            out.ndim = base.ndim + 1 if last == "Embedding" and base.ndim is not None else base.ndim if last != "Embedding" else None
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


E_ = Expressions
DISPATCH = {
    ast.Name: E_._name, ast.Constant: E_._constant, ast.Attribute: E_._attribute, ast.Subscript: E_._subscript,
    ast.BinOp: E_._binop, ast.UnaryOp: E_._unary, ast.Compare: E_._compare, ast.BoolOp: E_._boolop, ast.IfExp: E_._ifexp,
    ast.Tuple: E_._sequence, ast.List: E_._sequence, ast.Dict: E_._dict, ast.ListComp: E_._comprehension,
    ast.GeneratorExp: E_._comprehension, ast.SetComp: E_._comprehension, ast.DictComp: E_._dictcomp, ast.Call: E_._call,
    ast.Lambda: E_._lambda, ast.NamedExpr: E_._named, ast.Await: E_._await,
}  # fmt: skip
HAS_DIM_FIRST = frozenset(
    "sum mean max min std var norm median prod argmax argmin softmax log_softmax cumsum cumprod amax amin any all logsumexp "
    "cummax cummin mode sort topk".split()
)
REDUCTIONS = frozenset("sum mean max min std var norm median prod argmax argmin amax amin any all logsumexp".split())
ELEMENTWISE = frozenset("add sub mul div pow maximum minimum where remainder rsub rdiv rpow eq ne lt gt le ge".split())
FLOAT_RESULT = frozenset("exp log sqrt sigmoid tanh softmax log_softmax mean std var norm div linear relu sin cos".split())
ONLY_TENSORS_HAVE = frozenset(
    "unsqueeze masked_fill masked_fill_ softmax log_softmax sigmoid requires_grad_ new_zeros new_ones index_select "
    "scatter_add_ scatter_ bmm logsumexp".split()
)


def is_integer_text(node: ast.expr, names: Expressions) -> bool:
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


def is_sizes(nodes: list[ast.expr], names: Expressions) -> bool:
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

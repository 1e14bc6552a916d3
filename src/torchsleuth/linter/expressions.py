"""Expressions of the interpreter: from a syntax node to an abstract value, telling rules of every call."""

from __future__ import annotations

import ast

from torchsleuth.linter import values as v
from torchsleuth.linter.calls import Calls
from torchsleuth.linter.results import is_integer_text, product_rank
from torchsleuth.linter.values import BINARY_OPERATORS, NONE, UNKNOWN, Value, number, path_value, tensor


class Expressions(Calls):
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
        if op in ("transpose", "permute", "T", "mT", "t", "swapaxes", "detach", "data", "movedim"):
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
        if op == "mul" and "list" in (left.kind, right.kind):
            return Value("list", node)  # `[0] * n.sum()` repeats the list
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
            out = self.result(node, name, tensors, with_number=with_number, sources=(left, right))
            if op == "matmul":
                out.ndim, out.shape = product_rank(left, right), None
            return out
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
        kept = self.frame.env
        arms = []
        for branch, holds in ((node.body, True), (node.orelse, False)):
            self.frame.env = dict(kept)
            self._narrow(node.test, holds, self.frame.env)
            arms.append(self.ev(branch))
        self.frame.env = kept
        first, second = arms
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


E_ = Expressions
DISPATCH = {
    ast.Name: E_._name, ast.Constant: E_._constant, ast.Attribute: E_._attribute, ast.Subscript: E_._subscript,
    ast.BinOp: E_._binop, ast.UnaryOp: E_._unary, ast.Compare: E_._compare, ast.BoolOp: E_._boolop, ast.IfExp: E_._ifexp,
    ast.Tuple: E_._sequence, ast.List: E_._sequence, ast.Dict: E_._dict, ast.ListComp: E_._comprehension,
    ast.GeneratorExp: E_._comprehension, ast.SetComp: E_._comprehension, ast.DictComp: E_._dictcomp, ast.Call: E_._call,
    ast.Lambda: E_._lambda, ast.NamedExpr: E_._named, ast.Await: E_._await,
}  # fmt: skip

"""Follows names and tensors through one module, statement by statement, and tells rules what happens.

Every statement is read once in order (functions on their own, with what their signature shows; functions
called from module level also with the values of that call). Branches are kept apart, loops read once, or
twice where they write in place. Nothing is executed.
"""

from __future__ import annotations

import ast
import copy
import typing

from torchsleuth.linter import expressions
from torchsleuth.linter.flow import (
    clone_value, comes_from, exclusive, is_self_attribute, is_tensor_annotation, merged, merged_env, root_name, tensor_evidence,
)  # fmt: skip
from torchsleuth.linter.events import Call, ClassInfo, Frame, FunctionNode, Hazard, Write
from torchsleuth.linter.values import NONE, UNKNOWN, Save, Storage, Value, kept_tensors, number, path_value, tensor

BUDGET = 400_000  # expressions read per file; inlining stops there, plain reading never does
DEEPEST = 4


class Listener(typing.Protocol):
    """What the engine provides: one method per event."""

    def call(self, call: Call) -> None: ...
    def write(self, write: Write) -> None: ...
    def hazard(self, hazard: Hazard) -> None: ...
    def function(self, node: FunctionNode, frame: Frame) -> None: ...
    def cls(self, info: ClassInfo) -> None: ...
    def loop(self, node: ast.AST, frame: Frame, parent: list[ast.stmt], position: int) -> None: ...
    def statement(self, node: ast.stmt, frame: Frame) -> None: ...


class Interpreter(expressions.Expressions):
    def __init__(self, tree: ast.Module, listener: Listener) -> None:
        self.tree = tree
        self.listener = listener
        self.globals: dict[str, Value] = {}
        self.classes: dict[str, ClassInfo] = {}
        self.functions: dict[str, FunctionNode] = {}
        self.frame = Frame(tree, self.globals)
        self.time = 0
        self.budget = BUDGET
        self.stack: list[int] = []
        self.told: set[int] = set()  # calls whose event was sent, when reading a body again

    # The module -------------------------------------------------------------------------------

    def run(self) -> None:
        for node in self.tree.body:
            self._declare(node)
        self.block(self.tree.body)
        self._finish(self.frame)
        for info in self.classes.values():
            self.listener.cls(info)
        for node, info in self._all_functions():
            self.read_function(node, info)

    def _declare(self, node: ast.stmt) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node)
        elif isinstance(node, ast.ClassDef):
            self._declare_class(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.functions[node.name] = node
            self.globals[node.name] = Value("function", node, node.name)
        elif isinstance(node, (ast.If, ast.Try)):
            for child in [*node.body, *node.orelse]:
                if isinstance(child, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)):
                    self._declare(child)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        env = self.frame.env
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    env[alias.asname] = path_value(alias.name)
                else:
                    root = alias.name.split(".")[0]
                    env[root] = path_value(root)
        elif node.module and not node.level:
            for alias in node.names:
                env[alias.asname or alias.name] = path_value(f"{node.module}.{alias.name}")
        else:
            for alias in node.names:
                env[alias.asname or alias.name] = path_value(f".{alias.name}")

    def _declare_class(self, node: ast.ClassDef) -> None:
        bases = tuple(self.dotted(base) for base in node.bases)
        info = ClassInfo(node, bases)
        for base in bases:
            last = base.rsplit(".", 1)[-1]
            known = self.classes.get(last)
            info.is_module |= base == "torch.nn.Module" or last in MODULE_BASES or bool(known and known.is_module)
            info.is_module |= base.startswith("torch.nn.") and last[:1].isupper()
            info.is_function |= base in FUNCTION_BASES or bool(known and known.is_function)
            if known:
                info.methods.update(known.methods)
                info.attributes.update(known.attributes)
        for child in node.body:
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                info.methods[child.name] = child
        self.classes[node.name] = info
        self.globals[node.name] = Value("class", node, node.name)
        if info.is_module:
            self._attributes(info)

    def _attributes(self, info: ClassInfo) -> None:
        """What `__init__` puts on `self`, where its right-hand side says what it is."""
        for method in ("__init__", "__new__", "setup", "build"):
            function = info.methods.get(method)
            if function is None:
                continue
            for statement in ast.walk(function):
                if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                    target, value = statement.targets[0], statement.value
                elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                    target, value = statement.target, statement.value
                elif (
                    isinstance(statement, ast.Call) and isinstance(statement.func, ast.Attribute)
                    and statement.func.attr in ("register_buffer", "register_parameter") and len(statement.args) >= 2
                    and isinstance(statement.args[0], ast.Constant)
                ):  # fmt: skip
                    made = tensor(statement, "buffer")
                    made.grad = statement.func.attr == "register_parameter" or False
                    made.extra = {"buffer": statement.func.attr == "register_buffer"}
                    info.attributes[str(statement.args[0].value)] = made
                    continue
                else:
                    continue
                pairs = [(target, value)]
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
                    pairs = list(zip(target.elts, value.elts, strict=True))
                for target, value in pairs:
                    if not is_self_attribute(target):
                        continue
                    made = self.made_by(value)
                    if target.attr in info.attributes and made.kind != info.attributes[target.attr].kind:
                        made = UNKNOWN
                    info.attributes[target.attr] = made

    def made_by(self, node: ast.expr) -> Value:
        """The module or parameter a constructor call makes, read without events."""
        if isinstance(node, ast.Call):
            path = self.dotted(node.func)
            if path.startswith("torch.nn."):
                return self.nn_value(node, path)
            if path in self.classes and self.classes[path].is_module:
                return Value("module", node, path)
        if isinstance(node, (ast.List, ast.ListComp, ast.Dict, ast.DictComp)):
            return Value("list" if isinstance(node, (ast.List, ast.ListComp)) else "dict", node)
        return UNKNOWN

    def _all_functions(self):
        """Every function of the file with the class it is a method of, nested ones included."""
        pending: list[tuple[ast.AST, ClassInfo | None]] = [(self.tree, None)]
        while pending:
            node, info = pending.pop()
            for child in ast.iter_child_nodes(node):
                if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    yield child, info
                    pending.append((child, None))
                elif isinstance(child, ast.ClassDef):
                    known = self.classes.get(child.name)
                    if known is None or known.node is not child:
                        self._declare_class(child)
                        known = self.classes[child.name]
                        self.listener.cls(known)
                    pending.append((child, known))
                elif isinstance(child, (ast.If, ast.Try, ast.With, ast.For, ast.While, ast.ExceptHandler)):
                    pending.append((child, info))

    # Functions --------------------------------------------------------------------------------

    def read_function(self, node: FunctionNode, info: ClassInfo | None) -> None:
        """Read a function on its own, its arguments being what the signature and its body show."""
        outer = self.frame
        silencer = self.no_grad_decorator(node)
        frame = Frame(node, {}, info, no_grad=silencer is not None, no_grad_at=silencer)
        self.frame = frame
        frame.attributes = {k: clone_value(v) for k, v in info.attributes.items()} if info else {}
        is_forward = bool(info and info.is_module and node.name == "forward")
        open_arguments = any(a.annotation is None and a.arg != "self" for a in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs])
        evidence = tensor_evidence(node, self) if open_arguments else {}
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        defaults = dict(zip([a.arg for a in reversed(arguments[: len(node.args.posonlyargs) + len(node.args.args)])],
                            reversed(node.args.defaults), strict=False))  # fmt: skip
        for position, argument in enumerate(arguments):
            value = UNKNOWN
            if position == 0 and info and argument.arg in ("self", "cls"):
                value = Value("self", node)
            elif position == 0 and info and info.is_function:
                value = Value("ctx", node)
            elif is_tensor_annotation(argument.annotation) and not isinstance(defaults.get(argument.arg), ast.Constant | ast.UnaryOp):
                value = tensor(argument, "argument")
            elif is_tensor_annotation(argument.annotation):  # `mu: Tensor = 0.0` takes numbers, too
                value = tensor(argument, "argument")
                value.assumed = not _is_none(defaults[argument.arg])
            elif argument.annotation is None and argument.arg in evidence:
                value = tensor(argument, "argument")
                value.assumed = not evidence[argument.arg]
            elif is_forward and argument.annotation is None and argument.arg not in defaults:
                value = tensor(argument, "argument")
                value.assumed = True
            if value.is_tensor:
                frame.params[argument.arg] = value
            frame.env[argument.arg] = value
        self.listener.function(node, frame)
        self.block(node.body)
        self._finish(frame)
        self.frame = outer

    def inline(self, node: FunctionNode, info: ClassInfo | None, args: list[Value], kwargs: dict[str, Value], self_value) -> Value:
        """Read a function again with the values of a call; what it returns, where that is clear."""
        caller = self.frame
        if caller.depth >= DEEPEST or id(node) in self.stack or self.budget <= 0 or isinstance(node, ast.AsyncFunctionDef):
            return UNKNOWN
        names = [a.arg for a in [*node.args.posonlyargs, *node.args.args]]
        if node.args.vararg or node.args.kwarg or any(isinstance(d, (ast.Yield, ast.YieldFrom)) for d in ast.walk(node)):
            return UNKNOWN
        silencer = self.no_grad_decorator(node) or (caller.no_grad_at if caller.no_grad else None)
        frame = Frame(node, {}, info, caller.no_grad or silencer is not None, caller.depth + 1, silencer, inlined=True)
        frame.attributes = {k: clone_value(v) for k, v in info.attributes.items()} if info else {}
        given = [self_value, *args] if self_value is not None else args
        for name, value in zip(names, given, strict=False):
            frame.env[name] = value
        frame.env.update({k: v for k, v in kwargs.items() if k in names or k in [a.arg for a in node.args.kwonlyargs]})
        for name in names:
            frame.env.setdefault(name, UNKNOWN)
        frame.params = {name: frame.env[name] for name in names if frame.env[name].is_tensor}
        self.stack.append(id(node))
        self.frame = frame
        try:
            self.block(node.body)
            self._finish(frame)
        finally:
            self.frame = caller
            self.stack.pop()
        if not frame.returns:
            return NONE
        result = frame.returns[0]
        for other in frame.returns[1:]:
            result = merged(result, other)
        return result

    def no_grad_decorator(self, node: FunctionNode) -> ast.AST | None:
        return next((d for d in node.decorator_list if self.dotted(d.func if isinstance(d, ast.Call) else d) in NO_GRAD), None)

    # Statements -------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt]) -> bool:
        """Read statements in order; True where control never comes out at the end."""
        for position, statement in enumerate(body):
            method = STATEMENTS.get(type(statement))
            if method is None:
                for child in ast.iter_child_nodes(statement):
                    if isinstance(child, ast.expr):
                        self.ev(child)
                continue
            if method(self, statement, body, position):
                return True
        return False

    def _expr(self, node: ast.Expr, body, position) -> None:
        self.ev(node.value)

    def _assign(self, node: ast.Assign, body, position) -> None:
        value = self.ev(node.value)
        for target in node.targets:
            self.bind(target, value, node)
        self.listener.statement(node, self.frame)

    def _ann_assign(self, node: ast.AnnAssign, body, position) -> None:
        value = self.ev(node.value) if node.value is not None else UNKNOWN
        if value is UNKNOWN and is_tensor_annotation(node.annotation):
            value = tensor(node, "annotated")
        self.bind(node.target, value, node)
        self.listener.statement(node, self.frame)

    def bind(self, target: ast.expr, value: Value, statement: ast.stmt) -> None:
        kind = type(target)
        if kind is ast.Name:
            self.frame.env[target.id] = value
        elif kind in (ast.Tuple, ast.List):
            self._unpack(target, value, statement)
        elif kind is ast.Starred:
            self.bind(target.value, UNKNOWN, statement)
        elif kind is ast.Subscript:
            self.ev(target.slice)
            base = self.ev(target.value)
            if base.is_tensor and base.extra and base.extra.get("data") and isinstance(target.value, ast.Attribute):
                self.wrote(statement, base.inputs[0], target.value.value, "data", "copy", ())
            elif base.is_tensor:
                self.wrote(statement, base, target.value, "item", "copy", (value,))
            elif base.kind in ("list", "dict"):
                self.sink("store", value)
        elif kind is ast.Attribute:
            owner = self.ev(target.value)
            if target.attr == "data" and owner.is_tensor:
                self.wrote(statement, owner, target.value, "data", "data", ())
            elif owner.kind == "self":
                self.frame.attributes[target.attr] = value
                self.sink("store", value)
            else:
                self.sink("store", value)
            if target.attr == "requires_grad" and owner.is_tensor:
                constant = getattr(statement, "value", None)
                if isinstance(constant, ast.Constant) and constant.value is True:
                    self.mark_requires_grad(self.on_this_path(owner))
                elif isinstance(constant, ast.Constant) and constant.value is False:
                    owner.grad, owner.leaf = False, False
                    self.frame.frozen.add(ast.unparse(target.value))

    def _unpack(self, target: ast.Tuple | ast.List, value: Value, statement: ast.stmt) -> None:
        names = target.elts
        plain = not any(isinstance(n, ast.Starred) for n in names)
        if value.kind == "size" and plain:
            source = value.inputs[0] if value.inputs else None
            if source is not None and source.is_tensor:
                self._learn_shape(source, tuple(n.id if isinstance(n, ast.Name) else None for n in names))
            for dim, name in enumerate(names):
                part = number(statement, "size", value.inputs)
                part.extra = {"dim": dim}
                self.bind(name, part, statement)
            return
        for position, name in enumerate(names):
            part = UNKNOWN
            if value.items is not None and plain and position < len(value.items):
                part = value.items[position]
            elif value.is_tensor and plain:
                part = self.view_of(value, statement, "unbind")
            self.bind(name, part, statement)

    def _learn_shape(self, value: Value, names: tuple) -> None:
        """`b, t, c = x.shape` says how many dimensions `x` has, on this path."""
        if value.ndim is not None and value.ndim != len(names):
            return
        shape = names if value.shape is None else value.shape
        known = self.on_this_path(value)
        known.ndim, known.shape = len(names), shape

    def on_this_path(self, value: Value) -> Value:
        """The value to note something on: a copy of its own inside a branch, which the other branch does not see."""
        if not self.frame.arms:
            return value
        known = copy.copy(value)
        for name, bound in list(self.frame.env.items()):
            if bound is value:
                self.frame.env[name] = known
        return known

    def _aug_assign(self, node: ast.AugAssign, body, position) -> None:
        other = self.ev(node.value)
        op = expressions.BINARY_OPERATORS.get(type(node.op), "")
        target = node.target
        if isinstance(target, ast.Subscript):
            self.ev(target.slice)
            base = self.ev(target.value)
        else:
            base = self.ev(target)
        if base.is_tensor:
            where = target.value if isinstance(target, ast.Subscript) else target
            if isinstance(where, ast.Attribute) and where.attr == "data":
                owner = self.ev(where.value)
                self.wrote(node, owner, where.value, "data", op, (other,))
            else:
                self.wrote(node, base, where, "item" if isinstance(target, ast.Subscript) else "augmented", op, (other,))
        elif isinstance(target, ast.Name):
            self.frame.env[target.id] = self.binary(node, op, base, other)
        self.listener.statement(node, self.frame)

    def _if(self, node: ast.If, body, position) -> bool:
        self.ev(node.test)
        frame = self.frame
        before, arms = dict(frame.env), frame.arms
        self._narrow(node.test, True, frame.env)
        self._narrow(node.test, False, before)
        frame.arms = (*arms, (id(node), 0))
        first_ends = self.block(node.body)
        first = frame.env
        frame.env = before
        frame.arms = (*arms, (id(node), 1))
        second_ends = self.block(node.orelse)
        second = frame.env
        frame.arms = arms
        if first_ends:
            frame.dead.add((id(node), 0))
        if second_ends:
            frame.dead.add((id(node), 1))
        result = second if first_ends and not second_ends else first if second_ends else merged_env(first, second)
        self._set_env(result)
        return first_ends and second_ends

    def _narrow(self, test: ast.expr, holds: bool, env: dict[str, Value]) -> None:
        """`isinstance(x, Tensor)` and its kin: where it fails, `x` is no tensor; where another type holds, neither."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._narrow(test.operand, not holds, env)
        elif isinstance(test, ast.BoolOp):
            if isinstance(test.op, ast.And) == holds:
                for part in test.values:
                    self._narrow(part, holds, env)
        elif isinstance(test, ast.Call) and test.args and isinstance(test.args[0], ast.Name) and test.args[0].id in env:
            function = self.dotted(test.func) or ast.unparse(test.func)
            asks = function.rsplit(".", 1)[-1] == "is_tensor"
            if function == "isinstance" or asks:
                is_tensor = asks or (len(test.args) > 1 and any(is_tensor_annotation(t) for t in ast.walk(test.args[1])))
                if is_tensor != holds and env[test.args[0].id].kind == "tensor":
                    env[test.args[0].id] = UNKNOWN
        elif isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.left, ast.Name) and test.left.id in env:
            if isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value is None:
                if isinstance(test.ops[0], ast.Is) == holds and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
                    env[test.left.id] = NONE

    def _set_env(self, env: dict[str, Value]) -> None:
        if self.frame.is_script:
            if env is not self.globals:
                copied = dict(env)
                self.globals.clear()
                self.globals.update(copied)
            self.frame.env = self.globals
        else:
            self.frame.env = env

    def _for(self, node: ast.For, body, position) -> None:
        frame = self.frame
        self.listener.loop(node, frame, body, position)
        iterated = self.ev(node.iter)
        self._loop_body(node, lambda: self.bind(node.target, self.element_of(iterated, node), node))
        self.block(node.orelse)

    def _while(self, node: ast.While, body, position) -> None:
        self.listener.loop(node, self.frame, body, position)
        self.ev(node.test)
        self._loop_body(node, lambda: None)
        self.block(node.orelse)

    def _loop_body(self, node: ast.For | ast.While, start: typing.Callable[[], None]) -> None:
        frame = self.frame
        before = dict(frame.env)
        writes = frame.writes
        frame.loops.append(node)
        arms = frame.arms
        frame.arms = (*arms, (id(node), 0))
        start()
        self.block(node.body)
        # A write at the top of the body can hit what the bottom kept in the turn before.
        if frame.writes > writes and len(frame.loops) < 3:
            start()
            self.block(node.body)
        frame.arms = arms
        frame.loops.pop()
        self._set_env(merged_env(frame.env, before, prefer_first=True))

    def _with(self, node: ast.With, body, position) -> bool:
        frame = self.frame
        outer = frame.no_grad, frame.no_grad_at
        for item in node.items:
            value = self.ev(item.context_expr)
            if value.kind == "nograd":
                frame.no_grad = value.path == "off"
                frame.no_grad_at = item.context_expr if frame.no_grad else None
            if item.optional_vars is not None:
                self.bind(item.optional_vars, UNKNOWN, node)
        ends = self.block(node.body)
        frame.no_grad, frame.no_grad_at = outer
        return ends

    def _try(self, node: ast.Try, body, position) -> bool:
        frame = self.frame
        before = dict(frame.env)
        ends = self.block(node.body)
        after = frame.env
        result = dict(after)
        for handler in node.handlers:
            frame.env = dict(before)
            if not self.block(handler.body):
                result = merged_env(result, frame.env, prefer_first=True) if not ends else frame.env
                ends = False
        self._set_env(result)
        self.block(node.orelse)
        self.block(node.finalbody)
        return ends and not node.finalbody

    def _return(self, node: ast.Return, body, position) -> bool:
        value = self.ev(node.value) if node.value is not None else NONE
        self.frame.returns.append(value)
        self.sink("return", value)
        self.listener.statement(node, self.frame)
        return True

    def _end(self, node: ast.stmt, body, position) -> bool:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.ev(child)
        return True

    def _function(self, node: FunctionNode, body, position) -> None:
        self.frame.env[node.name] = Value("function", node, node.name)

    def _class(self, node: ast.ClassDef, body, position) -> None:
        self.frame.env[node.name] = Value("class", node, node.name)

    def _imports(self, node: ast.stmt, body, position) -> None:
        self._import(node)

    def _delete(self, node: ast.Delete, body, position) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.frame.env.pop(target.id, None)

    # In-place writes and what they can hurt ------------------------------------------------------

    def wrote(self, node: ast.AST, base: Value, where: ast.expr | None, how: str, op: str, others: tuple[Value, ...]) -> Value:
        frame = self.frame
        frame.writes += 1
        self.time += 1
        name = root_name(where)
        write = Write(node, base, ast.unparse(where) if where is not None else "", how, op, frame, frame.no_grad, name)
        self.listener.write(write)
        if base.storage is None:
            base.storage = Storage()
        for save in base.storage.saves:
            value, arms, certain = save.value
            if save.time < self.time and not exclusive(arms, frame):
                frame.hazards.append(Hazard(save, write, self.time, certain))
        after = tensor(node, base.op if how == "data" else f"{op}_", (base, *(o for o in others if o.is_tensor)))
        after.storage, after.ndim, after.shape, after.dtype = base.storage, base.ndim, base.shape, base.dtype
        after.leaf, after.expanded, after.assumed = base.leaf, base.expanded, base.assumed
        after.grad = base.grad
        if not frame.no_grad and how != "data" and any(o.is_tensor and o.grad for o in others):
            after.grad = True
        elif base.grad is False and any(o.grad is None and o.kind in ("tensor", "unknown") for o in others):
            after.grad = None
        if isinstance(where, ast.Name) and where.id in frame.env:
            frame.env[where.id] = after
        elif isinstance(where, ast.Attribute) and is_self_attribute(where):
            frame.attributes[where.attr] = after
        for other, bound in list(frame.env.items()):
            if bound.is_tensor and bound.storage is base.storage and bound is not after:
                # Whatever shares the memory is made from what was written, too.
                changed = copy.copy(bound)
                changed.inputs, changed.op = (bound, after), f"{op}_"
                changed.grad = True if after.grad else bound.grad
                frame.env[other] = changed
        return after

    def keep(self, node: ast.AST, op: str, result: Value, tensors: tuple[Value, ...], has_dim: bool, with_number: bool) -> None:
        """Record what this operation keeps for backward."""
        if self.frame.no_grad or result.grad is False:
            return
        self.time += 1
        for what, certain in kept_tensors(op, tensors, has_dim, with_number):
            value = result if what == "r" else tensors[what]
            if value.storage is not None and len(value.storage.saves) < 64:
                value.storage.saves.append(Save(node, result, op, what, self.time, (value, self.frame.arms, certain)))

    def sink(self, how: str, value: Value) -> None:
        if value.is_tensor or value.items:
            self.time += 1
            self.frame.sinks.append((self.time, how, value))

    def _finish(self, frame: Frame) -> None:
        """At the end of a function: a hazard counts where what was computed from the kept value is still used."""
        real: dict[int, Hazard] = {}
        for hazard in frame.hazards:
            for time, how, value in frame.sinks:
                if time > hazard.time and (how == "backward" or not frame.is_script) and comes_from(value, hazard.save.result):
                    hazard.used = how
                    first = real.setdefault(id(hazard.write.node), hazard)
                    if first is not hazard and all(s.node is not hazard.save.node for s in (first.save, *first.others)):
                        if hazard.certain and not first.certain:
                            first.save, first.certain, hazard.save = hazard.save, True, first.save
                        if hazard.certain:
                            first.others.append(hazard.save)
                    break
        for hazard in real.values():
            self.listener.hazard(hazard)


def _is_none(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


STATEMENTS = {
    ast.Expr: Interpreter._expr, ast.Assign: Interpreter._assign, ast.AnnAssign: Interpreter._ann_assign,
    ast.AugAssign: Interpreter._aug_assign, ast.If: Interpreter._if, ast.For: Interpreter._for,
    ast.AsyncFor: Interpreter._for, ast.While: Interpreter._while, ast.With: Interpreter._with,
    ast.AsyncWith: Interpreter._with, ast.Try: Interpreter._try, ast.Return: Interpreter._return,
    ast.Raise: Interpreter._end, ast.Break: Interpreter._end, ast.Continue: Interpreter._end,
    ast.FunctionDef: Interpreter._function, ast.AsyncFunctionDef: Interpreter._function,
    ast.ClassDef: Interpreter._class, ast.Import: Interpreter._imports, ast.ImportFrom: Interpreter._imports,
    ast.Delete: Interpreter._delete,
}  # fmt: skip
NO_GRAD = frozenset({"torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad", "torch.autograd.inference_mode"})
MODULE_BASES = frozenset({"Module", "PreTrainedModel", "LightningModule"})
FUNCTION_BASES = frozenset({"torch.autograd.Function", "torch.autograd.function.Function", "torch.autograd.function.InplaceFunction"})

"""What each kind of statement does to names: assignments, branches kept apart, loops read once or twice."""

from __future__ import annotations

import ast
import copy
import typing

from torchsleuth.linter import expressions
from torchsleuth.linter.events import FunctionNode
from torchsleuth.linter.flow import asked_of, is_tensor_annotation, merged_env
from torchsleuth.linter.values import NONE, UNKNOWN, Value, number, tensor


class Statements(expressions.Expressions):
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
        if value is UNKNOWN and is_tensor_annotation(node.annotation, self):
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
            if target.attr == "data" and owner.is_tensor and isinstance(target.value, ast.Subscript):
                pass  # `w[k].data = v` gives the view new memory; `w` stays as it is
            elif target.attr == "data" and owner.is_tensor:
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
        asked, holds = asked_of(node.test)
        frame.arms = (*arms, (id(node), 0), *(((asked, holds),) if asked else ()))
        first_ends = self.block(node.body)
        first = frame.env
        frame.env = before
        frame.arms = (*arms, (id(node), 1), *(((asked, not holds),) if asked else ()))
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
                is_tensor = asks or (len(test.args) > 1 and any(is_tensor_annotation(t, self) for t in ast.walk(test.args[1])))
                if is_tensor != holds and env[test.args[0].id].kind == "tensor":
                    env[test.args[0].id] = UNKNOWN
        elif isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.left, ast.Call) and ast.unparse(test.left.func) == "type":
            asked = test.left.args[0] if test.left.args else None  # `type(x) is not torch.Tensor`, `type(x) in [list, tuple]`
            if isinstance(asked, ast.Name) and asked.id in env and env[asked.id].kind == "tensor":
                agrees = isinstance(test.ops[0], (ast.Is, ast.Eq, ast.In)) == holds
                if agrees != any(is_tensor_annotation(t, self) for t in ast.walk(test.comparators[0])):
                    env[asked.id] = UNKNOWN
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


STATEMENTS = {
    ast.Expr: Statements._expr, ast.Assign: Statements._assign, ast.AnnAssign: Statements._ann_assign,
    ast.AugAssign: Statements._aug_assign, ast.If: Statements._if, ast.For: Statements._for,
    ast.AsyncFor: Statements._for, ast.While: Statements._while, ast.With: Statements._with,
    ast.AsyncWith: Statements._with, ast.Try: Statements._try, ast.Return: Statements._return,
    ast.Raise: Statements._end, ast.Break: Statements._end, ast.Continue: Statements._end,
    ast.FunctionDef: Statements._function, ast.AsyncFunctionDef: Statements._function,
    ast.ClassDef: Statements._class, ast.Import: Statements._imports, ast.ImportFrom: Statements._imports,
    ast.Delete: Statements._delete,
}  # fmt: skip

"""Follows names and tensors through one module, statement by statement, and tells rules what happens.

Every statement is read once in order (functions on their own, with what their signature shows; functions
called from module level also with the values of that call). Branches are kept apart, loops read once, or
twice where they write in place. Nothing is executed.
"""

from __future__ import annotations

import ast
import typing

from torchsleuth.linter.declarations import Declarations
from torchsleuth.linter.events import Call, ClassInfo, Frame, FunctionNode, Hazard, Write
from torchsleuth.linter.flow import clone_value, is_foreign, is_tensor_annotation, merged, tensor_evidence
from torchsleuth.linter.statements import Statements
from torchsleuth.linter.values import NONE, UNKNOWN, Value, tensor
from torchsleuth.linter.writes import Writes

NO_GRAD = frozenset({"torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad", "torch.autograd.inference_mode"})
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


class Interpreter(Declarations, Statements, Writes):
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

    def run(self) -> None:
        for node in self.tree.body:
            self._declare(node)
        self.block(self.tree.body)
        self._finish(self.frame)
        for info in self.classes.values():
            self.listener.cls(info)
        for node, info in self._all_functions():
            self.read_function(node, info)

    def read_function(self, node: FunctionNode, info: ClassInfo | None) -> None:
        """Read a function on its own, its arguments being what the signature and its body show."""
        if any(is_foreign(self.dotted(d.func if isinstance(d, ast.Call) else d)) for d in node.decorator_list):
            return  # a kernel in a language of its own
        outer = self.frame
        silencer = self.no_grad_decorator(node)
        frame = Frame(node, {}, info, no_grad=silencer is not None, no_grad_at=silencer)
        self.frame = frame
        frame.attributes = {k: clone_value(v) for k, v in info.attributes.items()} if info else {}
        is_forward = bool(info and info.is_module and node.name == "forward")
        open_arguments = any(a.annotation is None and a.arg != "self" for a in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs])
        evidence = tensor_evidence(node, self) if open_arguments else {}
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        lies = _annotations_lie(node, {a.arg for a in arguments if is_tensor_annotation(a.annotation, self)})
        defaults = dict(zip([a.arg for a in reversed(arguments[: len(node.args.posonlyargs) + len(node.args.args)])],
                            reversed(node.args.defaults), strict=False))  # fmt: skip
        for position, argument in enumerate(arguments):
            value = UNKNOWN
            if position == 0 and info and argument.arg in ("self", "cls"):
                value = Value("self", node)
            elif position == 0 and info and info.is_function:
                value = Value("ctx", node)
            elif lies and is_tensor_annotation(argument.annotation, self):
                value = UNKNOWN
            elif is_tensor_annotation(argument.annotation, self) and not isinstance(defaults.get(argument.arg), ast.Constant | ast.UnaryOp):
                value = tensor(argument, "argument")
            elif is_tensor_annotation(argument.annotation, self):  # `mu: Tensor = 0.0` takes numbers, too
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


def _annotations_lie(function: FunctionNode, annotated: set[str]) -> bool:
    """`y.astype(...)` of something annotated as a tensor: arrays are meant."""
    return bool(annotated) and any(isinstance(n, ast.Attribute) and n.attr in ("astype", "tobytes", "itemsize") and isinstance(n.value, ast.Name)
                                   and n.value.id in annotated for n in ast.walk(function))  # fmt: skip


def _is_none(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None

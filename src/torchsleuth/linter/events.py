"""What the interpreter tells rules: calls, writes, hazards, classes, and the frame they happened in."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from torchsleuth.linter.values import Save, Value

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class ClassInfo:
    """A class of this file: what it derives from and what its methods put on `self`."""

    node: ast.ClassDef
    bases: tuple[str, ...]
    methods: dict[str, FunctionNode] = field(default_factory=dict)
    attributes: dict[str, Value] = field(default_factory=dict)
    is_module: bool = False
    is_function: bool = False  # a torch.autograd.Function


@dataclass(slots=True)
class Frame:
    """One evaluation of a function body, or of the module itself (`node` is then the Module)."""

    node: ast.AST
    env: dict[str, Value]
    cls: ClassInfo | None = None
    no_grad: bool = False
    depth: int = 0
    no_grad_at: ast.AST | None = None  # the expression that turned recording off
    inlined: bool = False
    params: dict[str, Value] = field(default_factory=dict)
    attributes: dict[str, Value] = field(default_factory=dict)
    arms: tuple[tuple[int | str, int], ...] = ()  # the arms of `if` statements we stand in, and what they asked
    dead: set[tuple[int, int]] = field(default_factory=set)  # arms that ended in return, raise, break or continue
    loops: list[ast.AST] = field(default_factory=list)
    hazards: list[Hazard] = field(default_factory=list)
    sinks: list[tuple[int, str, Value]] = field(default_factory=list)
    returns: list[Value] = field(default_factory=list)
    writes: int = 0
    frozen: set[str] = field(default_factory=set)  # expressions whose requires_grad was set to False

    @property
    def is_script(self) -> bool:
        return isinstance(self.node, ast.Module)

    @property
    def name(self) -> str:
        own = getattr(self.node, "name", "<module>")
        return f"{self.cls.node.name}.{own}" if self.cls else own


@dataclass(slots=True)
class Call:
    node: ast.Call
    name: str  # last part of what is called: `softmax`
    path: str  # resolved, `torch.nn.functional.softmax`; empty for methods and unknown callables
    receiver: Value | None  # of a method call
    args: list[Value]
    kwargs: dict[str, Value]
    result: Value
    frame: Frame
    module: Value | None = None  # when an nn.Module instance is called

    @property
    def is_torch(self) -> bool:
        return self.path.startswith("torch.")

    def argument(self, position: int, name: str) -> ast.expr | None:
        """The expression given for a parameter, by place or by name (`position` counts without the receiver)."""
        for keyword in self.node.keywords:
            if keyword.arg == name:
                return keyword.value
        if 0 <= position < len(self.node.args) and not any(isinstance(a, ast.Starred) for a in self.node.args):
            return self.node.args[position]
        return None


@dataclass(slots=True)
class Write:
    """Something wrote into a tensor in place."""

    node: ast.AST  # the statement or call that writes
    target: Value
    text: str  # source of the written-to expression
    how: str  # "augmented" | "item" | "method" | "inplace-argument" | "module" | "data"
    op: str
    frame: Frame
    no_grad: bool
    name: str = ""  # of the variable written to, where it is one


@dataclass(slots=True)
class Hazard:
    """A write into memory that an earlier operation kept for backward."""

    save: Save
    write: Write
    time: int
    certain: bool
    trained: bool = False  # a backward in the same function goes through nothing else, so this was kept or there is no gradient at all
    used: str = ""  # how the result is used afterwards: "backward" | "return" | ...
    feeds: bool = False  # what is written comes from what was kept: `x /= x.norm()`
    others: list[Save] = field(default_factory=list)  # further operations that kept what this write changes

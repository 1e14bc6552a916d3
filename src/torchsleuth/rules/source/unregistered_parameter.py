"""A tensor of a module that requires grad and is no Parameter."""

from __future__ import annotations

import ast

from torchsleuth.linter.events import ClassInfo
from torchsleuth.linter.flow import is_self_attribute
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.model import Confidence, Role

FACTORIES = frozenset("torch." + name for name in "zeros ones randn rand full empty tensor eye".split())

COMPUTED = frozenset("view reshape unsqueeze expand expand_as exp sigmoid softmax tanh abs t T mT".split())


class UnregisteredParameter(LintRule):
    """A module's own tensor requires grad and is no `nn.Parameter`, so no optimizer gets it.

    What happened
    -------------
    `__init__` of a module sets `self.scale = torch.ones(1, requires_grad=True)`, and forward uses it.

    Why
    ---
    A module registers `nn.Parameter`s and modules that are assigned to it, nothing else. `parameters()` leaves a plain
    tensor out, so an optimizer made from it never updates it, `state_dict()` does not save it and `.to(device)` does not move it.
    The forward pass works, and a gradient even arrives.

    Example
    -------
    This runs and prints 0: no parameter is known to the module.

        import torch
        from torch import nn

        class Scale(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = torch.ones(1, requires_grad=True)

            def forward(self, x):
                return x * self.scale

        print(len(list(Scale().parameters())))

    Fix
    ---
    `self.scale = nn.Parameter(torch.ones(1))`.

    Common false explanations
    -------------------------
    "It requires grad, so it is trained." The optimizer updates what it was given, and `parameters()` does not give it this.
    """

    name = "unregistered-parameter"

    def on_class(self, info: ClassInfo, view: View) -> Found:
        init = info.methods.get("__init__")
        if not info.is_module or init not in info.node.body or {"parameters", "named_parameters"} & set(info.methods):
            return None
        made = [
            n for n in ast.walk(init)
            if isinstance(n, ast.Assign) and len(n.targets) == 1 and is_self_attribute(n.targets[0]) and _requires_grad(n.value, view)
        ]  # fmt: skip
        return [self._found(n, n.targets[0].attr, info, view) for n in made if _only_computed_with(n.targets[0].attr, info, view)]

    def _found(self, node: ast.Assign, name: str, info: ClassInfo, view: View):
        return self.diagnosis(
            f"`self.{name}` requires grad and is no `nn.Parameter`: the module does not know it",
            [view.culprit(Role.CREATE, node, "a plain tensor")],
            f"A module registers Parameters only: `{info.node.name}.parameters()` leaves `self.{name}` out, so an optimizer made from it never updates it, "
            "`state_dict()` does not save it and `.to(device)` does not move it.",
            Confidence.CERTAIN,
            fixes=[advice(f"`self.{name} = nn.Parameter({_plain(node.value)})`")],
        )


def _requires_grad(value: ast.expr, view: View) -> bool:
    """`torch.ones(1, requires_grad=True)`, or `torch.ones(1).requires_grad_()`."""
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Attribute) and value.func.attr == "requires_grad_" and not value.args and not value.keywords:
        return isinstance(value.func.value, ast.Call) and view.dotted(value.func.value.func) in FACTORIES
    return view.dotted(value.func) in FACTORIES and any(k.arg == "requires_grad" and isinstance(k.value, ast.Constant) and k.value.value is True for k in value.keywords)


def _plain(value: ast.Call) -> str:
    """The call without its `requires_grad`."""
    if isinstance(value.func, ast.Attribute) and value.func.attr == "requires_grad_":
        return ast.unparse(value.func.value)
    return ast.unparse(ast.Call(value.func, value.args, [k for k in value.keywords if k.arg != "requires_grad"]))


def _only_computed_with(name: str, info: ClassInfo, view: View) -> bool:
    """Forward reads it, and nothing in the file hands it on, changes it or asks for its gradient: it may be an input, or be updated by hand."""
    inside = {id(n) for n in ast.walk(info.node)}
    read = {id(n) for n in ast.walk(info.methods["forward"])} if "forward" in info.methods else set()
    parents = {id(child): node for node in ast.walk(view.source.tree) for child in ast.iter_child_nodes(node)}
    used = False
    for node in ast.walk(view.source.tree):
        if isinstance(node, ast.Constant) and node.value == name:
            return False  # by its name: `getattr`, `register_parameter`
        if not isinstance(node, ast.Attribute) or node.attr != name:
            continue
        around = parents.get(id(node))
        if id(node) not in inside or not is_self_attribute(node):
            return False
        if isinstance(node.ctx, ast.Store):
            if around is not None and isinstance(around, ast.Assign) and _in(node, info.methods["__init__"]):
                continue
            return False
        if not isinstance(around, (ast.BinOp, ast.UnaryOp)) and not _of_torch(around, view) and getattr(around, "attr", "") not in COMPUTED:
            return False
        used |= id(node) in read
    return used


def _of_torch(node: ast.AST | None, view: View) -> bool:
    """`torch.exp(self.scale)`: computed with; `torch.autograd.grad(y, self.scale)` is not."""
    path = view.dotted(node.func) if isinstance(node, ast.Call) else ""
    return path.startswith("torch.") and path.rpartition(".")[0] in ("torch", "torch.nn.functional")


def _in(node: ast.AST, function: ast.AST) -> bool:
    return any(n is node for n in ast.walk(function))

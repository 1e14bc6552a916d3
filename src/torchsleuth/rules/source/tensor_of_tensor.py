"""`torch.tensor(x)` where `x` is a tensor already: a detached copy."""

from __future__ import annotations

import ast

from torchsleuth.linter.events import Call
from torchsleuth.linter.lintrule import Found, LintRule, View, advice, safe_fix, unsafe_fix
from torchsleuth.model import Confidence, Role


class TensorOfTensor(LintRule):
    """`torch.tensor(x)` of a tensor copies its values and drops its gradient.

    What happened
    -------------
    `torch.tensor(...)` was given a tensor. The result has the values but no history, and torch warns.

    Why
    ---
    `torch.tensor` builds a new leaf from data. It reads the values of what it is given, as it would of a list.

    Example
    -------
    This runs (with a warning) and prints False: the copy does not require a gradient.

        import torch
        w = torch.ones(3, requires_grad=True)
        y = torch.tensor(w * 2)
        print(y.requires_grad)

    Fix
    ---
    `x.clone()` for a copy that keeps the gradient, `x.detach().clone()` for one that does not, or `x` itself where
    no copy is needed.

    Common false explanations
    -------------------------
    "It converts the tensor." There is nothing to convert; use `.to(...)` for another dtype or device.
    """

    name = "tensor-of-tensor"
    calls = frozenset({"tensor"})

    def on_call(self, call: Call, view: View) -> Found:
        if call.path != "torch.tensor" or len(call.args) != 1 or not call.args[0].is_tensor or call.args[0].assumed:
            return None
        value = call.args[0]
        argument = call.node.args[0]
        if isinstance(argument, ast.Starred):
            return None
        if value.op == "argument" and isinstance(argument, ast.Name) and _is_asked_about(argument.id, call.frame.node):
            return None  # `is_tensor = isinstance(x, Tensor)` above, and this is the other case
        if value.op == "argument" and isinstance(argument, ast.Name) and _is_given_a_number(argument.id, call.frame.node, view):
            return None  # the annotation is not true
        text = view.text(argument)
        operand = text if isinstance(argument, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)) else f"({text})"
        loses = value.grad is True
        fixes = []
        if not call.node.keywords:
            fixes.append(safe_fix("say what it does", view.edit(call.node, f"{operand}.detach().clone()"),
                                  meaning="the same values, no gradient, no warning"))  # fmt: skip
            fixes.append(unsafe_fix("keep the gradient", "the copy now has a history", view.edit(call.node, f"{operand}.clone()")))
        if not fixes:
            fixes = [advice(f"`{operand}.detach().clone()` copies it, `.to(...)` gives it another dtype or device; without `detach` the gradient stays")]
        return self.diagnosis(
            f"`{view.short(call.node)}` copies a tensor" + (" and drops its gradient" if loses else ", without its gradient if it has one"),
            [view.culprit(Role.LOST_GRAD, call.node, "values only, no history", call.frame)],
            f"`{view.short(argument, 40)}` is a tensor already. `torch.tensor` reads its values into a new leaf: what was computed "
            "before gets no gradient through the copy, and torch warns about it.",
            Confidence.CERTAIN,
            fixes=fixes[::-1] if loses else fixes,
        )


def _is_asked_about(name: str, function: ast.AST) -> bool:
    return any(isinstance(n, ast.Call) and isinstance(n.func, (ast.Name, ast.Attribute)) and ast.unparse(n.func).rsplit(".", 1)[-1] in ("isinstance", "is_tensor", "type")
               and n.args and isinstance(n.args[0], ast.Name) and n.args[0].id == name for n in ast.walk(function))  # fmt: skip


def _is_given_a_number(name: str, function: ast.AST, view: View) -> bool:
    """A call in this file hands over what is no tensor: a size, a constant, a list."""
    places = [a.arg for a in [*function.args.posonlyargs, *function.args.args] if a.arg not in ("self", "cls")]
    for node in ast.walk(view.interpreter.tree):
        if isinstance(node, ast.Call) and function.name in (getattr(node.func, "attr", ""), getattr(node.func, "id", "")):
            given = next((k.value for k in node.keywords if k.arg == name), None)
            if given is None and name in places and places.index(name) < len(node.args):
                given = node.args[places.index(name)]
            if given is not None and _is_no_tensor(given):
                return True
    return False


def _is_no_tensor(node: ast.expr) -> bool:
    if isinstance(node, (ast.Constant, ast.List, ast.ListComp, ast.Tuple, ast.JoinedStr)):
        return True
    if isinstance(node, ast.UnaryOp):
        return _is_no_tensor(node.operand)
    if isinstance(node, ast.Subscript):  # `x.shape[1]`, `input_shape[-1]`
        owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        return owner.endswith(("shape", "size"))
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        return called in ("len", "int", "float", "list", "range") or called.startswith(("np.", "numpy.")) or called.endswith((".item", ".tolist", ".numpy", ".size"))
    return False

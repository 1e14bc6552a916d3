"""A custom `backward` that writes into the gradient it was given."""

from __future__ import annotations

import ast

from torchsleuth.linter.events import ClassInfo
from torchsleuth.linter.flow import root_name
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.model import Confidence, Role


class InplaceOnGradOutput(LintRule):
    """`backward` writes in place into `grad_output`, which belongs to autograd.

    What happened
    -------------
    `backward` of a custom Function changes its gradient argument in place.

    Why
    ---
    Autograd may hand the same tensor to several consumers: where a result is used twice, or where an addition
    passes one gradient to both its inputs, all of them share memory. A write changes the others' gradients
    too, and nothing raises.

    Example
    -------
    This runs and prints 0.0 for the other input; its gradient should be 1.0.

        import torch

        class Zero(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, grad_output):
                return grad_output.mul_(0)

        a = torch.ones(1, requires_grad=True)
        b = torch.ones(1, requires_grad=True)
        (b.clone() + Zero.apply(a)).backward(torch.ones(1))
        print(b.grad.item())

    Fix
    ---
    Work on a copy: `grad_input = grad_output.clone()`, or use out-of-place operations.

    Common false explanations
    -------------------------
    "grad_output is a temporary that nobody else sees." Often, and sometimes not.
    """

    name = "inplace-on-grad-output"

    def on_class(self, info: ClassInfo, view: View) -> Found:
        backward = info.methods.get("backward")
        if not info.is_function or backward is None or backward not in info.node.body:
            return None
        gradients = {a.arg for a in backward.args.args[1:]}
        rebound: dict[str, int] = {}
        for node in ast.walk(backward):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    for part in ast.walk(target):
                        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                            rebound[part.id] = min(rebound.get(part.id, 10**9), node.lineno)
        found = []
        for node in ast.walk(backward):
            name = _written(node)
            if name in gradients and rebound.get(name, 10**9) > node.lineno:
                found.append(
                    self.diagnosis(
                        f"`{view.short(node)}` writes into the gradient that `backward` was given",
                        [view.culprit(Role.MUTATE, node, f"`{name}` belongs to autograd")],
                        f"Autograd may give the memory of `{name}` to other parts of the graph as well; a write changes their "
                        "gradients too, without an error.",
                        Confidence.CERTAIN,
                        fixes=[advice(f"work on `{name}.clone()`, or use the out-of-place operation")],
                    )
                )
        return found


def _written(node: ast.AST) -> str:
    if isinstance(node, ast.AugAssign):
        return root_name(node.target) if not _has_call(node.target) else ""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        return root_name(node.targets[0]) if not _has_call(node.targets[0].value) else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        if name.endswith("_") and not name.endswith("__") and name not in ("requires_grad_", "detach_"):
            return node.func.value.id if isinstance(node.func.value, ast.Name) else ""
    return ""


def _has_call(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Call) for n in ast.walk(node))



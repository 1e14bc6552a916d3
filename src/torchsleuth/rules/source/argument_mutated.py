"""`+=` on a function's tensor argument: the caller's tensor changes."""

from __future__ import annotations

import ast

from torchsleuth.linter.events import Write
from torchsleuth.linter.lintrule import Found, LintRule, View, unsafe_fix
from torchsleuth.model import Confidence, Role

SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}


class ArgumentMutated(LintRule):
    """`+=` on a tensor argument changes the caller's tensor.

    What happened
    -------------
    A function uses `+=` (or `-=`, `*=`, `/=`) on a tensor it was given.

    Why
    ---
    On numbers `+=` makes a new object; on tensors it writes in place, so the caller's tensor changes as well. If
    an operation of the caller kept that tensor, backward raises; if it is a leaf, the line itself raises; and
    if neither, the caller goes on with values it did not compute.

    Example
    -------
    This runs and prints 2.0: calling the function changed the caller's tensor.

        import torch

        def shifted(x):
            x += 1
            return x

        a = torch.ones(1)
        b = shifted(a)
        print(a.item())

    Fix
    ---
    `x = x + 1`. Where changing the argument is the purpose, say so in the function's name with a trailing
    underscore, as torch does.

    Common false explanations
    -------------------------
    "`x += 1` and `x = x + 1` are the same." For tensors they are not.
    """

    name = "argument-mutated"
    default = False

    def on_write(self, write: Write, view: View) -> Found:
        frame = write.frame
        if write.how != "augmented" or frame.is_script or not isinstance(write.node, ast.AugAssign):
            return None
        name = write.name
        if not isinstance(write.node.target, ast.Name) or name not in frame.params or frame.params[name].storage is not write.target.storage or write.target.op != "argument" or write.target.assumed:
            return None
        function = getattr(frame.node, "name", "")
        if function.endswith("_") or type(write.node.op) not in SIGNS:
            return None
        replacement = f"{name} = {name} {SIGNS[type(write.node.op)]} ({view.text(write.node.value)})"
        if isinstance(write.node.value, (ast.Name, ast.Constant, ast.Call, ast.Attribute, ast.Subscript)):
            replacement = f"{name} = {name} {SIGNS[type(write.node.op)]} {view.text(write.node.value)}"
        return self.diagnosis(
            f"`{view.short(write.node)}` changes the tensor that the caller passed as `{name}`",
            [view.culprit(Role.MUTATE, write.node, "writes into the caller's tensor", frame)],
            "On tensors an augmented assignment writes in place, so the caller sees it too: its values change, and an "
            "operation that kept the tensor makes backward raise.",
            Confidence.CERTAIN,
            fixes=[unsafe_fix("make a new tensor", "a caller that relies on the change no longer sees it", view.edit(write.node, replacement))],
        )

"""`forward` or `backward` of a custom Function that is not a static method."""

from __future__ import annotations

import ast
from dataclasses import replace

from torchsleuth.linter.events import ClassInfo
from torchsleuth.linter.lintrule import Found, LintRule, View, advice, safe_fix, unsafe_fix
from torchsleuth.model import Confidence, Role, Span


class FunctionNotStatic(LintRule):
    """`forward` or `backward` of a custom autograd Function is not a `@staticmethod`.

    What happened
    -------------
    A class derived from `torch.autograd.Function` defines `forward` or `backward` without `@staticmethod`.

    Why
    ---
    `Function.apply` takes both from the class, never from an instance, and passes a context object first. Written as
    methods (`def forward(self, ctx, x)`) they get one argument too few, and a TypeError. Written as
    `def forward(ctx, x)` without the decorator they happen to work through `apply`, but calling an instance raises
    "Legacy autograd function with non-static forward method is deprecated".

    Example
    -------
    This raises "TypeError": `ctx` was taken for `self`.

        import torch

        class Double(torch.autograd.Function):
            def forward(self, ctx, x):
                return 2 * x

            def backward(self, ctx, grad):
                return 2 * grad

        Double.apply(torch.ones(1, requires_grad=True))

    Fix
    ---
    Put `@staticmethod` above `forward`, `backward`, `setup_context` and `jvp`, and let the context be their first
    argument; call the class with `Double.apply(x)`.

    Common false explanations
    -------------------------
    "`self` is the instance, as in every method." There is no instance.
    """

    name = "function-not-static"

    def on_class(self, info: ClassInfo, view: View) -> Found:
        if not info.is_function:
            return None
        found = []
        for name in ("forward", "backward", "setup_context", "jvp"):
            method = info.methods.get(name)
            if method is None or method not in info.node.body:
                continue
            decorators = {ast.unparse(d).split("(")[0].rsplit(".", 1)[-1] for d in method.decorator_list}
            if decorators & {"staticmethod", "classmethod"}:
                continue
            if decorators and not decorators <= {"once_differentiable", "custom_fwd", "custom_bwd"}:
                continue
            found.append(self._found(method, info, view))
        return found

    def _found(self, method: ast.FunctionDef, info: ClassInfo, view: View):
        source = view.source
        label, line = source.place(method.lineno)
        first = method.decorator_list[0].lineno if method.decorator_list else method.lineno
        label, first_line = source.place(first)
        text = source.lines[first - 1]
        indent = text[: len(text) - len(text.lstrip())]
        place = Span(label, first_line, len(indent) + 1, first_line, len(indent) + 1)
        header = source.lines[method.lineno - 1]
        start = source.column(method.lineno, method.col_offset)
        span = Span(label, line, start, line, len(header.rstrip()) + 1)
        culprit = view.culprit(Role.CALL, method, "no `@staticmethod`")
        culprit = replace(culprit, span=span, source=header.strip(), function=f"{info.node.name}.{method.name}")
        arguments = [a.arg for a in method.args.args]
        has_both = len(arguments) >= 2 and arguments[0] == "self" and arguments[1] in ("ctx", "context")
        if has_both:
            harm = "With both `self` and `" + arguments[1] + "` it gets one argument too few: a TypeError."
            fixes = [advice("add `@staticmethod` and drop `self`")]
        else:
            harm = "Through `apply` this happens to work; calling an instance raises \"Legacy autograd function with non-static forward method is deprecated\"."
            edit = view.edit_between(place, f"@staticmethod\n{indent}")
            fixes = [safe_fix("add `@staticmethod`", edit)]
            if "__init__" in info.methods or arguments[:1] == ["self"]:
                fixes = [unsafe_fix("add `@staticmethod`", f"`{arguments[0] if arguments else 'self'}` is then the context, also where an instance's `{method.name}` is called", edit)]
        return self.diagnosis(
            f"`{info.node.name}.{method.name}` of a custom Function is not a `@staticmethod`",
            [culprit],
            f"torch takes it from the class, not from an instance, and passes a context object first. {harm}",
            Confidence.CERTAIN,
            fixes=fixes,
        )

"""`forward` or `backward` of a custom Function that is not a static method."""

from __future__ import annotations

import ast

from torchsleuth.linter.events import ClassInfo
from torchsleuth.linter.lintrule import Found, LintRule, View, safe_fix
from torchsleuth.model import Confidence, Role, Span


class FunctionNotStatic(LintRule):
    """`forward` or `backward` of a custom autograd Function is not a `@staticmethod`.

    What happened
    -------------
    A class derived from `torch.autograd.Function` defines `forward` or `backward` without `@staticmethod`.

    Why
    ---
    `Function.apply` calls both with a context object in place of `self`. Without `@staticmethod` torch takes the
    class for the form of before 1.3 and raises "Legacy autograd function with non-static forward method is
    deprecated".

    Example
    -------
    This raises at `apply`.

        import torch

        class Double(torch.autograd.Function):
            def forward(ctx, x):
                return 2 * x

            def backward(ctx, grad):
                return 2 * grad

        Double.apply(torch.ones(1, requires_grad=True))

    Fix
    ---
    Put `@staticmethod` above `forward`, `backward`, `setup_context`, `vmap` and `jvp`.

    Common false explanations
    -------------------------
    "`self` works as the context." Nothing makes an instance; `apply` is called on the class.
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
        culprit = view.culprit(Role.RETURN_GRAD, method, "no `@staticmethod`")
        from dataclasses import replace

        culprit = replace(culprit, span=span, source=header.strip(), function=f"{info.node.name}.{method.name}")
        return self.diagnosis(
            f"`{info.node.name}.{method.name}` of a custom Function is not a `@staticmethod`",
            [culprit],
            "`apply` calls it with a context object, not an instance. Without `@staticmethod` torch raises "
            '"Legacy autograd function with non-static forward method is deprecated".',
            Confidence.CERTAIN,
            fixes=[safe_fix("add `@staticmethod`", view.edit_between(place, f"@staticmethod\n{indent}"))],
        )

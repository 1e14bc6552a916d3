"""A custom `backward` that does not return one gradient per input of `forward`."""

from __future__ import annotations

import ast

from torchsleuth.linter.events import ClassInfo
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.model import Confidence, Role


class BackwardReturnCount(LintRule):
    """`backward` of a custom Function returns another number of gradients than `forward` has inputs.

    What happened
    -------------
    The tuple that `backward` returns has more or fewer entries than `forward` takes arguments after `ctx`.

    Why
    ---
    `backward` must return one gradient for every input that was given to `apply`, in the same order, and None for
    inputs that have no gradient (sizes, flags). Otherwise torch raises "function ... returned an incorrect
    number of gradients (expected 2, got 1)".

    Example
    -------
    This raises at backward: `scale` needs a None.

        import torch

        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, scale):
                ctx.scale = scale
                return x * scale

            @staticmethod
            def backward(ctx, grad):
                return grad * ctx.scale

        Scale.apply(torch.ones(2, requires_grad=True), 3.0).sum().backward()

    Fix
    ---
    Return as many values as `forward` has arguments: `return grad * ctx.scale, None`.

    Common false explanations
    -------------------------
    "Only inputs that require grad count." All of them do.
    """

    name = "backward-return-count"

    def on_class(self, info: ClassInfo, view: View) -> Found:
        if not info.is_function:
            return None
        forward, backward = info.methods.get("forward"), info.methods.get("backward")
        if forward is None or backward is None or backward not in info.node.body or forward not in info.node.body:
            return None
        if any(isinstance(n, ast.Attribute) and n.attr == "mark_non_differentiable" for n in ast.walk(forward)) and not any(
            n.value is not None and not _only_none_after(n, 0) for n in _returns(backward)
        ):
            return None  # nothing ever asks it
        arguments = forward.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
            return None
        by_class = any(isinstance(d, ast.Name) and d.id == "classmethod" for d in forward.decorator_list)
        most = len(arguments.posonlyargs) + len(arguments.args) - (0 if "setup_context" in info.methods else 1) - by_class
        least = most - len(arguments.defaults)
        found = []
        for node in _returns(backward):
            given = _count(node, backward)
            if given is None or given < 0:
                continue
            if given < least or (given > most and not _only_none_after(node, most)):
                found.append(self._found(node, given, most, forward, info, view))
        return found

    def _found(self, node: ast.Return, given: int, wanted: int, forward, info: ClassInfo, view: View):
        names = [a.arg for a in [*forward.args.posonlyargs, *forward.args.args]][-wanted:] if wanted else []
        listed = ", ".join(f"`{n}`" for n in names)
        return self.diagnosis(
            f"`{info.node.name}.backward` returns {given} gradient{'s' * (given != 1)} for {wanted} input{'s' * (wanted != 1)} of `forward`",
            [view.culprit(Role.RETURN_GRAD, node, f"{given} here, {wanted} needed")],
            f"`forward` takes {listed}: `backward` has to return one gradient for each, None where there is none. torch raises "
            f'"returned an incorrect number of gradients (expected {wanted}, got {given})".',
            Confidence.CERTAIN,
            fixes=[advice(f"return {wanted} value{'s' * (wanted != 1)}, in the order {listed}; None for what has no gradient")],
        )


def _returns(function: ast.FunctionDef):
    pending = list(function.body)
    if any(isinstance(s, ast.Raise) for s in function.body):
        return  # it never returns
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Return):
            if node.value is not None:
                yield node
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            pending.extend(ast.iter_child_nodes(node))


def _count(node: ast.Return, function: ast.FunctionDef) -> int | None:
    value = node.value
    if isinstance(value, ast.Tuple):
        return None if any(isinstance(e, ast.Starred) for e in value.elts) else len(value.elts)
    if isinstance(value, (ast.BinOp, ast.UnaryOp)):
        # Arithmetic gives one tensor, unless tuples are added or repeated.
        return None if any(isinstance(n, (ast.Tuple, ast.List, ast.Starred)) for n in ast.walk(value)) else 1
    if isinstance(value, ast.Name):
        sets = [n for n in ast.walk(function) if isinstance(n, ast.Assign) and any(isinstance(t, ast.Name) and t.id == value.id for t in n.targets)]
        if sets and all(_is_tensor_method(s.value) or _is_arithmetic(s.value) for s in sets):
            return 1
        arguments = [a.arg for a in function.args.args]
        return 1 if not sets and value.id in arguments[1:] else None
    return 1 if _is_tensor_method(value) else None


def _is_arithmetic(node: ast.expr) -> bool:
    return isinstance(node, (ast.BinOp, ast.UnaryOp)) and not any(isinstance(n, (ast.Tuple, ast.List)) for n in ast.walk(node))


def _is_tensor_method(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in (
        "clone", "clamp", "expand_as", "expand", "masked_fill", "mul", "neg", "view", "reshape", "sum", "matmul", "mm", "t", "transpose", "unsqueeze"
    )  # fmt: skip


def _only_none_after(node: ast.Return, count: int) -> bool:
    """torch allows extra entries at the end as long as they are None."""
    return isinstance(node.value, ast.Tuple) and all(isinstance(e, ast.Constant) and e.value is None for e in node.value.elts[count:])

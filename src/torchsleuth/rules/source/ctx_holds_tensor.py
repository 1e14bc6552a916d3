"""An input or output of a custom Function kept as an attribute of `ctx`."""

from __future__ import annotations

import ast

from torchsleuth.linter.events import ClassInfo
from torchsleuth.linter.flow import tensor_evidence
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.model import Confidence, Role


class CtxHoldsTensor(LintRule):
    """An input or output tensor is kept on `ctx` instead of with `ctx.save_for_backward`.

    What happened
    -------------
    `forward` of a custom Function does `ctx.x = x` with a tensor that is one of its inputs or its result.

    Why
    ---
    `save_for_backward` checks that the tensor was not written in place since, frees it with the graph, and does
    not make a cycle for an output. An attribute does none of that: a later in-place write gives a wrong
    gradient without an error, and an output kept this way holds its own graph alive.

    Example
    -------
    This runs and prints the wrong gradient 20.0; the right one is 2.0, and `save_for_backward` would have raised.

        import torch

        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.x = x
                return x * x

            @staticmethod
            def backward(ctx, grad):
                return 2 * ctx.x * grad

        w = torch.ones(1, requires_grad=True)
        x = w.clone()
        y = Square.apply(x)
        with torch.no_grad():
            x.fill_(10.0)
        y.sum().backward()
        print(w.grad.item())

    Fix
    ---
    `ctx.save_for_backward(x)` in `forward`, `x, = ctx.saved_tensors` in `backward`. Numbers and flags belong on `ctx`.

    Common false explanations
    -------------------------
    "It is the same, only shorter." It skips the version check and the freeing.
    """

    name = "ctx-holds-tensor"

    def on_class(self, info: ClassInfo, view: View) -> Found:
        forward, backward = info.methods.get("forward"), info.methods.get("backward")
        if not info.is_function or forward is None or backward is None or forward not in info.node.body:
            return None
        if "setup_context" in info.methods or len(forward.args.args) < 2 or forward.args.vararg:
            return None
        context = forward.args.args[0].arg
        inputs = [a.arg for a in forward.args.args[1:]]
        tensors = _differentiable(inputs, backward) & {inputs[0], *tensor_evidence(forward, view.interpreter)}
        rebound = {t.id for n in ast.walk(forward) if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
        returned = {n.value.id for n in ast.walk(forward) if isinstance(n, ast.Return) and isinstance(n.value, ast.Name)}
        found = []
        for node, target, value in _assigned(forward):
            if not (isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == context):
                continue
            if not isinstance(value, ast.Name) or any(f.culprits[0].span.line == node.lineno for f in found):
                continue
            if value.id in tensors and value.id not in rebound:
                found.append(self._found(node, value.id, "input", info, view))
            elif value.id in returned and value.id not in inputs:
                found.append(self._found(node, value.id, "output", info, view))
        return found

    def _found(self, node: ast.Assign, name: str, what: str, info: ClassInfo, view: View):
        harm = "a later in-place write to it gives a wrong gradient without an error" if what == "input" else "the output holds its own graph alive"
        return self.diagnosis(
            f"`{view.short(node)}` keeps an {what} tensor on `ctx` instead of saving it",
            [view.culprit(Role.SAVE, node, "not checked, not freed with the graph")],
            f"`{name}` is an {what} of `{info.node.name}`. As an attribute it escapes the checks of `save_for_backward`: {harm}.",
            Confidence.CERTAIN,
            fixes=[advice(f"`ctx.save_for_backward({name})`, and `ctx.saved_tensors` in `backward`")],
        )


def _is_one_tensor(node: ast.expr) -> bool:
    return isinstance(node, (ast.BinOp, ast.UnaryOp)) and not any(isinstance(n, (ast.Tuple, ast.List)) for n in ast.walk(node))


def _assigned(function: ast.FunctionDef):
    """Every assignment, `ctx.a, ctx.b = a, b` taken apart: the statement, one target, its value."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
                yield from ((node, t, v) for t, v in zip(target.elts, value.elts, strict=True))
            else:
                yield node, target, value


def _differentiable(inputs: list[str], backward: ast.FunctionDef) -> set[str]:
    """Inputs for which `backward` returns something other than None: those are tensors."""
    found: set[str] = set()
    nested = {id(n) for d in ast.walk(backward) if isinstance(d, (ast.FunctionDef, ast.Lambda)) and d is not backward for n in ast.walk(d)}
    for node in ast.walk(backward):
        if id(node) in nested:
            continue
        if isinstance(node, ast.Return) and node.value is not None:
            entries = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            if any(isinstance(e, ast.Starred) for e in entries):
                continue
            given = {a.arg for a in backward.args.args}
            if len(entries) == 1 and len(inputs) > 1 and not _is_one_tensor(entries[0]) and not (isinstance(entries[0], ast.Name) and entries[0].id in given):
                continue  # it may be a tuple
            for name, entry in zip(inputs, entries, strict=False):
                if not (isinstance(entry, ast.Constant) and entry.value is None):
                    found.add(name)
    return found

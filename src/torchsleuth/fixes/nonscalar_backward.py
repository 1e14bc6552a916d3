"""Backward on several numbers: reduce them to one."""

from __future__ import annotations

import ast

from torchsleuth.evidence import BackwardRoot, Evidence
from torchsleuth.fixes.fixer import Fixer
from torchsleuth.fixes.script import Scripts, called
from torchsleuth.model import Diagnosis, Fix
from torchsleuth.rules.backward.nonscalar_backward import asks_for_gradients


class NonscalarBackwardFixer(Fixer):
    rule = "nonscalar-backward"

    def propose(self, diagnosis: Diagnosis, evidence: Evidence, scripts: Scripts) -> list[Fix | None]:
        root = evidence.backward_root
        if root is not None and "Expected f(*args)" in evidence.exception.message:
            return _returned(scripts, root)
        place = root.call if root is not None else None
        if place is not None and place.in_library:
            place = place.via
        script = scripts.get(place)
        call = script.node_at(place.span) if script is not None else None
        if script is None or not isinstance(call, ast.Call) or called(call) not in ("backward", "grad"):
            return []
        receiver = _root(call)
        if receiver is None:
            return []
        text = script.segment(receiver)
        if "Mismatch in shape" in evidence.exception.message:
            given = _gradient(call)
            torch = script.module_name("torch")
            if given is None or torch is None or called(given) not in ("ones", "ones_like") or not isinstance(receiver, (ast.Name, ast.Attribute)):
                return []
            return [scripts.fix(f"Weights in the shape of `{text}`: `{torch}.ones_like({text})`.", [script.replace(given, f"{torch}.ones_like({text})")])]
        others = {"mean": "sum", "sum": "mean"}
        asked = asks_for_gradients(root) if root is not None else False
        own = " Where each element depends on its own input alone, it is the derivative of each." if asked else ""
        return [
            scripts.fix(
                f"Reduce `{text}` to one number first: `.{name}()`.",
                script.wrapped(receiver, f".{name}()"),
                f"The gradient is that of the {name}; that of the {others[name]} differs by a factor, the number of elements.{own * (name == 'sum')}",
                safe=False,
            )
            for name in (("sum", "mean") if asked else ("mean", "sum"))
        ]


def _returned(scripts: Scripts, root: BackwardRoot) -> list[Fix | None]:
    """The function given to `torch.func.grad`: what it returns, reduced."""
    script = scripts.get(root.made)
    value = script.node_at(root.made.span) if script is not None else None
    if script is None or not isinstance(value, ast.expr):
        return []
    return [
        scripts.fix(f"Return one number: `.{name}()`.", script.wrapped(value, f".{name}()"), f"The gradient is that of the {name}.", safe=False)
        for name in ("mean", "sum")
    ]


def _root(call: ast.Call) -> ast.expr | None:
    """`loss` in `loss.backward()`, `torch.autograd.backward(loss)` and `torch.autograd.grad(loss, …)`."""
    if isinstance(call.func, ast.Attribute) and not ast.unparse(call.func.value).endswith("autograd"):
        return call.func.value if called(call) == "backward" else None
    first = call.args[0] if call.args else None
    return None if isinstance(first, (ast.List, ast.Tuple)) else first


def _gradient(call: ast.Call) -> ast.expr | None:
    keyword = next((k.value for k in call.keywords if k.arg in ("gradient", "grad_tensors", "grad_outputs")), None)
    if keyword is not None:
        return keyword
    if isinstance(call.func, ast.Attribute) and not ast.unparse(call.func.value).endswith("autograd"):
        return call.args[0] if call.args else None
    return None

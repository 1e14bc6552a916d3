"""A parameter replaced by the result of a computation."""

from __future__ import annotations

import ast

from torchsleuth.linter.events import Frame
from torchsleuth.linter.flow import is_self_attribute
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.linter.values import Value
from torchsleuth.model import Confidence, Role

# They return the tensor itself where there is nothing to do.
CONVERTING = frozenset({"to", "float", "half", "contiguous"})


class ParameterReassigned(LintRule):
    """A parameter's name is given a computed tensor: the parameter itself does not change.

    What happened
    -------------
    `p = p - lr * p.grad` in a loop over parameters, or `self.weight = self.weight * 0.9` in a module, or
    `self.weight = nn.Parameter(self.weight.clamp(0, 1))` in its forward.

    Why
    ---
    Assigning to a name never changes the tensor it stood for. In a loop over parameters the loop variable is
    pointed at a new tensor and the model stays as it was. On a module, an attribute that is a registered
    parameter refuses anything that is not a Parameter: "cannot assign 'torch.FloatTensor' as parameter". A new
    Parameter is accepted, and the optimizer goes on with the old one, which gets no gradient any more.

    Example
    -------
    This runs and prints True: the update changed nothing.

        import torch
        layer = torch.nn.Linear(2, 2)
        before = layer.weight.detach().clone()
        layer(torch.ones(1, 2)).sum().backward()
        for p in layer.parameters():
            p = p - 0.1 * p.grad
        print(torch.equal(before, layer.weight))

    Fix
    ---
    Change the tensor in place, where autograd does not look: `with torch.no_grad(): p -= lr * p.grad`, or use an
    optimizer.

    Common false explanations
    -------------------------
    "p is the parameter, so assigning to p updates it." It rebinds the name.
    """

    name = "parameter-reassigned"

    def on_statement(self, node: ast.stmt, frame: Frame, view: View) -> Found:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            return None
        target = node.targets[0]
        if isinstance(target, ast.Name):
            return self._loop_variable(node, target, frame, view)
        if is_self_attribute(target):
            return self._attribute(node, target, frame, view)
        return None

    def _loop_variable(self, node: ast.Assign, target: ast.Name, frame: Frame, view: View):
        loop = next((l for l in reversed(frame.loops) if isinstance(l, ast.For) and isinstance(l.target, ast.Name) and l.target.id == target.id), None)
        if loop is None or not isinstance(loop.iter, ast.Call) or not isinstance(loop.iter.func, ast.Attribute):
            return None
        if loop.iter.func.attr != "parameters" or not _mentions_grad(node.value, target.id) or _used_later(loop, node, target.id):
            return None
        return self.diagnosis(
            f"`{view.short(node)}` points the name `{target.id}` at a new tensor; the parameter stays as it is",
            [view.culprit(Role.CREATE, node, "rebinds the name only", frame)],
            "Assigning to the loop variable does not touch the parameter it stood for, so this update changes nothing and nothing raises.",
            Confidence.CERTAIN,
            fixes=[advice(f"`with torch.no_grad(): {target.id} -= ...`, or `optimizer.step()`")],
        )

    def _attribute(self, node: ast.Assign, target: ast.Attribute, frame: Frame, view: View):
        if frame.cls is None or getattr(frame.node, "name", "") in ("__init__", "reset_parameters", "_load_from_state_dict"):
            return None
        known: Value | None = frame.cls.attributes.get(target.attr)
        if known is None or known.op != "Parameter" or not isinstance(node.value, (ast.BinOp, ast.Call)):
            return None
        if _makes_parameter(node.value, view):
            return self._made_anew(node, target, frame, view)
        if isinstance(node.value, ast.Call) and view.dotted(node.value.func).startswith("torch."):
            made = view.dotted(node.value.func).rpartition(".")
            if made[2][:1].isupper() or made[0] not in ("torch", "torch.nn.functional", "torch.special"):
                return None
            if not any(ast.unparse(a) == f"self.{target.attr}" for a in node.value.args):
                return None
        elif isinstance(node.value, ast.Call):
            if not (isinstance(node.value.func, ast.Attribute) and ast.unparse(node.value.func.value) == f"self.{target.attr}"):
                return None
            if node.value.func.attr not in ("clone", "detach", "to", "float", "half", "mul", "add", "sub", "div", "clamp", "contiguous"):
                return None
        elif f"self.{target.attr}" not in ast.unparse(node.value):
            return None
        if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute) and node.value.func.attr in CONVERTING:
            return self._converted(node, target, frame, view)
        return self.diagnosis(
            f"`{view.short(node)}` replaces the parameter `self.{target.attr}` by a plain tensor",
            [view.culprit(Role.CREATE, node, "not a Parameter", frame)],
            f"`self.{target.attr}` is registered as a parameter, and the module accepts only Parameters (or None) for it: this line "
            "raises \"cannot assign ... as parameter\".",
            Confidence.CERTAIN,
            fixes=[advice(f"`with torch.no_grad(): self.{target.attr}.copy_(...)`, or keep the result under another name")],
        )

    def _made_anew(self, node: ast.Assign, target: ast.Attribute, frame: Frame, view: View):
        """`self.p = nn.Parameter(self.p.clamp(0, 1))` in every forward; under a condition it may be done once, before there is an optimizer."""
        trained = not any(k.arg == "requires_grad" for k in node.value.keywords) and not frame.no_grad
        if getattr(frame.node, "name", "") != "forward" or node not in frame.node.body or not trained or f"self.{target.attr}" not in ast.unparse(node.value):
            return None
        return self.diagnosis(
            f"`{view.short(node)}` makes a new parameter in every forward; the optimizer keeps the old one",
            [view.culprit(Role.CREATE, node, "a new Parameter in every call", frame)],
            f"An optimizer holds the parameters it was given. The gradient goes to the new `self.{target.attr}`, which no optimizer knows, and a step "
            "changes the old one, which is not used any more: it is never trained, and nothing raises.",
            Confidence.CERTAIN,
            fixes=[advice(f"keep the result under another name (`{target.attr} = ...`), or `with torch.no_grad(): self.{target.attr}.copy_(...)` after the step")],
        )

    def _converted(self, node: ast.Assign, target: ast.Attribute, frame: Frame, view: View):
        """`self.p = self.p.to(device)`: the parameter itself where nothing has to change, a plain tensor otherwise."""
        return self.diagnosis(
            f"`{view.short(node)}` puts a plain tensor in the parameter's place as soon as there is something to convert",
            [view.culprit(Role.CREATE, node, "the Parameter itself, or no Parameter", frame)],
            f"Where `self.{target.attr}` already is what is asked for, this line does nothing. Otherwise the result is a plain tensor, the module "
            "accepts only Parameters (or None) under this name, and the line raises \"cannot assign ... as parameter\".",
            Confidence.CERTAIN,
            fixes=[advice(f"drop the line: `model.to(...)` converts parameters; or keep the result under another name, as `{target.attr} = self.{target.attr}...`")],
        )


def _makes_parameter(node: ast.expr, view: View) -> bool:
    return isinstance(node, ast.Call) and view.dotted(node.func) in ("torch.nn.Parameter", "torch.nn.parameter.Parameter")


def _mentions_grad(node: ast.expr, name: str) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "grad" and ast.unparse(n.value) == name for n in ast.walk(node))


def _used_later(loop: ast.For, node: ast.stmt, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) and n.lineno > node.end_lineno
               for s in loop.body for n in ast.walk(s))  # fmt: skip

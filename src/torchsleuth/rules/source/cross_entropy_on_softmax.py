"""Cross-entropy on probabilities instead of logits."""

from __future__ import annotations

import ast

from torchsleuth.linter.events import Call, ClassInfo
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.linter.values import Value
from torchsleuth.model import Confidence, Role

# loss -> what its input must not be, what it does itself
LOSSES = {
    "cross_entropy": ("softmax", "applies log-softmax itself"),
    "CrossEntropyLoss": ("softmax", "applies log-softmax itself"),
    "binary_cross_entropy_with_logits": ("sigmoid", "applies the sigmoid itself"),
    "BCEWithLogitsLoss": ("sigmoid", "applies the sigmoid itself"),
    "nll_loss": ("softmax", "expects log-probabilities"),
    "NLLLoss": ("softmax", "expects log-probabilities"),
    "kl_div": ("softmax", "expects log-probabilities as its input"),
    "KLDivLoss": ("softmax", "expects log-probabilities as its input"),
}


class CrossEntropyOnSoftmax(LintRule):
    """A loss that expects logits (or log-probabilities) is given probabilities.

    What happened
    -------------
    `cross_entropy` or `CrossEntropyLoss` is given the output of a softmax (or of a model of the same file that ends with
    one), `BCEWithLogitsLoss` that of a sigmoid, or `nll_loss` or `kl_div` (as its first argument) probabilities without the logarithm.

    Why
    ---
    `cross_entropy` applies log-softmax itself. Applied twice, the probabilities (all between 0 and 1) are taken for
    logits: the loss cannot fall below a bound (0.55 for three classes, reached by a perfect prediction), the
    gradient is small, and training is slow. Nothing raises. `nll_loss` on probabilities even rewards the wrong
    direction's scale: it returns minus a probability. `kl_div` on two equal distributions is then not 0.

    Example
    -------
    This runs and prints 0.55: the loss of a prediction that is certain and right.

        import torch
        import torch.nn.functional as F
        probabilities = torch.softmax(torch.tensor([[100.0, 0.0, 0.0]]), dim=-1)
        loss = F.cross_entropy(probabilities, torch.tensor([0]))
        print(round(loss.item(), 2))

    Fix
    ---
    Give the loss the logits; apply softmax only to what is reported.

    Common false explanations
    -------------------------
    "The outputs must be probabilities for a cross-entropy." In torch they must be logits.
    """

    name = "cross-entropy-on-softmax"
    calls = frozenset({"cross_entropy", "nll_loss", "kl_div", "KLDivLoss", "kl_loss", "kl", "kld", "binary_cross_entropy_with_logits", "criterion", "loss_fn", "loss_func", "CrossEntropyLoss",
                       "BCEWithLogitsLoss", "NLLLoss", "loss_function", "crit", "ce", "loss", "ce_loss", "bce", "objective", ""})  # fmt: skip

    def on_call(self, call: Call, view: View) -> Found:
        if call.module is not None:
            name = call.module.path.rsplit(".", 1)[-1] if call.module.path.startswith("torch.nn.") else ""
        elif call.path.startswith("torch.nn.functional."):
            name = call.name
        else:
            return None
        if name not in LOSSES or not call.args:
            return None
        unwanted, does = LOSSES[name]
        given = _made_by(call.args[0], unwanted)
        node = given.node if given is not None else _last_of_model(call, unwanted, view)
        if given is None and node is None:
            return None
        node = node if node is not None else call.node.args[0]
        culprits = [view.culprit(Role.OPERAND, node, f"{unwanted} already", call.frame)]
        if node is not call.node:
            culprits.append(view.culprit(Role.CALL, call.node, does, call.frame))
        return self.diagnosis(
            f"`{view.short(call.node)}` is given the output of a {unwanted}; it {does}",
            culprits,
            f"`{name}` {does}. On the output of a {unwanted} the loss is wrong, without an error: {_wrong_how(name)}.",
            Confidence.CERTAIN,
            fixes=[advice(_put_right(name, unwanted, does))],
        )


def _wrong_how(name: str) -> str:
    divergence = name in ("kl_div", "KLDivLoss")
    return "it is not 0 where the two distributions are equal" if divergence else "it cannot reach its minimum and its gradient is small"


def _put_right(name: str, unwanted: str, does: str) -> str:
    if "expects" not in does:
        return f"give it the values before the {unwanted}"
    return "use `log_softmax` for the first argument; the second one stays as it is" if name in ("kl_div", "KLDivLoss") else "use `log_softmax`, or `cross_entropy` on the logits"


def _last_of_model(call: Call, op: str, view: View) -> ast.expr | None:
    """The softmax that the forward of a model of this file ends with, where the loss is given that model's output."""
    given = _followed(call.node.args[0], call.frame.node, call.node.lineno)
    if not isinstance(given, ast.Call):
        return None
    if isinstance(given.func, ast.Name):
        model = call.frame.env.get(given.func.id) or view.interpreter.globals.get(given.func.id)
    else:
        own = isinstance(given.func, ast.Attribute) and ast.unparse(given.func.value) == "self"
        model = call.frame.attributes.get(given.func.attr) if own else None
    info = view.interpreter.classes.get(model.path) if model is not None and model.kind == "module" else None
    forward = info.methods.get("forward") if info is not None else None
    if forward is None or any(isinstance(n, ast.Attribute) and n.attr == "training" for n in ast.walk(forward)):
        return None
    returned = [n.value for n in ast.walk(forward) if isinstance(n, ast.Return)]
    last = _followed(returned[0], forward, returned[0].lineno + 1) if len(returned) == 1 and returned[0] is not None else None
    return last if isinstance(last, ast.Call) and _computes(last, op, info, view) else None


def _followed(node: ast.expr, function: ast.AST, before: int) -> ast.expr | None:
    """What a name was bound to, where it was bound in one way only, or last outside of every branch and loop."""
    if not isinstance(node, ast.Name):
        return node
    bound = [n for n in ast.walk(function) if isinstance(n, ast.Assign) and n.lineno < before and any(ast.unparse(t) == node.id for t in n.targets)]
    last = max(bound, key=lambda n: n.lineno, default=None)
    called = {ast.unparse(n.value.func) if isinstance(n.value, ast.Call) else "" for n in bound}  # in training and in validation, say
    plain = last is not None and (len(called) == 1 or last in getattr(function, "body", ()))
    return last.value if plain else None


def _computes(node: ast.Call, op: str, info: ClassInfo, view: View) -> bool:
    if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "self":
        layer = info.attributes.get(node.func.attr)
        if layer is not None and layer.kind == "module" and layer.path.endswith(".Sequential") and layer.items:
            layer = layer.items[-1]
        return layer is not None and layer.kind == "module" and layer.path == f"torch.nn.{op.capitalize()}"
    if view.dotted(node.func) in (f"torch.{op}", f"torch.nn.functional.{op}"):
        return True
    return isinstance(node.func, ast.Attribute) and node.func.attr == op and not view.dotted(node.func).startswith("torch.")


def _made_by(value: Value, op: str) -> Value | None:
    for _ in range(5):
        if not value.is_tensor:
            return None
        if value.op == op:
            return value
        if value.op in ("view", "reshape", "transpose", "permute", "squeeze", "unsqueeze", "select", "getitem", "float", "contiguous", "flatten", "to") and value.inputs:
            value = value.inputs[0]
            continue
        return None
    return None



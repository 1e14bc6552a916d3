"""Cross-entropy on probabilities instead of logits."""

from __future__ import annotations


from torchsleuth.linter.events import Call
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
}


class CrossEntropyOnSoftmax(LintRule):
    """A loss that expects logits (or log-probabilities) is given probabilities.

    What happened
    -------------
    `cross_entropy` or `CrossEntropyLoss` is given the output of a softmax, `BCEWithLogitsLoss` that of a sigmoid, or
    `nll_loss` probabilities without the logarithm.

    Why
    ---
    `cross_entropy` applies log-softmax itself. Applied twice, the probabilities (all between 0 and 1) are taken for
    logits: the loss cannot fall below a bound (0.55 for three classes, reached by a perfect prediction), the
    gradient is small, and training is slow. Nothing raises. `nll_loss` on probabilities even rewards the wrong
    direction's scale: it returns minus a probability.

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
    calls = frozenset({"cross_entropy", "nll_loss", "binary_cross_entropy_with_logits", "criterion", "loss_fn", "loss_func", "CrossEntropyLoss",
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
        if given is None:
            return None
        node = given.node if given.node is not None else call.node.args[0]
        culprits = [view.culprit(Role.OPERAND, node, f"{unwanted} already", call.frame)]
        if node is not call.node:
            culprits.append(view.culprit(Role.CALL, call.node, does, call.frame))
        return self.diagnosis(
            f"`{view.short(call.node)}` is given the output of a {unwanted}; it {does}",
            culprits,
            f"`{name}` {does}. On the output of a {unwanted} the loss is wrong: it cannot reach its minimum and its gradient is small, "
            "without an error.",
            Confidence.CERTAIN,
            fixes=[advice(f"give it the values before the {unwanted}" if "expects" not in does else "use `log_softmax`, or `cross_entropy` on the logits")],
        )


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



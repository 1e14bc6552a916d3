"""A loss computed from an argmax, a comparison or integers: no gradient flows through it."""

from __future__ import annotations

import ast

from torchsleuth.linter.definitions import Paths
from torchsleuth.linter.events import Call
from torchsleuth.linter.gradients import cuts_behind, is_cut_off
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.linter.values import BREAKS
from torchsleuth.model import Confidence, Role

DISCRETE = {"index", "comparison", "integer"}


class NondifferentiableLoss(LintRule):
    """The loss is computed from an `argmax`, a comparison or integers, through which no gradient flows.

    What happened
    -------------
    `backward` is called on a loss that depends on the model only through `argmax`, `argsort`, a comparison
    (`==`, `>`) or a conversion to integers.

    Why
    ---
    These are step functions: their derivative is zero wherever it exists, and torch gives their results no
    history at all. `backward` raises "element 0 of tensors does not require grad", or, if another term keeps the
    graph alive, this part is silently not trained.

    Example
    -------
    This raises at backward: the accuracy has no gradient.

        import torch
        logits = torch.randn(4, 3, requires_grad=True)
        target = torch.tensor([0, 1, 2, 0])
        error = (logits.argmax(dim=1) != target).float().mean()
        error.backward()

    Fix
    ---
    Train on a differentiable stand-in (cross-entropy instead of accuracy, a sigmoid or a hinge instead of a
    threshold, softmax weights instead of an index) and keep the discrete value for reporting.

    Common false explanations
    -------------------------
    "Call requires_grad_() on it." That makes an unconnected leaf. "Detach the indices." They have no history to
    detach.
    """

    name = "nondifferentiable-loss"
    calls = frozenset({"backward"})

    def on_call(self, call: Call, view: View) -> Found:
        loss = call.receiver
        if loss is None or not loss.is_tensor or loss.grad is None:
            by_text = self._by_text(call, view)
            if by_text is not None:
                return by_text
        if loss is None or not loss.is_tensor or call.frame.no_grad or not is_cut_off(loss):
            return None
        cuts = cuts_behind((loss.extra or {}).get("prediction", loss) if loss.grad is not False else loss)
        if not cuts or BREAKS[cuts[-1].op] not in DISCRETE:
            return None
        cut = cuts[-1]
        if cut.node is None:
            return None
        return self._found(cut.node, cut.op, loss.grad is False, call, view)

    def _by_text(self, call: Call, view: View):
        """Nothing is known of the loss, but the statements above show that all of it goes through an argmax or a comparison."""
        owner = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
        if not isinstance(owner, ast.Name) or call.frame.no_grad or call.frame.inlined or "loss" not in owner.id.lower():
            return None
        paths = Paths(call.frame.node, view.dotted)
        if paths.may_carry(owner, call.node.lineno) or not paths.cuts:
            return None
        cut = paths.cuts[0]
        op = "eq" if isinstance(cut, ast.Compare) else cut.func.attr
        return self._found(cut, op, False, call, view)

    def _found(self, node: ast.AST, op: str, is_certain: bool, call: Call, view: View):
        word = {"index": "returns integers", "comparison": "is a comparison", "integer": "converts to integers"}[BREAKS[op]]
        return self.diagnosis(
            f"no gradient flows through `{view.short(node, 60)}`",
            [
                view.culprit(Role.LOST_GRAD, node, word, call.frame),
                view.culprit(Role.CALL, call.node, "backward starts here", call.frame),
            ],
            f"`{view.short(node, 60)}` {word}: a step function has no gradient, and its result has no history. Nothing of the "
            'loss reaches the model, and `backward` raises "element 0 of tensors does not require grad".',
            Confidence.CERTAIN if is_certain else Confidence.LIKELY,
            fixes=[advice("train on a differentiable stand-in (cross-entropy, a sigmoid, softmax weights) and keep this for reporting")],
        )

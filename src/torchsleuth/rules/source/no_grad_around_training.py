"""`backward` on a loss that was computed under `no_grad`."""

from __future__ import annotations

from torchsleuth.linter.events import Call
from torchsleuth.linter.gradients import cuts_behind
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.linter.values import CONSTRUCTORS
from torchsleuth.model import Confidence, Role


class NoGradAroundTraining(LintRule):
    """The loss is computed under `torch.no_grad()` and then asked for its gradient.

    What happened
    -------------
    `backward()` is called inside `torch.no_grad()` (or `inference_mode`) on a loss computed there.

    Why
    ---
    Under `no_grad` operations record no history, so the loss has none, and `backward` raises "element 0 of tensors
    does not require grad and does not have a grad_fn".

    Example
    -------
    This raises at backward.

        import torch
        w = torch.ones(3, requires_grad=True)
        with torch.no_grad():
            loss = (w * 2).sum()
            loss.backward()

    Fix
    ---
    Compute the loss outside `no_grad`. Only the *update* of parameters belongs inside it.

    Common false explanations
    -------------------------
    "The parameters were frozen." They still require gradients; only the recording was off.
    """

    name = "no-grad-around-training"
    calls = frozenset({"backward"})

    def on_call(self, call: Call, view: View) -> Found:
        loss = call.receiver
        if not call.frame.no_grad or loss is None or not loss.is_tensor or loss.grad is not False:
            return None
        if not loss.inputs or loss.op in CONSTRUCTORS or cuts_behind(loss)[:1] == [loss]:
            return None
        return self.diagnosis(
            f"`{view.short(call.node)}` under `no_grad`: the loss was computed without a history",
            [view.culprit(Role.LOST_GRAD, call.node, "nothing was recorded here", call.frame)],
            "Under `no_grad` operations record nothing, so this loss has no history, and `backward` raises "
            '"element 0 of tensors does not require grad and does not have a grad_fn".',
            Confidence.CERTAIN,
            fixes=[advice("compute the loss outside `no_grad`; only the parameter update belongs inside")],
        )

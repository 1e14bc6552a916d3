"""`backward` on a loss that was computed under `no_grad`."""

from __future__ import annotations

from torchsleuth.linter.events import Call
from torchsleuth.linter.gradients import has_unknown_origin, unrecorded_behind
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.model import Confidence, Role


class NoGradAroundTraining(LintRule):
    """The loss is computed under `torch.no_grad()` and then asked for its gradient.

    What happened
    -------------
    `backward()` is called on a loss, and the loss, or the model's output it comes from, was computed under
    `torch.no_grad()` (or `inference_mode`), as a block or as a decorator.

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
        if loss is None or not loss.is_tensor or loss.grad is not False or has_unknown_origin(loss):
            return None
        if call.frame.inlined and call.frame.arms:
            return None  # under a condition that this call of the function may not meet
        made = unrecorded_behind(loss)
        if made is None:
            return None
        silencer = made.unrecorded
        return self.diagnosis(
            f"`{view.short(call.node)}` needs a history, and `{view.short(silencer)}` records none",
            [
                view.culprit(Role.LOST_GRAD, silencer, "nothing is recorded from here on", call.frame),
                view.culprit(Role.CALL, made.node, "computed without a history", call.frame),
                view.culprit(Role.CALL, call.node, "backward starts here", call.frame),
            ],
            f"Under `{view.short(silencer)}` operations record nothing, so `{view.short(made.node, 40)}` has no history, and `backward` raises "
            '"element 0 of tensors does not require grad and does not have a grad_fn".',
            Confidence.CERTAIN,
            fixes=[advice("compute the loss outside; only the parameter update belongs inside")],
        )

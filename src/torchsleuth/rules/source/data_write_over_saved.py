"""A write through `.data` into a tensor that an operation kept for backward: wrong gradients, no error."""

from __future__ import annotations

from torchsleuth.linter.events import Hazard
from torchsleuth.linter.lintrule import Found, LintRule, View, advice
from torchsleuth.model import Confidence, Role


class DataWriteOverSaved(LintRule):
    """A write through `.data` changes a value that backward needs, and nothing will say so.

    What happened
    -------------
    `x.data` was written to after an operation kept `x` for backward. The gradient is computed from the new
    value and is wrong; nothing raises.

    Why
    ---
    `.data` shares the memory of `x` but not its version counter, so the check that protects kept tensors does
    not see the write. `x.detach()` shares the counter and would raise instead.

    Example
    -------
    This runs and prints the wrong gradient 200.0; the right one is 4.0.

        import torch
        x = torch.tensor(2.0, requires_grad=True)
        y = x ** 2
        x.data.fill_(100.0)
        y.backward()
        print(x.grad.item())

    Fix
    ---
    Write after backward, or write into a copy. Where a parameter has to be changed, do it under
    `torch.no_grad()` once backward is done: then a mistake raises.

    Common false explanations
    -------------------------
    "`.data` is the way to change a tensor without autograd noticing." That autograd does not notice is the
    problem: it still uses the memory.
    """

    name = "data-write-over-saved"

    def on_hazard(self, hazard: Hazard, view: View) -> Found:
        write, save = hazard.write, hazard.save
        if write.how != "data" or not (hazard.certain and not write.target.assumed or hazard.trained):
            return None
        operation = view.short(save.node, 50)
        return self.diagnosis(
            f"the write through `.data` changes what `{operation}` kept for backward, unseen",
            [
                view.culprit(Role.MUTATE, write.node, "not seen by autograd", write.frame),
                view.culprit(Role.SAVE, save.node, "keeps this value for its gradient", write.frame),
            ],
            f"`{operation}` will compute its gradient from the new value. `.data` does not raise the version that backward "
            "checks, so the gradient is wrong without an error.",
            Confidence.CERTAIN if hazard.certain else Confidence.LIKELY,
            fixes=[advice("write after backward, or into a `clone()`; `torch.no_grad()` instead of `.data` makes the mistake raise")],
        )

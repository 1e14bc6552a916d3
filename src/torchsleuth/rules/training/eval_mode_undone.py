"""A part that is taken out of eval mode again by `train()` of the whole."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, listed, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class EvalModeUndone(AuditRule):
    """A frozen part of the model, or a BatchNorm layer, was put in eval mode, and `train()` of the whole model puts it back.

    What happened
    -------------
    The program called `eval()` on a part of the model whose parameters are frozen, or on a BatchNorm layer. When the step came, that part was in train
    mode again, because `train()` had been called on the model that it belongs to.

    Why
    ---
    `train()` and `eval()` set the mode of a module and of everything in it. In train mode its BatchNorm layers
    normalise with the statistics of the batch, and go on changing their running values; its dropout drops.

    Example
    -------
    This prints True: the part is in train mode again:

        import torch

        part = torch.nn.BatchNorm1d(3)
        model = torch.nn.Sequential(part, torch.nn.Linear(3, 1))
        part.eval()
        model.train()
        print(part.training)

    Fix
    ---
    Call `eval()` on the part after each `model.train()`; or write a `train` method for the model that does both.

    Common false explanations
    -------------------------
    "Without gradients nothing in it changes": the running values of BatchNorm do, in every forward pass in train mode.
    """

    name = "eval-mode-undone"
    order = 41

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for fact in observation.modes:
            if fact.kind != "eval-undone" or fact.site is None:
                continue
            culprits = [culprit(fact.site, Role.MUTATE, f"puts `{fact.operation}` in train mode with the rest of the model")]
            if fact.changed is not None:
                culprits.append(culprit(fact.changed, Role.CREATE, "puts it in eval mode, before that"))
            behave = "behaves" if len(fact.modules) == 1 else "behave"
            yield Diagnosis(
                self.name, f"`train()` takes `{fact.operation}` out of eval mode again", Confidence.LIKELY, tuple(culprits),
                observed(f"in the first step `{fact.operation}` is in train mode, although `eval()` was the last that was called on it; {listed(fact.modules)} {behave} differently in training"),
                "`train()` sets the mode of a module and of everything in it.",
                (advice(f"Call `eval()` on `{fact.operation}` after `train()`, each time; or override `train` in the model so that it does both."),),
            )  # fmt: skip

"""A batch that cannot be learned by heart."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, number, recomputed
from torchsleuth.model import Confidence, Diagnosis, Role


class CannotOverfit(AuditRule):
    """Training on this one batch alone does not bring its loss down.

    What happened
    -------------
    Asked to (`overfit=True`), torchsleuth trained a copy of the parameters on this one batch, with Adam
    at three learning rates. The best of them hardly lowered the loss.

    Why
    ---
    A working model learns a handful of samples by heart. If it cannot, something between the inputs
    and the loss does not connect: labels that do not belong to the inputs, a gradient that is cut, a
    loss that cannot fall.

    Example
    -------
    Equal inputs with different labels cannot be told apart. This prints a loss near log(2) = 0.69 that
    no training lowers:

        import torch

        x, y = torch.ones(2, 3), torch.tensor([0, 1])
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(100):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(loss.item())

    Fix
    ---
    Look at the other findings first; then check that labels and inputs belong together.

    Common false explanations
    -------------------------
    "It needs more data": learning one batch by heart needs none.
    """

    name = "cannot-overfit"
    order = 65

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        result = observation.overfit
        if result is None or result.last < 0.7 * result.first or result.first < 1e-3:
            return
        culprits = (culprit(observation.call, Role.CALL),) if observation.call is not None else ()
        yield Diagnosis(
            self.name, f"{result.steps} steps on this one batch lowered its loss only from {number(result.first)} to {number(result.last)}",
            Confidence.POSSIBLE, culprits,
            recomputed(f"the best of three learning rates brought the loss from {number(result.first)} to {number(result.last)} in {result.steps} steps"),
            "A model that can learn at all learns a single batch by heart.",
            (advice("Check that labels and inputs belong together, and that the gradient reaches the parameters."),),
        )  # fmt: skip

"""A table of the model's that is laid along the batch."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, module_words, number, recomputed
from torchsleuth.model import Confidence, Diagnosis, Role


class BatchPosition(AuditRule):
    """What a sample gives depends on its place in the batch.

    What happened
    -------------
    torchsleuth exchanged two samples of the batch. Their outputs were not just exchanged: they became others. The
    expression named combines the samples with something of the model's own (a table of position encodings, say) whose
    first axis lies along the batch.

    Why
    ---
    `x + self.pe[:x.size(0)]` is right for data whose first axis is time. With the batch first it gives sample i the
    encoding of position i, at every position: nothing is said about order, and the same sentence gives another
    result in another place.

    Example
    -------
    Both samples are equal, their results are not. This prints False:

        import torch

        positions = torch.arange(10.0).view(10, 1, 1)
        x = torch.ones(2, 3, 4)
        y = x + positions[: x.size(0)]
        print(torch.equal(y[0], y[1]))

    Fix
    ---
    Lay the table along the axis of positions: `x + self.pe[:x.size(1)].transpose(0, 1)` for a table of
    (positions, 1, width), or `x + self.pe[:x.size(1)]` for one of (positions, width).

    Common false explanations
    -------------------------
    "The shapes fit, so the encoding is added": it is, to the wrong axis.
    """

    name = "batch-position"
    order = 12

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for move in observation.moves:
            if move.kind != "order" or move.site is None:
                continue
            yield Diagnosis(
                self.name, "what a sample gives depends on its place in the batch", Confidence.CERTAIN,
                (culprit(move.site, Role.OPERAND, f"{move.intent}: the first axis is the batch"),),
                recomputed(
                    f"{move.changed} moved {move.where} by {number(move.distance)}; rounding explains {number(move.rounding)}",
                    f"`{move.operation}` combines the samples with a tensor of the model's own along the batch ({move.intent}) {module_words(move.site)}".rstrip(),
                ),
                "Sample i is given row i of the table, at every position.",
                (advice("Lay the table along the axis of positions: slice it by `x.size(1)`, and put the axis of size 1 first."),),
            )  # fmt: skip

"""Indexed writes that hit the same place more than once."""

from __future__ import annotations

from collections.abc import Iterator

from torchsleuth.auditor.observation import Observation
from torchsleuth.auditor.verdicts import AuditRule, advice, culprit, observed
from torchsleuth.model import Confidence, Diagnosis, Role


class LostDuplicates(AuditRule):
    """`x[idx] += v` with an index that occurs twice adds only once.

    What happened
    -------------
    Values were written by an index that holds some positions more than once. Only one of the writes to
    each such position is left.

    Why
    ---
    `x[idx] += v` reads `x[idx]`, adds, and writes the result back: for a position that occurs k times,
    k results are computed from the old value and one of them is kept. Counts, histograms and
    scatter-style sums come out too small, and which value is kept is not defined.

    Example
    -------
    Position 1 occurs three times. This prints [0.0, 1.0] and then the right [0.0, 3.0]:

        import torch

        idx = torch.tensor([1, 1, 1])
        count = torch.zeros(2)
        count[idx] += 1
        print(count.tolist())
        print(torch.zeros(2).index_add(0, idx, torch.ones(3)).tolist())

    Fix
    ---
    `x.index_add_(0, idx, v)`, `x.scatter_add_(...)`, `x.index_put_((idx,), v, accumulate=True)`, or
    `torch.bincount` for counts.

    Common false explanations
    -------------------------
    "`+=` is done once per index": it is done once per *distinct* position.
    """

    name = "lost-duplicates"
    order = 14

    def judge(self, observation: Observation) -> Iterator[Diagnosis]:
        for one in observation.duplicates:
            lost = one.indices - one.distinct
            yield Diagnosis(
                self.name,
                f"{lost} of {one.indices} {'additions' if one.accumulating else 'writes'} are lost: the index holds positions more than once",
                Confidence.CERTAIN if one.accumulating else Confidence.LIKELY,
                (culprit(one.site, Role.MUTATE, f"position {one.example} occurs {one.times} times"),),
                observed(
                    f"the index has {one.indices} entries and {one.distinct} distinct positions; {one.example} occurs {one.times} times",
                    f"the tensor written to has shape {list(one.target)}",
                ),
                "Each position is written once with a value computed from its old content; the other values for it are lost."
                if one.accumulating else "Different values are written to the same position; one of them is kept, and which one is not defined.",
                (advice("Accumulate: `index_add_`, `scatter_add_`, or `index_put_(..., accumulate=True)`."),),
            )  # fmt: skip
